// Scans of many lines of a view, by rows and by columns of memory: what a line's elements are, and where results go,
// `Lines` knows:
//   Rule, VEC, Values                 what is combined (<cudakit/scan/result.cuh>); neighbours of a lane, as they are read
//   kept<ROWS>                        of Values, what results are made of too
//   count(), length(), lines[line]    and of a line:
//   read(from, n)                     VEC elements, of which those before n are there
//   read_ahead(values, from, n)       several in turn, for VEC = 1
//   items(item, values, from, n)      as items: the identity past the end
//   write<WIDTH>(…), write_column(…)  results
#pragma once

#include <cudakit/lookback.cuh>
#include <cudakit/scan/scanning.cuh>

namespace cudakit {

// Many lines, one after the other.
//
// Threads: a block of 32 · WARPS does a line, ROWS · VEC elements a thread at a time, then the next; what came before
//   goes on in registers. A row is 32 · VEC elements, VEC neighbours a lane.
// Memory: each element is read and each result written once; the next tile, or line, is loaded while this one is
//   scanned.
// Preconditions: results go where their own element was, or to memory that is not read.
// Launch: one-dimensional, 32 · WARPS threads a block; blocks stride over the lines.
// Source: Sengupta, Harris, Garland and Owens, Efficient parallel scan algorithms for many-core GPUs (2011).
template <typename Lines, int WARPS, int ROWS>
__device__ void scan_rows(const Lines& lines) {
    using Rule = typename Lines::Rule;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = Lines::VEC, ROW = 32 * VEC, TILE = WARPS * ROWS * ROW;
    __shared__ alignas(16) unsigned char totals[2][WARPS][sizeof(Item)];

    const long long count = lines.count(), n = lines.length();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Combine combine;
    const int own = warp * ROWS * ROW + lane * VEC;
    typename Lines::Values values[ROWS];
    const auto load = [&](long long line, long long start) {
        if (line >= count) return;
        const auto from = lines[line];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) values[row] = from.read(start + own + row * ROW, n);
    };
    int turn = 0;
    load(blockIdx.x, 0);
    for (long long line = blockIdx.x; line < count; line += gridDim.x) {
        const auto to = lines[line];
        Item before = Combine::template identity<Item>();
        for (long long start = 0; start < n; start += TILE, turn ^= 1) {
            Item item[ROWS][VEC], up_to[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                to.items(item[row], values[row], start + own + row * ROW, n);
            const typename Lines::template kept<ROWS> kept(values);
            if (start + TILE < n) load(line, start + TILE);
            else load(line + gridDim.x, 0);
            scan_lanes<Combine, 32>(item, up_to, lane);
            Item total = shuffle(up_to[0], 31);
#pragma unroll
            for (int row = 1; row < ROWS; ++row) total = combine(total, shuffle(up_to[row], 31));
            const auto total_of = [&](int warp) -> Item& { return *reinterpret_cast<Item*>(totals[turn][warp]); };
            if (lane == 0) total_of(warp) = total;
            __syncthreads();  // once a tile: the next one's totals go elsewhere
            for (int other = 0; other < warp; ++other) before = combine(before, total_of(other));
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                to.template write<32>(
                    kept, row, item[row], up_to[row], before, lane, start + own + row * ROW, n);
            }
            for (int other = warp + 1; other < WARPS; ++other) before = combine(before, total_of(other));
        }
    }
}


// As `scan_rows`, for lines of at most WIDTH · VEC · ROWS elements.
//
// Threads: WIDTH lanes do LINES lines at once, ROWS · VEC elements of each a lane; groups of lanes do neighbouring
//   lines.
// Memory: as `scan_rows`; LINES · ROWS loads of 16 bytes a lane in flight, where all lines
//   lie so: the next lines are loaded while these are scanned.
// Preconditions: those of `scan_rows`. WIDTH divides 32, and is 32 where ROWS > 1.
// Launch: one-dimensional, BLOCK threads a block; a block does BLOCK / WIDTH · LINES lines at a time, and strides over
//   them.
template <typename Lines, int BLOCK, int WIDTH, int ROWS, int LINES>
__device__ void scan_short_rows(const Lines& lines) {
    using Rule = typename Lines::Rule;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = Lines::VEC, GROUPS = BLOCK / WIDTH;
    const long long count = lines.count();
    const int lane = threadIdx.x % WIDTH, own = lane * VEC, length = lines.length();
    const long long step = static_cast<long long>(gridDim.x) * GROUPS * LINES;
    typename Lines::Values values[LINES][ROWS];
    const auto load = [&](int k, long long line) {
        if (line >= count) return;
        const auto from = lines[line];
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            values[k][row] = from.read(own + row * WIDTH * VEC, length);
    };
    long long first = static_cast<long long>(blockIdx.x) * GROUPS * LINES;
#pragma unroll
    for (int k = 0; k < LINES; ++k) load(k, first + k * GROUPS + threadIdx.x / WIDTH);
    for (; first < count; first += step) {
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const long long line = first + k * GROUPS + threadIdx.x / WIDTH;
            const int n = line < count ? length : 0;  // all lanes shuffle; those past the last line have no elements
            const auto to = lines[n ? line : 0];
            Item item[ROWS][VEC], up_to[ROWS], before = Combine::template identity<Item>();
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                to.items(item[row], values[k][row], own + row * WIDTH * VEC, n);
            const typename Lines::template kept<ROWS> kept(values[k]);
            load(k, line + step);
            scan_lanes<Combine, WIDTH>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                to.template write<WIDTH>(
                    kept, row, item[row], up_to[row], before, lane, own + row * WIDTH * VEC, n);
            }
        }
    }
}


// As `scan_rows`, along an axis that is not the contiguous one.
//
// Threads: a block does a strip of 32 neighbouring lines, a lane a line, so that loads are coalesced; of each tile of
//   WARPS · ROWS elements of the lines, a warp does ROWS. ALONG: strips are few, and `along` blocks share each of them,
//   tile by tile in turn; each carries the prefixes on from its last tile over those of the other blocks since then.
// Memory: as `scan_rows`; the next ROWS elements of a thread are loaded while these are
//   scanned.
// Preconditions: those of `scan_rows`. ALONG: status as <cudakit/lookback.cuh> wants it, along ≤ 5 ·
//   WARPS.
// Launch: strips · along blocks of 32 · WARPS threads; ALONG: all at once.
template <typename Lines, bool ALONG, int WARPS, int ROWS>
__device__ void scan_columns(const Lines& lines, unsigned char* status, int along) {
    using Rule = typename Lines::Rule;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int TILE = WARPS * ROWS;
    __shared__ alignas(16) unsigned char totals[2][WARPS][32][sizeof(Item)];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto total_of = [&](int buffer, int of) -> Item& {
        return *reinterpret_cast<Item*>(totals[buffer][of][lane]);
    };

    const long long count = lines.count(), line = blockIdx.x / along * 32ll + lane;
    const bool here = line < count;
    const long long length = lines.length(), n = here ? length : 0;
    const auto to = lines[here ? line : 0];
    const Combine combine;
    lookback<Item, Combine> look(status);

    typename Lines::Values value[ROWS];
    const auto load = [&](long long own) { to.read_ahead(value, own, n); };
    long long tile = blockIdx.x % along;
    load(tile * TILE + warp * ROWS);
    Item before = Combine::template identity<Item>();
    for (int turn = 0; tile * TILE < length; tile += along, turn ^= 1) {
        const long long own = tile * TILE + warp * ROWS;
        Item item[ROWS][1], sum = Combine::template identity<Item>();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            to.items(item[row], value[row], own + row, n);
            sum = combine(sum, item[row][0]);
        }
        const typename Lines::template kept<ROWS> kept(value);
        load(own + static_cast<long long>(along) * TILE);
        const int buffer = ALONG ? 0 : turn;
        total_of(buffer, warp) = sum;
        __syncthreads();
        Item up_to = Combine::template identity<Item>(), total = up_to;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) {
            if (other == warp) up_to = total;
            total = combine(total, total_of(buffer, other));
        }
        if constexpr (ALONG) {
            if (warp == 0 && here) look.publish(tile * count + line, total);
            const int since = tile < along ? tile : along - 1;  // tiles of the other blocks, since this one's last
            const int share = (since + WARPS - 1) / WARPS, skipped = warp * share;
            const long long first = (tile - since + skipped) * count + line;
            total_of(1, warp) = look.template combined<5>(first, count, here ? min(share, since - skipped) : 0);
            __syncthreads();
#pragma unroll
            for (int other = 0; other < WARPS; ++other) before = combine(before, total_of(1, other));
        }
        Item running = combine(before, up_to);
        to.write_column(kept, item, running, own, n);
        before = combine(before, total);
    }
    if (ALONG && threadIdx.x == 0) look.finish();
}

}  // namespace cudakit
