// Places of a block's elements in the order of one digit of 8 bits, equal digits in the order of the elements.
//
// Thread t of warp w holds in `digits[i]` the element (w · ITEMS + i) · 32 + t % 32 of the block's. Each warp has counters
// in shared memory: all are counted first, so that the counts of the block are known as early as can be; then lanes
// of one digit find each other by votes, and the last of them moves the warp's counter on for all.
// Source: Adinets and Merrill, Onesweep: a faster least significant digit radix sort for GPUs (2022).
#pragma once

#include <cudakit/block.cuh>

namespace cudakit {

inline constexpr int DIGITS = 256;

/// Lanes of the warp whose digit is this one's.
__device__ inline unsigned int lanes_of_digit(unsigned int digit) {
    unsigned int same = FULL_WARP;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
        const bool is_set = digit >> bit & 1u;
        const unsigned int set = __ballot_sync(FULL_WARP, is_set);
        same &= is_set ? set : ~set;
    }
    return same;
}

template <int BLOCK, int ITEMS>
class digit_ranks {
public:
    static_assert(BLOCK % 32 == 0 && (BLOCK >= DIGITS || DIGITS % BLOCK == 0), "each looks after as many digits");
    static constexpr int WARPS = BLOCK / 32;
    /// Digits that a thread looks after, those from threadIdx.x · EACH on.
    static constexpr int EACH = BLOCK < DIGITS ? DIGITS / BLOCK : 1;
    struct storage {
        unsigned int counts[WARPS][DIGITS];
    };

    __device__ explicit digit_ranks(storage& shared) : shared(shared) {}

    /// Whether this thread looks after any digits.
    static __device__ bool has_digits() { return threadIdx.x * EACH < DIGITS; }

    /// Counts all digits, and of each of this thread's those of the whole block.
    __device__ void count(const unsigned int (&digits)[ITEMS], unsigned int (&totals)[EACH]) {
        unsigned int* const own = shared.counts[threadIdx.x / 32];
        for (int digit = threadIdx.x % 32; digit < DIGITS; digit += 32) own[digit] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) atomicAdd(own + digits[i], 1u);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            totals[e] = 0;
            if (!has_digits()) break;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                counted[e][w] = shared.counts[w][threadIdx.x * EACH + e];
                totals[e] += counted[e][w];
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
            unsigned int next = at;
            at += totals[e];
            if (!has_digits()) break;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                shared.counts[w][threadIdx.x * EACH + e] = next;
                next += counted[e][w];
            }
        }
        __syncthreads();
    }

    /// Where each element goes in the block. Every thread of the block must call it, after `start`.
    __device__ void rank(const unsigned int (&digits)[ITEMS], unsigned int (&ranks)[ITEMS]) {
        unsigned int* const own = shared.counts[threadIdx.x / 32];
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const unsigned int same = lanes_of_digit(digits[i]);
            const int last = 31 - __clz(same);
            unsigned int base = 0;
            if (lane == last) base = atomicAdd(own + digits[i], static_cast<unsigned int>(__popc(same)));
            base = __shfl_sync(FULL_WARP, base, last);
            ranks[i] = base + __popc(same & ((1u << lane) - 1));
        }
    }

private:
    storage& shared;
    unsigned int counted[EACH][WARPS];
};

}  // namespace cudakit
