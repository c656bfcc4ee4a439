// Tiles of a matrix, from memory to shared memory, several on their way at once.
#pragma once

#include <cudakit/elementwise/values.cuh>
#include <cudakit/stage.cuh>

namespace cudakit {

/// Tiles of an operand of a product: LINES of its rows (of B: columns), and DEPTH along what is summed.
/// KEPT_DEEP: a line's elements are neighbours in shared memory, else those of one depth are. READ_DEEP: the same of
/// memory, as far as it has neighbours. COUNT elements are moved at once. Lines are PAD_BYTES longer than they need be, so
/// that threads which read one place of each find them in different banks.
template <typename T, int LINES, int DEPTH, bool KEPT_DEEP, bool READ_DEEP, int COUNT, int THREADS, int PAD_BYTES>
struct operand_tile {
    static constexpr int PITCH = (KEPT_DEEP ? DEPTH : LINES) + PAD_BYTES / static_cast<int>(sizeof(T));
    static constexpr int SIZE = (KEPT_DEEP ? LINES : DEPTH) * PITCH;
    static constexpr int PACKS = LINES * DEPTH / COUNT;
    static_assert((LINES & (LINES - 1)) == 0 && (DEPTH & (DEPTH - 1)) == 0 && (THREADS & (THREADS - 1)) == 0,
                  "a thread's packs are as far apart as those of thread 0");
    static_assert(COUNT == 1 || KEPT_DEEP == READ_DEEP, "what is moved at once is stored at once");
    static_assert(PITCH * sizeof(T) % 16 == 0, "lines begin at multiples of 16 bytes");

    __device__ static int place(int line, int depth) { return KEPT_DEEP ? line * PITCH + depth : depth * PITCH + line; }

    /// From `source`, whose `lines` and `depth` from there on are inside the matrix.
    __device__ static __forceinline__ void load(T* shared, const T* source, long long line_step, long long depth_step,
                                                int lines, int depth) {
        if (lines >= LINES && depth >= DEPTH)
            load<true>(shared, source, line_step, depth_step, lines, depth);
        else
            load<false>(shared, source, line_step, depth_step, lines, depth);
    }

private:
    template <bool IS_WHOLE>
    __device__ static __forceinline__ void load(T* shared, const T* source, long long line_step, long long depth_step,
                                                int lines, int depth) {
        // What belongs to the thread, once; the rest is the same for all threads.
        const int own_line = line_of(threadIdx.x), own_depth = depth_of(threadIdx.x);
        T* const to = shared + place(own_line, own_depth);
        const T* const from = source + (READ_DEEP && COUNT > 1 ? own_depth : own_depth * depth_step) +
                              (READ_DEEP || COUNT == 1 ? own_line * line_step : own_line);
#pragma unroll
        for (int begin = 0; begin < PACKS; begin += THREADS) {
            if (PACKS % THREADS != 0 && begin + static_cast<int>(threadIdx.x) >= PACKS) break;
            const int line = line_of(begin), deep = depth_of(begin);
            int present = COUNT;
            if constexpr (!IS_WHOLE) {
                const int lines_left = lines - own_line - line, depth_left = depth - own_depth - deep;
                const int along = READ_DEEP ? depth_left : lines_left, across = READ_DEEP ? lines_left : depth_left;
                present = across > 0 ? max(0, min(COUNT, along)) : 0;
            }
            stage<COUNT>(to + place(line, deep), from + line * line_step + deep * depth_step, present);
        }
    }

    // Which line and which depth the pack number i of a tile begins at.
    __device__ static constexpr int line_of(int i) {
        if constexpr (IS_TURNED) return i / EIGHT % 4 + i / (4 * EIGHT * ACROSS) * 4;
        else return READ_DEEP ? i / (DEPTH / COUNT) : i % (LINES / COUNT) * COUNT;
    }
    __device__ static constexpr int depth_of(int i) {
        // Eight neighbours of four lines, turned, go to 32 banks, if elements have 4 bytes.
        if constexpr (IS_TURNED) return i % EIGHT + i / (4 * EIGHT) % ACROSS * EIGHT;
        else return READ_DEEP ? i % (DEPTH / COUNT) * COUNT : i / (LINES / COUNT);
    }
    static constexpr bool IS_TURNED = READ_DEEP && !KEPT_DEEP;
    static constexpr int EIGHT = DEPTH < 8 ? DEPTH : 8, ACROSS = DEPTH / EIGHT;
};

}  // namespace cudakit
