#include <cudakit/philox.cuh>

namespace cudakit {

/// A generator of PyCUDA's interface: a row of the states. BITS 0: Philox, by `key`, `number` of the stream and position. BITS 32 or 64: Sobol's
/// sequence, where `number` is added to all words.
struct generator {
    unsigned long long key, number, position;
};

/// The next word of a generator, of 64 bits. Of a sequence with 32 bits they are the upper ones.
template <int BITS>
__device__ unsigned long long next_word(generator& state, const unsigned long long* directions) {
    const unsigned long long position = state.position++;
    if constexpr (BITS == 0) {
        const uint4 words = philox_stream{state.key, state.number}.words(position);
        return joined(words.x, words.y);
    } else {
        unsigned long long word = state.number;
        int bit = 0;
        for (unsigned long long gray = position ^ position >> 1; gray && bit < BITS; gray >>= 1, ++bit)
            if (gray & 1) word ^= directions[bit];
        return word;
    }
}

/// A word as the middle of its interval in (0, 1).
template <typename R>
__device__ R inner(unsigned long long word) {
    if constexpr (sizeof(R) == 4)
        return __fmaf_rn(__uint2float_rn(static_cast<unsigned int>(word >> 41)), 0x1p-23f, 0x1p-24f);
    else
        return __fma_rn(__ull2double_rn(word >> 12), 0x1p-52, 0x1p-53);
}

/// The word's quantile of the standard normal distribution. Words of the upper half mirror those of the lower half.
template <typename R>
__device__ R normal_quantile(unsigned long long word) {
    const bool is_upper = word >> 63;
    const unsigned long long lower = is_upper ? ~word : word;
    R quantile;
    if constexpr (sizeof(R) == 4)
        quantile = normcdfinvf(__fmaf_rn(__uint2float_rn(static_cast<unsigned int>(lower >> 32)), 0x1p-32f, 0x1p-33f));
    else
        quantile = normcdfinv(__fma_rn(__ull2double_rn(lower), 0x1p-64, 0x1p-65));
    return is_upper ? -quantile : quantile;
}

/// A number of the Poisson distribution with a mean: its probabilities are taken off the word's number from the mode outward. Means
/// from 4000 on: the rounded number of a normal distribution.
__device__ inline double poisson_number(double mean, unsigned long long word) {
    if (!(mean > 0)) return 0;
    if (mean >= 4000) return fmax(rint(mean + sqrt(mean) * normal_quantile<double>(word)), 0.0);
    const double mode = floor(mean);
    const double most = exp(mode * log(mean) - mean - lgamma(mode + 1));
    double rest = inner<double>(word) - most, below = most, above = most;
    if (rest < 0) return mode;
    for (double step = 1; below + above > 1e-20; ++step) {
        below *= fmax(mode - step + 1, 0.0) / mean;
        if ((rest -= below) < 0) return mode - step;
        above *= mean / (mode + step);
        if ((rest -= above) < 0) return mode + step;
    }
    return mode;
}

enum law { UNIFORM, NORMAL, LOG_NORMAL, POISSON, POISSON_OF_OUT };

template <int BITS, int LAW, typename T>
__device__ T drawn(unsigned long long word, double first, double second, T old) {
    if constexpr (LAW == UNIFORM) {
        if constexpr (sizeof(T) == 8 && T(0.5) == 0)
            return static_cast<T>(word);
        else if constexpr (T(0.5) == 0)
            return static_cast<T>(static_cast<unsigned int>(word >> 32));
        else
            return inner<T>(word);
    } else if constexpr (LAW == POISSON || LAW == POISSON_OF_OUT) {
        return static_cast<T>(poisson_number(LAW == POISSON ? first : static_cast<double>(old), word));
    } else {
        const T number = static_cast<T>(first) + static_cast<T>(second) * normal_quantile<T>(word);
        if constexpr (LAW == LOG_NORMAL)
            return exp(number);
        else
            return number;
    }
}

}  // namespace cudakit

// out[k] = the next number of generator k mod `generators`, of a distribution.
//
// Shapes: states (generators, 3), directions (generators, BITS) or none, out (n); T is float, double or an integer of 32 or 64 bits.
// Threads: thread t draws the numbers t, t + generators, … with the state t.
// Memory: sizeof(T) bytes written an element, each state once.
// Preconditions: the grid has as many threads as there are states, or at least n.
// Launch: any block, at most one thread for each state.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011); Sobol, On the distribution of points in a cube (1967).
template <int BITS, int LAW, typename T>
__global__ void draw(
    unsigned long long* states, const unsigned long long* directions, long long generators, T* out, long long n, double first,
    double second) {
    const long long t = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (t >= generators || t >= n) return;
    cudakit::generator state = {states[3 * t], states[3 * t + 1], states[3 * t + 2]};
    for (long long k = t; k < n; k += generators)
        out[k] = cudakit::drawn<BITS, LAW, T>(
            cudakit::next_word<BITS>(state, directions + (BITS ? t * BITS : 0)), first, second,
            LAW == cudakit::POISSON_OF_OUT ? out[k] : T(0));
    states[3 * t + 2] = state.position;
}

// states[t][2] += positions · count, states[t][1] += streams · count, where count is counts[t], or 1 unless COUNTED.
//
// Shapes: states (generators, 3), counts (generators) or none.
// Threads: a thread for each state.
// Memory: 24 bytes read and written a state.
// Preconditions: none.
// Launch: any block, a thread for each state.
// Source: as `draw`.
template <int COUNTED>
__global__ void skip(
    unsigned long long* states, const unsigned long long* counts, long long generators, unsigned long long positions,
    unsigned long long streams) {
    const long long t = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (t >= generators) return;
    const unsigned long long count = COUNTED ? counts[t] : 1;
    states[3 * t + 1] += streams * count;
    states[3 * t + 2] += positions * count;
}
