"""A product by threads, one an element, and by tiles, on tensor cores, with all the rest left to the compiler.

The tile kernel says what is multiplied, and no more: shared memory, barriers and instructions are the compiler's. The
promises at its beginning (addresses and rows of multiples of 16 bytes) let it use the card's engine for copies, and
are checked at each call. Needs NVRTC 13.5 and, on a GPU, the extra `tile`.

Prints::

    (90, 72) × (72, 56), threads: as NumPy has it
    (90, 72) × (72, 56), tiles: as NumPy has it
    a promise that an argument breaks: mm<64, 32, 16>: parameter k (int) is 60: ...
"""

import sys

import numpy as np

import cudakit as ck

threads = ck.Kernel("""
#include <cuda_fp16.h>
__global__ void mm(const __half* A, const __half* B, float* C, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += __half2float(A[row * k + i]) * __half2float(B[i * n + column]);
    C[row * n + column] = sum;
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
BM, BN, BK = 64, 32, 16
mm = tiles[BM, BN, BK]
stream = ck.stream()
try:
    mm.compile(arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

m, n, k = 90, 56, 72
rng = np.random.default_rng(0)
A, B = rng.random((m, k), np.float32).astype(np.float16), rng.random((k, n), np.float32).astype(np.float16)
a, b = ck.to_device(A, stream), ck.to_device(B, stream)
by_tiles = ck.cover((m, n), tile=(BM, BN))
for name, kernel, config in (("threads", threads, ck.cover((m, n), (16, 16))), ("tiles", mm, by_tiles)):
    C = np.full((m, n), np.nan, np.float32)
    kernel(stream, config, a, b, ck.Out(C), m, n, k)
    stream.sync()
    np.testing.assert_allclose(C, A.astype(np.float32) @ B.astype(np.float32), rtol=1e-5)
    print(f"({m}, {k}) × ({k}, {n}), {name}: as NumPy has it")

try:
    mm(stream, by_tiles, a, b, ck.Out(C), m, n, 60)
except ck.ArgumentError as error:
    print(f"a promise that an argument breaks: {error}")
