// Every element of an array once, by all threads of a launch, in an order that does not matter.
#pragma once

#include <cudakit/pack.cuh>
#include <cudakit/strided.cuh>

namespace cudakit {

namespace detail {
/// The packs of 16 bytes in an array that need not begin with one, and how the threads of a launch take turns at them:
/// ITEMS at once, a block's threads side by side.
template <typename T, int ITEMS>
struct turns {
    static constexpr int COUNT = 16 / sizeof(T);
    const T* x;
    long long size, head, count;

    __device__ turns(const T* x, long long size) : x(x), size(size) {
        const long long place = reinterpret_cast<unsigned long long>(x) / sizeof(T);
        const long long unaligned = -place & (COUNT - 1);
        head = unaligned < size ? unaligned : size;
        count = (size - head) / COUNT;
    }
    __device__ long long first() const { return static_cast<long long>(blockIdx.x) * blockDim.x * ITEMS + threadIdx.x; }
    __device__ long long step() const { return static_cast<long long>(gridDim.x) * blockDim.x * ITEMS; }
    // As words until it is wanted: bytes would take a register each.
    __device__ uint4 load(long long i) const { return reinterpret_cast<const uint4*>(x + head)[i]; }
    static __device__ pack<T, COUNT> values_of(uint4 words) {
        pack<T, COUNT> result;
        if constexpr (is_bool<T>) words = as_bools(words);
        memcpy(&result, &words, 16);
        return result;
    }
};
}  // namespace detail

/// visit(values), values being `const T (&)[N]`, for the values of x[0 … size), C-contiguous, aligned or not, that
/// threads have ITEMS packs of 16 bytes of; the others are left to `each_left`. One-dimensional launches.
template <int ITEMS, typename T, typename Visit>
__device__ void each_full(const T* x, long long size, Visit visit) {
    const detail::turns<T, ITEMS> turns(x, size);
    const long long last = turns.count - blockDim.x * (ITEMS - 1);
    for (long long i = turns.first(); i < last; i += turns.step()) {
        uint4 words[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) words[j] = turns.load(i + j * blockDim.x);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) visit(turns.values_of(words[j]).values);
    }
}

/// The same for the values that `each_full` leaves: packs of threads that have fewer, and what no pack holds.
template <int ITEMS, typename T, typename Visit>
__device__ void each_left(const T* x, long long size, Visit visit) {
    const detail::turns<T, ITEMS> turns(x, size);
    const long long last = turns.count - blockDim.x * (ITEMS - 1);
    long long i = turns.first();
    if (i < last) i += (last - i + turns.step() - 1) / turns.step() * turns.step();
    uint4 words[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS - 1; ++j)
        if (i + j * blockDim.x < turns.count) words[j] = turns.load(i + j * blockDim.x);
#pragma unroll
    for (int j = 0; j < ITEMS - 1; ++j)
        if (i + j * blockDim.x < turns.count) visit(turns.values_of(words[j]).values);

    const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const long long packed = turns.count * turns.COUNT;
    if (thread < size - packed) {
        const T one[1] = {stored(x)[thread < turns.head ? thread : thread + packed]};
        visit(one);
    }
}

/// The same for a view of any strides: all values are left, one at a time.
template <int ITEMS, typename T, int RANK, typename Visit>
__device__ void each_full(const strided<const T, RANK>&, long long, Visit) {}
template <int ITEMS, typename T, int RANK, typename Visit>
__device__ void each_left(const strided<const T, RANK>& x, long long size, Visit visit) {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += threads) {
        const T one[1] = {*stored(&x.element(i))};
        visit(one);
    }
}

/// visit(values) for all of them.
template <int ITEMS, typename View, typename Visit>
__device__ void each_pack(const View& x, long long size, Visit visit) {
    each_full<ITEMS>(x, size, visit);
    each_left<ITEMS>(x, size, visit);
}

/// Element number `i` of either.
template <typename T>
__device__ T element_of(const T* x, long long i) {
    return stored(x)[i];
}
template <typename T, int RANK>
__device__ T element_of(const strided<const T, RANK>& x, long long i) {
    return *stored(&x.element(i));
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
