// An array filled with numbers that are a function of where they are, by a grid of any size.
#pragma once

#include <cudakit/pack.cuh>
#include <cudakit/philox.cuh>

namespace cudakit {

/// A tile of a block: `draw` and stores of 16 bytes. WHOLE: all of it lies in `out`, which is aligned, and the positions' upper
/// halves are the same, so that what Philox makes of them alone is made once; and only the first words are drawn: whether they
/// decided all numbers of the thread is returned.
template <bool WHOLE, int DRAWN, int BLOCK, int PACKS, typename T, typename Draw>
__device__ __forceinline__ bool fill_tile(T* out, long long left, unsigned long long position, const Draw& draw) {
    constexpr int WIDTH = 16 / sizeof(T), PARTS = DRAWN > WIDTH ? DRAWN / WIDTH : 1;
    // From one pack of a thread to its next one.
    constexpr int STEP = BLOCK * WIDTH;
    const int own = static_cast<int>(threadIdx.x) * WIDTH;
    out += own;
    left -= own;
    const unsigned int low = static_cast<unsigned int>(position) + own / DRAWN, high = position >> 32;
    position += own / DRAWN;
    bool is_done = true;
#pragma unroll(WHOLE ? PACKS : 1)
    for (int j = 0; j < PACKS; ++j) {
        if (!WHOLE && j * STEP >= left) break;
        pack<T, WIDTH> some;
#pragma unroll
        for (int i = 0; i < WIDTH; i += DRAWN) {
            const int offset = (j * STEP + i) / DRAWN;
            const unsigned long long at = WHOLE ? joined(low + offset, high) : position + offset;
            if constexpr (PARTS == 1) {
                is_done &= draw(at, some.values + i, WHOLE);
            } else {
                // Neighbours draw the same numbers, and each stores its part: what lies in a warp's stores is in a row.
                T numbers[DRAWN];
                is_done &= draw(at, numbers, WHOLE);
                const int part = threadIdx.x % PARTS;
#pragma unroll
                for (int n = 0; n < WIDTH; ++n) {
                    some.values[n] = numbers[n];
#pragma unroll
                    for (int other = 1; other < PARTS; ++other)
                        if (part == other) some.values[n] = numbers[other * WIDTH + n];
                }
            }
        }
        if constexpr (WHOLE)
            store_pack(out + j * STEP, some);
        else
            store_some(out + j * STEP, some, static_cast<int>(min(left - j * STEP, static_cast<long long>(WIDTH))));
    }
    return is_done;
}

/// out[k] = number k % DRAWN of `draw` at position + k / DRAWN, by a grid of any size. `draw(position, numbers, is_quick)` sets as
/// many, and says whether they are decided; is_quick: by the first words alone, without a branch to others.
template <int DRAWN, int BLOCK, typename T, typename Draw>
__device__ void fill(T* out, long long size, unsigned long long position, const Draw& draw) {
    // Four positions of a thread are worked out at once.
    constexpr int WIDTH = 16 / sizeof(T), PACKS = WIDTH >= 4 * DRAWN ? 1 : WIDTH >= 2 * DRAWN ? 2 : 4;
    constexpr int TILE = BLOCK * PACKS * WIDTH;
    for (long long first = static_cast<long long>(blockIdx.x) * TILE; first < size;
         first += static_cast<long long>(gridDim.x) * TILE) {
        const unsigned long long at = position + first / DRAWN;
        const bool is_whole =
            size - first >= TILE && is_aligned<pack<T, WIDTH>>(out) && static_cast<unsigned int>(at) < 0u - TILE;
        if (!is_whole || !fill_tile<true, DRAWN, BLOCK, PACKS>(out + first, TILE, at, draw))
            fill_tile<false, DRAWN, BLOCK, PACKS>(out + first, size - first, at, draw);
    }
}

}  // namespace cudakit
