#include <cudakit/pack.cuh>
#include <cudakit/philox.cuh>

struct __half;
struct __nv_bfloat16;

namespace cudakit {

/// out[k] = number k % DRAWN of `draw` at position + k / DRAWN, by a grid of any size. `draw(position, numbers)` sets as many.
template <int DRAWN, int BLOCK, typename T, typename Draw>
__device__ void fill(T* out, long long size, unsigned long long position, const Draw& draw) {
    constexpr int WIDTH = 16 / sizeof(T), COUNT = WIDTH > DRAWN ? WIDTH : DRAWN;
    const long long step = static_cast<long long>(gridDim.x) * BLOCK * COUNT;
    for (long long k = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT; k < size; k += step) {
        T numbers[COUNT];
#pragma unroll
        for (int j = 0; j < COUNT; j += DRAWN) draw(position + (k + j) / DRAWN, numbers + j);
#pragma unroll
        for (int j = 0; j < COUNT; j += WIDTH) {
            pack<T, WIDTH> some;
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) some.values[i] = numbers[j + i];
            store_some(out + k + j, some, static_cast<int>(min(size - k - j, static_cast<long long>(WIDTH))));
        }
    }
}

/// low + u · range toward −∞: below low + range, whatever u below 1.
__device__ inline float between(float u, float low, float range) {
    return __fmaf_rd(u, range, low);
}
__device__ inline double between(double u, double low, double range) {
    return __fma_rd(u, range, low);
}

/// A number as T: to the nearest, or toward −∞.
template <typename T, bool IS_DOWN, typename R>
__device__ T rounded(R number) {
    if constexpr (sizeof(T) == sizeof(R)) {
        return number;
    } else if constexpr (IS_DOWN) {
        // Half and bfloat16 lie in float's bits; of a type that is not complete here nothing else may be named.
        if (static_cast<float>(static_cast<T>(number)) <= number) return static_cast<T>(number);
        unsigned short bits;
        const T nearest = static_cast<T>(number);
        memcpy(&bits, &nearest, 2);
        bits = bits & 0x8000 ? bits + 1 : bits == 0 ? 0x8001 : bits - 1;
        T below;
        memcpy(&below, &bits, 2);
        return below;
    } else {
        return static_cast<T>(number);
    }
}

}  // namespace cudakit

// out[k] = low + u · range, u uniform in [0, 1): rounded toward −∞, and so never low + range.
//
// Shapes: out (size), contiguous; keys as <cudakit/philox.cuh> has them; T is half, bfloat16, float or double, R is double for double, else float.
// Threads: a thread does 16 bytes at a time; number k is made of the words at position + k / n, n = 4 for float, 2 for
//   double, 8 for types of 16 bits; so each is the same on any grid.
// Memory: sizeof(T) bytes written an element, by stores of 16 bytes where `out` is aligned.
// Preconditions: range is finite, and not above high − low.
// Launch: BLOCK threads, any number of blocks.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
template <typename T, typename R, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) uniform(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position, R low,
    R range) {
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<16 / sizeof(T), BLOCK>(out, size, position, [&](unsigned long long at, T* numbers) {
        const uint4 words = stream.words(at);
        if constexpr (sizeof(T) == 8) {
            numbers[0] = cudakit::between(cudakit::unit(cudakit::joined(words.x, words.y)), low, range);
            numbers[1] = cudakit::between(cudakit::unit(cudakit::joined(words.z, words.w)), low, range);
        } else {
            const unsigned int of[] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if constexpr (sizeof(T) == 4) {
                    numbers[k] = cudakit::between(cudakit::unit(of[k]), low, range);
                } else {
                    // 16 bits each.
                    numbers[2 * k] = cudakit::rounded<T, true>(
                        cudakit::between(__fmul_rn(__uint2float_rn(of[k] & 0xffff), 0x1p-16f), low, range));
                    numbers[2 * k + 1] = cudakit::rounded<T, true>(
                        cudakit::between(__fmul_rn(__uint2float_rn(of[k] >> 16), 0x1p-16f), low, range));
                }
        }
    });
}

// out[k] = location + scale · z, z of the standard normal distribution; or, EXPONENTIAL, of the exponential one.
//
// Shapes: as `uniform`; numbers of 16 bits are those of float, rounded.
// Threads: as `uniform`, n = 4 for float and narrower types, 2 for double.
// Memory: as `uniform`.
// Preconditions: none.
// Launch: as `uniform`.
// Source: Box and Muller, A note on the generation of random normal deviates (1958).
template <typename T, typename R, bool EXPONENTIAL, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) normal(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position, R location,
    R scale) {
    constexpr int DRAWN = 16 / sizeof(R);
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<DRAWN, BLOCK>(out, size, position, [&](unsigned long long at, T* numbers) {
        const uint4 words = stream.words(at);
        R drawn[DRAWN];
        if constexpr (sizeof(R) == 8) {
            const unsigned long long first = cudakit::joined(words.x, words.y), second = cudakit::joined(words.z, words.w);
            if constexpr (EXPONENTIAL) {
                drawn[0] = cudakit::exponential(first);
                drawn[1] = cudakit::exponential(second);
            } else {
                cudakit::normal_pair(first, second, drawn[0], drawn[1]);
            }
        } else if constexpr (EXPONENTIAL) {
            drawn[0] = cudakit::exponential(words.x);
            drawn[1] = cudakit::exponential(words.y);
            drawn[2] = cudakit::exponential(words.z);
            drawn[3] = cudakit::exponential(words.w);
        } else {
            cudakit::normal_pair(words.x, words.y, drawn[0], drawn[1]);
            cudakit::normal_pair(words.z, words.w, drawn[2], drawn[3]);
        }
#pragma unroll
        for (int k = 0; k < DRAWN; ++k)
            numbers[k] = cudakit::rounded<T, false>(cudakit::detail::times_plus(drawn[k], scale, location));
    });
}

// out[k] = low + an integer of [0, range), all of them as likely; range 0 stands for all numbers of Word.
//
// Shapes: out (size), contiguous, of integers or bool; Word is unsigned, of 32 or 64 bits, or of T's size where range is 0.
// Threads: as `uniform`, n = 16 / sizeof(Word). A word w gives ⌊w · range / 2^bits⌋, unless the product's lower half is below
//   2^bits mod range, `rejected`: then the words of the next attempt at the same position stand in.
// Memory: as `uniform`.
// Preconditions: low + range − 1 fits T.
// Launch: as `uniform`.
// Source: Lemire, Fast random integer generation in an interval (2019).
template <typename T, typename Word, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) integers(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    unsigned long long low, unsigned long long range, unsigned long long rejected) {
    constexpr int DRAWN = 16 / sizeof(Word);
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<DRAWN, BLOCK>(out, size, position, [&](unsigned long long at, T* numbers) {
        const uint4 words = stream.words(at);
        Word drawn[DRAWN];
        memcpy(drawn, &words, 16);
#pragma unroll
        for (int k = 0; k < DRAWN; ++k) {
            unsigned long long chosen = drawn[k];
            if constexpr (sizeof(Word) >= 4)
                if (range != 0) {
                    const Word bound = static_cast<Word>(range), least = static_cast<Word>(rejected);
                    Word word = drawn[k];
                    for (unsigned int attempt = 1; static_cast<Word>(word * bound) < least && attempt < 256; ++attempt) {
                        const uint4 others = stream.words(at, attempt);
                        Word instead[DRAWN];
                        memcpy(instead, &others, 16);
                        word = instead[k];
                    }
                    if constexpr (sizeof(Word) == 4)
                        chosen = __umulhi(word, bound);
                    else
                        chosen = __umul64hi(word, bound);
                }
            numbers[k] = static_cast<T>(low + chosen);
        }
    });
}

// out[k] = 1 with a probability of threshold / 2⁶⁴, else 0.
//
// Shapes: out (size), contiguous, of any number or bool; threshold is below · 2³² + rest, and below may be 2³².
// Threads: as `uniform`, n = 4: a word decides, with another one of the next attempt where it is just `below`.
// Memory: as `uniform`.
// Preconditions: none.
// Launch: as `uniform`.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
template <typename T, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) bernoulli(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    unsigned long long below, unsigned int rest) {
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<4, BLOCK>(out, size, position, [&](unsigned long long at, T* numbers) {
        const uint4 words = stream.words(at);
        const unsigned int of[] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            bool chosen = of[k] < below;
            if (of[k] == below && rest != 0) {
                const uint4 others = stream.words(at, 1);
                const unsigned int next[] = {others.x, others.y, others.z, others.w};
                chosen = next[k] < rest;
            }
            numbers[k] = static_cast<T>(chosen ? 1.0f : 0.0f);
        }
    });
}

// out[k] = how many of `edges` are at most u, u uniform in [0, 1): an index, as likely as the distance of its edge from the
// one before.
//
// Shapes: edges (count), ascending, the last of them 1; out (size), contiguous.
// Threads: as `uniform`, n = 2; each number takes ⌈log2 count⌉ steps of a binary search.
// Memory: 8 bytes written an element; the edges are read from cache.
// Preconditions: count > 0.
// Launch: as `uniform`.
// Source: Devroye, Non-uniform random variate generation (1986), chapter III.
template <typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) chosen(
    long long* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    const double* __restrict__ edges, long long count) {
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<2, BLOCK>(out, size, position, [&](unsigned long long at, long long* numbers) {
        const uint4 words = stream.words(at);
        const double of[] = {cudakit::unit(cudakit::joined(words.x, words.y)),
                             cudakit::unit(cudakit::joined(words.z, words.w))};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            long long first = 0, last = count - 1;
            while (first < last) {
                const long long middle = (first + last) / 2;
                if (edges[middle] <= of[k])
                    first = middle + 1;
                else
                    last = middle;
            }
            numbers[k] = first;
        }
    });
}
