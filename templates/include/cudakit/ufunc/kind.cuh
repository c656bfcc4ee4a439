// What NumPy's universal functions tell values apart by, and what they are computed as.
#pragma once

#include <cudakit/elementwise/values.cuh>

namespace cudakit {
namespace ufunc {

namespace detail {
using cudakit::detail::is_floating;
using cudakit::detail::is_one_type;
using cudakit::detail::is_signed_integer;

template <typename T>
struct wide_of {
    using type = T;
};
template <typename H>
struct wide_of<narrow<H>> {
    using type = float;
};
template <typename T>
inline constexpr bool is_complex = false;
template <template <typename> class Complex, typename R>
inline constexpr bool is_complex<Complex<R>> = true;
template <typename H>
inline constexpr bool is_complex<narrow<H>> = false;

template <typename T>
__device__ constexpr bool integer() {
    if constexpr (is_complex<T>)
        return false;
    else
        return is_one_type<T, bool> || !is_floating<typename wide_of<T>::type>;
}
template <typename T>
__device__ constexpr bool floating() {
    return !is_complex<T> && !integer<T>();
}
}  // namespace detail

/// What a value is computed as: float for half and bfloat16.
template <typename T>
using wide = typename detail::wide_of<T>::type;

// ── which kind a value is ────────────────────────────────────────────────────────────────────────────────────────────

template <typename T>
__device__ bool isnan(T x) {
    if constexpr (detail::is_complex<T>)
        return ::isnan(x.real()) || ::isnan(x.imag());
    else if constexpr (detail::integer<T>())
        return false;
    else
        return ::isnan(wide<T>(x));
}
template <typename T>
__device__ bool isinf(T x) {
    if constexpr (detail::is_complex<T>)
        return ::isinf(x.real()) || ::isinf(x.imag());
    else if constexpr (detail::integer<T>())
        return false;
    else
        return ::isinf(wide<T>(x));
}
template <typename T>
__device__ bool isfinite(T x) {
    return !isnan(x) && !isinf(x);
}
template <typename T>
__device__ bool signbit(T x) {
    return ::signbit(wide<T>(x));
}
/// Whether a value counts as true.
template <typename T>
__device__ bool holds(T x) {
    if constexpr (detail::is_complex<T>)
        return x.real() != 0 || x.imag() != 0;
    else
        return wide<T>(x) != wide<T>(0);
}

}  // namespace ufunc
}  // namespace cudakit
