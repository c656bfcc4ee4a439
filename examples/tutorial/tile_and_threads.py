"""A tile kernel in Python and a kernel of threads in C++, on the same stream and the same arrays.

cuda.tile compiles Python functions of tiles; it needs a GPU. Without one NumPy computes the first step. Look at the
order: the second kernel reads what the first one wrote, and nothing waits in between.

Prints::

    by NumPy: 64 rows of 256 numbers less their means; by threads: the largest of each row
"""

import sys
from typing import Any

import numpy as np

import cudakit as ck

if ck.has_gpu():
    try:
        import cuda.tile as ct
    except ImportError:
        print("cuda.tile is not installed: pip install cuda-tile 'cudakit[cu13,tile]'")
        sys.exit()

ROWS, COLUMNS = 64, 256
largest_of_rows = ck.Kernel("""
__global__ void largest_of_rows(const float* x, float* largest, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float value = x[row * columns];
    for (int i = 1; i < columns; ++i) value = max(value, x[row * columns + i]);
    largest[row] = value;
}
""")
stream = ck.stream()

if ck.has_gpu():
    import cupy

    @ct.kernel
    def subtract_mean(x: Any, y: Any) -> None:
        """Write x - mean(x), one block for each row."""
        row = ct.load(x, index=(ct.bid(0), 0), shape=(1, COLUMNS))
        ct.store(y, index=(ct.bid(0), 0), tile=row - ct.sum(row, axis=1, keepdims=True) / COLUMNS)

    def center(x: Any, y: Any) -> None:
        """Launch the tile kernel on CuPy's current stream, which `ck.using` sets to cudakit's."""
        ct.launch(cupy.cuda.get_current_stream(), (ROWS, 1, 1), subtract_mean, (x, y))
else:

    def center(x: Any, y: Any) -> None:
        """Write x - mean(x), as the tile kernel does."""
        y[...] = x - x.mean(axis=1, keepdims=True)


host_x = np.random.default_rng(5).integers(0, 1000, (ROWS, COLUMNS)).astype(np.float32)
host_x[[3, 4, 5], [0, 1, COLUMNS - 1]] = 5000  # the largest may be anywhere
with ck.using(stream) as xp:
    x = ck.to_device(host_x, stream)
    y, largest = xp.zeros_like(x), xp.full(ROWS, -1, dtype=xp.float32)
    center(x, y)
    largest_of_rows(stream, ck.cover(ROWS, 48), y, largest, ROWS, COLUMNS)
    centered, host_largest = ck.to_host(y, stream), ck.to_host(largest, stream)
np.testing.assert_allclose(centered, host_x - host_x.mean(axis=1, keepdims=True), atol=1e-3)
np.testing.assert_array_equal(host_largest, centered.max(axis=1))
library = "cuda.tile" if ck.has_gpu() else "NumPy"
print(f"by {library}: {ROWS} rows of {COLUMNS} numbers less their means; by threads: the largest of each row")
