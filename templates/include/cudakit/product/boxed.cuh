// Tiles of a matrix in shared memory, as copies of boxes of a tensor (TMA; sm_90) leave them.
#pragma once

#include <cuda.h>
#include <cudakit/mbarrier.cuh>

namespace cudakit {

namespace detail {
/// Copy the box of a tensor of three axes that begins at x (the contiguous axis), y, z. By one thread; `barrier` counts the
/// bytes.
__device__ __forceinline__ void load_box(void* shared, const CUtensorMap& map, int x, int y, int z, mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
            shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&barrier))
        : "memory");
}

}  // namespace detail

/// Tiles of LINES rows of A (columns of B) and 128 bytes along k, as copies of boxes with a swizzle of 128 bytes leave them.
/// DEEP: memory is contiguous along k, and the tile is a box of LINES rows. Else the tile is boxes of DEPTH rows along k, for
/// DEPTH lines each.
template <typename T, int LINES, bool DEEP>
struct boxed_tile {
    // Tensor cores take 4-byte elements that lie across k from registers only.
    static constexpr bool IS_DEEP = DEEP, IS_READ = !DEEP && sizeof(T) == 4;
    static constexpr int DEPTH = 128 / sizeof(T), BYTES = (DEEP ? LINES : (LINES + DEPTH - 1) / DEPTH * DEPTH) * 128;
    // From one product along 32 bytes of k to the next, in units of 16 bytes.
    static constexpr int STEP = (DEEP ? 32 : 16 * 128) / 16;

    __device__ static __forceinline__ void load(unsigned char* tile, const CUtensorMap& map, int line, int depth, int batch,
                                                mbarrier& barrier) {
        if constexpr (DEEP)
            detail::load_box(tile, map, depth, line, batch, barrier);
        else
#pragma unroll
            for (int i = 0; i < LINES; i += DEPTH) detail::load_box(tile + i * 128, map, line + i, depth, batch, barrier);
    }

    /// The matrix descriptor from a line on, which is a multiple of 64.
    __device__ static __forceinline__ unsigned long long descriptor(const unsigned char* tile, int line) {
        static_assert(DEEP || sizeof(T) == 2, "wgmma multiplies bytes that are contiguous along k");
        // Eight rows of 128 bytes are an atom. Boxes of 64 rows follow each other. Of an address in a cluster, the higher bits
        // are the block.
        constexpr unsigned long long FORM = 1ull << 62 | 1024ull >> 4 << 32 | (DEEP ? 1ull : 8192ull >> 4) << 16;
        return FORM | (detail::shared_address(tile + line * 128) & 0x3ffff) >> 4;
    }

    /// Number, of a warpgroup's 64 lines, of the line that a warp's lanes of number `high` of 8 have, in their first or second
    /// `half`. Lines that are read lie so that reads have no bank conflicts, and that 8 lines of four lanes are neighbours.
    __device__ static __forceinline__ int line(int warp, int high, int half) {
        return IS_READ ? warp / 2 * 32 + high / 4 * 16 + warp % 2 * 8 + half * 4 + high % 4 : warp * 16 + half * 8 + high;
    }

    /// The lane's part of 64 lines from a line on, for product number `step` along 32 bytes of k.
    __device__ static __forceinline__ void read(unsigned int (&words)[4], const unsigned char* tile, int from, int step) {
        const int warp = threadIdx.x / 32 % 4, high = threadIdx.x / 4 % 8, deep = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = from + line(warp, high, i % 2), row = deep + i / 2 * 4;
            words[i] = *reinterpret_cast<const unsigned int*>(tile + at / DEPTH * (DEPTH * 128) + (step * 8 + row) * 128 +
                                                              (at % DEPTH / 4 ^ row) * 16 + at % 4 * 4);
        }
    }
};

}  // namespace cudakit
