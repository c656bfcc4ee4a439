#include <cudakit/block.cuh>
#include <cudakit/lookback.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/elementwise/neighbours.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

/// Which of 16 bytes are not 0, the first in the lowest bit.
__device__ inline unsigned int nonzero(const uint4& bytes) {
    const unsigned int words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
    unsigned int bits = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        unsigned int word = words[k];
        word |= word >> 4;
        word |= word >> 2;
        word |= word >> 1;
        // The product adds up shifts by 28, 21, 14 and 7: the lowest bits of the four bytes side by side at the top.
        bits |= ((word & 0x01010101u) * 0x10204080u >> 28) << (4 * k);
    }
    return bits;
}

/// Of each of ROUNDS times BLOCK · 16 bytes from `first` on, this thread's 16.
template <int BLOCK, int ROUNDS>
__device__ void load_rounds(uint4 (&bytes)[ROUNDS], const unsigned char* from, long long first, long long size) {
#pragma unroll
    for (int j = 0; j < ROUNDS; ++j)
        bytes[j] = load_neighbours(from + first + (j * BLOCK + threadIdx.x) * 16, from, from + size);
}

/// Collects the chosen of a tile of BLOCK · 16 · ROUNDS elements: each warp those of 32 neighbours at a time, of which
/// IN_FLIGHT are loaded at once.
template <typename W, int ROUNDS, int BLOCK, int IN_FLIGHT = 8>
struct chosen_by_warps {
    static constexpr int ROWS = BLOCK * ROUNDS / 2, WARPS = BLOCK / 32;
    static_assert(ROWS % BLOCK == 0 || BLOCK % ROWS == 0, "the rows of a tile are counted by whole warps");
    static_assert(ROWS / WARPS % IN_FLIGHT == 0, "a warp has as many rows in flight each time");
    struct storage {
        unsigned int rows[ROWS], before[ROWS];
    };
    storage& shared;
    uint4 bytes[ROUNDS];

    /// Reads of `where` what stands for the tile from element `first` on.
    __device__ void load(const unsigned char* where, long long first, long long size) {
        load_rounds<BLOCK>(bytes, where, first, size);
    }

    /// How many are chosen there. Every thread of the block must call it.
    __device__ int count(const W*, long long, long long) {
        unsigned short* const halves = reinterpret_cast<unsigned short*>(shared.rows);
        const int thread = threadIdx.x;
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) halves[j * BLOCK + thread] = static_cast<unsigned short>(nonzero(bytes[j]));
        __syncthreads();
        // Rows side by side to a thread.
        constexpr int EACH = ROWS > BLOCK ? ROWS / BLOCK : 1;
        unsigned int own = 0, all;
        if (thread * EACH < ROWS)
#pragma unroll
            for (int k = 0; k < EACH; ++k) own += __popc(shared.rows[thread * EACH + k]);
        unsigned int before = sum_before<BLOCK>(own, all);
        if (thread * EACH < ROWS)
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                shared.before[thread * EACH + k] = before;
                before += __popc(shared.rows[thread * EACH + k]);
            }
        __syncthreads();
        return all;
    }

    /// Those that were counted last, to `chosen` in their order.
    __device__ void collect(const W* x, long long first, W* chosen) const {
        const int lane = threadIdx.x % 32;
        for (int r = threadIdx.x / 32 * IN_FLIGHT; r < ROWS; r += WARPS * IN_FLIGHT) {
            W value[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k)
                if (shared.rows[r + k] >> lane & 1) value[k] = x[first + (r + k) * 32 + lane];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k)
                if (shared.rows[r + k] >> lane & 1)
                    chosen[shared.before[r + k] + __popc(shared.rows[r + k] & ((1u << lane) - 1))] = value[k];
        }
    }
};

/// The same, each thread those of 16 neighbours a round, which it has in registers: for elements of 1 or 2 bytes.
template <typename W, int ROUNDS, int BLOCK>
struct chosen_by_threads {
    static constexpr int COUNT = 16 / sizeof(W), LOADS = 16 / COUNT;
    static_assert(ROUNDS <= 4 && BLOCK * 16 < 1 << 16, "four counts of a round's elements fit 64 bits");
    struct storage {};
    storage& shared;
    uint4 bytes[ROUNDS], words[ROUNDS][LOADS];
    unsigned int bits[ROUNDS], before[ROUNDS];

    __device__ void load(const unsigned char* where, long long first, long long size) {
        load_rounds<BLOCK>(bytes, where, first, size);
    }

    __device__ int count(const W* x, long long first, long long size) {
        const long long at = first + threadIdx.x * 16;
        unsigned long long counts = 0, all;
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            bits[j] = nonzero(bytes[j]);
            counts |= static_cast<unsigned long long>(__popc(bits[j])) << (16 * j);
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                if (bits[j]) words[j][k] = load_neighbours(x + at + j * BLOCK * 16 + k * COUNT, x, x + size);
        }
        const unsigned long long earlier = sum_before<BLOCK>(counts, all);
        unsigned int total = 0;
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            before[j] = total + (static_cast<unsigned int>(earlier >> (16 * j)) & 0xffff);
            total += static_cast<unsigned int>(all >> (16 * j)) & 0xffff;
        }
        return total;
    }

    __device__ void collect(const W*, long long, W* chosen) const {
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            if (bits[j] == 0) continue;
            W values[16];
            memcpy(values, words[j], sizeof(values));
            W* next = chosen + before[j];
#pragma unroll
            for (int k = 0; k < 16; ++k)
                if (bits[j] >> k & 1) *next++ = values[k];
        }
    }
};

template <typename W, int ROUNDS, int BLOCK, bool IS_NARROW = sizeof(W) <= 2>
struct collector {
    using type = chosen_by_warps<W, ROUNDS, BLOCK>;
};
template <typename W, int ROUNDS, int BLOCK>
struct collector<W, ROUNDS, BLOCK, true> {
    using type = chosen_by_threads<W, ROUNDS, BLOCK>;
};

/// `count` elements to `out` by BLOCK threads, by words of 4 bytes at least; a word past them is read in `chosen`.
template <int BLOCK, typename W>
__device__ void store_chosen(W* out, const W* chosen, int count) {
    if constexpr (sizeof(W) >= 4) {
        for (int i = threadIdx.x; i < count; i += BLOCK) out[i] = chosen[i];
    } else {
        constexpr int COUNT = 4 / sizeof(W);
        const int head = min(count, static_cast<int>(-(reinterpret_cast<unsigned long long>(out) / sizeof(W)) % COUNT));
        const int whole = (count - head) / COUNT, rest = count - head - whole * COUNT;
        const unsigned int* const words = reinterpret_cast<const unsigned int*>(chosen);
        const int thread = threadIdx.x;
        for (int i = thread; i < whole; i += BLOCK)
            reinterpret_cast<unsigned int*>(out + head)[i] =
                __funnelshift_r(words[i], words[i + 1], 8 * sizeof(W) * head);  // cudakit: benign read
        if (thread < head + rest) {
            const int i = thread < head ? thread : thread + whole * COUNT;
            out[i] = chosen[i];
        }
    }
}

}  // namespace cudakit

// out = the elements of x whose byte in `where` is not 0, in their order; count = how many there are.
//
// Shapes: x and where (size), contiguous; out (capacity), whose elements past the count stay as they are, and which takes
//   the first `capacity` where there are more; count (1). W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16
//   bytes; Count is unsigned int where `size` fits it, else unsigned long long; status as <cudakit/lookback.cuh> wants it.
// Threads: a block draws tiles of BLOCK · 16 · ROUNDS elements. A thread reads 16 bytes of `where` a round; then it collects
//   the chosen of the same 16 of x, of 1 or 2 bytes each, or each warp those of 32 neighbours at a time, in shared memory;
//   then the block writes them side by side.
//   AHEAD: the bytes of `where` for its next tile are under way while a block writes one, whose number it draws early for
//   that; blocks wait longer for each other then.
// Memory: 1 + sizeof(W) bytes read an element (no x where 16 or 32 neighbours are all left out), sizeof(W) written for each
//   chosen. Shared: the chosen of a tile, and for wide elements 64 bits for every 32.
// Preconditions: out overlaps neither x nor where.
// Launch: BLOCK threads; as many blocks as fit the device at once, or one a tile where there are fewer.
// Source: Bakunas-Milanowski et al., Efficient algorithms for stream compaction on GPUs (2017); the look-back of
//   Merrill and Garland (2016).
template <typename W, typename Count, int ROUNDS, int BLOCK = 256, int RESIDENT = 4, bool AHEAD = false>
__global__ void __launch_bounds__(BLOCK, RESIDENT) selected(
    const void* __restrict__ x, const void* __restrict__ where, void* __restrict__ out,
    long long* __restrict__ count, unsigned char* status, long long size, long long capacity) {
    using Collector = typename cudakit::collector<W, ROUNDS, BLOCK>::type;
    constexpr int TILE = BLOCK * 16 * ROUNDS;
    __shared__ __align__(16) unsigned char chosen_bytes[TILE * sizeof(W) + 4];
    __shared__ typename Collector::storage storage;
    __shared__ long long drawn;
    __shared__ Count before_tile;
    W* const chosen = reinterpret_cast<W*>(chosen_bytes);
    const W* const from = static_cast<const W*>(x);
    const unsigned char* const chooser = static_cast<const unsigned char*>(where);
    const int thread = threadIdx.x;
    const long long tiles = (size + TILE - 1) / TILE;
    cudakit::lookback<Count, cudakit::plus> look(status);
    if (tiles == 0 && thread == 0) *count = 0;

    if (thread == 0) drawn = look.draw();
    __syncthreads();
    long long tile = drawn;
    Collector collector{storage};
    if (AHEAD && tile < tiles) collector.load(chooser, tile * TILE, size);
    while (tile < tiles) {
        long long next = 0;
        if (AHEAD && thread == 0) next = look.draw();
        if (!AHEAD) collector.load(chooser, tile * TILE, size);
        const int total = collector.count(from, tile * TILE, size);
        if (thread == 0) look.publish(tile, total);
        collector.collect(from, tile * TILE, chosen);
        if (thread < 32) {
            const Count prefix = look.prefix(tile);
            if (thread == 0) {
                before_tile = prefix;
                if (AHEAD) drawn = next;
            }
        }
        __syncthreads();
        const long long start = before_tile;
        if (AHEAD) next = drawn;
        if (AHEAD && next < tiles) collector.load(chooser, next * TILE, size);
        const int fits = static_cast<int>(min(static_cast<long long>(total), capacity - start));
        cudakit::store_chosen<BLOCK>(static_cast<W*>(out) + start, chosen, fits);
        if (thread == 0 && tile == tiles - 1) *count = start + total;
        if (!AHEAD) {
            if (thread == 0) drawn = look.draw();
            __syncthreads();
            next = drawn;
        }
        tile = next;
        __syncthreads();
    }
    if (thread == 0) look.finish();
}
