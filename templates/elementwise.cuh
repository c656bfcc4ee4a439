#include <cudakit/pack.cuh>

// out = x + y, contiguous
template <typename A, typename B, typename R, typename Op, int BLOCK = 256, int ITEMS = 2>
__global__ void __launch_bounds__(BLOCK) contiguous(const A* __restrict__ x, const B* __restrict__ y, R* __restrict__ out, long long size) {
    constexpr int WIDEST = sizeof(A) > sizeof(B) ? (sizeof(A) > sizeof(R) ? sizeof(A) : sizeof(R)) : (sizeof(B) > sizeof(R) ? sizeof(B) : sizeof(R));
    constexpr int COUNT = 16 / WIDEST;
    const Op op;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x) * COUNT;
    constexpr int STEP = BLOCK * COUNT;
    if (first + STEP * (ITEMS - 1) + COUNT <= size) {
        cudakit::pack<A, COUNT> a[ITEMS];
        cudakit::pack<B, COUNT> b[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            a[j] = cudakit::load_pack<COUNT>(x + first + j * STEP);
            b[j] = cudakit::load_pack<COUNT>(y + first + j * STEP);
        }
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            cudakit::pack<R, COUNT> r;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) r.values[k] = op(static_cast<R>(a[j].values[k]), static_cast<R>(b[j].values[k]));
            cudakit::store_pack(out + first + j * STEP, r);
        }
    }
}
