"""Multiply matrices: one thread for each element, then tiles in shared memory, for any size.

The naive kernel reads a row of A and a column of B from memory for each element of C. In the tiled kernel a block reads
a tile once, and its threads use it from shared memory: one sixteenth of the reads, if the tiles are full. Where the
sizes are no multiple of the tile, zeros stand for what is missing. Look at the bytes read, which the emulator counts;
on a GPU look at the times too. The ready-made op is `ck.ops.matmul`.

Prints::

    naive: (33, 50) × (50, 70) agrees with NumPy, 924,000 bytes read
    tiled: (33, 50) × (50, 70) agrees with NumPy, 75,000 bytes read
    time: needs a GPU
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
        __syncthreads();  // all elements of the tiles are there
        for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();  // all threads have used them: the next tiles may be written
    }
    if (row < m && column < n) C[row * n + column] = sum;
}
"""
kernels = {name: ck.Kernel(SOURCE, name) for name in ("naive", "tiled")}
rng = np.random.default_rng(1)

# 1. The traffic, counted on the emulator.
emulator = ck.emulator.stream()
A, B = rng.random((33, 50), np.float32), rng.random((50, 70), np.float32)
(m, k), n = A.shape, B.shape[1]
for name, kernel in kernels.items():
    C = np.zeros((m, n), np.float32)
    with ck.emulator.counters(emulator) as report:
        kernel(emulator, ck.cover((m, n), (16, 16)), A, B, C, m, k, n)
    np.testing.assert_allclose(C, A @ B, rtol=1e-5)
    print(f"{name}: {A.shape} × {B.shape} agrees with NumPy, {report.global_.loads.bytes:,} bytes read")

# 2. The times on a GPU.
if ck.has_gpu():
    stream, m = ck.stream(), 2048
    A, B = (rng.random((m, m), np.float32) for _ in range(2))
    a, b, c = (ck.to_device(matrix, stream) for matrix in (A, B, np.zeros_like(A)))
    for name, kernel in kernels.items():
        milliseconds = median_ms(stream, kernel.plan(stream, ck.cover((m, m), (16, 16)), a, b, c, m, m, m), repeats=5)
        np.testing.assert_allclose(ck.to_host(c, stream), A @ B, rtol=1e-4)
        print(f"time: {name} {milliseconds:.2f} ms, {2 * m**3 / milliseconds / 1e9:.1f} TFLOP/s")
else:
    print("time: needs a GPU")
