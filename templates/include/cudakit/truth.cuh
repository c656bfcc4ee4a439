// Elements of bool arrays as they lie: a byte, of which any but 0 holds. Masks from image files have 255 there; a `bool` of
// C++ is 0 or 1, and what reads another byte as one computes with that byte.
#pragma once

namespace cudakit {

/// An element of a bool array in memory.
struct truth {
    unsigned char byte;
    __host__ __device__ operator bool() const { return byte != 0; }
};

namespace detail {
template <typename T>
struct stored_as {
    using type = T;
};
template <>
struct stored_as<bool> {
    using type = truth;
};
}  // namespace detail

/// What an array of T holds.
template <typename T>
using stored_t = typename detail::stored_as<T>::type;

template <typename T>
inline constexpr bool is_bool = false;
template <>
inline constexpr bool is_bool<bool> = true;

/// An array as what it holds.
template <typename T>
__host__ __device__ const stored_t<T>* stored(const T* x) {
    return reinterpret_cast<const stored_t<T>*>(x);
}

/// Words of truths as words of bools: 1 for each byte that is not 0, four at once.
__device__ inline unsigned int as_bools(unsigned int word) {
    return ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7;
}
__device__ inline unsigned char as_bools(unsigned char word) {
    return word != 0;
}
__device__ inline unsigned short as_bools(unsigned short word) {
    return static_cast<unsigned short>(as_bools(static_cast<unsigned int>(word)));
}
__device__ inline uint2 as_bools(const uint2& words) {
    return {as_bools(words.x), as_bools(words.y)};
}
__device__ inline uint4 as_bools(const uint4& words) {
    return {as_bools(words.x), as_bools(words.y), as_bools(words.z), as_bools(words.w)};
}

}  // namespace cudakit
