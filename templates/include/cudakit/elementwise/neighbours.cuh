// 16 bytes of neighbours in an array, that start at any element: in four registers, whatever the size of an element, as
// bytes taken apart would be one each. W is an unsigned word of an element's size: 1, 2, 4, 8 or 16 bytes.
#pragma once

#include <cudakit/pack.cuh>

namespace cudakit {

/// Drops the first element of `words` and appends `value`.
template <typename W>
__device__ void push(uint4& words, W value) {
    if constexpr (sizeof(W) == 16) {
        memcpy(&words, &value, 16);
    } else if constexpr (sizeof(W) == 8) {
        words.x = words.z;
        words.y = words.w;
        memcpy(&words.z, &value, 8);
    } else {
        unsigned int last;
        if constexpr (sizeof(W) == 4) {
            memcpy(&last, &value, 4);
        } else {
            last = static_cast<unsigned int>(value);
        }
        words.x = __funnelshift_rc(words.x, words.y, 8 * sizeof(W));
        words.y = __funnelshift_rc(words.y, words.z, 8 * sizeof(W));
        words.z = __funnelshift_rc(words.z, words.w, 8 * sizeof(W));
        words.w = __funnelshift_rc(words.w, last, 8 * sizeof(W));
    }
}

/// The same value again and again.
template <typename W>
__device__ uint4 repeated(W value) {
    uint4 words;
    if constexpr (sizeof(W) >= 4) {
#pragma unroll
        for (int k = 0; k < 16 / sizeof(W); ++k) push(words, value);
    } else {
        words.x = words.y = words.z = words.w = value * (sizeof(W) == 1 ? 0x01010101u : 0x00010001u);
    }
    return words;
}

/// The elements in reverse order.
template <typename W>
__device__ uint4 reversed(const uint4& words) {
    if constexpr (sizeof(W) == 16) return words;
    if constexpr (sizeof(W) == 8) return {words.z, words.w, words.x, words.y};
    constexpr unsigned int BYTES = sizeof(W) == 4 ? 0x3210 : sizeof(W) == 2 ? 0x1032 : 0x0123;
    return {
        __byte_perm(words.w, 0, BYTES), __byte_perm(words.z, 0, BYTES), __byte_perm(words.y, 0, BYTES),
        __byte_perm(words.x, 0, BYTES)};
}

/// Every second element of 32 bytes, from the first, of BYTES = 1 or 2 each.
template <int BYTES>
__device__ uint4 every_second(const uint4& low, const uint4& high) {
    constexpr unsigned int CHOSEN = BYTES == 1 ? 0x6420 : 0x5410;
    return {
        __byte_perm(low.x, low.y, CHOSEN), __byte_perm(low.z, low.w, CHOSEN), __byte_perm(high.x, high.y, CHOSEN),
        __byte_perm(high.z, high.w, CHOSEN)};
}

/// The first `count` elements of `first`, 0 < count, and the others of `second`.
template <typename W>
__device__ uint4 joined(const uint4& first, const uint4& second, int count) {
    const int bits = 8 * sizeof(W) * count;
    const auto either = [bits](unsigned int a, unsigned int b, int before) {
        const unsigned int mask = bits >= before + 32 ? ~0u : bits <= before ? 0 : (1u << (bits - before)) - 1;
        return (a & mask) | (b & ~mask);
    };
    return {
        either(first.x, second.x, 0), either(first.y, second.y, 32), either(first.z, second.z, 64),
        either(first.w, second.w, 96)};
}

/// 16 bytes from `pointer`, aligned or not: by the two aligned words that hold them, all of which may be read, and of
/// which a neighbouring thread loads one too, so that it comes from L1. Nothing writes there while the kernel runs.
template <typename W>
__device__ uint4 load_unaligned(const W* pointer) {
    const unsigned int shift = reinterpret_cast<unsigned long long>(pointer) % 16;
    // From the pointer, not its number: the compiler must see that it is global memory.
    const uint4* const words = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(pointer) - shift);
    const uint4 low = __ldg(words);
    if (shift == 0) return low;
    const uint4 high = __ldg(words + 1);
    unsigned int part[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    // The wanted bytes begin `shift` bytes after part[0]: drop two words, then one, then bytes.
    if (shift & 8) {
#pragma unroll
        for (int k = 0; k < 6; ++k) part[k] = part[k + 2];
    }
    if (shift & 4) {
#pragma unroll
        for (int k = 0; k < 5; ++k) part[k] = part[k + 1];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) part[k] = __funnelshift_r(part[k], part[k + 1], shift % 4 * 8);
    return {part[0], part[1], part[2], part[3]};
}

/// 16 bytes of neighbours from `pointer`, of which those from `first` on and before `last` are read, as `load_unaligned`
/// does.
template <typename W>
__device__ uint4 load_neighbours(const W* pointer, const W* first, const W* last) {
    if constexpr (sizeof(W) == 16) {
        return __ldg(reinterpret_cast<const uint4*>(pointer));
    } else {
        const unsigned int shift = reinterpret_cast<unsigned long long>(pointer) % 16;
        const uint4* const words = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(pointer) - shift);
        const W* const end = reinterpret_cast<const W*>(words + (shift ? 2 : 1));
        if (reinterpret_cast<const W*>(words) < first || end > last) {
            uint4 found = {0, 0, 0, 0};
#pragma unroll 1
            for (int k = 0; k < 16 / sizeof(W); ++k)
                push(found, pointer + k >= first && pointer + k < last ? pointer[k] : W(0));
            return found;
        }
        return load_unaligned(pointer);
    }
}

/// The first `count` elements to `out`: by one store where they are 16 bytes and `out` is aligned.
template <typename W>
__device__ void store_neighbours(W* out, uint4 words, long long count) {
    if (count >= 16 / sizeof(W) && is_aligned<uint4>(out)) {
        // The same as an assignment, but never split into its elements.
        __stwb(reinterpret_cast<uint4*>(out), words);
        return;
    }
    W values[16 / sizeof(W)];
    memcpy(values, &words, 16);
#pragma unroll
    for (int k = 0; k < 16 / sizeof(W); ++k)
        if (k < count) out[k] = values[k];
}

}  // namespace cudakit
