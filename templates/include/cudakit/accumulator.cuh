// The type that a sum of T is kept in.
#pragma once

#include <cudakit/narrow.cuh>
#include <cudakit/truth.cuh>

namespace cudakit {

namespace detail {
template <typename T, bool IS_NARROW = is_narrow<T>>
struct accumulator {  // float, double, complex and user types add up in themselves
    using unbounded = T;
    using window = T;
};
template <typename T>
struct accumulator<T, true> {
    using unbounded = float;
    using window = float;
};
#define CUDAKIT_ACCUMULATOR(T, Unbounded, Window) \
    template <> \
    struct accumulator<T> { \
        using unbounded = Unbounded; \
        using window = Window; \
    };
CUDAKIT_ACCUMULATOR(bool, long long, int)
CUDAKIT_ACCUMULATOR(truth, long long, int)
CUDAKIT_ACCUMULATOR(char, long long, int)
CUDAKIT_ACCUMULATOR(signed char, long long, int)
CUDAKIT_ACCUMULATOR(unsigned char, unsigned long long, int)
CUDAKIT_ACCUMULATOR(short, long long, int)
CUDAKIT_ACCUMULATOR(unsigned short, unsigned long long, int)
CUDAKIT_ACCUMULATOR(int, long long, long long)
CUDAKIT_ACCUMULATOR(unsigned int, unsigned long long, long long)
CUDAKIT_ACCUMULATOR(long, long long, long long)
CUDAKIT_ACCUMULATOR(unsigned long, unsigned long long, unsigned long long)
#undef CUDAKIT_ACCUMULATOR
}  // namespace detail

/// For a sum of any length: 64 bits for integers (as NumPy sums them), float for half and bfloat16, else T.
template <typename T>
using accumulator_t = typename detail::accumulator<T>::unbounded;

/// For weights that add up to at most 2^15, such as a small filter: a signed type, of 32 bits where T has 16 or fewer.
template <typename T>
using window_accumulator_t = typename detail::accumulator<T>::window;

}  // namespace cudakit
