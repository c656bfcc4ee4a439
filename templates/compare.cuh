#include <cudakit/narrow.cuh>

namespace cudakit {

template <typename T>
__device__ double as_double(T value) {
    if constexpr (sizeof(T) == 8) return static_cast<double>(value);
    else return static_cast<double>(static_cast<float>(value));
}

// outcome[0] += the number of elements that differ, outcome[1] = min(outcome[1], position of the first of them).
// Elements agree if they are equal or both NaN, or if |result − expected| ≤ tolerance · (|expected| + scale). With a
// negative tolerance they agree only if they are equal.
//
// Shapes: expected and result (n), contiguous; outcome (2), {0, n} before the launch.
// Threads: a thread does every (grid · block)-th element.
// Memory: 2 · sizeof(T) bytes an element, one element a load.
// Preconditions: none.
// Launch: any grid and block.
// Source: numpy.allclose, whose tolerance has an absolute part of its own.
template <typename T>
__global__ void differences(
    const T* __restrict__ expected, const T* __restrict__ result, unsigned long long n, double tolerance, double scale,
    unsigned long long* outcome) {
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i < n; i += step) {
        if (expected[i] == result[i]) continue;
        const double e = as_double(expected[i]), r = as_double(result[i]);
        if (tolerance >= 0 && ((e != e && r != r) || fabs(r - e) <= tolerance * (fabs(e) + scale))) continue;
        atomicAdd(outcome, 1ull);
        atomicMin(outcome + 1, i);
    }
}

}  // namespace cudakit
