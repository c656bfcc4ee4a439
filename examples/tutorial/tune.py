"""Tune a template: which tile turns a matrix around with the fewest accesses to shared memory.

On a GPU the time decides. On the emulator a counter does: it ranks the variants, and says nothing of times. Each
variant is checked before it is measured. The winner is run once more with all checks of the emulator.

Prints::

    <Tuned turn: 384 wavefronts at TILE=8, PAD=0>
    TILE: 8 here; 4 +33.3%, 16 +200.0%
    PAD: 0 here; 1 +33.3%
"""

import numpy as np

import cudakit as ck

turn = ck.Kernel("""
template <int TILE, int PAD>
__global__ void turn(const float* x, float* y, int n) {
    __shared__ float tile[TILE][TILE + PAD];
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row < n && column < n) tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    int to_column = blockIdx.y * TILE + threadIdx.x, to_row = blockIdx.x * TILE + threadIdx.y;
    if (to_row < n && to_column < n) y[to_row * n + to_column] = tile[threadIdx.x][threadIdx.y];
}""")


def squares(TILE, n):
    """Return enough blocks of TILE x TILE threads for an n x n matrix."""
    return ck.config((-(-n // TILE), -(-n // TILE)), (TILE, TILE))


n = 64
stream = ck.stream()
x = ck.to_device(np.arange(n * n, dtype=np.float32).reshape(n, n), stream)
y = ck.empty((n, n), np.float32, stream=stream)
tuned = ck.tune(
    turn, (x, y, n), {"TILE": [16, 4, 8], "PAD": [1, 0]}, config=squares, stream=stream, strategy="exhaustive",
    check=lambda x, y, n: x.T, objective="time" if ck.has_gpu() else "wavefronts",
)  # fmt: skip
print(repr(tuned))
print(*tuned.explain().splitlines()[1:3], sep="\n")  # what other values cost
tuned(stream, x, y, n)
stream.sync()
assert (ck.to_host(y, stream) == np.arange(n * n).reshape(n, n).T).all()
