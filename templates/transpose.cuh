#include <cudakit/pack.cuh>

namespace cudakit {

// A tile of SIDE × SIDE elements in shared memory, whose rows are chunks of 16 bytes, each moved to another place in its
// row: chunk q of row r lies at q ^ r / COUNT. A row's chunks still lie in different banks, and so do the words that eight
// neighbouring lanes collect down a column, COUNT rows a lane: both ways are free of conflicts, without padding.
template <typename W, int SIDE>
struct swizzled_tile {
    static constexpr int COUNT = 16 / sizeof(W), CHUNKS = SIDE / COUNT;
    static_assert(CHUNKS >= 8 && (CHUNKS & (CHUNKS - 1)) == 0, "eight chunks of 16 bytes are the 32 banks");

    pack<W, COUNT> chunks[SIDE * CHUNKS];

    __device__ pack<W, COUNT>& chunk(int row, int q) { return chunks[row * CHUNKS + (q ^ (row / COUNT % CHUNKS))]; }
    __device__ W& element(int row, int column) { return chunk(row, column / COUNT).values[column % COUNT]; }
};

// ROWS words, one below the other, each of as many elements of a row as fit 4 bytes: element e of each, as neighbours.
template <int ROWS>
__device__ void columns_of(const unsigned int (&words)[ROWS], pack<unsigned short, ROWS> (&columns)[2]) {
    unsigned int first[ROWS / 2], second[ROWS / 2];
#pragma unroll
    for (int k = 0; k < ROWS / 2; ++k) {
        first[k] = __byte_perm(words[2 * k], words[2 * k + 1], 0x5410);
        second[k] = __byte_perm(words[2 * k], words[2 * k + 1], 0x7632);
    }
    memcpy(&columns[0], first, sizeof(first));
    memcpy(&columns[1], second, sizeof(second));
}
template <int ROWS>
__device__ void columns_of(const unsigned int (&words)[ROWS], pack<unsigned char, ROWS> (&columns)[4]) {
    unsigned int part[4][ROWS / 4];
#pragma unroll
    for (int k = 0; k < ROWS / 4; ++k) {
        // 4 × 4 bytes: pairs of rows interleaved, then pairs of pairs.
        const unsigned int low = __byte_perm(words[4 * k], words[4 * k + 1], 0x5140);
        const unsigned int high = __byte_perm(words[4 * k], words[4 * k + 1], 0x7362);
        const unsigned int low_below = __byte_perm(words[4 * k + 2], words[4 * k + 3], 0x5140);
        const unsigned int high_below = __byte_perm(words[4 * k + 2], words[4 * k + 3], 0x7362);
        part[0][k] = __byte_perm(low, low_below, 0x5410);
        part[1][k] = __byte_perm(low, low_below, 0x7632);
        part[2][k] = __byte_perm(high, high_below, 0x5410);
        part[3][k] = __byte_perm(high, high_below, 0x7632);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) memcpy(&columns[e], part[e], sizeof(part[e]));
}
template <typename W, int ROWS>
__device__ void columns_of(const W (&words)[ROWS], pack<W, ROWS> (&columns)[1]) {
#pragma unroll
    for (int k = 0; k < ROWS; ++k) columns[0].values[k] = words[k];
}

template <typename W>
struct column_word {
    using type = W;
};
template <>
struct column_word<unsigned char> {
    using type = unsigned int;
};
template <>
struct column_word<unsigned short> {
    using type = unsigned int;
};

// The tile of `height` rows and `width` columns at x, its rows x_pitch apart, to out as columns, out_pitch apart.
template <typename W, int SIDE, int BLOCK>
__device__ void move_tile(
    const W* __restrict__ x, W* __restrict__ out, int height, int width, long long x_pitch, long long out_pitch) {
    using Tile = swizzled_tile<W, SIDE>;
    using Word = typename column_word<W>::type;
    constexpr int COUNT = Tile::COUNT, CHUNKS = Tile::CHUNKS, LOADS = SIDE * CHUNKS / BLOCK;
    constexpr int IN_WORD = sizeof(Word) / sizeof(W), STORES = LOADS / IN_WORD;
    static_assert(STORES > 0 && STORES * IN_WORD * BLOCK == SIDE * CHUNKS, "each thread moves as many chunks");
    __shared__ Tile tile;
    const bool is_whole = height == SIDE && width == SIDE;
    const int thread = threadIdx.x;

    if (is_whole && is_aligned<pack<W, COUNT>>(x) && x_pitch % COUNT == 0) {
        pack<W, COUNT> packs[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            const int chunk = thread + j * BLOCK;
            packs[j] = load_pack<COUNT>(x + chunk / CHUNKS * x_pitch + chunk % CHUNKS * COUNT);
        }
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            const int chunk = thread + j * BLOCK;
            tile.chunk(chunk / CHUNKS, chunk % CHUNKS) = packs[j];
        }
    } else {
        for (int i = thread; i < SIDE * SIDE; i += BLOCK)
            if (i / SIDE < height && i % SIDE < width) tile.element(i / SIDE, i % SIDE) = x[i / SIDE * x_pitch + i % SIDE];
    }
    __syncthreads();
    if (is_whole && is_aligned<pack<W, COUNT>>(out) && out_pitch % COUNT == 0) {
#pragma unroll
        for (int j = 0; j < STORES; ++j) {
            // Eight lanes along a row of out, four words of columns a warp; lane q of the eight has rows COUNT · q … .
            constexpr int ACROSS = SIDE / IN_WORD;
            const int group = (thread + j * BLOCK) / 8;
            const int column = group % ACROSS * IN_WORD, q = group / ACROSS * 8 + thread % 8;
            Word words[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; ++k) words[k] = *reinterpret_cast<const Word*>(&tile.element(q * COUNT + k, column));
            pack<W, COUNT> columns[IN_WORD];
            columns_of(words, columns);
#pragma unroll
            for (int e = 0; e < IN_WORD; ++e) store_pack(out + (column + e) * out_pitch + q * COUNT, columns[e]);
        }
    } else {
        for (int i = thread; i < SIDE * SIDE; i += BLOCK)
            if (i / SIDE < width && i % SIDE < height) out[i / SIDE * out_pitch + i % SIDE] = tile.element(i % SIDE, i / SIDE);
    }
}

}  // namespace cudakit

// out[b, c, r] = x[b, r, c]
//
// Shapes: x (batch, rows, columns) with neighbours along a row, rows x_pitch and matrices x_step apart; out (batch, columns,
//   rows) with neighbours along a row, rows out_pitch and matrices out_step apart; all in elements. W is an unsigned word
//   of the elements' size: 1, 2, 4, 8 or 16 bytes.
// Threads: block b moves tile b, counted down the columns of x, so that blocks that run together write whole rows of out.
//   A warp loads along rows; then eight lanes write 128 bytes of a row of out: both sides see whole lines.
// Memory: 2 sizeof(W) bytes an element, by loads and stores of 16 bytes where the tile is whole and its rows are aligned,
//   by single elements elsewhere. Shared: the tile, swizzled rather than padded, so that it can be written by 16 bytes.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads, 1536 a multiprocessor (which leaves the registers that keep all loads in flight); a block a tile of SIDE × SIDE: ceil(rows / SIDE) · ceil(columns / SIDE) · batch.
// Source: Ruetsch and Micikevicius, Optimizing matrix transpose in CUDA (2009), for the tile.
template <typename W, int SIDE, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK, 1536 / BLOCK) tiled(
    const void* __restrict__ x, void* __restrict__ out, long long rows, long long columns, long long x_pitch,
    long long out_pitch, long long x_step, long long out_step) {
    // A grid has fewer than 2^31 blocks.
    const unsigned int down = static_cast<unsigned int>((rows + SIDE - 1) / SIDE);
    const unsigned int across = static_cast<unsigned int>((columns + SIDE - 1) / SIDE);
    const long long top = static_cast<long long>(blockIdx.x % down) * SIDE;
    const long long left = static_cast<long long>(blockIdx.x / down % across) * SIDE, b = blockIdx.x / down / across;
    cudakit::move_tile<W, SIDE, BLOCK>(
        static_cast<const W*>(x) + b * x_step + top * x_pitch + left,
        static_cast<W*>(out) + b * out_step + left * out_pitch + top,
        static_cast<int>(min(rows - top, static_cast<long long>(SIDE))),
        static_cast<int>(min(columns - left, static_cast<long long>(SIDE))), x_pitch, out_pitch);
}

// As `tiled`, with RANK dimensions around the matrices, of layout.shape, at distances layout.x and layout.out in elements, from
// elements x_start and out_start on.
template <typename W, int SIDE, int RANK, typename Layout, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK, 1536 / BLOCK) tiled_around(
    const void* __restrict__ x, void* __restrict__ out, long long x_start, long long out_start, Layout layout) {
    const unsigned int down = static_cast<unsigned int>((layout.rows + SIDE - 1) / SIDE);
    const unsigned int across = static_cast<unsigned int>((layout.columns + SIDE - 1) / SIDE);
    const long long top = static_cast<long long>(blockIdx.x % down) * SIDE;
    const long long left = static_cast<long long>(blockIdx.x / down % across) * SIDE;
    unsigned int rest = blockIdx.x / down / across;
    const W* from = static_cast<const W*>(x) + x_start + top * layout.x_pitch + left;
    W* to = static_cast<W*>(out) + out_start + left * layout.out_pitch + top;
#pragma unroll
    for (int d = RANK - 1; d >= 0; --d) {
        const unsigned int extent = static_cast<unsigned int>(layout.shape[d]);
        from += rest % extent * layout.x[d];
        to += rest % extent * layout.out[d];
        rest /= extent;
    }
    cudakit::move_tile<W, SIDE, BLOCK>(
        from, to, static_cast<int>(min(layout.rows - top, static_cast<long long>(SIDE))),
        static_cast<int>(min(layout.columns - left, static_cast<long long>(SIDE))), layout.x_pitch, layout.out_pitch);
}

// out[b, n, i] = x[b, i, n] where SPLIT, out[b, i, n] = x[b, n, i] where not; n < N, few: pixels to planes and back.
//
// Shapes: the pixels (batch, length, N), each matrix contiguous; the planes (batch, N, length), with neighbours along i,
//   `pitch` apart; matrices x_step and out_step apart; all in elements. W is a word as in `tiled`.
// Threads: a thread takes COUNT pixels, where COUNT elements are 16 bytes: N · 16 bytes that lie side by side on the one
//   side, and as many planes' 16 bytes on the other. They change places in registers.
// Memory: 2 sizeof(W) bytes an element, by accesses of 16 bytes where a plane is aligned. The pixels of a warp are read (or
//   written) in N steps that leave gaps; L1 (L2) holds the sectors until the next step takes the rest.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads; ceil(length / (COUNT · BLOCK)) · batch blocks.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename W, int N, bool SPLIT, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) interleaved(
    const void* __restrict__ x, void* __restrict__ out, long long length, long long pitch, long long x_step,
    long long out_step) {
    constexpr int COUNT = 16 / sizeof(W);
    const unsigned int across = static_cast<unsigned int>((length + COUNT * BLOCK - 1) / (COUNT * BLOCK));
    const long long b = blockIdx.x / across;
    const long long first = (static_cast<long long>(blockIdx.x % across) * BLOCK + threadIdx.x) * COUNT;
    const W* const from = static_cast<const W*>(x) + b * x_step;
    W* const to = static_cast<W*>(out) + b * out_step;
    if (first + COUNT <= length) {
        W pixels[COUNT * N];
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const W* const part = SPLIT ? from + first * N + n * COUNT : from + n * pitch + first;
            const auto pack = cudakit::load_spaced<COUNT>(part, 1);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) pixels[SPLIT ? n * COUNT + k : k * N + n] = pack.values[k];
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            cudakit::pack<W, COUNT> pack;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) pack.values[k] = pixels[SPLIT ? k * N + n : n * COUNT + k];
            cudakit::store_some(SPLIT ? to + n * pitch + first : to + first * N + n * COUNT, pack, COUNT);
        }
        return;
    }
    for (long long i = first; i < length; ++i)
        for (int n = 0; n < N; ++n) {
            if (SPLIT)
                to[n * pitch + i] = from[i * N + n];
            else
                to[i * N + n] = from[n * pitch + i];
        }
}
