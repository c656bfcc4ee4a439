#include <cudakit/lookback.cuh>
#include <cudakit/scanning.cuh>

/// Whether 16-byte accesses do for all lines of a view: they are next to each other, whole and aligned.
template <int VEC, typename T, int RANK, int AXIS>
__device__ bool are_packed(const cudakit::lines_along<T, RANK, AXIS>& lines) {
    bool packed = lines.step() == 1 && lines.length() % VEC == 0
                  && cudakit::neighbours<T, VEC>::are_aligned(lines.view.data);
#pragma unroll
    for (int d = 0; d < RANK; ++d) packed = packed && (d == AXIS || lines.view.strides[d] % VEC == 0);
    return packed;
}

/// Elements from … from + VEC of a line of `n`; what is past its end is not read.
template <int VEC, typename T>
__device__ cudakit::pack<T, VEC> read_line(cudakit::line_of<const T> line, bool packed, long long from, long long n) {
    cudakit::pack<T, VEC> values;
    if (packed) {
        if (from < n) values = cudakit::load_pack<VEC>(line.data + from);
        return values;
    }
    const T* at = line.data + from * line.step;
#pragma unroll
    for (int v = 0; v < VEC; ++v, at += line.step)
        if (from + v < n) values.values[v] = *at;
    return values;
}
template <int VEC, typename T>
__device__ void write_line(
    cudakit::line_of<T> line, bool packed, long long from, long long n, const cudakit::neighbours<T, VEC>& values) {
    if (packed) {
        if (from < n) values.store(line.data + from);
        return;
    }
    T* at = line.data + from * line.step;
#pragma unroll
    for (int v = 0; v < VEC; ++v, at += line.step)
        if (from + v < n) *at = values.values[v];
}

/// Values of a line as items: the identity past its end, a head where a key differs from the one before.
template <typename Rule, bool KEYED, int VEC, typename T, typename K>
__device__ void items_of(
    typename Rule::Item (&item)[VEC], const cudakit::pack<T, VEC>& values, cudakit::line_of<const K> key, long long from,
    long long n) {
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
        const long long i = from + v;
        bool head = false;
        if constexpr (KEYED) head = i < n && (i == 0 || key.data[i * key.step] != key.data[(i - 1) * key.step]);
        item[v] = Rule::item(values.values[v], head);
        if (i >= n) item[v] = Rule::Combine::template identity<typename Rule::Item>();
    }
}

// out[…, i, …] = x[…, 0, …] ∘ … ∘ x[…, i, …] (EXCLUSIVE: … ∘ x[…, i-1, …]) along AXIS, for many lines; KEYED: back to
// where the keys last changed.
//
// Shapes: x, keys, out (of RANK dimensions).
// Threads: a block of 32 · WARPS does a line, ROWS · VEC elements a thread at a time, then the next; what came before
//   goes on in registers. A row is 32 · VEC elements, VEC neighbours a lane.
// Memory: sizeof(T) + sizeof(Out) bytes an element, by 16 bytes a lane where all lines lie so; the next tile, or line,
//   is loaded while this one is scanned.
// Preconditions: out is x itself or does not overlap it.
// Launch: one-dimensional, 32 · WARPS threads a block; blocks stride over the lines.
// Source: Sengupta, Harris, Garland and Owens, Efficient parallel scan algorithms for many-core GPUs (2011).
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, 32 / WARPS) rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out) {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = cudakit::LANE_NEIGHBOURS<T, Out>, ROW = 32 * VEC, TILE = WARPS * ROWS * ROW;
    __shared__ alignas(16) unsigned char totals[2][WARPS][sizeof(Item)];

    const cudakit::lines_along<const T, RANK, AXIS> of_x{x};
    const cudakit::lines_along<const K, RANK, AXIS> of_keys{keys};
    const cudakit::lines_along<Out, RANK, AXIS> of_out{out};
    const bool packed_in = are_packed<VEC>(of_x), packed_out = are_packed<VEC>(of_out);
    const long long count = of_x.count(), n = of_x.length();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Combine combine;
    const int own = warp * ROWS * ROW + lane * VEC;
    cudakit::pack<T, VEC> values[ROWS];
    const auto load = [&](long long line, long long start) {
        if (line >= count) return;
        const cudakit::line_of<const T> from = of_x[line];
#pragma unroll
        for (int row = 0; row < ROWS; ++row) values[row] = read_line<VEC>(from, packed_in, start + own + row * ROW, n);
    };
    int turn = 0;
    load(blockIdx.x, 0);
    for (long long line = blockIdx.x; line < count; line += gridDim.x) {
        const cudakit::line_of<const K> key = of_keys[line];
        const cudakit::line_of<Out> to = of_out[line];
        Item before = Combine::template identity<Item>();
        for (long long start = 0; start < n; start += TILE, turn ^= 1) {
            Item item[ROWS][VEC], up_to[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                items_of<Rule, KEYED>(item[row], values[row], key, start + own + row * ROW, n);
            if (start + TILE < n) load(line, start + TILE);
            else load(line + gridDim.x, 0);
            cudakit::scan_lanes<Combine, 32>(item, up_to, lane);
            Item total = cudakit::shuffle(up_to[0], 31);
#pragma unroll
            for (int row = 1; row < ROWS; ++row) total = combine(total, cudakit::shuffle(up_to[row], 31));
            const auto total_of = [&](int warp) -> Item& { return *reinterpret_cast<Item*>(totals[turn][warp]); };
            if (lane == 0) total_of(warp) = total;
            __syncthreads();  // once a tile: the next one's totals go elsewhere
            for (int other = 0; other < warp; ++other) before = combine(before, total_of(other));
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = cudakit::results<Rule, Out, 32>(item[row], up_to[row], before, lane);
                write_line(to, packed_out, start + own + row * ROW, n, result);
            }
            for (int other = warp + 1; other < WARPS; ++other) before = combine(before, total_of(other));
        }
    }
}

// As `rows`, for lines of at most WIDTH · VEC · ROWS elements.
//
// Threads: WIDTH lanes do LINES lines at once, ROWS · VEC elements of each a lane; groups of lanes do neighbouring
//   lines.
// Memory: sizeof(T) + sizeof(Out) bytes an element; LINES · ROWS loads of 16 bytes a lane in flight, where all lines
//   lie so: the next lines are loaded while these are scanned.
// Preconditions: those of `rows`. WIDTH divides 32, and is 32 where ROWS > 1.
// Launch: one-dimensional, 256 threads a block; a block does 256 / WIDTH · LINES lines at a time, and strides over
//   them.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    int WIDTH, int ROWS, int LINES>
__global__ void __launch_bounds__(256, ROWS > 1 ? 3 : 4) short_rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out) {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int VEC = cudakit::LANE_NEIGHBOURS<T, Out>, GROUPS = 256 / WIDTH;
    const cudakit::lines_along<const T, RANK, AXIS> of_x{x};
    const cudakit::lines_along<const K, RANK, AXIS> of_keys{keys};
    const cudakit::lines_along<Out, RANK, AXIS> of_out{out};
    const bool packed_in = are_packed<VEC>(of_x), packed_out = are_packed<VEC>(of_out);
    const long long count = of_x.count();
    const int lane = threadIdx.x % WIDTH, own = lane * VEC, length = of_x.length();
    const long long step = static_cast<long long>(gridDim.x) * GROUPS * LINES;
    cudakit::pack<T, VEC> values[LINES][ROWS];
    const auto load = [&](int k, long long line) {
        if (line >= count) return;
        const cudakit::line_of<const T> from = of_x[line];
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
            values[k][row] = read_line<VEC>(from, packed_in, own + row * WIDTH * VEC, length);
    };
    long long first = static_cast<long long>(blockIdx.x) * GROUPS * LINES;
#pragma unroll
    for (int k = 0; k < LINES; ++k) load(k, first + k * GROUPS + threadIdx.x / WIDTH);
    for (; first < count; first += step) {
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const long long line = first + k * GROUPS + threadIdx.x / WIDTH;
            const int n = line < count ? length : 0;  // all lanes shuffle; those past the last line have no elements
            const cudakit::line_of<const K> key = of_keys[n ? line : 0];
            const cudakit::line_of<Out> to = of_out[n ? line : 0];
            Item item[ROWS][VEC], up_to[ROWS], before = Combine::template identity<Item>();
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                items_of<Rule, KEYED>(item[row], values[k][row], key, own + row * WIDTH * VEC, n);
            load(k, line + step);
            cudakit::scan_lanes<Combine, WIDTH>(item, up_to, lane);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                const auto result = cudakit::results<Rule, Out, WIDTH>(item[row], up_to[row], before, lane);
                write_line(to, packed_out, own + row * WIDTH * VEC, n, result);
            }
        }
    }
}

// As `rows`, along an axis that is not the contiguous one.
//
// Threads: a block does a strip of 32 neighbouring lines, a lane a line, so that loads are coalesced; of each tile of
//   WARPS · ROWS elements of the lines, a warp does ROWS. ALONG: strips are few, and `along` blocks share each of them,
//   tile by tile in turn; each carries the prefixes on from its last tile over those of the other blocks since then.
// Memory: sizeof(T) + sizeof(Out) bytes an element; the next ROWS elements of a thread are loaded while these are
//   scanned.
// Preconditions: out is x itself or does not overlap it. ALONG: status as <cudakit/lookback.cuh> wants it, along ≤ 5 ·
//   WARPS.
// Launch: strips · along blocks of 32 · WARPS threads; ALONG: all at once.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    bool ALONG, int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, 32 / WARPS) columns(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int along) {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    using Combine = typename Rule::Combine;
    constexpr int TILE = WARPS * ROWS;
    __shared__ alignas(16) unsigned char totals[2][WARPS][32][sizeof(Item)];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto total_of = [&](int buffer, int of) -> Item& { return *reinterpret_cast<Item*>(totals[buffer][of][lane]); };

    const cudakit::lines_along<const T, RANK, AXIS> of_x{x};
    const cudakit::lines_along<const K, RANK, AXIS> of_keys{keys};
    const cudakit::lines_along<Out, RANK, AXIS> of_out{out};
    const long long lines = of_x.count(), line = blockIdx.x / along * 32ll + lane;
    const bool here = line < lines;
    const long long length = of_x.length(), n = here ? length : 0;
    const cudakit::line_of<const T> from = of_x[here ? line : 0];
    const cudakit::line_of<const K> key = of_keys[here ? line : 0];
    const cudakit::line_of<Out> to = of_out[here ? line : 0];
    const Combine combine;
    cudakit::lookback<Item, Combine> look(status);

    cudakit::pack<T, 1> value[ROWS];
    const auto load = [&](long long own) {
        const T* at = from.data + own * from.step;
#pragma unroll
        for (int row = 0; row < ROWS; ++row, at += from.step)
            if (own + row < n) value[row].values[0] = *at;
    };
    long long tile = blockIdx.x % along;
    load(tile * TILE + warp * ROWS);
    Item before = Combine::template identity<Item>();
    for (int turn = 0; tile * TILE < length; tile += along, turn ^= 1) {
        const long long own = tile * TILE + warp * ROWS;
        Item item[ROWS][1], sum = Combine::template identity<Item>();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            items_of<Rule, KEYED>(item[row], value[row], key, own + row, n);
            sum = combine(sum, item[row][0]);
        }
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
            if (warp == 0 && here) look.publish(tile * lines + line, total);
            const int since = tile < along ? tile : along - 1;  // tiles of the other blocks, since this one's last
            const int share = (since + WARPS - 1) / WARPS, skipped = warp * share;
            const long long first = (tile - since + skipped) * lines + line;
            total_of(1, warp) = look.template combined<5>(first, lines, here ? min(share, since - skipped) : 0);
            __syncthreads();
#pragma unroll
            for (int other = 0; other < WARPS; ++other) before = combine(before, total_of(1, other));
        }
        Item running = combine(before, up_to);
        Out* at = to.data + own * to.step;
#pragma unroll
        for (int row = 0; row < ROWS; ++row, at += to.step) {
            const Item with = combine(running, item[row][0]);
            if (own + row < n) *at = Rule::result(running, with, item[row][0]);
            running = with;
        }
        before = combine(before, total);
    }
    if (ALONG && threadIdx.x == 0) look.finish();
}
