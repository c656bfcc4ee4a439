// What a reduction or a scan does with its elements: an identity, a combination, and NumPy's rules for NaN.
#pragma once

#include <cudakit/accumulator.cuh>

namespace cudakit {

/// Whether the sum, the product, the least … of values of a type do not depend on the order of each two.
template <typename T>
inline constexpr bool commutes = false;
template <>
inline constexpr bool commutes<float> = true;
template <>
inline constexpr bool commutes<double> = true;
template <>
inline constexpr bool commutes<int> = true;
template <>
inline constexpr bool commutes<unsigned int> = true;
template <>
inline constexpr bool commutes<long long> = true;
template <>
inline constexpr bool commutes<unsigned long long> = true;

/// A state, or that there is none yet: for combinations without an identity.
template <typename T>
struct perhaps {
    T value;
    bool is_there;
};

/// a + b. Floating point adds in the order given.
struct plus {
    template <typename A>
    static __device__ constexpr A identity() {
        return A(0);
    }
    template <typename A>
    __device__ constexpr A operator()(A a, A b) const {
        return a + b;
    }
};

/// a · b
struct times {
    template <typename A>
    static __device__ constexpr A identity() {
        return A(1);
    }
    template <typename A>
    __device__ constexpr A operator()(A a, A b) const {
        return a * b;
    }
};

/// a or b, of 0 and 1.
struct either {
    template <typename A>
    static __device__ constexpr A identity() {
        return A(0);
    }
    template <typename A>
    __device__ constexpr A operator()(A a, A b) const {
        return a | b;
    }
};

/// a and b, of 0 and 1.
struct both {
    template <typename A>
    static __device__ constexpr A identity() {
        return A(1);
    }
    template <typename A>
    __device__ constexpr A operator()(A a, A b) const {
        return a & b;
    }
};

namespace detail {
template <typename A>
__device__ constexpr auto is_complex(int) -> decltype(A().real(), true) {
    return true;
}
template <typename A>
__device__ constexpr bool is_complex(...) {
    return false;
}

// What no value of A is beyond: an infinity, of both parts where A is complex, or the end of an integer's range.
template <typename A>
__device__ constexpr A end_of_range(bool upper) {
    if constexpr (is_complex<A>(0)) {
        using Part = decltype(A().real());
        return A(end_of_range<Part>(upper), end_of_range<Part>(upper));
    } else if constexpr (A(0.5) != A(0) && A(0.5) != A(1)) {
        return A(__int_as_float(upper ? 0x7f800000 : 0xff800000));
    } else if constexpr (A(2) == A(1)) {
        return A(upper);
    } else if constexpr (A(-1) > A(0)) {
        return upper ? A(-1) : A(0);
    } else {
        constexpr A highest = static_cast<A>(~0ull >> (65 - 8 * sizeof(A)));
        return upper ? highest : static_cast<A>(-highest - 1);
    }
}
}  // namespace detail

/// a < b, complex numbers by their real parts first, as NumPy sorts them; false where either is NaN.
template <typename A>
__device__ bool is_less(A a, A b) {
    if constexpr (!detail::is_complex<A>(0)) return a < b;
    else if (a != a || b != b) return false;
    else return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
}

/// The lesser; NaN where either is.
struct minimum {
    template <typename A>
    static __device__ constexpr A identity() {
        return detail::end_of_range<A>(true);
    }
    template <typename A>
    __device__ A operator()(A a, A b) const {
        return is_less(a, b) || a != a ? a : b;
    }
    // One instruction, where comparing takes four.
    __device__ float operator()(float a, float b) const {
        float least;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
        return least;
    }
};

/// The greater; NaN where either is.
struct maximum {
    template <typename A>
    static __device__ constexpr A identity() {
        return detail::end_of_range<A>(false);
    }
    template <typename A>
    __device__ A operator()(A a, A b) const {
        return is_less(b, a) || a != a ? a : b;
    }
    __device__ float operator()(float a, float b) const {
        float greatest;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(greatest) : "f"(a), "f"(b));
        return greatest;
    }
};

}  // namespace cudakit
