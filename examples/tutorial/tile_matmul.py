"""A product by threads and by tiles: shared memory and barriers by hand, or left to the compiler, with tensor cores.

The kernel of threads is that of matmul.py, on float16. The tile kernel says what is multiplied; the promises at its
beginning (addresses and rows of multiples of 16 bytes) let the compiler use the card's engine for copies, and are
checked at each call. Needs NVRTC 13.5 and, on a GPU, the extra `tile`.

Prints::

    (96, 80) × (80, 64), threads: as NumPy has it
    (96, 80) × (80, 64), tiles: as NumPy has it
    a promise that an argument breaks: mm<64, 32, 16>: parameter k (int) is 60: ...
"""

import sys

import numpy as np

import cudakit as ck

threads = ck.Kernel("""
#include <cuda_fp16.h>
template <int TILE>
__global__ void mm(const __half* A, const __half* B, float* C, int m, int n, int k) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (int start = 0; start < k; start += TILE) {
        a[y][x] = row < m && start + x < k ? __half2float(A[row * k + start + x]) : 0.0f;
        b[y][x] = start + y < k && column < n ? __half2float(B[(start + y) * n + column]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();
    }
    if (row < m && column < n) C[row * n + column] = sum;
}
""")
tiles = ck.Kernel("""
#include <cuda_fp16.h>
#include "cuda_tile.h"
namespace ct = cuda::tiles;
using namespace ct::literals;

template <int BM, int BN, int BK>
__tile_global__ void mm(const __half* __restrict__ A, const __half* __restrict__ B, float* __restrict__ C, int m, int n,
                        int k) {
    A = ct::assume_aligned(A, 16_ic), B = ct::assume_aligned(B, 16_ic);
    n = ct::assume_divisible(n, 8_ic), k = ct::assume_divisible(k, 8_ic);
    auto a = ct::partition_view{ct::tensor_span{A, ct::extents{m, k}}, ct::shape<BM, BK>{}};
    auto b = ct::partition_view{ct::tensor_span{B, ct::extents{k, n}}, ct::shape<BK, BN>{}};
    auto c = ct::partition_view{ct::tensor_span{C, ct::extents{m, n}}, ct::shape<BM, BN>{}};
    int row = ct::bid().y, column = ct::bid().x;
    auto sum = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>();
    for (auto i : ct::irange(0, (k + BK - 1) / BK)) sum = ct::mma(a.load_masked(row, i), b.load_masked(i, column), sum);
    c.store_masked(sum, row, column);
}
""")
stream = ck.stream()
try:
    tiles[64, 32, 16].compile(arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

m, n, k = 96, 64, 80
rng = np.random.default_rng(0)
A, B = rng.integers(-8, 9, (m, k)).astype(np.float16), rng.integers(-8, 9, (k, n)).astype(np.float16)
a, b = ck.to_device(A, stream), ck.to_device(B, stream)
for name, kernel, config in (
    ("threads", threads[16], ck.cover((m, n), block=(16, 16))),
    ("tiles", tiles[64, 32, 16], ck.cover((m, n), tile=(64, 32))),
):
    C = np.full((m, n), np.nan, np.float32)
    kernel(stream, config, a, b, ck.Out(C), m, n, k)
    stream.sync()
    # Whole numbers, and few: float holds the sums exactly.
    assert (A.astype(np.float32) @ B.astype(np.float32) == C).all()
    print(f"({m}, {k}) × ({k}, {n}), {name}: as NumPy has it")

try:
    tiles[64, 32, 16](stream, ck.config((2, 2)), a, b, ck.Out(C), m, n, 60)
except ck.ArgumentError as error:
    print(f"a promise that an argument breaks: {error}")
