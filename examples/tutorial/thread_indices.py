"""Which thread am I? Indices of threads and blocks in two dimensions, and how many blocks a shape needs.

Prints::

    3 × 5 elements in blocks of 2 × 2: a grid of 2 × 3
    block (row, column) of each element:
    [[0 0 0 0 0]
     [0 0 0 0 0]
     [1 1 1 1 1]]
    [[0 0 1 1 2]
     [0 0 1 1 2]
     [0 0 1 1 2]]
    linear index, as C order has it:
    [[ 0  1  2  3  4]
     [ 5  6  7  8  9]
     [10 11 12 13 14]]
    what ck.cover chose for 1000: 4 blocks of 256 threads
"""

import numpy as np

import cudakit as ck

where = ck.Kernel("""
__global__ void where(int* row_of_block, int* column_of_block, int* linear, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;  // x runs fastest: neighbours in memory
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    int i = row * columns + column;
    row_of_block[i] = blockIdx.y;
    column_of_block[i] = blockIdx.x;
    linear[i] = i;
}
""")

rows, columns = 3, 5
block = (2, 2)
grid = tuple(-(-extent // threads) for extent, threads in zip((columns, rows), block, strict=True))  # ceil
print(f"{rows} × {columns} elements in blocks of {block[1]} × {block[0]}: a grid of {grid[1]} × {grid[0]}")

stream = ck.stream()
with ck.using(stream) as xp:
    row_of_block, column_of_block, linear = (xp.full((rows, columns), -1, dtype=xp.int32) for _ in range(3))
    where(stream, ck.config(grid, block), row_of_block, column_of_block, linear, rows, columns)
    print("block (row, column) of each element:")
    print(row_of_block)
    print(column_of_block)
    print("linear index, as C order has it:")
    print(linear)
    assert bool((linear == xp.arange(15).reshape(3, 5)).all())

    # ck.cover counts the blocks by itself, from the kernel's occupancy; (rows, columns) becomes y and x.
    again = xp.full((rows, columns), -1, dtype=xp.int32)
    where(stream, ck.cover((rows, columns)), row_of_block, column_of_block, again, rows, columns)
    np.testing.assert_array_equal(ck.to_host(again, stream), np.arange(15).reshape(3, 5))

    # What it chose the kernel can tell.
    shape = ck.Kernel("__global__ void shape(int* sizes) { sizes[0] = gridDim.x; sizes[1] = blockDim.x; }")
    sizes = xp.zeros(2, dtype=xp.int32)
    shape(stream, ck.cover(1000), sizes)
    blocks, threads = ck.to_host(sizes, stream)
    assert blocks == -(-1000 // threads)
    print(f"what ck.cover chose for 1000: {blocks} blocks of {threads} threads")
