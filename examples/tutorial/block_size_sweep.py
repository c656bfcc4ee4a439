"""Which block size is best? A sweep from 32 to 1024 threads, with a plot.

The plot goes into a folder for all programs, or where `--picture PATH` says.

Prints::

      32 threads in each of 125 blocks: right
      64 threads in each of 63 blocks: right
     128 threads in each of 32 blocks: right
     256 threads in each of 16 blocks: right
     512 threads in each of 8 blocks: right
    1024 threads in each of 4 blocks: right
    no GPU here: nothing to time, and nothing to plot
"""

import numpy as np
from matplotlib.figure import Figure
from tutorial_tools import picture_path

import cudakit as ck
from cudakit.demo import median_ms

heavy = ck.Kernel("""
template <typename T>
__global__ void heavy(const T* __restrict__ x, T* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrt(x[i]) * x[i] + T(1);
}
""")

stream = ck.stream()
size = (1 << (26 if ck.has_gpu() else 12)) - 100  # no multiple of a block
given = np.arange(size, dtype=np.float32)
expected = given.astype(float) ** 1.5 + 1
blocks = (32, 64, 128, 256, 512, 1024)
rates = []
x = ck.to_device(given, stream)
for block in blocks:
    grid = -(-size // block)
    y = ck.to_device(np.zeros_like(given), stream)
    launch = heavy.plan(stream, ck.config(grid, block), x, y, size)
    launch()
    np.testing.assert_allclose(ck.to_host(y, stream), expected, rtol=1e-6)
    rate = ""
    if ck.has_gpu():
        rates.append(2 * x.nbytes / median_ms(stream, launch) / 1e6)
        rate = f", {rates[-1]:.0f} GB/s"
    print(f"{block:4} threads in each of {grid} blocks: right{rate}")

if ck.has_gpu():
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
    print("no GPU here: nothing to time, and nothing to plot")
