// COUNT neighbours of an array as one aligned word, which one load or store instruction moves.
#pragma once

#include <cudakit/truth.cuh>

namespace cudakit {

template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT) pack {
    static_assert(sizeof(T) * COUNT <= 16, "a thread moves at most 16 bytes in one instruction");
    T values[COUNT];
};

namespace detail {
// What the hardware moves; a struct of bytes would be moved byte by byte.
template <int BYTES>
struct moved;
template <>
struct moved<1> {
    using type = unsigned char;
};
template <>
struct moved<2> {
    using type = unsigned short;
};
template <>
struct moved<4> {
    using type = unsigned int;
};
template <>
struct moved<8> {
    using type = uint2;
};
template <>
struct moved<16> {
    using type = uint4;
};
}  // namespace detail

/// Whether `pointer` may be read as packs: a view need not start at an aligned element.
template <typename Pack, typename T>
__host__ __device__ bool is_aligned(const T* pointer) {
    return reinterpret_cast<unsigned long long>(pointer) % alignof(Pack) == 0;
}

/// COUNT neighbours from `pointer`, which is aligned to them.
template <int COUNT, typename T>
__device__ pack<T, COUNT> load_pack(const T* pointer) {
    auto word = *reinterpret_cast<const typename detail::moved<sizeof(T) * COUNT>::type*>(pointer);
    if constexpr (is_bool<T>) word = as_bools(word);
    pack<T, COUNT> result;
    memcpy(&result, &word, sizeof(word));
    return result;
}

/// COUNT neighbours to `pointer`, which is aligned to them.
template <int COUNT, typename T>
__device__ void store_pack(T* pointer, const pack<T, COUNT>& values) {
    using Word = typename detail::moved<sizeof(T) * COUNT>::type;
    Word word;
    memcpy(&word, &values, sizeof(word));
    // The same as an assignment, but never split into its elements.
    __stwb(reinterpret_cast<Word*>(pointer), word);
}

/// `load_pack` of what is not read again soon: other data stays in the cache instead.
template <int COUNT, typename T>
__device__ pack<T, COUNT> load_pack_once(const T* pointer) {
    auto word = __ldcs(reinterpret_cast<const typename detail::moved<sizeof(T) * COUNT>::type*>(pointer));
    if constexpr (is_bool<T>) word = as_bools(word);
    pack<T, COUNT> result;
    memcpy(&result, &word, sizeof(word));
    return result;
}

/// `store_pack` of what is not read again soon.
template <int COUNT, typename T>
__device__ void store_pack_once(T* pointer, const pack<T, COUNT>& values) {
    using Word = typename detail::moved<sizeof(T) * COUNT>::type;
    Word word;
    memcpy(&word, &values, sizeof(word));
    __stcs(reinterpret_cast<Word*>(pointer), word);
}

/// x[0], x[step], x[2 step], …: by one load where they are neighbours that lie aligned, or all the same.
template <int COUNT, typename T>
__device__ pack<T, COUNT> load_spaced(const T* x, long long step) {
    if (step == 1 && is_aligned<pack<T, COUNT>>(x)) return load_pack<COUNT>(x);
    pack<T, COUNT> result;
    if (step == 0) {
        const T value = *stored(x);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = value;
        return result;
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = stored(x)[k * step];
    return result;
}

/// `count` of COUNT elements to `out`: by one store where it is all of them and `out` is aligned.
template <int COUNT, typename T>
__device__ void store_some(T* out, const pack<T, COUNT>& values, int count) {
    if (count >= COUNT && is_aligned<pack<T, COUNT>>(out)) {
        store_pack(out, values);
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k < count) out[k] = values.values[k];
}

}  // namespace cudakit
