// Numbers of random words: digits in a base, and numbers of a range that are rounded toward −∞.
#pragma once

#include <cudakit/pack.cuh>

struct __half;
struct __nv_bfloat16;

namespace cudakit {

/// Four words of 32 bits as words of another size.
template <typename Word>
__device__ pack<Word, 16 / sizeof(Word)> split(uint4 words) {
    pack<Word, 16 / sizeof(Word)> result;
    memcpy(&result, &words, 16);
    return result;
}

/// numbers[k] = low + the kth of the N digits in base `bound` that ⌊word · bound^N / 2^bits⌋ has; what is left of the product is
/// returned.
template <int N, typename T, typename Word>
__device__ Word take_digits(Word word, Word bound, unsigned long long low, T* numbers) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
        if constexpr (sizeof(Word) == 8) {
            numbers[k] = static_cast<T>(low + __umul64hi(word, bound));
            word *= bound;
        } else {
            // Of numbers of 32 bits or fewer the instruction that multiplies adds `low`, too.
            const unsigned long long added = sizeof(T) <= 4 ? low << 32 : 0;
            const unsigned long long product = static_cast<unsigned long long>(word) * bound + added;
            numbers[k] = static_cast<T>((sizeof(T) <= 4 ? 0 : low) + (product >> 32));
            word = static_cast<Word>(product);
        }
    }
    return word;
}

/// What numbers are worked out as: truths are bytes that are 0 or 1.
template <typename T>
struct as_number {
    using type = T;
};
template <>
struct as_number<bool> {
    using type = unsigned char;
};

/// low + u · range toward −∞: below low + range, whatever u below 1.
__device__ inline float between(float u, float low, float range) {
    return __fmaf_rd(u, range, low);
}
__device__ inline double between(double u, double low, double range) {
    return __fma_rd(u, range, low);
}

template <typename T>
constexpr bool is_half = false;
template <>
constexpr bool is_half<__half> = true;

/// A number as T: to the nearest, or toward −∞.
template <typename T, bool IS_DOWN, typename R>
__device__ T rounded(R number) {
    if constexpr (sizeof(T) == sizeof(R) || !IS_DOWN) {
        return static_cast<T>(number);
    } else {
        unsigned short bits;
        if constexpr (is_half<T>) {
            asm("cvt.rm.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
        } else {
            // bfloat16 is the upper half of a float.
            const unsigned int all = __float_as_uint(number);
            bits = static_cast<unsigned short>((all + (static_cast<int>(all) < 0 ? 0xffff : 0)) >> 16);
        }
        T below;
        memcpy(&below, &bits, 2);
        return below;
    }
}

}  // namespace cudakit
