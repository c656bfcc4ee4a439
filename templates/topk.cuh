#include <cudakit/block.cuh>
#include <cudakit/sort/order.cuh>

// keys_out, index_out = of each segment of each row the k keys that come first in Order, and where they are.
//
// Shapes: keys (rows, size), contiguous; keys_out, index_out (rows, segments, k). Segment s of a row are its elements
//   from s · size / segments on. `from` is null, or (rows, size): what stands for the index of each key.
// Threads: a block a segment, the keys of which its threads take in turns. Digits of 11 bits are counted from the
//   highest on, in shared memory, each time of those keys only that share the k-th one's digits so far. What is chosen
//   is stored in its order, first all keys before the k-th one's digits, then as many of those that have them as there
//   is room for.
// Memory: a read, where IS_ONE_CHUNK, as keys stay in registers; else a read for each digit and one more; k written.
// Preconditions: 1 ≤ k ≤ size / segments < 2^32; at most BLOCK · ITEMS keys a segment where IS_ONE_CHUNK.
// Launch: rows · segments blocks of BLOCK threads.
// Source: Alabi et al., Fast k-selection algorithms for graphics processing units, ACM J. Exp. Algorithmics 17 (2012).
template <typename Order, bool IS_ONE_CHUNK, int ITEMS, int BLOCK, int RESIDENT = 1>
__global__ void __launch_bounds__(BLOCK, RESIDENT) first(
    const void* __restrict__ keys, const long long* __restrict__ from, void* __restrict__ keys_out,
    long long* __restrict__ index_out, long long size, long long segments, long long k) {
    using W = typename Order::word;
    constexpr int BITS = 8 * Order::BYTES, DIGIT = BITS < 11 ? BITS : 11, BINS = 1 << DIGIT, WARPS = BLOCK / 32;
    constexpr int EACH = BINS > BLOCK ? BINS / BLOCK : 1, GROUPS = ITEMS * WARPS, CHUNK = BLOCK * ITEMS;
    static_assert(GROUPS <= BLOCK && CHUNK < 65536, "a thread sums for a group, in 16 bits");
    __shared__ unsigned int bins[BINS];
    __shared__ unsigned int groups[GROUPS];
    __shared__ unsigned int found_bin, found_before, found_count;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long row = blockIdx.x / segments, segment = blockIdx.x % segments;
    const long long start = segment * size / segments;
    const unsigned int count = static_cast<unsigned int>((segment + 1) * size / segments - start);
    const long long base = row * size + start;
    const W* const x = static_cast<const W*>(keys) + base;

    W key[ITEMS];
    const auto load = [&](unsigned int chunk) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const unsigned int at = chunk + i * BLOCK + thread;
            if (at < count) key[i] = x[at];
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) key[i] = Order::key(key[i]);
    };
    if (IS_ONE_CHUNK) load(0);

    // The first digits of the k-th key: those from bit `shift` on; and how many of the keys that have them are chosen.
    int shift = BITS;
    W prefix = 0;
    unsigned int wanted = static_cast<unsigned int>(k), having = count;
    while (shift > 0 && having != wanted) {
        const int before = shift;
        shift = before > DIGIT ? before - DIGIT : 0;
        const unsigned int mask = (1u << (before - shift)) - 1;
        for (int bin = thread; bin < BINS; bin += BLOCK) bins[bin] = 0;
        __syncthreads();
        for (unsigned int chunk = 0; chunk < (IS_ONE_CHUNK ? 1 : count); chunk += CHUNK) {
            if (!IS_ONE_CHUNK) load(chunk);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i)
                if (chunk + i * BLOCK + thread < count && (before == BITS || key[i] >> before == prefix))
                    atomicAdd(bins + (static_cast<unsigned int>(key[i] >> shift) & mask), 1u);
        }
        __syncthreads();
        unsigned int own[EACH], sum = 0, all;
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            own[e] = thread * EACH + e < BINS ? bins[thread * EACH + e] : 0;
            sum += own[e];
        }
        unsigned int earlier = cudakit::sum_before<BLOCK>(sum, all);
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            if (earlier < wanted && wanted <= earlier + own[e]) {
                found_bin = thread * EACH + e;
                found_before = earlier;
                found_count = own[e];
            }
            earlier += own[e];
        }
        __syncthreads();
        prefix = static_cast<W>((before == BITS ? 0 : prefix << (before - shift)) | static_cast<W>(found_bin));
        wanted -= found_before;
        having = found_count;
    }

    W* const to = static_cast<W*>(keys_out) + static_cast<long long>(blockIdx.x) * k;
    long long* const to_index = index_out + static_cast<long long>(blockIdx.x) * k;
    const unsigned int sooner = static_cast<unsigned int>(k) - wanted;
    unsigned int less = 0, equal = 0;  // so far
    for (unsigned int chunk = 0; chunk < (IS_ONE_CHUNK ? 1 : count); chunk += CHUNK) {
        if (!IS_ONE_CHUNK) load(chunk);
        // Of 32 neighbours: how many are less in the upper 16 bits, how many equal in the lower.
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const bool is_there = chunk + i * BLOCK + thread < count;
            const W digits = shift == BITS ? 0 : key[i] >> shift;
            const unsigned int before = __popc(__ballot_sync(cudakit::FULL_WARP, is_there && digits < prefix));
            const unsigned int same = __popc(__ballot_sync(cudakit::FULL_WARP, is_there && digits == prefix));
            if (lane == 0) groups[i * WARPS + warp] = before << 16 | same;
        }
        __syncthreads();
        unsigned int all;
        const unsigned int earlier = cudakit::sum_before<BLOCK>(thread < GROUPS ? groups[thread] : 0u, all);
        if (thread < GROUPS) groups[thread] = earlier;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const unsigned int at = chunk + i * BLOCK + thread;
            const W digits = shift == BITS ? 0 : key[i] >> shift;
            const bool is_less = at < count && digits < prefix, is_equal = at < count && digits == prefix;
            const unsigned int before = __ballot_sync(cudakit::FULL_WARP, is_less);
            const unsigned int same = __ballot_sync(cudakit::FULL_WARP, is_equal);
            if (!is_less && !is_equal) continue;
            const unsigned int lanes = (is_less ? before : same) & ((1u << lane) - 1);
            const unsigned int group = groups[i * WARPS + warp];
            unsigned int place = __popc(lanes) + (is_less ? less + (group >> 16) : equal + (group & 0xffff));
            if (is_equal) {
                if (place >= wanted) continue;
                place += sooner;
            }
            to[place] = x[at];
            to_index[place] = from ? from[base + at] : start + at;
        }
        less += all >> 16;
        equal += all & 0xffff;
        __syncthreads();
    }
}
