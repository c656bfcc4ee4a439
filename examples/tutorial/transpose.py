"""Transpose a matrix three times: naive, by a tile in shared memory, and with the tile padded.

A warp that writes down a column touches a sector of memory for each of its 32 rows. By a tile in shared memory both
reads and writes run along rows. The tile's columns then lie in one bank of shared memory, until a padding column moves
each row on by one bank. Look at the sectors and bank conflicts, which the emulator counts; on a GPU look at the rates
too. The ready-made op is `ck.ops.transpose`.

Prints::

    naive:  3500 sectors written, 0 bank conflicts
    tiled:  549 sectors written, 3350 bank conflicts
    padded: 549 sectors written, 0 bank conflicts
    time: needs a GPU
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
    "tiled": ck.Kernel(SOURCE, "tiled")["PADDING":0],
    "padded": ck.Kernel(SOURCE, "tiled")["PADDING":1],
}

# 1. The traffic, counted on the emulator.
emulator = ck.emulator.stream()
rows, columns = 70, 50
image = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
for name, kernel in kernels.items():
    y = np.zeros((columns, rows), np.float32)
    with ck.emulator.counters(emulator) as report:
        kernel(emulator, ck.cover((rows, columns), (32, 32)), image, y, rows, columns)
    np.testing.assert_array_equal(y, image.T)
    stores = report.global_.stores
    print(f"{name + ':':7} {stores.sectors} sectors written, {report.shared.bank_conflicts} bank conflicts")

# 2. The rates on a GPU.
if ck.has_gpu():
    stream, n = ck.stream(), 8192
    with ck.using(stream) as xp:
        x = xp.arange(n * n, dtype=xp.float32).reshape(n, n)
        y = xp.zeros_like(x)
        for name, kernel in kernels.items():
            launch = kernel.plan(stream, ck.cover((n, n), (32, 32)), x, y, n, n)
            milliseconds = median_ms(stream, launch)
            assert bool((y == x.T).all())
            print(f"time: {name} {2 * x.nbytes / milliseconds / 1e6:.0f} GB/s")
else:
    print("time: needs a GPU")
