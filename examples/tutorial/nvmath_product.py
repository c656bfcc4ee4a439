"""A matrix product of nvmath-python between two kernels of cudakit, on one stream.

All three work on the same arrays, in order, and nothing waits. nvmath needs a GPU; without one NumPy computes the
product. Look at `stream.handle`, by which nvmath takes the stream. The ready-made op is `ck.ops.matmul`.

Prints::

    kernel, product by NumPy, kernel: ReLU(A B + bias) of 60 × 40 and 40 × 50
"""

import sys
from typing import Any

import numpy as np

import cudakit as ck

if ck.has_gpu():
    try:
        from nvmath.linalg.advanced import matmul
    except ImportError:
        print("nvmath is not installed: pip install nvmath-python[cu13]")
        sys.exit()

fill = ck.Kernel("""
__global__ void fill(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = i % 11 - 5;
}
""")
add_bias = ck.Kernel("""
__global__ void add_bias(float* x, const float* bias, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float sum = x[row * columns + column] + bias[column];
    x[row * columns + column] = sum > 0 ? sum : 0;
}
""")
stream = ck.stream()


def product(a: Any, b: Any) -> Any:
    """Return the matrix product of `a` and `b`."""
    return matmul(a, b, stream=int(stream.handle)) if ck.has_gpu() else a @ b


rows, inner, columns = 60, 40, 50
bias = np.arange(columns, dtype=np.float32) - 20
with ck.using(stream) as xp:
    a, b = xp.full((rows, inner), -9, dtype=xp.float32), xp.full((inner, columns), -9, dtype=xp.float32)
    for matrix in (a, b):
        fill(stream, ck.cover(matrix.size), matrix, matrix.size)
    c = product(a, b)
    add_bias(stream, ck.cover(c.shape, (16, 16)), c, ck.to_device(bias, stream), rows, columns)
    result = ck.to_host(c, stream)
left, right = (np.resize(np.arange(count) % 11 - 5, shape) for count, shape in ((2400, (60, 40)), (2000, (40, 50))))
np.testing.assert_array_equal(result, np.maximum(left @ right + bias, 0))  # integers: exact
print(f"kernel, product by {'nvmath' if ck.has_gpu() else 'NumPy'}, kernel: ReLU(A B + bias) of 60 × 40 and 40 × 50")
