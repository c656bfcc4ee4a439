"""Transpose three times: naive, coalesced by a tile in shared memory, and with the tile padded.

A warp that writes down a column touches 32 rows, a sector of memory each. Through a tile in shared memory both the
reads and the writes run along rows; but the tile's columns then lie in one bank of shared memory, 32 deep, until a
padding column moves each row on by one bank.

Prints::

    naive: right
    coalesced: right
    padded: right
    no GPU here: nothing to time
"""

import numpy as np

import cudakit as ck
from cudakit.demo import median_ms

SOURCE = """
template <typename T>
__global__ void naive(const T* x, T* y, int rows, int columns) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    if (row < rows && column < columns) y[column * rows + row] = x[row * columns + column];
}

template <typename T, int PADDING>
__global__ void tiled(const T* x, T* y, int rows, int columns) {
    __shared__ T tile[32][32 + PADDING];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;  // of y: the tile's place, mirrored
    if (row < columns && column < rows) y[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}
"""
kernels = {
    "naive": ck.Kernel(SOURCE, "naive"),
    "coalesced": ck.Kernel(SOURCE, "tiled")["PADDING":0],
    "padded": ck.Kernel(SOURCE, "tiled")["PADDING":1],
}

stream = ck.stream()
rows, columns = (8192, 8192) if ck.has_gpu() else (70, 50)
image = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
x = ck.to_device(image, stream)
with ck.using(stream) as xp:
    for name, kernel in kernels.items():
        y = xp.zeros((columns, rows), dtype=xp.float32)
        launch = kernel.plan(stream, ck.cover((rows, columns), (32, 32)), x, y, rows, columns)
        launch()
        np.testing.assert_array_equal(ck.to_host(y, stream), image.T)
        print(f"{name}: right")
        if ck.has_gpu():
            print(f"    {2 * x.nbytes / median_ms(stream, launch) / 1e6:.0f} GB/s")
if not ck.has_gpu():
    print("no GPU here: nothing to time")
