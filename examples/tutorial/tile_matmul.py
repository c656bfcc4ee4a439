"""A matrix product by threads, and by tiles on tensor cores.

The tile kernel says which tiles are multiplied; shared memory, barriers and instructions are up to the compiler. It is
compiled for the strides of the arrays. Look at the transposed array: it needs no other kernel. The ready-made op is
`ck.ops.matmul`.

Prints::

    (90, 72) × (72, 56), threads: agrees with NumPy
    (90, 72) × (72, 56), tiles: agrees with NumPy
    (90, 72) × (72, 56), tiles, B transposed: agrees with NumPy
    an array that is no matrix: mm: parameter b (cudakit::tensor<const __half, 2>) takes 2 dimensions, got numpy array
        ↳ of float16 with shape (4032,)
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
#include <cudakit/tensor.cuh>
namespace ct = cuda::tiles;

template <typename T, int BM, int BN, int BK>
__tile_global__ void mm(cudakit::tensor<const T, 2> a, cudakit::tensor<const T, 2> b, cudakit::tensor<float, 2> c) {
    int row = ct::bid().y, column = ct::bid().x;
    auto sum = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>();
    for (auto k : ct::irange(0, (a.extent(1) + BK - 1) / BK))
        sum = ct::mma(view<BM, BK>(a).load_masked(row, k), view<BK, BN>(b).load_masked(k, column), sum);
    view<BM, BN>(c).store_masked(sum, row, column);
}
""")
BM, BN, BK = 64, 32, 16
mm = tiles["BM":BM, "BN":BN, "BK":BK]
stream = ck.stream()
try:
    mm.compile("f2", "f2", "f4", arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

m, n, k = 90, 56, 72
rng = np.random.default_rng(0)
A, B = rng.random((m, k), np.float32).astype(np.float16), rng.random((k, n), np.float32).astype(np.float16)
a, b, b_transposed = (ck.to_device(matrix, stream) for matrix in (A, B, B.T.copy()))
by_threads, by_tiles = ck.cover((m, n), (16, 16)), ck.cover((m, n), tile=(BM, BN))
for name, kernel, config, second, sizes in (
    ("threads", threads, by_threads, b, (m, n, k)),
    ("tiles", mm, by_tiles, b, ()),
    ("tiles, B transposed", mm, by_tiles, b_transposed.T, ()),
):
    C = np.full((m, n), np.nan, np.float32)
    kernel(stream, config, a, second, ck.Out(C), *sizes)
    stream.sync()
    np.testing.assert_allclose(C, A.astype(np.float32) @ B.astype(np.float32), rtol=1e-5)
    print(f"({m}, {k}) × ({k}, {n}), {name}: agrees with NumPy")

try:
    mm(stream, by_tiles, a, b.ravel(), ck.Out(C))
except ck.ArgumentError as error:
    print(f"an array that is no matrix: {error}")
