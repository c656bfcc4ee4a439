#include <cudakit/elementwise/values.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

// out[i] = Σ a[i, k] · v[k], where rows of A lie as rows
//
// Shapes: a (rows, depth), rows `pitch` elements apart; v (depth); out (rows).
// Threads: a warp has ROWS rows, its lanes neighbouring packs of COUNT elements of each.
// Memory: sizeof(T) bytes an element, once, COUNT of them a load; v from the caches, once for ROWS rows.
// Preconditions: a, v and rows begin at multiples of COUNT elements' bytes, 16 at most. Sums are in A.
// Launch: BLOCK threads along x, ⌈rows / (ROWS · BLOCK / 32)⌉ blocks.
// Source: one pass, as any reduction along rows.
template <typename T, typename A, int COUNT, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) matvec_rows(const T* __restrict__ a, const T* __restrict__ v,
                                                     T* __restrict__ out, long long rows, long long depth,
                                                     long long pitch) {
    const int lane = threadIdx.x % 32;
    const long long first = (static_cast<long long>(blockIdx.x) * (BLOCK / 32) + threadIdx.x / 32) * ROWS;
    if (first >= rows) return;
    const T* begin[ROWS];
    A sum[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) begin[r] = a + min(first + r, rows - 1) * pitch;
    const long long whole = depth / COUNT * COUNT;
#pragma unroll 2
    for (long long at = lane * COUNT; at < whole; at += 32 * COUNT) {
        pack<T, COUNT> found[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) found[r] = load_pack_once<COUNT>(begin[r] + at);
        const pack<T, COUNT> by = load_pack<COUNT>(v + at);
#pragma unroll
        for (int e = 0; e < COUNT; ++e) {
            const A factor = convert<A>(by.values[e]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] += convert<A>(found[r].values[e]) * factor;
        }
    }
    for (long long at = whole + lane; at < depth; at += 32)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r] += convert<A>(begin[r][at]) * convert<A>(v[at]);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) sum[r] += shuffle_xor(sum[r], mask);
        if (lane == 0 && first + r < rows) out[first + r] = convert<T>(sum[r]);
    }
}

// out[s, i] = Σ a[i, k] · v[k] over part s of all k, where columns of A lie as rows
//
// Shapes: a (depth, rows), as it lies, lines `pitch` elements apart; v (depth); out (parts, rows).
// Threads: lanes have COUNT neighbouring rows each, the warps of a block every WARPS-th k of the block's part.
// Memory: sizeof(T) bytes an element, once, COUNT of them a load; the warps' sums meet in shared memory, a lane's COUNT
//   words apart and one more, so that lanes meet different banks.
// Preconditions: a and its lines begin at multiples of COUNT elements' bytes, 16 at most. Sums are in A.
// Launch: 32 · WARPS threads along x, ⌈rows / (32 · COUNT)⌉ blocks along x, parts along y.
// Source: one pass, as any reduction along columns.
template <typename T, typename A, typename Out, int COUNT, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) matvec_columns(const T* __restrict__ a, const T* __restrict__ v,
                                                             Out* __restrict__ out, long long rows, long long depth,
                                                             long long pitch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long row = (static_cast<long long>(blockIdx.x) * 32 + lane) * COUNT;
    constexpr int AHEAD = 8, TURN = AHEAD * WARPS;  // loads on their way together; lines of a turn, of which a part has whole ones
    const long long part = (depth + gridDim.y * TURN - 1) / (gridDim.y * TURN) * TURN, begin = part * blockIdx.y;
    const long long end = min(begin + part, depth);
    A sum[COUNT] = {};
    const auto add = [&](const pack<T, COUNT>& found, long long at) {
        const A factor = convert<A>(v[at]);
#pragma unroll
        for (int e = 0; e < COUNT; ++e) sum[e] += convert<A>(found.values[e]) * factor;
    };
    long long at = begin + warp;
    if (row + COUNT <= rows) {
        for (; at + (AHEAD - 1) * WARPS < end; at += TURN) {
            pack<T, COUNT> found[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) found[k] = load_pack_once<COUNT>(a + (at + k * WARPS) * pitch + row);
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) add(found[k], at + k * WARPS);
        }
        for (; at < end; at += WARPS) add(load_pack_once<COUNT>(a + at * pitch + row), at);
    }
    for (; at < end; at += WARPS) {
        pack<T, COUNT> found{};
#pragma unroll
        for (int e = 0; e < COUNT; ++e)
            if (row + e < rows) found.values[e] = a[at * pitch + row + e];
        add(found, at);
    }
    __shared__ A all[WARPS][32 * (COUNT + 1)];
#pragma unroll
    for (int e = 0; e < COUNT; ++e) all[warp][lane * (COUNT + 1) + e] = sum[e];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * COUNT; i += 32 * WARPS) {
        A total = A(0);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) total += all[w][i / COUNT * (COUNT + 1) + i % COUNT];
        const long long to = static_cast<long long>(blockIdx.x) * 32 * COUNT + i;
        if (to < rows) out[blockIdx.y * rows + to] = convert<Out>(total);
    }
}

// out[i] = Σ parts[s, i]
//
// Shapes: parts (count, rows), out (rows), C-contiguous.
// Threads: one has one i.
// Memory: sizeof(A) bytes an element of parts, coalesced.
// Preconditions: none.
// Launch: BLOCK threads along x, ⌈rows / BLOCK⌉ blocks.
// Source: the second half of `matvec_columns`.
template <typename T, typename A, int BLOCK>
__global__ void __launch_bounds__(BLOCK) add_parts(const A* __restrict__ parts, T* __restrict__ out, long long rows,
                                                   int count) {
    const long long row = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
    if (row >= rows) return;
    A sum = A(0);
#pragma unroll 8
    for (int s = 0; s < count; ++s) sum += parts[s * rows + row];
    out[row] = convert<T>(sum);
}

// out[i, j] = x[i] · y[j]
//
// Shapes: x (rows), y (columns), out (rows, columns), all C-contiguous.
// Threads: a thread has COUNT neighbouring columns of ROWS rows.
// Memory: sizeof(T) bytes an element written, COUNT of them a store; x and y from the caches.
// Preconditions: out and its rows, and y, begin at multiples of COUNT elements' bytes, 16 at most. The product is that of A,
//   cut to T: of integers the low bits, of bool `and`.
// Launch: BLOCK threads along x; ⌈columns / (COUNT · BLOCK)⌉ blocks along x, for each of ⌈rows / ROWS⌉ groups of rows.
// Source: the definition.
template <typename T, typename A, int COUNT, int ROWS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) outer(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out,
                                               long long rows, long long columns, int across) {
    const long long column = (static_cast<long long>(blockIdx.x % across) * BLOCK + threadIdx.x) * COUNT;
    const long long first = static_cast<long long>(blockIdx.x / across) * ROWS;
    if (column >= columns) return;
    const pack<T, COUNT> found = load_pack<COUNT>(y + column);
    A by[COUNT];
#pragma unroll
    for (int e = 0; e < COUNT; ++e) by[e] = convert<A>(found.values[e]);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (first + r >= rows) return;
        const A factor = convert<A>(x[first + r]);
        pack<T, COUNT> made;
#pragma unroll
        for (int e = 0; e < COUNT; ++e) made.values[e] = convert<T>(factor * by[e]);
        store_pack_once<COUNT>(out + (first + r) * columns + column, made);
    }
}

}  // namespace cudakit
