#include <cudakit/random/fill.cuh>
#include <cudakit/random/numbers.cuh>

// out[k] = low + u · range, u uniform in [0, 1): rounded toward −∞, and so never low + range.
//
// Shapes: out (size), contiguous; keys as <cudakit/philox.cuh> has them; T is half, bfloat16, float or double, R is double for double, else float.
// Threads: a thread does 16 bytes at a time, of four positions at once; number k is made of the words at position + k / n, n = 4
//   for float, 2 for double, 8 for types of 16 bits; so each is the same on any grid.
// Memory: sizeof(T) bytes written an element, by stores of 16 bytes where `out` is aligned.
// Preconditions: range is finite, and not above high − low.
// Launch: BLOCK threads, any number of blocks.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
template <typename T, typename R, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) uniform(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position, R low,
    R range) {
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    cudakit::fill<16 / sizeof(T), BLOCK>(out, size, position, [&](unsigned long long at, T* numbers, bool) {
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
                        cudakit::between(cudakit::half_unit<false>(of[k]), low, range));
                    numbers[2 * k + 1] = cudakit::rounded<T, true>(
                        cudakit::between(cudakit::half_unit<true>(of[k]), low, range));
                }
        }
        return true;
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
    cudakit::fill<DRAWN, BLOCK>(out, size, position, [&](unsigned long long at, T* numbers, bool) {
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
        return true;
    });
}

// out[k] = low + an integer of [0, range), all of them as likely; DIGITS 0: low + a word.
//
// Shapes: out (size), contiguous, of integers or bool; Word is unsigned, of 32 or 64 bits, or of T's size where DIGITS is 0.
// Threads: as `uniform`, n = DIGITS · 16 / sizeof(Word). A word w gives the DIGITS digits of ⌊w · range^DIGITS / 2^bits⌋ in base
//   range, the highest first, unless the product's lower half is below 2^bits mod range^DIGITS, `rejected`: then the word of the
//   next attempt at the same position stands in.
// Memory: as `uniform`.
// Preconditions: low + range − 1 fits T, range^DIGITS ≤ 2^bits; that few words are rejected is the caller's choice of both.
// Launch: as `uniform`.
// Source: Lemire, Fast random integer generation in an interval (2019); Brackett-Rozinsky and Lemire, Batched ranged random
//   integer generation (2024).
template <typename T, typename Word, int DIGITS, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) integers(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    unsigned long long low, unsigned long long range, unsigned long long rejected) {
    constexpr int WORDS = 16 / sizeof(Word);
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    using Number = typename cudakit::as_number<T>::type;
    Number* const made = reinterpret_cast<Number*>(out);
    if constexpr (DIGITS == 0) {
        cudakit::fill<WORDS, BLOCK>(made, size, position, [&](unsigned long long at, Number* numbers, bool) {
            uint4 words = stream.words(at);
            if constexpr (sizeof(Word) < 4) {
                // All numbers of T: low is 0 or its highest bit alone.
                const unsigned int flipped = static_cast<Word>(low) * (~0u / static_cast<Word>(~0u));
                words = {words.x ^ flipped, words.y ^ flipped, words.z ^ flipped, words.w ^ flipped};
                memcpy(numbers, &words, 16);
            } else {
                const auto drawn = cudakit::split<Word>(words);
#pragma unroll
                for (int k = 0; k < WORDS; ++k) numbers[k] = static_cast<T>(low + drawn.values[k]);
            }
            return true;
        });
    } else {
        const Word bound = static_cast<Word>(range), least = static_cast<Word>(rejected);
        cudakit::fill<WORDS * DIGITS, BLOCK>(made, size, position, [&](unsigned long long at, Number* numbers, bool is_quick) {
            auto drawn = cudakit::split<Word>(stream.words(at));
            bool is_missing = false;
#pragma unroll
            for (int k = 0; k < WORDS; ++k)
                is_missing |= cudakit::take_digits<DIGITS>(drawn.values[k], bound, low, numbers + DIGITS * k) < least;
            if (is_quick) return !is_missing;
            for (unsigned int attempt = 1; is_missing && attempt < 256; ++attempt) {
                const auto instead = cudakit::split<Word>(stream.words(at, attempt));
                is_missing = false;
#pragma unroll
                for (int k = 0; k < WORDS; ++k) {
                    Word& word = drawn.values[k];
                    if (cudakit::take_digits<DIGITS>(word, bound, low, numbers + DIGITS * k) >= least) continue;
                    word = instead.values[k];
                    is_missing |= cudakit::take_digits<DIGITS>(word, bound, low, numbers + DIGITS * k) < least;
                }
            }
            return true;
        });
    }
}

// out[k] = 1 with a probability of threshold / 2⁶⁴, else 0.
//
// Shapes: out (size), contiguous, of any number or bool; threshold is below · 2⁴⁹ + rest / 2¹⁵, and below may be 2¹⁵.
// Threads: as `uniform`, n = 8: the lower 15 bits of half a word decide, the lower half first; where they are just `below`, 64
//   bits of the attempts from the first on.
// Memory: as `uniform`.
// Preconditions: none.
// Launch: as `uniform`.
// Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
template <typename T, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) bernoulli(
    T* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    unsigned int below, unsigned long long rest) {
    // Two numbers of 15 bits in a word, each with a bit above that stays set where it is not below.
    constexpr unsigned int TOPS = 0x80008000u, ONES = 0x00010001u;
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    using Number = typename cudakit::as_number<T>::type;
    Number* const made = reinterpret_cast<Number*>(out);
    cudakit::fill<8, BLOCK>(made, size, position, [&](unsigned long long at, Number* numbers, bool is_quick) {
        auto over = cudakit::split<unsigned int>(stream.words(at));
        unsigned int open = 0;
#pragma unroll
        for (unsigned int& two : over.values) {
            two = (two | TOPS) - below * ONES;
            open |= two & ~(two - ONES);
        }
        const bool is_done = rest == 0 || (open & TOPS) == 0;
        if (!is_quick && !is_done) {
#pragma unroll 1
            for (int k = 0; k < 4; ++k) {
                const uint4 others = stream.words(at, 1 + k);
                unsigned int chosen = cudakit::joined(others.x, others.y) < rest ? 0x8000u : 0;
                if (cudakit::joined(others.z, others.w) < rest) chosen |= 0x80000000u;
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (j == k) over.values[j] ^= over.values[j] & ~(over.values[j] - ONES) & chosen;
            }
        }
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
            // Four numbers as the bytes of a word.
            const unsigned int four =
                ~__byte_perm(over.values[k / 2], over.values[k / 2 + 1], 0x7531) >> 7 & 0x01010101u;
            if constexpr (sizeof(T) == 1) {
                memcpy(numbers + k, &four, 4);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) numbers[k + j] = static_cast<T>(four >> 8 * j & 1 ? 1.0f : 0.0f);
            }
        }
        return is_done;
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
    cudakit::fill<2, BLOCK>(out, size, position, [&](unsigned long long at, long long* numbers, bool) {
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
        return true;
    });
}

// out[k] = order[k]; where several keys in a row are equal, theirs in an order of which each is as likely.
//
// Shapes: out, sorted, order (size), contiguous; sorted ascends; Index is unsigned, of 32 or 64 bits.
// Threads: a thread takes a key; that of the first of equal ones puts the others in among those before them: number j of them
//   changes places with number ⌊w · (j + 1) / 2⁶⁴⌋, w being the first two words at position + k of its own k.
// Memory: 4 + sizeof(Index) bytes read and 8 written an element; equal keys are gone through one by one, and should be few.
// Preconditions: out overlaps no input.
// Launch: as `uniform`.
// Source: Durstenfeld, Algorithm 235: Random permutation (1964).
template <typename Index, typename Keys, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) ties(
    long long* out, long long size, Keys keys, unsigned long long number, unsigned long long position,
    const unsigned int* __restrict__ sorted, const Index* __restrict__ order) {
    const cudakit::scheduled_stream<Keys> stream{keys, number};
    for (long long first = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x; first < size;
         first += static_cast<long long>(gridDim.x) * BLOCK) {
        const unsigned int key = sorted[first];
        if (first > 0 && sorted[first - 1] == key) continue;
        out[first] = static_cast<long long>(order[first]);
        for (long long j = 1; first + j < size && sorted[first + j] == key; ++j) {
            const uint4 words = stream.words(position + first + j);
            const long long other = first + __umul64hi(cudakit::joined(words.x, words.y), j + 1);
            if (other != first + j) out[first + j] = out[other];
            out[other] = static_cast<long long>(order[first + j]);
        }
    }
}
