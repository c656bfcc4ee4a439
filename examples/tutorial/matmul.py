"""Matrix multiplication: a thread an element, then tiles in shared memory, for any size.

The naive kernel reads each element of A and B once for every product that it is in. The tiled one has a block of
threads read a tile once, and use it from shared memory: 1/16 of the reads. Where the sizes are no multiple of the tile,
what lies outside is read as 0.

Prints::

    (33, 50) × (50, 70), naive: as NumPy has it
    (33, 50) × (50, 70), tiled: as NumPy has it
    no GPU here: nothing to time
"""

import numpy as np

import cudakit as ck
from cudakit.demo import median_ms

SOURCE = """
template <typename T>
__global__ void naive(const T* A, const T* B, T* C, int m, int k, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    T sum = 0;
    for (int i = 0; i < k; ++i) sum += A[row * k + i] * B[i * n + column];
    C[row * n + column] = sum;
}

template <typename T, int TILE = 16>
__global__ void tiled(const T* A, const T* B, T* C, int m, int k, int n) {
    __shared__ T a[TILE][TILE], b[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    T sum = 0;
    for (int start = 0; start < k; start += TILE) {
        a[y][x] = row < m && start + x < k ? A[row * k + start + x] : T(0);
        b[y][x] = start + y < k && column < n ? B[(start + y) * n + column] : T(0);
        __syncthreads();  // the tiles are whole
        for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();  // and used, before the next ones are written over them
    }
    if (row < m && column < n) C[row * n + column] = sum;
}
"""
kernels = {name: ck.Kernel(SOURCE, name) for name in ("naive", "tiled")}
stream = ck.stream()


def product(name: str, A: np.ndarray, B: np.ndarray, repeats: int = 0) -> tuple[np.ndarray, float]:
    """A B by one of the kernels, and the median of its times in ms."""
    a, b = ck.to_device(A, stream), ck.to_device(B, stream)
    (m, k), n = A.shape, B.shape[1]
    with ck.using(stream) as xp:
        c = xp.empty((m, n), A.dtype)
        launch = kernels[name].plan(stream, ck.cover((m, n), (16, 16)), a, b, c, m, k, n)
        launch()
        elapsed_ms = median_ms(stream, launch, repeats) if repeats else 0.0
    return ck.to_host(c, stream), elapsed_ms


rng = np.random.default_rng(1)
A, B = rng.random((33, 50), np.float32), rng.random((50, 70), np.float32)
for name in kernels:
    np.testing.assert_allclose(product(name, A, B)[0], A @ B, rtol=1e-5)
    print(f"{A.shape} × {B.shape}, {name}: as NumPy has it")
if ck.has_gpu():
    A, B = rng.random((2048, 2048), np.float32), rng.random((2048, 2048), np.float32)
    for name in kernels:
        C, elapsed_ms = product(name, A, B, repeats=5)
        np.testing.assert_allclose(C, A @ B, rtol=1e-4)
        print(f"2048³, {name}: {elapsed_ms:.2f} ms, {2 * 2048**3 / elapsed_ms / 1e9:.1f} TFLOP/s")
else:
    print("no GPU here: nothing to time")
