"""Add two vectors: one template for three dtypes.

The template parameter T is deduced from the arrays, as C++ deduces it, and the kernel is compiled once for each dtype.
Look at the loop in the kernel: a thread goes on to further elements, so any number of blocks is right. The ready-made
op is `ck.ops.add`.

Prints::

    float32: largest difference from NumPy 0.0
    float64: largest difference from NumPy 0.0
    int16: largest difference from NumPy 0
"""

import numpy as np

import cudakit as ck

vector_add = ck.Kernel("""
template <typename T>
__global__ void vector_add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        c[i] = a[i] + b[i];
}
""")

stream = ck.stream()
rng = np.random.default_rng(7)
covered, one_block = ck.cover(50_000), ck.config(1, 1024)  # one block: its threads go on to further elements
for dtype, threads in ((np.float32, covered), (np.float64, one_block), (np.int16, covered)):
    a, b = (rng.integers(-100, 100, 50_000).astype(dtype) for _ in range(2))
    on_device = ck.to_device(a, stream), ck.to_device(b, stream)
    with ck.using(stream) as xp:
        c = xp.empty(a.shape, dtype)
        vector_add(stream, threads, *on_device, c, c.size)
    difference = np.abs(ck.to_host(c, stream) - (a + b)).max()
    assert difference == 0
    print(f"{np.dtype(dtype)}: largest difference from NumPy {difference}")
