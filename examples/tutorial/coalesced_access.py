"""Neighbouring threads should touch neighbouring memory: a copy with a stride between them, timed.

A warp reads memory in sectors of 32 bytes. With a stride of 8 floats each thread needs a sector of its own, of which it
uses 4 bytes: an eighth of the rate.

Prints::

    stride  1: ...
    stride  2: ...
    stride  4: ...
    stride  8: ...
    stride 32: ...
"""

import cudakit as ck
from cudakit.demo import median_ms

strided_copy = ck.Kernel("""
__global__ void strided_copy(const float* __restrict__ x, float* __restrict__ y, size_t n, int stride) {
    // Thread i does element i * stride, wrapped round: all elements are copied once, in another order.
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        size_t turn = i * stride / n, element = i * stride % n + turn;
        y[element] = x[element];
    }
}
""")

stream = ck.stream()
size = 1 << (26 if ck.has_gpu() else 12)
with ck.using(stream) as xp:
    x = xp.arange(size, dtype=xp.float32)
    for stride in (1, 2, 4, 8, 32):
        for threads in (ck.config(1, 1024), ck.cover(size)):  # one block goes on until all is done
            y = xp.zeros_like(x)
            launch = strided_copy.plan(stream, threads, x, y, size, stride)
            launch()
            assert bool((x == y).all())
        if ck.has_gpu():
            print(f"stride {stride:2}: {2 * x.nbytes / median_ms(stream, launch) / 1e6:.0f} GB/s")
        else:
            print(f"stride {stride:2}: right; no GPU here to time it on")
