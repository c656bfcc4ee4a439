"""Coalesced access: why neighbouring threads should touch neighbouring memory.

Memory moves in sectors of 32 bytes. A warp that reads 32 neighbouring floats needs 4 sectors. If its threads are 8 or
more floats apart, each thread needs a sector of its own, and uses 4 of its 32 bytes. Look at the sectors: they are
counted exactly on the emulator, and the rate that a GPU reaches falls as they grow.

Prints::

    stride  1:  4 sectors a request, 100.0 % of the bytes are used
    stride  2:  8 sectors a request,  50.0 % of the bytes are used
    stride  4: 16 sectors a request,  25.0 % of the bytes are used
    stride  8: 32 sectors a request,  12.5 % of the bytes are used
    stride 32: 32 sectors a request,  12.5 % of the bytes are used
"""

from typing import Any

import cudakit as ck
from cudakit.demo import median_ms

strided_copy = ck.Kernel("""
__global__ void strided_copy(const float* __restrict__ x, float* __restrict__ y, size_t n, size_t stride) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i * stride] = x[i * stride];
}
""")


def copy_with_stride(stream: Any, n: int, stride: int) -> ck.Plan:
    """Copy every `stride`-th of `n * stride` elements, check the result, and return the launch."""
    with ck.using(stream) as xp:
        x = xp.arange(n * stride, dtype=xp.float32)
        y = xp.zeros_like(x)
        launch = strided_copy.plan(stream, ck.cover(n), x, y, n, stride)
        launch()
        assert bool((y[::stride] == x[::stride]).all())
        assert int((y != 0).sum()) == n - 1  # no other element is written; the first is 0
    return launch


emulator = ck.emulator.stream()
for stride in (1, 2, 4, 8, 32):
    with ck.emulator.counters(emulator) as report:
        copy_with_stride(emulator, 992, stride)  # whole warps, but not a whole number of blocks
    sectors = report.global_.sectors / report.global_.requests
    used = report.global_.bytes / (32 * report.global_.sectors)
    line = f"stride {stride:2}: {sectors:2.0f} sectors a request, {used:6.1%} of the bytes are used".replace("%", " %")
    if ck.has_gpu():
        stream, n = ck.stream(), 1 << 22
        milliseconds = median_ms(stream, copy_with_stride(stream, n, stride))
        line += f"; {2 * 4 * n / milliseconds / 1e6:.0f} GB/s of them"
    print(line)
