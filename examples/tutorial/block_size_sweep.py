"""Which block size is best? A sweep from 32 to 1024 threads, with a plot.

Prints::

      32 threads: ...
    ...
    1024 threads: ...
    plot: ...block_size_sweep.png
"""

import statistics
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

import cudakit as ck

heavy = ck.Kernel("""
template <typename T>
__global__ void heavy(const T* __restrict__ x, T* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sqrt(x[i]) * x[i] + T(1);
}
""")

stream = ck.stream()
size = 1 << (26 if ck.has_gpu() else 12)
blocks = (32, 64, 128, 256, 512, 1024)
rates = []
with ck.using(stream) as xp:
    x = xp.arange(size, dtype=xp.float32)
    y = xp.empty_like(x)
    for block in blocks:
        launch = heavy.plan(stream, ck.config(-(-size // block), block), x, y, size)
        launch()
        times = []
        for _ in range(7):
            with ck.Timer(stream) as timer:
                launch()
            times.append(timer.elapsed_ms if ck.has_gpu() else timer.elapsed_steps)
        rates.append(2 * x.nbytes / statistics.median(times) / 1e6)
        unit = "GB/s" if ck.has_gpu() else "MB a step of the emulator"
        print(f"{block:4} threads: {rates[-1]:.4g} {unit}")

figure = Figure(figsize=(6, 4), layout="constrained")
axes = figure.subplots()
axes.plot(blocks, rates, "o-")
axes.set_xscale("log", base=2)
axes.set_xlabel("threads in a block")
axes.set_ylabel(unit)
path = Path(tempfile.gettempdir()) / "block_size_sweep.png"
figure.savefig(path)
print(f"plot: {path}")
