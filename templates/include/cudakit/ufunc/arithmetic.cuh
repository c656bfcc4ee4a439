// Sums, products, quotients and rests of one element, as NumPy has them.
#pragma once

#include <cudakit/ufunc/kind.cuh>

namespace cudakit {
namespace ufunc {

template <typename T>
__device__ T add(T x, T y) {
    if constexpr (detail::is_one_type<T, bool>)
        return x || y;
    else if constexpr (detail::integer<T>())
        return static_cast<T>(static_cast<unsigned long long>(x) + static_cast<unsigned long long>(y));
    else if constexpr (detail::is_complex<T>)
        return T(x.real() + y.real(), x.imag() + y.imag());
    else
        return wide<T>(x) + wide<T>(y);
}
template <typename T>
__device__ T subtract(T x, T y) {
    if constexpr (detail::integer<T>())
        return static_cast<T>(static_cast<unsigned long long>(x) - static_cast<unsigned long long>(y));
    else if constexpr (detail::is_complex<T>)
        return T(x.real() - y.real(), x.imag() - y.imag());
    else
        return wide<T>(x) - wide<T>(y);
}
template <typename T>
__device__ T multiply(T x, T y) {
    if constexpr (detail::is_one_type<T, bool>)
        return x && y;
    else if constexpr (detail::integer<T>())
        return static_cast<T>(static_cast<unsigned long long>(x) * static_cast<unsigned long long>(y));
    else if constexpr (detail::is_complex<T>)
        return T(x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real());
    else
        return wide<T>(x) * wide<T>(y);
}
/// Complex numbers by Smith's algorithm, as NumPy divides them.
template <typename T>
__device__ T divide(T x, T y) {
    if constexpr (detail::is_complex<T>) {
        const auto a = x.real(), b = x.imag(), c = y.real(), d = y.imag();
        if (fabs(c) >= fabs(d)) {
            if (c == 0 && d == 0) return T(a / fabs(c), b / fabs(c));
            const auto ratio = d / c, scale = 1 / (c + d * ratio);
            return T((a + b * ratio) * scale, (b - a * ratio) * scale);
        }
        const auto ratio = c / d, scale = 1 / (d + c * ratio);
        return T((a * ratio + b) * scale, (b * ratio - a) * scale);
    } else {
        return wide<T>(x) / wide<T>(y);
    }
}
template <typename T>
__device__ T negative(T x) {
    if constexpr (detail::integer<T>())
        return static_cast<T>(0ull - static_cast<unsigned long long>(x));
    else if constexpr (detail::is_complex<T>)
        return T(-x.real(), -x.imag());
    else
        return -wide<T>(x);
}
template <typename T>
__device__ T positive(T x) {
    return x;
}
template <typename T>
__device__ T conjugate(T x) {
    if constexpr (detail::is_complex<T>)
        return T(x.real(), -x.imag());
    else
        return x;
}
template <typename T>
__device__ T square(T x) {
    return multiply(x, x);
}
/// Integers: 0 where x is 0.
template <typename T>
__device__ T reciprocal(T x) {
    if constexpr (detail::integer<T>())
        return x == T(0) ? T(0) : static_cast<T>(T(1) / x);
    else if constexpr (detail::is_complex<T>)
        return divide(T(1), x);
    else
        return 1 / wide<T>(x);
}
template <typename T>
__device__ auto absolute(T x) {
    if constexpr (detail::is_complex<T>)
        return ::hypot(x.real(), x.imag());
    else if constexpr (detail::floating<T>())
        return T(::fabs(wide<T>(x)));
    else if constexpr (detail::is_signed_integer<T>)
        return x < 0 ? negative(x) : x;
    else
        return x;
}
template <typename T>
__device__ T fabs(T x) {
    return ::fabs(wide<T>(x));
}
template <typename T>
__device__ T sign(T x) {
    if constexpr (detail::is_complex<T>) {
        if (x.real() == 0 && x.imag() == 0) return T(0);
        const auto size = ::hypot(x.real(), x.imag());
        return T(x.real() / size, x.imag() / size);
    } else {
        const wide<T> value = x;
        return value > 0 ? T(wide<T>(1)) : value < 0 ? T(wide<T>(-1)) : value == 0 ? T(wide<T>(0)) : x;
    }
}

// ── division with a rest ─────────────────────────────────────────────────────────────────────────────────────────────

/// Of C: the rest has the sign of x. Integers: 0 where y is 0.
template <typename T>
__device__ T fmod(T x, T y) {
    if constexpr (detail::integer<T>()) {
        if (y == T(0)) return 0;
        if constexpr (detail::is_signed_integer<T>)
            if (y == T(-1)) return 0;
        return static_cast<T>(x % y);
    } else {
        return ::fmod(wide<T>(x), wide<T>(y));
    }
}
/// The rest has the sign of y. Integers: 0 where y is 0.
template <typename T>
__device__ T remainder(T x, T y) {
    if constexpr (detail::integer<T>()) {
        const T rest = fmod(x, y);
        if constexpr (detail::is_signed_integer<T>)
            if (rest != 0 && (rest < 0) != (y < 0)) return static_cast<T>(rest + y);
        return rest;
    } else {
        const wide<T> a = x, b = y;
        wide<T> rest = ::fmod(a, b);
        if (b == 0) return rest;
        if (rest != 0) {
            if ((b < 0) != (rest < 0)) rest += b;
        } else {
            rest = ::copysign(wide<T>(0), b);
        }
        return rest;
    }
}
/// The quotient rounded down. Integers: 0 where y is 0, and the least divided by -1 stays the least.
template <typename T>
__device__ T floor_divide(T x, T y) {
    if constexpr (detail::integer<T>()) {
        if (y == T(0)) return 0;
        if constexpr (detail::is_signed_integer<T>) {
            if (y == T(-1)) return negative(x);
            const T quotient = static_cast<T>(x / y);
            return (x % y != 0 && (x < 0) != (y < 0)) ? static_cast<T>(quotient - 1) : quotient;
        } else {
            return static_cast<T>(x / y);
        }
    } else {
        const wide<T> a = x, b = y;
        if (b == 0) return a / b;
        wide<T> rest = ::fmod(a, b), quotient = (a - rest) / b;
        if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
        if (quotient == 0) return ::copysign(wide<T>(0), a / b);
        const wide<T> whole = ::floor(quotient);
        return quotient - whole > wide<T>(0.5) ? whole + 1 : whole;
    }
}

}  // namespace ufunc
}  // namespace cudakit
