// Places of a block's elements in the order of one digit of 8 bits, equal digits in the order of the elements.
//
// Thread t of warp w holds in `digits[i]` the element (w · ITEMS + i) · 32 + t % 32 of the block's. Each warp has counters
// in shared memory. Lanes of one digit find each other by votes, all read the warp's counter, and the last of them moves
// it on; what the warps before have is added when all are done. So each element takes a load, most a store, and then
// another load: no atomics, which cost shared memory twice as much.
// Source: Adinets and Merrill, Onesweep: a faster least significant digit radix sort for GPUs (2022).
#pragma once

#include <cudakit/block.cuh>

namespace cudakit {

inline constexpr int DIGITS = 256;

/// The lanes of the warp that have `bit` of `digit` as this one has.
__device__ inline unsigned int lanes_of_bit(unsigned int digit, unsigned int bit) {
    // By hand: of a ballot and a selection the compiler makes twice as many instructions.
    unsigned int same;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .b32 set;\n"
        "and.b32 set, %1, %2;\n"
        "setp.ne.u32 p, set, 0;\n"
        "vote.sync.ballot.b32 %0, p, 0xffffffff;\n"
        "@!p not.b32 %0, %0;\n"
        "}"
        : "=r"(same)
        : "r"(digit), "r"(bit));
    return same;
}

/// Lanes of the warp whose digit is this one's.
__device__ inline unsigned int lanes_of_digit(unsigned int digit) {
    unsigned int same = FULL_WARP;
#pragma unroll
    for (int bit = 0; bit < 8; bit += 2) {
        const unsigned int low = lanes_of_bit(digit, 1u << bit), high = lanes_of_bit(digit, 2u << bit);
        asm("lop3.b32 %0, %0, %1, %2, 0x80;" : "+r"(same) : "r"(low), "r"(high));  // same & low & high
    }
    return same;
}

template <int BLOCK, int ITEMS>
class digit_ranks {
public:
    static_assert(BLOCK % 32 == 0 && (BLOCK >= DIGITS || DIGITS % BLOCK == 0), "each looks after as many digits");
    static_assert(BLOCK * ITEMS <= 65536, "a place and a digit are kept in one word");
    static constexpr int WARPS = BLOCK / 32;
    /// Digits that a thread looks after, those from threadIdx.x · EACH on.
    static constexpr int EACH = BLOCK < DIGITS ? DIGITS / BLOCK : 1;
    struct storage {
        unsigned int counts[WARPS][DIGITS];
    };

    __device__ explicit digit_ranks(storage& shared) : shared(shared), own(threadIdx.x / 32 * (4 * DIGITS)) {
        asm("" : "+r"(own));  // a number like any other: so that a counter's address is one instruction
        for (int digit = threadIdx.x % 32; digit < DIGITS; digit += 32) counter(digit) = 0;
        __syncwarp();
    }

    /// Whether this thread looks after any digits.
    static __device__ bool has_digits() { return threadIdx.x * EACH < DIGITS; }

    /// Ranks all elements within their warps, in place of their digits; and of each of this thread's digits counts those
    /// of the whole block.
    __device__ void count(unsigned int (&digits)[ITEMS], unsigned int (&totals)[EACH]) {
        unsigned int before, after;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
        asm("mov.u32 %0, %%lanemask_gt;" : "=r"(after));
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const unsigned int digit = digits[i], same = lanes_of_digit(digit);
            const unsigned int rank = counter(digit) + __popc(same & before);
            __syncwarp();
            if ((same & after) == 0) counter(digit) = rank + 1;
            __syncwarp();
            digits[i] = (digit << 16) + rank;  // a sum, which stays one register: `|` the compiler takes apart again
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            totals[e] = 0;
            if (!has_digits()) break;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                unsigned int& of_warp = shared.counts[w][threadIdx.x * EACH + e];
                const unsigned int counted = of_warp;
                of_warp = totals[e];
                totals[e] += counted;
            }
        }
    }

    /// Elements of lesser digits than each of this thread's. Every thread of the block must call it, after `count`.
    __device__ void start(const unsigned int (&totals)[EACH], unsigned int (&starts)[EACH]) {
        unsigned int sum = 0, all;
#pragma unroll
        for (int e = 0; e < EACH; ++e) sum += totals[e];
        unsigned int at = sum_before<BLOCK>(sum, all);
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            starts[e] = at;
            at += totals[e];
            if (!has_digits()) break;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) shared.counts[w][threadIdx.x * EACH + e] += starts[e];
        }
        __syncthreads();
    }

    /// Where each element goes in the block, in place of what `count` left. Every thread must call it, after `start`;
    /// then the storage is free.
    __device__ void rank(unsigned int (&ranks)[ITEMS]) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) ranks[i] = (ranks[i] & 0xffffu) + counter(ranks[i] >> 16);
        __syncthreads();
    }

private:
    /// This warp's counter of a digit.
    __device__ unsigned int& counter(unsigned int digit) {
        return *reinterpret_cast<unsigned int*>(reinterpret_cast<unsigned char*>(&shared) + (own + 4 * digit));
    }

    storage& shared;
    unsigned int own;  // bytes before the warp's counters
};

}  // namespace cudakit
