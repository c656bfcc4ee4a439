#include <cudakit/lookback.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

// Which of 16 bytes are not 0, the first in the lowest bit.
__device__ inline unsigned int nonzero(const pack<unsigned char, 16>& bytes) {
    unsigned int words[4], bits = 0;
    memcpy(words, &bytes, 16);
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

}  // namespace cudakit

// out = the elements of x whose byte in `where` is not 0, in their order; count = how many there are.
//
// Shapes: x and where (size), contiguous; out (capacity), whose elements past the count stay as they are, and which takes
//   the first `capacity` where there are more; count (1). W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16
//   bytes; Count is unsigned int where `size` fits it, else unsigned long long; status as <cudakit/lookback.cuh> wants it.
// Threads: a block draws tiles of BLOCK · 16 · ROUNDS elements. A thread reads 16 bytes of `where` a round; then each warp
//   collects the chosen of 32 neighbours of x at a time, in shared memory; then the block writes them side by side.
// Memory: 1 + sizeof(W) bytes read an element (no x where 32 neighbours are all left out), sizeof(W) written for each
//   chosen. Shared: the chosen of a tile, and 32 bits with the number of chosen before them for every 32 elements.
// Preconditions: out overlaps neither x nor where.
// Launch: BLOCK threads; as many blocks as fit the device at once, or one a tile where there are fewer.
// Source: Bakunas-Milanowski et al., Efficient algorithms for stream compaction on GPUs (2017); the look-back of
//   Merrill and Garland (2016).
template <typename W, typename Count, int ROUNDS, int BLOCK = 256, int RESIDENT = 4, int IN_FLIGHT = 8>
__global__ void __launch_bounds__(BLOCK, RESIDENT) selected(
    const void* __restrict__ x, const void* __restrict__ where, void* __restrict__ out,
    long long* __restrict__ count, unsigned char* status, long long size, long long capacity) {
    constexpr int TILE = BLOCK * 16 * ROUNDS, ROWS = TILE / 32, WARPS = BLOCK / 32;
    static_assert(ROWS % BLOCK == 0 || BLOCK % ROWS == 0, "the rows of a tile are counted by whole warps");
    static_assert(ROWS / WARPS % IN_FLIGHT == 0, "a warp has as many rows in flight each time");
    __shared__ __align__(16) unsigned char chosen_bytes[TILE * sizeof(W)];
    __shared__ unsigned short halves[2 * ROWS];
    __shared__ unsigned int before_row[ROWS];
    __shared__ unsigned int of_warp[WARPS];
    __shared__ long long drawn;
    __shared__ Count before_tile;
    W* const chosen = reinterpret_cast<W*>(chosen_bytes);
    const unsigned int* const rows = reinterpret_cast<const unsigned int*>(halves);
    const W* const from = static_cast<const W*>(x);
    const unsigned char* const is_chosen = static_cast<const unsigned char*>(where);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long tiles = (size + TILE - 1) / TILE;
    cudakit::lookback<Count, cudakit::plus> look(status);
    if (tiles == 0 && thread == 0) *count = 0;

    while (true) {
        if (thread == 0) drawn = look.draw();
        __syncthreads();
        const long long tile = drawn, first = tile * TILE;
        if (tile >= tiles) break;
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            const long long at = first + (j * BLOCK + thread) * 16;
            unsigned int bits = 0;
            if (at + 16 <= size) {
                bits = cudakit::nonzero(cudakit::load_neighbours<16>(is_chosen + at, is_chosen, is_chosen + size));
            } else {
                for (int k = 0; at + k < size && k < 16; ++k) bits |= (is_chosen[at + k] != 0) << k;
            }
            halves[j * BLOCK + thread] = static_cast<unsigned short>(bits);
        }
        __syncthreads();
        // The number of chosen before each row of 32: rows side by side to a thread, threads along a warp, warps.
        constexpr int EACH = ROWS > BLOCK ? ROWS / BLOCK : 1;
        unsigned int own = 0;
        if (thread * EACH < ROWS)
#pragma unroll
            for (int k = 0; k < EACH; ++k) own += __popc(rows[thread * EACH + k]);
        const unsigned int up_to = cudakit::warp_inclusive_scan(own, cudakit::plus(), lane);
        if (lane == 31) of_warp[warp] = up_to;
        __syncthreads();
        unsigned int before = up_to - own, total = 0;
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            if (k < warp) before += of_warp[k];
            total += of_warp[k];
        }
        if (thread * EACH < ROWS)
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                before_row[thread * EACH + k] = before;
                before += __popc(rows[thread * EACH + k]);
            }
        if (thread == 0) look.publish(tile, total);
        __syncthreads();
        for (int r = warp * IN_FLIGHT; r < ROWS; r += BLOCK / 32 * IN_FLIGHT) {
            W value[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k)
                if (rows[r + k] >> lane & 1) value[k] = from[first + (r + k) * 32 + lane];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k)
                if (rows[r + k] >> lane & 1)
                    chosen[before_row[r + k] + __popc(rows[r + k] & ((1u << lane) - 1))] = value[k];
        }
        if (warp == 0) {
            const Count prefix = look.prefix(tile);
            if (lane == 0) before_tile = prefix;
        }
        __syncthreads();
        const long long start = before_tile;
        const int fits = static_cast<int>(min(static_cast<long long>(total), capacity - start));
        for (int i = thread; i < fits; i += BLOCK) static_cast<W*>(out)[start + i] = chosen[i];
        if (thread == 0 && tile == tiles - 1) *count = start + total;
        __syncthreads();
    }
    if (thread == 0) look.finish();
}
