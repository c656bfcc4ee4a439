// Exclusive prefixes of a launch's tiles in a single pass: every tile publishes its aggregate, and whoever needs the
// prefix of a tile combines the aggregates before it, in an order that depends on nothing but their number: the same
// bits on each run.
//
// Use, in a kernel whose blocks do several tiles each (so that every block walks the aggregates forward once):
//     cudakit::lookback<T, Op> look(status);      // any thread
//     tile = look.draw();                         // one thread: the next tile that no block has; ascending in a block
//     look.publish(tile, aggregate);              // one thread, as early as it can
//     before = look.prefix(tile);                 // one whole warp, always the same one; tiles ascending
//     look.finish();                              // one thread a block, the last thing that its block does here
// Tiles may be dealt out otherwise than by draw() (round robin), where all blocks run at once.
//
// Memory: 8 bytes a tile for every 4 of T (status_bytes). Each 4 travel in a word of 8 with the launch's number as
//   their tag, so that value and flag arrive together, no fence is needed, and nothing is reset between launches. The
//   memory starts at zero and holds nothing else, ever: Place.status.
// Progress: a tile waits for earlier tiles only; draw() gives a tile to a block that runs, so that they come.
// Source: Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016). Blocks that stay need
//   no published prefixes: each carries its own on from its last tile, and no chain of waits runs from tile to tile.
#pragma once

#include <cudakit/warp.cuh>

namespace cudakit {

namespace detail {
// Relaxed accesses at gpu scope: never torn, never kept in a register or in L1.
__device__ inline unsigned long long load_relaxed(const unsigned long long* at) {
    unsigned long long value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at));
    return value;
}
__device__ inline unsigned int load_relaxed(const unsigned int* at) {
    unsigned int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
    return value;
}
__device__ inline void store_relaxed(unsigned long long* at, unsigned long long value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ inline void store_relaxed(unsigned int* at, unsigned int value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
}  // namespace detail

template <typename T, typename Op>
class lookback {
public:
    /// Bytes of memory for `tiles` tiles.
    __host__ __device__ static constexpr long long status_bytes(long long tiles) {
        return HEADER + 8ll * WORDS * tiles;
    }

    /// `offset`: of the first tile, in tiles, where a launch scans several lines.
    __device__ explicit lookback(unsigned char* status, long long offset = 0)
        : counters(reinterpret_cast<unsigned int*>(status)),
          words(reinterpret_cast<unsigned long long*>(status + HEADER) + offset * WORDS),
          base(Op::template identity<T>()) {
        tag = detail::load_relaxed(&counters[LAUNCHES]) + 1;
    }

    __device__ long long draw() { return atomicAdd(reinterpret_cast<unsigned long long*>(counters + DRAWN), 1ull); }

    __device__ void publish(long long tile, T aggregate) {
        detail::words<T> all;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) all.word[k] = 0;
        all.value = aggregate;
#pragma unroll
        for (int k = 0; k < WORDS; ++k)
            detail::store_relaxed(words + tile * WORDS + k, static_cast<unsigned long long>(tag) << 32 | all.word[k]);
    }

    /// The combination of all aggregates before `tile`, in every lane.
    __device__ T prefix(long long tile) {
        while (true) {
            // Two groups at once: a step of a few hundred tiles costs one round trip to the L2 cache.
            const long long ahead = tile - group * GROUP;
            words_of near, far;
            do {
                fetch(near, group, ahead);
                fetch(far, group + 1, ahead - GROUP);
            } while (__any_sync(FULL_WARP, !has_all(near, ahead) || !has_all(far, ahead - GROUP)));
            const T low = reduced(near, ahead);
            if (ahead < GROUP) return Op()(base, low);
            base = Op()(base, low);
            ++group;
            const T high = reduced(far, ahead - GROUP);
            if (ahead < 2 * GROUP) return Op()(base, high);
            base = Op()(base, high);
            ++group;
        }
    }

    /// The combination of the aggregates of `count` tiles, at most MOST: first, first + step, …; by one thread.
    template <int MOST>
    __device__ T combined(long long first, long long step, int count) const {
        unsigned long long word[MOST][WORDS];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < MOST; ++i)
#pragma unroll
                for (int k = 0; k < WORDS; ++k) {
                    if (i < count) word[i][k] = detail::load_relaxed(words + (first + i * step) * WORDS + k);
                }
#pragma unroll
            for (int i = 0; i < MOST; ++i)
#pragma unroll
                for (int k = 0; k < WORDS; ++k)
                    if (i < count) all = all && static_cast<unsigned int>(word[i][k] >> 32) == tag;
        } while (!all);
        T result = Op::template identity<T>();
#pragma unroll
        for (int i = 0; i < MOST; ++i)
            if (i < count) result = Op()(result, value_of(word[i]));
        return result;
    }

    __device__ void finish() {
        if (atomicAdd(counters + DONE, 1u) != gridDim.x * gridDim.y * gridDim.z - 1) return;
        // Relaxed, for other blocks have read these, and no fence is between.
        detail::store_relaxed(&counters[DONE], 0u);
        detail::store_relaxed(reinterpret_cast<unsigned long long*>(counters + DRAWN), 0ull);
        detail::store_relaxed(&counters[LAUNCHES], tag == 0xffffffffu ? 0 : tag);  // the tag 0 is the memory's first state
    }

private:
    static constexpr int WORDS = detail::words<T>::COUNT;
    static constexpr int EACH = 4, GROUP = 32 * EACH;  // tiles whose aggregates a lane, a warp combine at a time
    static constexpr int HEADER = 256, DRAWN = 0, DONE = 2, LAUNCHES = 3;

    struct words_of {
        unsigned long long word[EACH][WORDS];
    };

    // This lane's words of a group of which the first `count` tiles are wanted.
    __device__ void fetch(words_of& into, long long group, long long count) const {
        const int first = threadIdx.x % 32 * EACH;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
            for (int k = 0; k < WORDS; ++k)
                if (first + i < count)
                    into.word[i][k] = detail::load_relaxed(words + (group * GROUP + first + i) * WORDS + k);
    }
    __device__ bool has_all(const words_of& found, long long count) const {
        const int first = threadIdx.x % 32 * EACH;
        bool all = true;
#pragma unroll
        for (int i = 0; i < EACH; ++i)
#pragma unroll
            for (int k = 0; k < WORDS; ++k)
                if (first + i < count) all = all && static_cast<unsigned int>(found.word[i][k] >> 32) == tag;
        return all;
    }
    static __device__ T value_of(const unsigned long long (&word)[WORDS]) {
        detail::words<T> all;
#pragma unroll
        for (int k = 0; k < WORDS; ++k) all.word[k] = static_cast<unsigned int>(word[k]);
        return all.value;
    }
    __device__ T reduced(const words_of& found, long long count) const {
        const int first = threadIdx.x % 32 * EACH;
        T own = Op::template identity<T>();
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (first + i >= count) break;
            own = Op()(own, value_of(found.word[i]));
        }
        return warp_reduce(own, Op());
    }

    unsigned int* counters;
    unsigned long long* words;
    unsigned int tag;
    T base;               // of all tiles before the group
    long long group = 0;
};

}  // namespace cudakit
