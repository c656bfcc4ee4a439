// NumPy's universal functions of one element: one template each, called with values of the types that NumPy computes in.
// half and bfloat16 (`narrow`) are computed as float and rounded once, as NumPy does it.
#pragma once

#include <cudakit/elements.cuh>

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

// ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────────

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

// ── powers, roots, exponentials, logarithms ──────────────────────────────────────────────────────────────────────────

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

// ── integers and bits ────────────────────────────────────────────────────────────────────────────────────────────────

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

// ── comparisons and logic ────────────────────────────────────────────────────────────────────────────────────────────

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
template <typename T>
__device__ bool logical_and(T x, T y) {
    return holds(x) && holds(y);
}
template <typename T>
__device__ bool logical_or(T x, T y) {
    return holds(x) || holds(y);
}
template <typename T>
__device__ bool logical_xor(T x, T y) {
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
