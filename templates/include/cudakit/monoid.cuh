// What a reduction or a scan does with its elements: an identity, a combination, and NumPy's rules for NaN.
#pragma once

#include <cudakit/accumulator.cuh>

namespace cudakit {

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

}  // namespace cudakit
