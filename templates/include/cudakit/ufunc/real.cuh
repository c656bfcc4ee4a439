// Powers, roots, exponentials, angles, parts and rounding of one element, as NumPy has them.
#pragma once

#include <cudakit/ufunc/arithmetic.cuh>

namespace cudakit {
namespace ufunc {

/// Functions that complex numbers have too: theirs are cuda::std's, found by their argument.
#define CUDAKIT_OF_ONE(name, function) \
    template <typename T> \
    __device__ T name(T x) { \
        if constexpr (detail::is_complex<T>) { \
            return function(x); \
        } else { \
            return ::function(wide<T>(x)); \
        } \
    }
CUDAKIT_OF_ONE(sqrt, sqrt)
CUDAKIT_OF_ONE(exp, exp)
CUDAKIT_OF_ONE(log, log)
CUDAKIT_OF_ONE(log10, log10)
CUDAKIT_OF_ONE(sin, sin)
CUDAKIT_OF_ONE(cos, cos)
CUDAKIT_OF_ONE(tan, tan)
CUDAKIT_OF_ONE(arcsin, asin)
CUDAKIT_OF_ONE(arccos, acos)
CUDAKIT_OF_ONE(arctan, atan)
CUDAKIT_OF_ONE(sinh, sinh)
CUDAKIT_OF_ONE(cosh, cosh)
CUDAKIT_OF_ONE(tanh, tanh)
CUDAKIT_OF_ONE(arcsinh, asinh)
CUDAKIT_OF_ONE(arccosh, acosh)
CUDAKIT_OF_ONE(arctanh, atanh)
#undef CUDAKIT_OF_ONE

template <typename T>
__device__ T cbrt(T x) {
    return ::cbrt(wide<T>(x));
}
template <typename T>
__device__ T exp2(T x) {
    if constexpr (detail::is_complex<T>) {
        const auto size = ::exp2(x.real()), angle = x.imag() * decltype(x.real())(0.69314718055994530942);
        return T(size * ::cos(angle), size * ::sin(angle));
    } else {
        return ::exp2(wide<T>(x));
    }
}
template <typename T>
__device__ T expm1(T x) {
    if constexpr (detail::is_complex<T>) {
        const auto half = ::sin(x.imag() / 2);
        return T(::expm1(x.real()) * ::cos(x.imag()) - 2 * half * half, ::exp(x.real()) * ::sin(x.imag()));
    } else {
        return ::expm1(wide<T>(x));
    }
}
template <typename T>
__device__ T log1p(T x) {
    if constexpr (detail::is_complex<T>)
        return T(::log(::hypot(x.real() + 1, x.imag())), ::atan2(x.imag(), x.real() + 1));
    else
        return ::log1p(wide<T>(x));
}
template <typename T>
__device__ T log2(T x) {
    if constexpr (detail::is_complex<T>) {
        const T natural = log(x);
        const auto by = decltype(x.real())(1.44269504088896340736);
        return T(natural.real() * by, natural.imag() * by);
    } else {
        return ::log2(wide<T>(x));
    }
}
/// Integers wrap around; a negative exponent, which NumPy refuses, gives 1 / x ** -y rounded toward zero.
template <typename T>
__device__ T power(T x, T y) {
    if constexpr (detail::integer<T>()) {
        if constexpr (detail::is_signed_integer<T>) {
            if (y < 0) return x == 1 ? T(1) : x == -1 ? T(y % 2 ? -1 : 1) : T(0);
        }
        unsigned long long result = 1, factor = static_cast<unsigned long long>(x);
        for (unsigned long long left = static_cast<unsigned long long>(y); left; left >>= 1, factor *= factor)
            if (left & 1) result *= factor;
        return static_cast<T>(result);
    } else if constexpr (detail::is_complex<T>) {
        if (y.real() == 0 && y.imag() == 0) return T(1);
        if (x.real() == 0 && x.imag() == 0 && y.real() > 0 && y.imag() == 0) return T(0);
        return pow(x, y);
    } else {
        return ::pow(wide<T>(x), wide<T>(y));
    }
}
template <typename T>
__device__ T float_power(T x, T y) {
    return power(x, y);
}
template <typename T>
__device__ T logaddexp(T x, T y) {
    const wide<T> a = x, b = y;
    if (a == b) return a + wide<T>(0.69314718055994530942);
    const wide<T> apart = a - b;
    return apart > 0 ? a + ::log1p(::exp(-apart)) : apart <= 0 ? b + ::log1p(::exp(apart)) : apart;
}
template <typename T>
__device__ T logaddexp2(T x, T y) {
    const wide<T> a = x, b = y;
    if (a == b) return a + 1;
    const wide<T> apart = a - b, by = wide<T>(1.44269504088896340736);
    return apart > 0 ? a + by * ::log1p(::exp2(-apart)) : apart <= 0 ? b + by * ::log1p(::exp2(apart)) : apart;
}

// ── angles, signs, parts ─────────────────────────────────────────────────────────────────────────────────────────────

#define CUDAKIT_OF_TWO(name, function) \
    template <typename T> \
    __device__ T name(T x, T y) { \
        return ::function(wide<T>(x), wide<T>(y)); \
    }
CUDAKIT_OF_TWO(arctan2, atan2)
CUDAKIT_OF_TWO(hypot, hypot)
CUDAKIT_OF_TWO(copysign, copysign)
#undef CUDAKIT_OF_TWO
template <typename T>
__device__ T degrees(T x) {
    return wide<T>(x) * (wide<T>(180) / wide<T>(3.14159265358979323846));
}
template <typename T>
__device__ T radians(T x) {
    return wide<T>(x) * (wide<T>(3.14159265358979323846) / wide<T>(180));
}
template <typename T>
__device__ T heaviside(T x, T y) {
    const wide<T> value = x;
    return value > 0 ? T(wide<T>(1)) : value < 0 ? T(wide<T>(0)) : value == 0 ? y : x;
}
template <typename T>
__device__ T ldexp(T x, int exponent) {
    return ::ldexp(wide<T>(x), exponent);
}
template <typename T>
__device__ T ldexp(T x, long long exponent) {
    return ::ldexp(wide<T>(x), static_cast<int>(max(-100000ll, min(100000ll, exponent))));
}
template <typename T>
__device__ void frexp(T x, T& fraction, int& exponent) {
    exponent = 0;
    fraction = x;
    if (isfinite(x)) fraction = ::frexp(wide<T>(x), &exponent);
}
template <typename T>
__device__ void modf(T x, T& fraction, T& whole) {
    wide<T> part;
    fraction = ::modf(wide<T>(x), &part);
    whole = part;
}
template <typename T>
__device__ T nextafter(T x, T y) {
    if constexpr (detail::is_one_type<T, wide<T>>) {
        return ::nextafter(x, y);
    } else {
        const float a = x, b = y;
        if (::isnan(a) || ::isnan(b)) return a + b;
        if (a == b) return x;
        unsigned short bits;
        memcpy(&bits, &x, 2);
        if (a == 0)
            bits = (b < 0) << 15 | 1;
        else
            bits += (a < b) == (a > 0) ? 1 : -1;
        T result;
        memcpy(&result, &bits, 2);
        return result;
    }
}
/// Of half and bfloat16 the way up, as NumPy has it for half.
template <typename T>
__device__ T spacing(T x) {
    const wide<T> value = x, endless = wide<T>(1) / wide<T>(0);
    if (::isinf(value)) return wide<T>(endless - endless);
    if constexpr (detail::is_one_type<T, wide<T>>)
        return ::nextafter(value, value < 0 ? -endless : endless) - value;
    else
        return float(nextafter(x, T(endless))) - value;
}

// ── rounding ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#define CUDAKIT_ROUNDING(name) \
    template <typename T> \
    __device__ T name(T x) { \
        if constexpr (detail::integer<T>()) \
            return x; \
        else if constexpr (detail::is_complex<T>) \
            return T(::name(x.real()), ::name(x.imag())); \
        else \
            return ::name(wide<T>(x)); \
    }
CUDAKIT_ROUNDING(floor)
CUDAKIT_ROUNDING(ceil)
CUDAKIT_ROUNDING(trunc)
CUDAKIT_ROUNDING(rint)
#undef CUDAKIT_ROUNDING

}  // namespace ufunc
}  // namespace cudakit
