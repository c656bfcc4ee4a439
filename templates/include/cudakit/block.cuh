// Reductions and sums over a block, in a fixed order, by shuffles within warps and shared memory between them.
#pragma once

#include <cudakit/warp.cuh>

namespace cudakit {

/// Shared memory of `block_reduce` for blocks of THREADS threads.
template <typename T, int THREADS>
struct block_reduce_storage {
    static_assert(THREADS % 32 == 0 && THREADS <= 1024, "a block is whole warps");
    // Raw bytes: T may have a constructor, which __shared__ variables may not.
    alignas(16) unsigned char bytes[sizeof(T) * (THREADS / 32 + 1)];
    __device__ T* values() { return reinterpret_cast<T*>(bytes); }
};

/// combine over a one-dimensional block of THREADS threads, in thread order; every thread has the result.
/// `storage` may be used again at once.
template <int THREADS, typename T, typename Combine>
__device__ T block_reduce(T value, Combine combine, block_reduce_storage<T, THREADS>& storage) {
    constexpr int WARPS = THREADS / 32;
    value = warp_reduce(value, combine);
    if constexpr (WARPS == 1) return value;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T* const values = storage.values();
    if (lane == 0) values[warp] = value;
    __syncthreads();
    if (warp == 0) {
        // Lanes past the last warp repeat it; they are never combined into lane 0's result.
        T partial = values[lane < WARPS ? lane : WARPS - 1];
#pragma unroll
        for (int step = 1; step < WARPS; step *= 2) {
            const T other = shuffle_down(partial, step);
            if (lane % (2 * step) == 0 && lane + step < WARPS) partial = combine(partial, other);
        }
        if (lane == 0) values[WARPS] = partial;
    }
    __syncthreads();
    value = values[WARPS];
    return value;
}

/// The sum of `own` over the threads before this one of BLOCK, and over all. Every thread must call it, with a
/// barrier before the block calls it again.
template <int BLOCK, typename N>
__device__ N sum_before(N own, N& all) {
    __shared__ N of_warp[BLOCK / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const N up_to = warp_inclusive_scan(own, [](N a, N b) { return a + b; }, lane);
    if (lane == 31) of_warp[warp] = up_to;
    __syncthreads();
    N before = up_to - own;
    all = 0;
#pragma unroll
    for (int k = 0; k < BLOCK / 32; ++k) {
        if (k < warp) before += of_warp[k];
        all += of_warp[k];
    }
    return before;
}

}  // namespace cudakit
