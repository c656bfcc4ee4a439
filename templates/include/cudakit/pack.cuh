// COUNT neighbours of an array as one aligned word, which one load or store instruction moves; neighbours wherever they
// start; and elements from anywhere, gathered.
#pragma once

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
    const auto word = *reinterpret_cast<const typename detail::moved<sizeof(T) * COUNT>::type*>(pointer);
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
    __stwb(reinterpret_cast<Word*>(pointer), word);
}

/// x[at[0]], x[at[1]], …: by one load where they are neighbours (forward or backward) that lie aligned, or all the same.
template <int COUNT, typename T>
__device__ pack<T, COUNT> gather_pack(const T* x, const long long (&at)[COUNT]) {
    pack<T, COUNT> result;
    bool forward = true, backward = true, same = true;
#pragma unroll
    for (int k = 1; k < COUNT; ++k) {
        forward = forward && at[k] == at[0] + k;
        backward = backward && at[k] == at[0] - k;
        same = same && at[k] == at[0];
    }
    if (forward && is_aligned<pack<T, COUNT>>(x + at[0])) return load_pack<COUNT>(x + at[0]);
    if (backward && is_aligned<pack<T, COUNT>>(x + at[COUNT - 1])) {
        const pack<T, COUNT> reversed = load_pack<COUNT>(x + at[COUNT - 1]);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = reversed.values[COUNT - 1 - k];
        return result;
    }
    if (same) {
        const T value = x[at[0]];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = value;
        return result;
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = x[at[k]];
    return result;
}

}  // namespace cudakit
