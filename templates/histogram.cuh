#include <cudakit/grid.cuh>
#include <cudakit/pack.cuh>

namespace cudakit {

// What a bin is computed in: float holds every value of T that has 24 bits or fewer, double the others up to 53.
template <typename T>
struct bin_arithmetic {
    using type = double;
};
template <>
struct bin_arithmetic<signed char> {
    using type = float;
};
template <>
struct bin_arithmetic<unsigned char> {
    using type = float;
};
template <>
struct bin_arithmetic<short> {
    using type = float;
};
template <>
struct bin_arithmetic<unsigned short> {
    using type = float;
};
template <>
struct bin_arithmetic<float> {
    using type = float;
};

}  // namespace cudakit

// counts[b] += the number of values v with low ≤ v < high and b = min(⌊(v − low) · (BINS / (high − low))⌋, BINS − 1).
// Computed in float for integers of 8 and 16 bits and for float, with low, high and the factor rounded to it; in double
// for every other T. A subtraction and then a product: nothing to contract, so NumPy gives the same bins bit for bit.
// NaN is counted nowhere, and neither is a value outside (unlike numpy.histogram, `high` itself is outside).
//
// Shapes: values (size), T, C-contiguous; counts (BINS), unsigned 64-bit, which the caller zeroes or goes on from.
// Threads: thread i does values 4i … 4i + 3 as one load (2 where they have 8 bytes), then strides; one at a time where
//   `values` is not aligned to that, and at the end.
// Memory: sizeof(T) bytes a value. Shared: COPIES counters a bin, lane l adding to copy l % COPIES, as equal neighbours
//   are common in images and would queue for one counter; copies are BINS + 1 apart, so that a bin's copies lie in
//   different banks. 8 · 257 · 4 = 8,224 bytes for 256 bins.
// Preconditions: low < high; a block sees fewer than 2^32 values, which holds for any size under 2^32 × blocks.
// Launch: any shape. A block ends with BINS global atomics, so a few blocks a multiprocessor beat one thread a value.
// Source: Gómez-Luna et al., An optimized approach to histogram computation on GPU, Mach. Vision Appl. 24 (2013).
template <typename T, int BINS = 256>
__global__ void even(
    const T* __restrict__ values, unsigned long long* __restrict__ counts, long long size, double low, double high) {
    static_assert(BINS > 0, "a histogram has bins");
    constexpr int COPIES = BINS <= 1024 ? 8 : 1;
    static_assert(COPIES * (BINS + 1) * 4 <= 48 * 1024, "the counters must fit static shared memory");
    using Real = typename cudakit::bin_arithmetic<T>::type;
    __shared__ unsigned int counters[COPIES * (BINS + 1)];

    const int thread = cudakit::thread_in_block(), threads = cudakit::threads_in_block();
    for (int i = thread; i < COPIES * (BINS + 1); i += threads) counters[i] = 0;
    __syncthreads();

    unsigned int* const mine = counters + thread % COPIES * (BINS + 1);
    const Real least = static_cast<Real>(low), limit = static_cast<Real>(high);
    const Real factor = static_cast<Real>(BINS / (high - low));
    const auto count = [&](T value) {
        const Real real = static_cast<Real>(value);
        if (real >= least && real < limit) {
            const Real place = (real - least) * factor;
            atomicAdd(mine + (place < Real(BINS - 1) ? static_cast<int>(place) : BINS - 1), 1u);
        }
    };
    constexpr int COUNT = sizeof(T) <= 4 ? 4 : 2;
    using Pack = cudakit::pack<T, COUNT>;
    const long long first = cudakit::thread_in_grid(), step = cudakit::threads_in_grid();
    long long done = 0;
    if (cudakit::is_aligned<Pack>(values)) {
        for (long long i = first; i < size / COUNT; i += step) {
            const Pack pack = reinterpret_cast<const Pack*>(values)[i];
#pragma unroll
            for (int k = 0; k < COUNT; ++k) count(pack.values[k]);
        }
        done = size / COUNT * COUNT;
    }
    for (long long i = done + first; i < size; i += step) count(values[i]);
    __syncthreads();

    for (int bin = thread; bin < BINS; bin += threads) {
        unsigned long long sum = 0;
        for (int copy = 0; copy < COPIES; ++copy) sum += counters[copy * (BINS + 1) + bin];
        if (sum) atomicAdd(counts + bin, sum);
    }
}
