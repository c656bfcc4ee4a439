// Comparisons, logic and extrema of one element, as NumPy has them.
#pragma once

#include <cudakit/ufunc/kind.cuh>

namespace cudakit {
namespace ufunc {

namespace detail {
// A bool as a number of which the compiler knows nothing. It makes x < y and x <= y of two bools one instruction with two
// results, and ptxas 13.0 takes the wrong one of the two where it computes it once more to save a register.
__device__ inline unsigned opaque(bool x) {
    unsigned number = x;
    asm("" : "+r"(number));
    return number;
}
}  // namespace detail

/// Complex numbers by their real parts, then the imaginary ones; integers of two types by their values.
template <typename A, typename B>
__device__ bool less(A x, B y) {
    if constexpr (detail::is_complex<A>) {
        const bool ordered = !::isnan(x.imag()) && !::isnan(y.imag());
        return (x.real() < y.real() && ordered) || (x.real() == y.real() && x.imag() < y.imag());
    } else if constexpr (detail::is_one_type<A, bool> && detail::is_one_type<B, bool>) {
        return detail::opaque(x) < detail::opaque(y);
    } else if constexpr (detail::is_one_type<A, B>) {
        return wide<A>(x) < wide<B>(y);
    } else if constexpr (detail::is_signed_integer<A>) {
        return x < 0 || static_cast<unsigned long long>(x) < static_cast<unsigned long long>(y);
    } else {
        return y >= 0 && static_cast<unsigned long long>(x) < static_cast<unsigned long long>(y);
    }
}
template <typename A, typename B>
__device__ bool equal(A x, B y) {
    if constexpr (detail::is_complex<A>)
        return x.real() == y.real() && x.imag() == y.imag();
    else if constexpr (detail::is_one_type<A, B>)
        return wide<A>(x) == wide<B>(y);
    else
        return !less(x, y) && !less(y, x);
}
template <typename A, typename B>
__device__ bool less_equal(A x, B y) {
    if constexpr (detail::is_complex<A>) {
        const bool ordered = !::isnan(x.imag()) && !::isnan(y.imag());
        return (x.real() < y.real() && ordered) || (x.real() == y.real() && x.imag() <= y.imag());
    } else if constexpr (detail::is_one_type<A, bool> && detail::is_one_type<B, bool>) {
        return detail::opaque(x) <= detail::opaque(y);
    } else if constexpr (detail::is_one_type<A, B>) {
        return wide<A>(x) <= wide<B>(y);
    } else {
        return !less(y, x);
    }
}
template <typename A, typename B>
__device__ bool greater(A x, B y) {
    return less(y, x);
}
template <typename A, typename B>
__device__ bool greater_equal(A x, B y) {
    return less_equal(y, x);
}
template <typename A, typename B>
__device__ bool not_equal(A x, B y) {
    return !equal(x, y);
}
template <typename A, typename B>
__device__ bool logical_and(A x, B y) {
    return holds(x) && holds(y);
}
template <typename A, typename B>
__device__ bool logical_or(A x, B y) {
    return holds(x) || holds(y);
}
template <typename A, typename B>
__device__ bool logical_xor(A x, B y) {
    return holds(x) != holds(y);
}
template <typename T>
__device__ bool logical_not(T x) {
    return !holds(x);
}
/// NaN where one is NaN; of two the first.
template <typename T>
__device__ T maximum(T x, T y) {
    return greater_equal(x, y) || isnan(x) ? x : y;
}
template <typename T>
__device__ T minimum(T x, T y) {
    return less_equal(x, y) || isnan(x) ? x : y;
}
/// The other where one is NaN.
template <typename T>
__device__ T fmax(T x, T y) {
    return greater_equal(x, y) || isnan(y) ? x : y;
}
template <typename T>
__device__ T fmin(T x, T y) {
    return less_equal(x, y) || isnan(y) ? x : y;
}

}  // namespace ufunc
}  // namespace cudakit
