#include <cudakit/pack.cuh>

namespace cudakit {

// A tile of SIDE × SIDE words in shared memory, whose rows are chunks of 16 bytes, each moved to another place in its
// row: chunk q of row r lies at q ^ r / COUNT. A row's chunks still lie in different banks, and so do the elements of a
// column that eight neighbouring lanes collect, COUNT rows a lane: both ways are free of conflicts, without padding.
template <typename W, int SIDE>
struct swizzled_tile {
    static constexpr int COUNT = 16 / sizeof(W), CHUNKS = SIDE / COUNT;
    using Pack = pack<W, COUNT>;
    static_assert(CHUNKS >= 8 && (CHUNKS & (CHUNKS - 1)) == 0, "eight chunks of 16 bytes are the 32 banks");

    Pack chunks[SIDE * CHUNKS];

    __device__ Pack& chunk(int row, int q) { return chunks[row * CHUNKS + (q ^ (row / COUNT % CHUNKS))]; }
    __device__ W& element(int row, int column) { return chunk(row, column / COUNT).values[column % COUNT]; }
};

}  // namespace cudakit

// out[…, c, r] = x[…, r, c]: any permutation of dimensions that moves the last one.
//
// Shapes: layout.rows × layout.columns, where x has neighbours along a row (rows layout.x_pitch apart) and out along a
//   column (columns layout.out_pitch apart); around them RANK dimensions, layout.shape, at distances layout.x and
//   layout.out. All distances are in elements. W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16 bytes.
// Threads: block b moves tile b, counted along the rows of x, then down, then over the dimensions around. A warp loads
//   along a row; then eight lanes hold 128 bytes of a row of out, so that both sides see whole lines.
// Memory: 2 sizeof(W) bytes an element, by loads and stores of 16 bytes where the tile is whole and its rows are aligned,
//   by single elements elsewhere. Shared: the tile, swizzled rather than padded, so that it can be written by 16 bytes.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads, one block a tile.
// Source: Ruetsch and Micikevicius, Optimizing matrix transpose in CUDA (2009), for the tile.
template <typename W, int SIDE, int RANK, typename Layout, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK)
    tiled(const void* __restrict__ x, void* __restrict__ out, long long x_start, long long out_start, Layout layout) {
    using Tile = cudakit::swizzled_tile<W, SIDE>;
    using Pack = typename Tile::Pack;
    constexpr int COUNT = Tile::COUNT, CHUNKS = Tile::CHUNKS, ROUNDS = SIDE * CHUNKS / BLOCK;
    static_assert(ROUNDS * BLOCK == SIDE * CHUNKS && ROUNDS > 0, "each thread moves as many chunks");
    __shared__ Tile tile;

    const long long tiles_x = (layout.columns + SIDE - 1) / SIDE, tiles_y = (layout.rows + SIDE - 1) / SIDE;
    const long long left = blockIdx.x % tiles_x * SIDE;
    long long rest = blockIdx.x / tiles_x;
    const long long top = rest % tiles_y * SIDE;
    rest /= tiles_y;
    long long from_start = x_start + top * layout.x_pitch + left, to_start = out_start + left * layout.out_pitch + top;
#pragma unroll
    for (int d = RANK - 1; d >= 0; --d) {
        from_start += rest % layout.shape[d] * layout.x[d];
        to_start += rest % layout.shape[d] * layout.out[d];
        rest /= layout.shape[d];
    }
    const W* const from = static_cast<const W*>(x) + from_start;
    W* const to = static_cast<W*>(out) + to_start;
    const int height = static_cast<int>(min(layout.rows - top, static_cast<long long>(SIDE)));
    const int width = static_cast<int>(min(layout.columns - left, static_cast<long long>(SIDE)));
    const int thread = threadIdx.x;

    if (height == SIDE && width == SIDE && cudakit::is_aligned<Pack>(from) && layout.x_pitch % COUNT == 0) {
        Pack packs[ROUNDS];
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            const int chunk = thread + j * BLOCK;
            packs[j] = cudakit::load_pack<COUNT>(from + chunk / CHUNKS * layout.x_pitch + chunk % CHUNKS * COUNT);
        }
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            const int chunk = thread + j * BLOCK;
            tile.chunk(chunk / CHUNKS, chunk % CHUNKS) = packs[j];
        }
    } else {
        for (int i = thread; i < SIDE * SIDE; i += BLOCK)
            if (i / SIDE < height && i % SIDE < width)
                tile.element(i / SIDE, i % SIDE) = from[i / SIDE * layout.x_pitch + i % SIDE];
    }
    __syncthreads();
    if (height == SIDE && width == SIDE && cudakit::is_aligned<Pack>(to) && layout.out_pitch % COUNT == 0) {
#pragma unroll
        for (int j = 0; j < ROUNDS; ++j) {
            // Eight lanes along a row of out, four rows a warp: chunk q of that row holds rows COUNT · q … of the tile.
            const int group = (thread + j * BLOCK) / 8;
            const int column = group % SIDE, q = group / SIDE * 8 + thread % 8;
            Pack pack;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) pack.values[k] = tile.element(q * COUNT + k, column);
            cudakit::store_pack(to + column * layout.out_pitch + q * COUNT, pack);
        }
    } else {
        for (int i = thread; i < SIDE * SIDE; i += BLOCK)
            if (i / SIDE < width && i % SIDE < height)
                to[i / SIDE * layout.out_pitch + i % SIDE] = tile.element(i % SIDE, i / SIDE);
    }
}
