#include <cudakit/block.cuh>
#include <cudakit/lookback.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/sort/order.cuh>

// values, starts = the first of each run of equal neighbours of x, and where it is; count = the number of runs.
//
// Shapes: x (size), contiguous; values (size), starts (size + 1), of which starts[count] = size; count (1). `index` is
//   null or (size): then inverse[index[i]] = the number of the run that x[i] is in. Count is unsigned int where `size`
//   fits it, else unsigned long long; status as <cudakit/lookback.cuh> wants it.
// Threads: a block draws tiles of BLOCK · ITEMS elements; a thread has elements 32 apart, whose starts its warp counts
//   by votes. All NaN are one run, or, where NAN_APART, each is one.
// Memory: a read of x; for each run its value and 8 bytes.
// Preconditions: size > 0; outputs overlap no input; index has each number from 0 to size − 1 once.
// Launch: BLOCK threads; as many blocks as fit the device at once, or one a tile where there are fewer.
// Source: the look-back of Merrill and Garland (2016).
template <typename Order, typename Count, bool NAN_APART = false, int ITEMS = 8, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) begun(
    const void* __restrict__ x, void* __restrict__ values, long long* __restrict__ starts,
    long long* __restrict__ count, const long long* __restrict__ index, long long* __restrict__ inverse,
    unsigned char* status, long long size) {
    using W = typename Order::word;
    constexpr int TILE = BLOCK * ITEMS;
    __shared__ long long drawn;
    __shared__ Count before_tile;
    const W* const from = static_cast<const W*>(x);
    const int thread = threadIdx.x, lane = thread % 32, own = thread / 32 * (32 * ITEMS) + lane;
    const long long tiles = (size + TILE - 1) / TILE;
    cudakit::lookback<Count, cudakit::plus> look(status);
    while (true) {
        if (thread == 0) drawn = look.draw();
        __syncthreads();
        const long long tile = drawn;
        if (tile >= tiles) break;
        unsigned int begun[ITEMS];
        unsigned int number = 0, total;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const long long at = tile * TILE + own + 32 * i;
            bool is_first = at == 0;
            if (at > 0 && at < size) {
                const W key = Order::key(from[at]);
                is_first = key != Order::key(from[at - 1]) || (NAN_APART && key == static_cast<W>(~static_cast<W>(0)));
            }
            begun[i] = __ballot_sync(cudakit::FULL_WARP, is_first);
            number += __popc(begun[i]);
        }
        const unsigned int in_tile = cudakit::sum_before<BLOCK>(lane == 31 ? number : 0u, total);
        if (thread == 0) look.publish(tile, total);
        if (thread < 32) {
            const Count prefix = look.prefix(tile);
            if (thread == 0) before_tile = prefix;
        }
        __syncthreads();
        // Lanes of a warp but the last count nothing, so that the sum before any of them is that before the warp.
        long long run = static_cast<long long>(before_tile) + in_tile;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const long long at = tile * TILE + own + 32 * i;
            const long long place = run + __popc(begun[i] & ((2u << lane) - 1)) - 1;
            if (begun[i] >> lane & 1u) {
                static_cast<W*>(values)[place] = from[at];
                starts[place] = at;
            }
            if (index && at < size) inverse[index[at]] = place;
            run += __popc(begun[i]);
        }
        if (thread == 0 && tile == tiles - 1) {
            *count = static_cast<long long>(before_tile) + total;
            starts[static_cast<long long>(before_tile) + total] = size;
        }
        __syncthreads();
    }
    if (thread == 0) look.finish();
}
