// Every element of an array once, by all threads of a launch, in an order that does not matter.
#pragma once

#include <cudakit/pack.cuh>
#include <cudakit/strided.cuh>

namespace cudakit {

/// visit(values), values being `const T (&)[N]`, for all of x[0 … size), C-contiguous, aligned or not: packs of 16 bytes,
/// ITEMS of them in flight a thread, and single elements before and after them. One-dimensional launches.
template <int ITEMS, typename T, typename Visit>
__device__ void each_pack(const T* x, long long size, Visit visit) {
    constexpr int COUNT = 16 / sizeof(T);
    const long long unaligned = -static_cast<long long>(reinterpret_cast<unsigned long long>(x) / sizeof(T)) & (COUNT - 1);
    const long long head = unaligned < size ? unaligned : size;
    const T* const packs = x + head;
    const long long count = (size - head) / COUNT;
    const long long round = static_cast<long long>(gridDim.x) * blockDim.x * ITEMS;

    long long first = static_cast<long long>(blockIdx.x) * blockDim.x * ITEMS + threadIdx.x;
    for (; first < count; first += round) {
        pack<T, COUNT> all[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * blockDim.x < count) all[j] = load_pack<COUNT>(packs + (first + j * blockDim.x) * COUNT);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * blockDim.x < count) visit(all[j].values);
    }

    const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long around = size - count * COUNT;
    if (thread < around) {
        const T one[1] = {x[thread < head ? thread : thread + count * COUNT]};
        visit(one);
    }
}

/// The same for a view of any strides, one element at a time.
template <int ITEMS, typename T, int RANK, typename Visit>
__device__ void each_pack(const strided<const T, RANK>& x, long long size, Visit visit) {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += threads) {
        const T one[1] = {x.element(i)};
        visit(one);
    }
}

/// Element number `i` of either.
template <typename T>
__device__ T element_of(const T* x, long long i) {
    return x[i];
}
template <typename T, int RANK>
__device__ T element_of(const strided<const T, RANK>& x, long long i) {
    return x.element(i);
}

namespace detail {
template <typename View>
struct element;
template <typename T>
struct element<const T*> {
    using type = T;
};
template <typename T, int RANK>
struct element<strided<const T, RANK>> {
    using type = T;
};
}  // namespace detail

/// What a view, `const T*` or `strided<const T, RANK>`, holds.
template <typename View>
using element_t = typename detail::element<View>::type;

}  // namespace cudakit
