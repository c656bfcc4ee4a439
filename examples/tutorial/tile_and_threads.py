"""Tiles in Python and threads in C++: a kernel of cuda.tile and one of ours, on the same stream and the same arrays.

cuda.tile compiles Python functions of whole tiles; it needs a GPU. Without one NumPy stands in its place.

Prints::

    by NumPy: rows of 64 × 256 numbers less their means; by threads: the largest of each
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
    float most = x[row * columns];
    for (int i = 1; i < columns; ++i) most = max(most, x[row * columns + i]);
    largest[row] = most;
}
""")
stream = ck.stream()

if ck.has_gpu():
    import cupy

    @ct.kernel
    def less_mean(x: Any, y: Any) -> None:
        """Write x - mean(x), a row a block."""
        row = ct.load(x, index=(ct.bid(0), 0), shape=(1, COLUMNS))
        ct.store(y, index=(ct.bid(0), 0), tile=row - ct.sum(row, axis=1, keepdims=True) / COLUMNS)

    def center(x: Any, y: Any) -> None:
        """The tile kernel on CuPy's current stream, which is ours in a block of `ck.using`."""
        ct.launch(cupy.cuda.get_current_stream(), (ROWS, 1, 1), less_mean, (x, y))
else:

    def center(x: Any, y: Any) -> None:
        """What the tile kernel does."""
        y[...] = x - x.mean(axis=1, keepdims=True)


given = np.random.default_rng(5).integers(0, 1000, (ROWS, COLUMNS)).astype(np.float32)
given[[3, 4, 5], [0, 1, COLUMNS - 1]] = 5000  # the largest may be anywhere
with ck.using(stream) as xp:
    x = ck.to_device(given, stream)
    y, largest = xp.zeros_like(x), xp.full(ROWS, -1, dtype=xp.float32)
    center(x, y)
    largest_of_rows(stream, ck.cover(ROWS, 48), y, largest, ROWS, COLUMNS)
    found, most = ck.to_host(y, stream), ck.to_host(largest, stream)
np.testing.assert_allclose(found, given - given.mean(axis=1, keepdims=True), atol=1e-3)
np.testing.assert_array_equal(most, found.max(axis=1))
tool = "cuda.tile" if ck.has_gpu() else "NumPy"
print(f"by {tool}: rows of {ROWS} × {COLUMNS} numbers less their means; by threads: the largest of each")
