// Scans whose map, combination and results are expressions: what `cudakit.scan` generates calls these with
//   Scan::cudakit_state                                          what is combined
//   Scan::cudakit_identity(), Scan::cudakit_reduce(a, b)
//   Scan::cudakit_map(values..., i, n)                           of an element: its values in the inputs, its number
//   Scan::cudakit_head(values..., i, n)                          whether a segment begins there (CUDAKIT_IS_SEGMENTED)
//   Scan::cudakit_neutral<T>()                                   a value of the one input that changes nothing
//                                                                (CUDAKIT_HAS_NEUTRAL)
//   Scan::cudakit_output(item, prev_item, last_item, i, n, values, results)     of `several`, the results by pointers
//                                                                CUDAKIT_OUTPUT_IS_ITEM: item or prev_item as it is,
//                                                                so that it may be made of elements that are not there
// and what templates/scan.cuh has by name. They run by <cudakit/scan/line_scan.cuh> and <cudakit/scan/axis_scan.cuh>; in order,
// so that the combination need not commute, where not CUDAKIT_COMMUTES. `How`, of by_line and the others, says which.
#pragma once

#include <cudakit/scan/axis_scan.cuh>
#include <cudakit/scan/keys.cuh>
#include <cudakit/scan/one_line.cuh>
#include <cudakit/scan/result.cuh>

namespace cudakit {

namespace detail {
template <int COUNT, typename T>
__device__ auto load_part_of(const value_line<T>& line, long long i, int, bool) {
    return line.template load<COUNT>(i);
}
template <int COUNT, typename To, typename From>
__device__ auto load_part_of(const line_input<To, From, spacing::same>& line, long long i, int, bool) {
    return line.template load<COUNT>(i);
}
template <int COUNT, typename To, typename From, spacing SPACING>
__device__ auto load_part_of(const line_input<To, From, SPACING>& line, long long i, int count, bool packed) {
    if (SPACING == spacing::adjacent && packed && count >= COUNT) return line.template load<COUNT>(i);
    From values[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k < count) values[k] = line.x[(i + k) * (SPACING == spacing::adjacent ? 1 : line.step)];
    typename line_input<To, From, SPACING>::template pack<COUNT> pack;
    memcpy(&pack, values, sizeof(values));
    return pack;
}
template <int COUNT>
__device__ several_packs<COUNT> load_part(const several<>&, long long, int, bool) {
    return {};
}
template <int COUNT, typename Line, typename... Lines>
__device__ several_packs<COUNT, Line, Lines...> load_part(
    const several<Line, Lines...>& lines, long long i, int count, bool packed) {
    return {load_part_of<COUNT>(lines.first, i, count, packed), load_part<COUNT>(lines.others, i, count, packed)};
}
}  // namespace detail

/// One of many lines, for <cudakit/scan/axis_scan.cuh>.
template <typename Scan, int VEC, scan_pass PASS, typename Inputs, typename Outputs, typename Ends>
struct expression_row {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using Values = typename detail::packs_of<VEC, Inputs>::type;
    Inputs inputs;
    result_line<Scan, VEC, PASS, Outputs, Ends> results;
    bool packed_in, packed_out;

    __device__ Values read(long long from, long long n) const {
        const long long left = n - from;
        const int count = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC;
        return detail::load_part<VEC>(inputs, from, count, packed_in);
    }
    template <int ROWS>
    __device__ void read_ahead(Values (&value)[ROWS], long long from, long long n) const {
        // From element to element, as an address of each would take registers.
        Inputs at = inputs;
        advance(at, from);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (from + row < n) value[row] = load_several<VEC>(at, 0);
            advance(at, 1);
        }
    }
    __device__ void items(Item (&item)[VEC], const Values& values, long long from, long long n) const {
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            if (from + v < n) item[v] = call_with(detail::scan_mapping<Scan>{from + v, n}, values.value(v));
            else item[v] = Rule::Combine::template identity<Item>();
        }
    }
    template <int WIDTH, typename Kept>
    __device__ void write(
        const Kept& kept, int row, const Item (&item)[VEC], const Item& up_to, Item& before, int lane, long long from,
        long long n) const {
        const typename Rule::Combine combine;
        const Item lanes_before = shuffle_up(up_to, 1, WIDTH);
        const Item running = lane ? combine(before, lanes_before) : before;
        before = combine(before, shuffle(up_to, WIDTH - 1, WIDTH));
        const long long left = n - from;
        const int end = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC;
        results.write(item, running, kept.values[row], from, 0, end, n, packed_out);
    }
    template <int ROWS, typename Kept>
    __device__ void write_column(
        const Kept& kept, const Item (&item)[ROWS][1], Item running, long long from, long long n) const {
        const typename Rule::Combine combine;
        auto to = results;
        advance(to.outputs, from);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            to.write_at(0, item[row], running, kept.values[row], from + row, 0, from + row < n, n, false);
            running = combine(running, item[row][0]);
            advance(to.outputs, 1);
        }
    }
};

/// Lines of several arrays and of results, for <cudakit/scan/axis_scan.cuh>.
template <
    typename Scan, int NEIGHBOURS, scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, typename Inputs,
    typename Outputs, typename Ends, typename Layout>
struct expression_lines {
    using Rule = scan_rule<Scan>;
    static constexpr int VEC = NEIGHBOURS;
    const Inputs& inputs;
    const Outputs& outputs;
    const Ends& ends;
    const Layout& layout;

    __device__ long long count() const { return layout.lines; }
    __device__ long long length() const { return layout.length; }
    __device__ auto operator[](long long line) const {
        const line_places<RANK, entries_of<decltype(layout.start)>> from(layout, layout.start, layout.steps, line);
        const line_places<RANK, entries_of<decltype(layout.out_start)>> to(
            layout, layout.out_start, layout.out_steps, line);
        return row_of(
            lines_from<SPACINGS>(inputs, from, layout.step), outputs_from<WRITINGS>(outputs, to, layout.out_step),
            ends.of(line));
    }
    template <typename In, typename Out>
    __device__ expression_row<Scan, VEC, PASS, In, Out, Ends> row_of(
        const In& in, const Out& out, const Ends& ends) const {
        const bool packed = layout.packed && detail::have_head<VEC>(in, 0);
        return {in, {out, ends}, packed, layout.packed && detail::are_packed<VEC>(out, 0)};
    }
    using Values = typename decltype(
        static_cast<const expression_lines*>(nullptr)->row_of(
            lines_from<SPACINGS>(unevaluated<Inputs>(), unevaluated<long long*>(), unevaluated<long long*>()),
            outputs_from<WRITINGS>(unevaluated<Outputs>(), unevaluated<long long*>(), unevaluated<long long*>()),
            unevaluated<Ends>()))::Values;
    template <int ROWS>
    struct kept {
        Values values[ROWS];
        __device__ explicit kept(const Values (&given)[ROWS]) {
            if constexpr (Scan::CUDAKIT_OUTPUT_SEES_INPUTS && PASS != scan_pass::last) {
#pragma unroll
                for (int row = 0; row < ROWS; ++row) values[row] = given[row];
            }
        }
    };
};

/// As `scan_rows`.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, int VEC, int WARPS, int ROWS>
struct by_scan_rows {
    static constexpr int BLOCK = 32 * WARPS, RESIDENT = 32 / WARPS;
    template <typename Scan, typename Inputs, typename Outputs, typename Ends, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Ends& ends, unsigned char*, const Layout& layout) {
        using Lines = expression_lines<Scan, VEC, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Ends, Layout>;
        scan_rows<Lines, WARPS, ROWS>({inputs, outputs, ends, layout});
    }
};

/// As `scan_short_rows`.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, int VEC, int WARPS, int WIDTH, int ROWS, int LINES>
struct by_short_rows {
    static constexpr int BLOCK = 32 * WARPS, THREADS = ROWS > 1 ? 768 : 1024;
    static constexpr int RESIDENT = BLOCK < THREADS ? THREADS / BLOCK : 1;
    template <typename Scan, typename Inputs, typename Outputs, typename Ends, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Ends& ends, unsigned char*, const Layout& layout) {
        using Lines = expression_lines<Scan, VEC, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Ends, Layout>;
        scan_short_rows<Lines, BLOCK, WIDTH, ROWS, LINES>({inputs, outputs, ends, layout});
    }
};

/// As `scan_columns`; `layout.along` blocks share a strip.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, bool ALONG, int WARPS, int ROWS>
struct by_scan_columns {
    static constexpr int BLOCK = 32 * WARPS, RESIDENT = 32 / WARPS;
    template <typename Scan, typename Inputs, typename Outputs, typename Ends, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Ends& ends, unsigned char* status, const Layout& layout) {
        using Lines = expression_lines<Scan, 1, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Ends, Layout>;
        scan_columns<Lines, ALONG, WARPS, ROWS>(
            {inputs, outputs, ends, layout}, status, static_cast<int>(layout.along));
    }
};

/// Blocks that a multiprocessor holds at least, for the launch bounds of a kernel that runs `How`.
template <typename How, typename Scan>
inline constexpr int SCAN_RESIDENT = sizeof(item_of<Scan>) <= 8 ? How::RESIDENT : 1;

}  // namespace cudakit
