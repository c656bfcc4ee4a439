"""Thread indices: which element a thread works on, in two dimensions, and how many blocks a shape needs.

`blockIdx`, `blockDim` and `threadIdx` give each thread its row and column. Look at the two tables: they show which
block each element of a 3 × 5 array belongs to. `ck.cover(shape)` computes block and grid by itself.

Prints::

    3 × 5 elements in blocks of 2 × 2: a grid of 2 × 3
    block (row, column) of each element:
    [[0 0 0 0 0]
     [0 0 0 0 0]
     [1 1 1 1 1]]
    [[0 0 1 1 2]
     [0 0 1 1 2]
     [0 0 1 1 2]]
    linear index, in C order:
    [[ 0  1  2  3  4]
     [ 5  6  7  8  9]
     [10 11 12 13 14]]
    ck.cover(1000): 4 blocks of 256 threads
"""

import numpy as np

import cudakit as ck

write_indices = ck.Kernel("""
__global__ void write_indices(int* row_of_block, int* column_of_block, int* linear, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;  // x runs fastest, as columns do
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
    write_indices(stream, ck.config(grid, block), row_of_block, column_of_block, linear, rows, columns)
    print("block (row, column) of each element:")
    print(row_of_block)
    print(column_of_block)
    print("linear index, in C order:")
    print(linear)
    assert bool((linear == xp.arange(15).reshape(3, 5)).all())

    # ck.cover chooses the block by the kernel's occupancy, and counts the blocks. (rows, columns) becomes y and x.
    covered = xp.full((rows, columns), -1, dtype=xp.int32)
    write_indices(stream, ck.cover((rows, columns)), row_of_block, column_of_block, covered, rows, columns)
    np.testing.assert_array_equal(ck.to_host(covered, stream), np.arange(15).reshape(3, 5))

    # The kernel sees what ck.cover chose.
    shape = ck.Kernel("__global__ void shape(int* sizes) { sizes[0] = gridDim.x; sizes[1] = blockDim.x; }")
    sizes = xp.zeros(2, dtype=xp.int32)
    shape(stream, ck.cover(1000), sizes)
    blocks, threads = ck.to_host(sizes, stream)
    assert blocks == -(-1000 // threads)
    print(f"ck.cover(1000): {blocks} blocks of {threads} threads")
