"""Conway's Game of Life: a stencil on a torus, with two boards that take turns.

Each thread counts the living neighbours of one cell and writes the cell's next state to the other board. Look at the
glider: after 4 generations it has moved by one cell down and one to the right. Without a kernel, `ck.stencil` with
`mode="wrap"` does the same (stencil.py).

Prints::

    a glider, and the same glider after 4 generations:
    . # . . . . . .    . . . . . . . .
    . . # . . . . .    . . # . . . . .
    # # # . . . . .    . . . # . . . .
    . . . . . . . .    . # # # . . . .
    . . . . . . . .    . . . . . . . .
    a random board of 61 × 83 after 10 generations: agrees with NumPy
"""

import numpy as np

import cudakit as ck

generation = ck.Kernel("""
__global__ void generation(const unsigned char* now, unsigned char* next, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    int neighbours = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (dx || dy) neighbours += now[(row + dy + rows) % rows * columns + (column + dx + columns) % columns];
    next[row * columns + column] = neighbours == 3 || (neighbours == 2 && now[row * columns + column]);
}
""")
stream = ck.stream()


def play(board: np.ndarray, generations: int) -> np.ndarray:
    """Return the board after a number of generations."""
    now = ck.to_device(board, stream)
    with ck.using(stream) as xp:
        following = xp.empty_like(now)
        for _ in range(generations):
            generation(stream, ck.cover(board.shape), now, following, *board.shape)
            now, following = following, now
    return ck.to_host(now, stream)


def by_numpy(board: np.ndarray) -> np.ndarray:
    """Return the next generation, by NumPy."""
    shifts = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    neighbours = sum(np.roll(board, shift, (0, 1)) for shift in shifts)
    return ((neighbours == 3) | ((neighbours == 2) & (board == 1))).astype(np.uint8)


glider = np.zeros((8, 8), np.uint8)
glider[0, 1] = glider[1, 2] = glider[2, :3] = 1
later = play(glider, 4)
np.testing.assert_array_equal(later, np.roll(glider, (1, 1), (0, 1)))
print("a glider, and the same glider after 4 generations:")
for before, after in zip(glider[:5], later[:5], strict=True):
    print("    ".join(" ".join(".#"[cell] for cell in line) for line in (before, after)))

board = np.random.default_rng(8).integers(0, 2, (61, 83), np.uint8)
expected = board
for _ in range(10):
    expected = by_numpy(expected)
np.testing.assert_array_equal(play(board, 10), expected)
print("a random board of 61 × 83 after 10 generations: agrees with NumPy")
