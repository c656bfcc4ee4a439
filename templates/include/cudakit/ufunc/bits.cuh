// Bits, divisors and multiples of integers, as NumPy has them.
#pragma once

#include <cudakit/ufunc/kind.cuh>

namespace cudakit {
namespace ufunc {

template <typename T>
__device__ T bitwise_and(T x, T y) {
    return x & y;
}
template <typename T>
__device__ T bitwise_or(T x, T y) {
    return x | y;
}
template <typename T>
__device__ T bitwise_xor(T x, T y) {
    return x ^ y;
}
template <typename T>
__device__ T invert(T x) {
    if constexpr (detail::is_one_type<T, bool>)
        return !x;
    else
        return ~x;
}
/// 0 where the shift is negative or moves every bit out.
template <typename T>
__device__ T left_shift(T x, T by) {
    const bool fits = static_cast<unsigned long long>(by) < 8 * sizeof(T);
    return fits ? static_cast<T>(static_cast<unsigned long long>(x) << static_cast<int>(by)) : T(0);
}
/// The sign, as 0 or -1, where the shift is negative or moves every bit out.
template <typename T>
__device__ T right_shift(T x, T by) {
    const bool fits = static_cast<unsigned long long>(by) < 8 * sizeof(T);
    return fits ? static_cast<T>(x >> static_cast<int>(by)) : T(x < T(0) ? -1 : 0);
}
template <typename T>
__device__ unsigned char bitwise_count(T x) {
    const T size = absolute(x);
    const int spare = 64 - 8 * static_cast<int>(sizeof(T));
    return static_cast<unsigned char>(__popcll(static_cast<unsigned long long>(size) << spare));
}
namespace detail {
// |x|, also of the least integer.
template <typename T>
__device__ unsigned long long size_of(T x) {
    const unsigned long long bits = static_cast<unsigned long long>(x);
    return x < T(0) ? 0 - bits : bits;
}
__device__ inline unsigned long long common_divisor(unsigned long long x, unsigned long long y) {
    while (x) {
        const unsigned long long rest = y % x;
        y = x;
        x = rest;
    }
    return y;
}
}  // namespace detail

template <typename T>
__device__ T gcd(T x, T y) {
    return static_cast<T>(detail::common_divisor(detail::size_of(x), detail::size_of(y)));
}
template <typename T>
__device__ T lcm(T x, T y) {
    const unsigned long long a = detail::size_of(x), b = detail::size_of(y);
    const unsigned long long divisor = detail::common_divisor(a, b);
    return divisor == 0 ? T(0) : static_cast<T>(a / divisor * b);
}

}  // namespace ufunc
}  // namespace cudakit
