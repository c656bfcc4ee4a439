// Where a block counts, before its counts are added to those of the others in global memory. All threads of a block
// make one together, add to it the bins that <cudakit/count/bins.cuh> finds, and flush it; `shared` is aligned to 16 bytes.
#pragma once

namespace cudakit {

namespace detail {
// Whether all lanes that are here have the same bin N times; then `lanes` is their number for one of them, else 0.
template <int N>
__device__ bool all_alike(const unsigned int (&bins)[N], const bool (&inside)[N], unsigned int& lanes) {
    const unsigned int here = __activemask();
    bool alike = inside[0];
#pragma unroll
    for (int k = 1; k < N; ++k) alike = alike && inside[k] && bins[k] == bins[0];
    if (!__all_sync(here, alike)) return false;
    const unsigned int leader = __ffs(here) - 1;
    lanes = threadIdx.x % 32 == leader ? __popc(here) : 0;
    const unsigned int first = __shfl_sync(here, bins[0], leader);
    return __all_sync(here, bins[0] == first);
}
}  // namespace detail

/// COPIES 32-bit counters a bin in shared memory. Lane l adds to copy l % COPIES: a bin's copies are neighbours and so
/// lie in different banks, and with 32 of them no two lanes of a warp ever meet in a bank, whatever the values are.
/// What lies in no bin is counted past the last. Shared bytes: 4 · COPIES · (bins + 1), or · bins where all lie in one. A
/// block adds fewer than 2^32 values.
template <int COPIES>
struct word_counters {
    unsigned int* counters;
    unsigned int bins;
    unsigned int own;  // where in shared memory this lane's copy of the first lies

    __device__ word_counters(unsigned char* shared, unsigned int bins, unsigned long long*)
        : counters(reinterpret_cast<unsigned int*>(shared)), bins(bins),
          own(static_cast<unsigned int>(__cvta_generic_to_shared(counters + threadIdx.x % COPIES))) {
        for (unsigned int i = threadIdx.x; i < bins * COPIES; i += blockDim.x) counters[i] = 0;
        __syncthreads();
    }
    template <int N>
    __device__ void add(const unsigned int (&found)[N], const bool (&inside)[N]) {
        // An atomic addition each, to an address that is not found anew: branches would cost more than they save.
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const unsigned int bin = inside[k] ? found[k] : bins;
            asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(own + bin * (4 * COPIES)) : "memory");
        }
    }
    __device__ void flush(unsigned long long* counts) {
        __syncthreads();
        for (unsigned int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
            unsigned long long sum = 0;
            // Each lane begins with another copy, for they would all meet in one bank.
            for (unsigned int k = 0; k < COPIES; ++k) sum += counters[bin * COPIES + (threadIdx.x + k) % COPIES];
            if (sum) atomicAdd(counts + bin, sum);
        }
    }
};

/// One 16-bit counter a bin in shared memory, two in a word; whoever brings one to 2^15 moves those to global memory.
/// Blocks of one blockIdx.x share the bins, blockIdx.y of them taking `share` each.
/// A warp whose lanes all bring the same bin adds once. Shared bytes: 2 · share.
struct half_counters {
    static constexpr unsigned int FULL = 1u << 15;
    unsigned int* counters;
    unsigned int first, share;
    unsigned long long* counts;

    __device__ half_counters(unsigned char* shared, unsigned int bins, unsigned long long* counts)
        : counters(reinterpret_cast<unsigned int*>(shared)), counts(counts) {
        const unsigned int most = (bins + gridDim.y - 1) / gridDim.y;
        first = blockIdx.y * most;
        share = first < bins ? min(most, bins - first) : 0;
        for (unsigned int i = threadIdx.x; i < (share + 1) / 2; i += blockDim.x) counters[i] = 0;
        __syncthreads();
    }
    template <int N>
    __device__ void add(const unsigned int (&found)[N], const bool (&inside)[N]) {
        unsigned int lanes;
        if (detail::all_alike(found, inside, lanes)) {
            if (lanes) add(found[0], N * lanes);
            return;
        }
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (inside[k]) add(found[k], 1);
    }
    __device__ void flush(unsigned long long*) {
        __syncthreads();
        for (unsigned int own = threadIdx.x; own < share; own += blockDim.x) {
            const unsigned int count = counters[own / 2] >> own % 2 * 16 & 0xffffu;
            if (count) atomicAdd(counts + first + own, static_cast<unsigned long long>(count));
        }
    }

 private:
    __device__ void add(unsigned int bin, unsigned int more) {
        const unsigned int own = bin - first;
        if (own >= share) return;
        const unsigned int shift = own % 2 * 16;
        const unsigned int old = atomicAdd(counters + own / 2, more << shift) >> shift & 0xffffu;
        // 32 warps add at most 2^8 each before the subtraction: never 2^16.
        if (old < FULL && old + more >= FULL) {
            atomicSub(counters + own / 2, FULL << shift);
            atomicAdd(counts + bin, static_cast<unsigned long long>(FULL));
        }
    }
};

/// Global memory itself: one addition for all lanes of a warp that have the same bin.
struct global_counters {
    unsigned long long* counts;

    __device__ global_counters(unsigned char*, unsigned int, unsigned long long* counts) : counts(counts) {}
    template <int N>
    __device__ void add(const unsigned int (&found)[N], const bool (&inside)[N]) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (!inside[k]) continue;
            const unsigned int same = __match_any_sync(__activemask(), found[k]);
            const unsigned long long lanes = __popc(same);
            if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(counts + found[k], lanes);
        }
    }
    __device__ void flush(unsigned long long*) {}
};

}  // namespace cudakit
