#include <cudakit/elementwise/convert.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/elementwise/walk.cuh>

// out[i] = x[i] as To, by the rules of <cudakit/elementwise/convert.cuh>.
//
// Shapes: x and out (size), contiguous; From and To are their elements' types.
// Threads: thread t of a block does its t-th 16 bytes (of the wider type), then those BLOCK further on, ITEMS in all.
// Memory: sizeof(From) + sizeof(To) bytes an element, by accesses of 16 bytes of the wider type where the array is aligned;
//   one element at a time at the end.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads, each with ITEMS · 16 bytes of the wider type.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename From, typename To, bool SATURATE = false, int ITEMS = 2, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) contiguous(const void* __restrict__ x, void* __restrict__ out, long long size) {
    constexpr int COUNT = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To)), STEP = BLOCK * COUNT;
    const long long first = static_cast<long long>(blockIdx.x) * STEP * ITEMS + threadIdx.x * COUNT;
    const From* const from = static_cast<const From*>(x) + first;
    To* const to = static_cast<To*>(out) + first;
    if (first + STEP * (ITEMS - 1) + COUNT <= size) {
        cudakit::pack<From, COUNT> values[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) values[j] = cudakit::load_spaced<COUNT>(from + j * STEP, 1);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            cudakit::pack<To, COUNT> result;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) result.values[k] = cudakit::convert<To, SATURATE>(values[j].values[k]);
            cudakit::store_some(to + j * STEP, result, COUNT);
        }
        return;
    }
    for (int j = 0; j < ITEMS; ++j)
        for (int k = 0; k < COUNT; ++k)
            if (first + j * STEP + k < size) to[j * STEP + k] = cudakit::convert<To, SATURATE>(cudakit::stored(from)[j * STEP + k]);
}

// out[k₀, k₁, …] = x[k₀, k₁, …] as To.
//
// Shapes: layout.shape, RANK dimensions, at distances layout.x and layout.out in elements from elements x_start and
//   out_start. Index is int where all indices fit it, else long long.
// Threads: thread t does the t-th 16 bytes (of the wider type) of the result.
// Memory: as `contiguous` along the last dimension where the array has neighbours there.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads, ceil(size / elements of a thread) in all.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename From, typename To, bool SATURATE, int RANK, typename Index, typename Layout, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) strided(
    const void* __restrict__ x, void* __restrict__ out, long long x_start, long long out_start, long long size,
    Layout layout) {
    constexpr int COUNT = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
    const From* const from = static_cast<const From*>(x) + x_start;
    To* const to = static_cast<To*>(out) + out_start;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT;
    if (first >= size) return;
    cudakit::walk<RANK, Index> walk(static_cast<Index>(first), layout.shape);
    if (walk.at[RANK - 1] + COUNT <= static_cast<Index>(layout.shape[RANK - 1]) && layout.out[RANK - 1] == 1) {
        const auto values = cudakit::load_spaced<COUNT>(from + walk.offset(layout.x), layout.x[RANK - 1]);
        cudakit::pack<To, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = cudakit::convert<To, SATURATE>(values.values[k]);
        cudakit::store_some(to + walk.offset(layout.out), result, COUNT);
        return;
    }
    for (int k = 0; k < COUNT && first + k < size; ++k) {
        to[walk.offset(layout.out)] = cudakit::convert<To, SATURATE>(cudakit::stored(from)[walk.offset(layout.x)]);
        walk.next(layout.shape);
    }
}
