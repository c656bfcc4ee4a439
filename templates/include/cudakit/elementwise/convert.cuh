// A value as another type, by NumPy's rules: any of bool, integers, half, bfloat16, float, double and complex pairs.
#pragma once

#include <cudakit/narrow.cuh>
#include <cudakit/truth.cuh>

namespace cudakit {

/// A complex number as it lies in memory; cuda::std::complex costs the compiler half a second.
template <typename R>
struct alignas(2 * sizeof(R)) parts {
    R real, imaginary;
};

namespace detail {
template <typename T>
struct number {
    using part = T;
    static constexpr bool is_complex = false, is_wide = !is_narrow<T>;
};
template <typename R>
struct number<parts<R>> {
    using part = R;
    static constexpr bool is_complex = true, is_wide = true;
};
template <typename A, typename B>
inline constexpr bool is_one_type = false;
template <typename A>
inline constexpr bool is_one_type<A, A> = true;
template <typename T>
inline constexpr bool is_floating = static_cast<T>(0.5) != static_cast<T>(0);
template <typename T>
inline constexpr bool is_signed_integer = static_cast<T>(-1) < static_cast<T>(0);

// The greatest value of an integer type.
template <typename T>
__device__ constexpr T greatest() {
    return is_signed_integer<T> ? static_cast<T>((1ull << (8 * sizeof(T) - 1)) - 1) : static_cast<T>(~0ull);
}

// Toward zero. Out of range: the low bits of the 32-bit (64-bit for wider T and for unsigned int) conversion, which clamps.
template <typename T, typename F>
__device__ T truncated(F value) {
    if constexpr (sizeof(T) < 4 || (sizeof(T) == 4 && is_signed_integer<T>)) return static_cast<T>(static_cast<int>(value));
    if constexpr (sizeof(T) == 8 && !is_signed_integer<T>)
        if (value >= F(0)) return static_cast<T>(value);
    return static_cast<T>(static_cast<long long>(value));
}

// Toward zero and to the nearest end of T's range; 0 for NaN.
template <typename T, typename F>
__device__ T clamped_floating(F value) {
    // 2^(value bits) is exact in F, and the first number beyond the range.
    constexpr F END = F(2) * static_cast<F>(1ull << (8 * sizeof(T) - (is_signed_integer<T> ? 2 : 1)));
    if (value >= END) return greatest<T>();
    if constexpr (is_signed_integer<T>) {
        if (value <= -END) return static_cast<T>(-greatest<T>() - 1);
    } else {
        if (value <= F(0)) return 0;
    }
    return value == value ? static_cast<T>(value) : T(0);
}

template <typename T, typename I>
__device__ T clamped_integer(I value) {
    if constexpr (is_signed_integer<I>) {
        if (value < 0) {
            if constexpr (is_signed_integer<T>) {
                constexpr long long LEAST = -static_cast<long long>(greatest<T>()) - 1;
                return static_cast<T>(max(static_cast<long long>(value), LEAST));
            }
            return 0;
        }
    }
    return static_cast<T>(min(static_cast<unsigned long long>(value), static_cast<unsigned long long>(greatest<T>())));
}
}  // namespace detail

/// `value` as `To`. Complex to real drops the imaginary part; to bool is whether it is not 0. Integers wrap around. Floating
/// point to integer goes toward zero; what is out of range, and NaN, becomes what the hardware's conversion to 32 bits (64
/// for unsigned int and wider) makes of it, low bits kept. SATURATE: integers take the nearest value of their range, and
/// NaN becomes 0.
template <typename To, bool SATURATE = false, typename From>
__device__ To convert(From value) {
    if constexpr (detail::is_one_type<To, From>) {
        return value;
    } else if constexpr (detail::is_one_type<From, truth>) {
        return convert<To, SATURATE>(static_cast<bool>(value));
    } else if constexpr (detail::number<From>::is_complex) {
        if constexpr (detail::number<To>::is_complex) {
            using R = typename detail::number<To>::part;
            return {convert<R>(value.real), convert<R>(value.imaginary)};
        } else if constexpr (detail::is_one_type<To, bool>) {
            return convert<bool>(value.real) || convert<bool>(value.imaginary);
        } else {
            return convert<To, SATURATE>(value.real);
        }
    } else if constexpr (detail::number<To>::is_complex) {
        using R = typename detail::number<To>::part;
        return {convert<R>(value), R(0)};
    } else if constexpr (!detail::number<From>::is_wide) {
        return convert<To, SATURATE>(static_cast<float>(value));
    } else if constexpr (detail::is_one_type<To, bool>) {
        return value != From(0);
    } else if constexpr (detail::is_one_type<To, __half> && detail::is_one_type<From, double>) {
        return static_cast<To>(value);  // rounded once
    } else if constexpr (!detail::number<To>::is_wide) {
        return static_cast<To>(static_cast<float>(value));
    } else if constexpr (detail::is_floating<To>) {
        return static_cast<To>(value);
    } else if constexpr (detail::is_floating<From>) {
        if constexpr (SATURATE)
            return detail::clamped_floating<To>(value);
        else
            return detail::truncated<To>(value);
    } else if constexpr (SATURATE) {
        return detail::clamped_integer<To>(value);
    } else {
        return static_cast<To>(value);
    }
}

}  // namespace cudakit
