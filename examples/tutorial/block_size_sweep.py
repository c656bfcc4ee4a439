"""Block sizes from 32 to 1024 threads: which of them fill a multiprocessor, and how fast they are, with a plot.

A multiprocessor takes a limited number of blocks and of threads at once. Small blocks reach the limit of blocks first,
and leave part of the threads unused. Look at the size for which the emulator's counters say so; on a GPU look at the
times and the plot too. `ck.cover` chooses a size by itself. The plot goes where `--picture PATH` says.

Prints::

      32 threads in each of 125 blocks: right
         a multiprocessor of sm_90 takes 32 blocks at once, which with 32 threads each are 1,024 of 2,048 threads
      64 threads in each of 63 blocks: right
     128 threads in each of 32 blocks: right
     256 threads in each of 16 blocks: right
     512 threads in each of 8 blocks: right
    1024 threads in each of 4 blocks: right
    time: needs a GPU, as does the plot
"""

import numpy as np
from matplotlib.figure import Figure
from tutorial_tools import picture_path

import cudakit as ck
from cudakit.demo import median_ms

root_times_x = ck.Kernel("""
template <typename T>
__global__ void root_times_x(const T* __restrict__ x, T* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrt(x[i]) * x[i] + T(1);
}
""")
blocks = (32, 64, 128, 256, 512, 1024)

# 1. Right for each size, and what the counters of the emulator advise.
emulator = ck.emulator.stream()
host_x = np.arange(4000, dtype=np.float32)  # no multiple of a block
for block in blocks:
    grid = -(-host_x.size // block)
    host_y = np.zeros_like(host_x)
    with ck.emulator.counters(emulator) as report:
        root_times_x(emulator, ck.config(grid, block), host_x, host_y, host_x.size)
    np.testing.assert_allclose(host_y, host_x.astype(float) ** 1.5 + 1, rtol=1e-6)
    print(f"{block:4} threads in each of {grid} blocks: right")
    for advice in report.advice:
        print(f"     {advice.text}")

# 2. The time on a GPU.
if ck.has_gpu():
    stream, n = ck.stream(), (1 << 26) - 100
    rates = []
    with ck.using(stream) as xp:
        x, y = xp.arange(n, dtype=xp.float32), xp.zeros(n, dtype=xp.float32)
    for block in blocks:
        launch = root_times_x.plan(stream, ck.config(-(-n // block), block), x, y, n)
        rates.append(2 * x.nbytes / median_ms(stream, launch) / 1e6)
    print(f"time: {', '.join(f'{rate:.0f} GB/s' for rate in rates)}")
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(blocks, rates, "o-")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("threads in a block")
    axes.set_ylabel("GB/s")
    path = picture_path("block_size_sweep.png")
    figure.savefig(path)
    print(f"plot: {path}")
else:
    print("time: needs a GPU, as does the plot")
