#include <cudakit/scan/axis_scan.cuh>

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

/// Lines along AXIS of views, perhaps with keys, for <cudakit/scan/axis_scan.cuh>.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    int NEIGHBOURS = cudakit::LANE_NEIGHBOURS<T, Out>>
struct keyed_lines {
    using Rule = cudakit::rule<Out, Acc, Op, KEYED, EXCLUSIVE>;
    using Item = typename Rule::Item;
    static constexpr int VEC = NEIGHBOURS;
    using Values = cudakit::pack<T, VEC>;
    template <int ROWS>
    struct kept {
        __device__ explicit kept(const Values (&)[ROWS]) {}
    };

    cudakit::lines_along<const T, RANK, AXIS> x;
    cudakit::lines_along<const K, RANK, AXIS> keys;
    cudakit::lines_along<Out, RANK, AXIS> out;
    bool packed_in, packed_out;

    __device__ keyed_lines(
        const cudakit::strided<const T, RANK>& x, const cudakit::strided<const K, RANK>& keys,
        const cudakit::strided<Out, RANK>& out)
        : x{x}, keys{keys}, out{out}, packed_in(are_packed<VEC>(this->x)), packed_out(are_packed<VEC>(this->out)) {}
    __device__ long long count() const { return x.count(); }
    __device__ long long length() const { return x.length(); }

    struct line {
        cudakit::line_of<const T> x;
        cudakit::line_of<const K> key;
        cudakit::line_of<Out> out;
        bool packed_in, packed_out;

        __device__ Values read(long long from, long long n) const { return read_line<VEC>(x, packed_in, from, n); }
        template <int ROWS>
        __device__ void read_ahead(Values (&value)[ROWS], long long from, long long n) const {
            const T* at = x.data + from * x.step;
#pragma unroll
            for (int row = 0; row < ROWS; ++row, at += x.step)
                if (from + row < n) value[row].values[0] = *at;
        }
        __device__ void items(Item (&item)[VEC], const Values& values, long long from, long long n) const {
            items_of<Rule, KEYED>(item, values, key, from, n);
        }
        template <int WIDTH, typename Kept>
        __device__ void write(
            const Kept&, int, const Item (&item)[VEC], const Item& up_to, Item& before, int lane, long long from,
            long long n) const {
            write_line(out, packed_out, from, n, cudakit::results<Rule, Out, WIDTH>(item, up_to, before, lane));
        }
        template <int ROWS, typename Kept>
        __device__ void write_column(
            const Kept&, const Item (&item)[ROWS][1], Item running, long long from, long long n) const {
            const typename Rule::Combine combine;
            Out* at = out.data + from * out.step;
#pragma unroll
            for (int row = 0; row < ROWS; ++row, at += out.step) {
                const Item with = combine(running, item[row][0]);
                if (from + row < n) *at = Rule::result(running, with, item[row][0]);
                running = with;
            }
        }
    };
    __device__ line operator[](long long index) const {
        return {x[index], keys[index], out[index], packed_in, packed_out};
    }
};

// out[…, i, …] = x[…, 0, …] ∘ … ∘ x[…, i, …] (EXCLUSIVE: … ∘ x[…, i-1, …]) along AXIS, for many lines; KEYED: back to
// where the keys last changed.
//
// Shapes: x, keys, out (of RANK dimensions).
// Threads: those of `scan_rows` (<cudakit/scan/axis_scan.cuh>): a block of 32 · WARPS does a line, ROWS · VEC elements a
//   thread at a time, then the next; what came before goes on in registers. A row is 32 · VEC elements, VEC neighbours a
//   lane.
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
    cudakit::scan_rows<keyed_lines<T, K, Out, Acc, Op, RANK, AXIS, KEYED, EXCLUSIVE>, WARPS, ROWS>({x, keys, out});
}

// As `rows`, for lines of at most WIDTH · VEC · ROWS elements, by `scan_short_rows`.
//
// Preconditions: those of `rows`. WIDTH divides 32, and is 32 where ROWS > 1.
// Launch: one-dimensional, 256 threads a block; a block does 256 / WIDTH · LINES lines at a time, and strides over
//   them.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    int WIDTH, int ROWS, int LINES>
__global__ void __launch_bounds__(256, ROWS > 1 ? 3 : 4) short_rows(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out) {
    cudakit::scan_short_rows<keyed_lines<T, K, Out, Acc, Op, RANK, AXIS, KEYED, EXCLUSIVE>, WIDTH, ROWS, LINES>(
        {x, keys, out});
}

// As `rows`, along an axis that is not the contiguous one, by `scan_columns`.
//
// Preconditions: those of `rows`. ALONG: status as <cudakit/lookback.cuh> wants it, along ≤ 5 · WARPS.
// Launch: strips · along blocks of 32 · WARPS threads; ALONG: all at once.
template <
    typename T, typename K, typename Out, typename Acc, typename Op, int RANK, int AXIS, bool KEYED, bool EXCLUSIVE,
    bool ALONG, int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS, 32 / WARPS) columns(
    cudakit::strided<const T, RANK> x, cudakit::strided<const K, RANK> keys, cudakit::strided<Out, RANK> out,
    unsigned char* status, int along) {
    using Lines = keyed_lines<T, K, Out, Acc, Op, RANK, AXIS, KEYED, EXCLUSIVE, 1>;
    cudakit::scan_columns<Lines, ALONG, WARPS, ROWS>({x, keys, out}, status, along);
}
