// Values of any trivially copyable type exchanged among the lanes of a warp, and reductions and scans over them.
#pragma once

namespace cudakit {

namespace detail {
// A value as 32-bit words, the unit that a shuffle moves.
template <typename T>
union words {
    static constexpr int COUNT = (sizeof(T) + 3) / 4;
    T value;
    unsigned int word[COUNT];
    __device__ words() {}
};
}  // namespace detail

inline constexpr unsigned int FULL_WARP = 0xffffffffu;

/// The value of lane `lane ^ mask`.
template <typename T>
__device__ T shuffle_xor(T value, int mask, int width = 32) {
    detail::words<T> all;
    all.value = value;
#pragma unroll
    for (int k = 0; k < all.COUNT; ++k) all.word[k] = __shfl_xor_sync(FULL_WARP, all.word[k], mask, width);
    return all.value;
}

/// The value of the lane `delta` below; of the lane itself where there is none.
template <typename T>
__device__ T shuffle_up(T value, int delta, int width = 32) {
    detail::words<T> all;
    all.value = value;
#pragma unroll
    for (int k = 0; k < all.COUNT; ++k) all.word[k] = __shfl_up_sync(FULL_WARP, all.word[k], delta, width);
    return all.value;
}

/// The value of the lane `delta` above; of the lane itself where there is none.
template <typename T>
__device__ T shuffle_down(T value, int delta, int width = 32) {
    detail::words<T> all;
    all.value = value;
#pragma unroll
    for (int k = 0; k < all.COUNT; ++k) all.word[k] = __shfl_down_sync(FULL_WARP, all.word[k], delta, width);
    return all.value;
}

/// The value of lane `lane`.
template <typename T>
__device__ T shuffle(T value, int lane, int width = 32) {
    detail::words<T> all;
    all.value = value;
#pragma unroll
    for (int k = 0; k < all.COUNT; ++k) all.word[k] = __shfl_sync(FULL_WARP, all.word[k], lane, width);
    return all.value;
}

/// combine over WIDTH neighbouring lanes, in the same order on every run; every lane has the result.
/// All 32 lanes must be here, in a block whose x extent is a multiple of 32 (or that has no y). `combine(lower lanes,
/// upper lanes)` need not commute.
template <int WIDTH = 32, typename T, typename Combine>
__device__ T warp_reduce(T value, Combine combine) {
    static_assert(WIDTH > 0 && WIDTH <= 32 && (WIDTH & (WIDTH - 1)) == 0, "lanes are halved until one is left");
#pragma unroll
    for (int step = 1; step < WIDTH; step *= 2) {
        const T other = shuffle_xor(value, step);
        value = (threadIdx.x & step) ? combine(other, value) : combine(value, other);
    }
    return value;
}

/// combine over the lanes up to and including this one; `lane` counts from 0 in each WIDTH neighbours.
template <int WIDTH = 32, typename T, typename Combine>
__device__ T warp_inclusive_scan(T value, Combine combine, int lane) {
#pragma unroll
    for (int step = 1; step < WIDTH; step *= 2) {
        const T other = shuffle_up(value, step, WIDTH);
        if (lane >= step) value = combine(other, value);
    }
    return value;
}

}  // namespace cudakit
