// Scans whose map, combination and results are expressions: what `cudakit.scan` generates calls these with
//   Scan::cudakit_state                                          what is combined
//   Scan::cudakit_identity(), Scan::cudakit_reduce(a, b)
//   Scan::cudakit_map(values..., i, n)                           of an element: its values in the inputs, its number
//   Scan::cudakit_head(values..., i, n)                          whether a segment begins there, if CUDAKIT_IS_SEGMENTED
//   Scan::cudakit_output(item, prev_item, last_item, i, n, values, results)     of `several`, the results by pointers
// They run in the kernels of every other scan (<cudakit/line_scan.cuh>, <cudakit/axis_scan.cuh>); in order, so that the
// combination need not commute, where not CUDAKIT_COMMUTES.
#pragma once

#include <cudakit/accumulator.cuh>
#include <cudakit/axis_scan.cuh>
#include <cudakit/line_scan.cuh>
#include <cudakit/several.cuh>

namespace cudakit {

// --- what is combined ---

/// Whether the sum, the product, the least … of values of a type do not depend on the order of each two.
template <typename T>
inline constexpr bool commutes = false;
template <>
inline constexpr bool commutes<float> = true;
template <>
inline constexpr bool commutes<double> = true;
template <>
inline constexpr bool commutes<int> = true;
template <>
inline constexpr bool commutes<unsigned int> = true;
template <>
inline constexpr bool commutes<long long> = true;
template <>
inline constexpr bool commutes<unsigned long long> = true;

template <typename Scan>
struct scan_operator {
    template <typename State>
    static __device__ State identity() {
        return Scan::cudakit_identity();
    }
    template <typename State>
    __device__ State operator()(const State& a, const State& b) const {
        return Scan::cudakit_reduce(a, b);
    }
};

/// What a scan of expressions combines, as `rule` of <cudakit/scanning.cuh> is for others.
template <typename Scan, bool IS_SEGMENTED = Scan::CUDAKIT_IS_SEGMENTED>
struct scan_rule {
    using State = typename Scan::cudakit_state;
    using Operator = scan_operator<Scan>;
    using Item = State;
    using Combine = Operator;
    static constexpr bool IS_KEYED = false, COMMUTES = Scan::CUDAKIT_COMMUTES;
    static __device__ Item item(const State& value, bool) { return value; }
    static __device__ const State& value(const Item& item) { return item; }
    static __device__ const State& before(const Item& item, const Item&) { return item; }
};
template <typename Scan>
struct scan_rule<Scan, true> {
    using State = typename Scan::cudakit_state;
    using Operator = scan_operator<Scan>;
    using Item = keyed<State>;
    using Combine = segmented<Operator>;
    static constexpr bool IS_KEYED = true, COMMUTES = Scan::CUDAKIT_COMMUTES;
    static __device__ Item item(const State& value, bool head) { return {value, head}; }
    static __device__ const State& value(const Item& item) { return item.value; }
    static __device__ State before(const Item& item, const Item& own) {
        return own.head ? Scan::cudakit_identity() : item.value;
    }
};
template <typename Scan>
using item_of = typename scan_rule<Scan>::Item;

// Structs, as NVRTC 13.0 takes no generic lambda here.
namespace detail {
template <typename Scan>
struct scan_mapping {
    using Rule = scan_rule<Scan>;
    long long i, n;
    template <typename... Values>
    __device__ typename Rule::Item operator()(const Values&... values) const {
        bool head = false;
        if constexpr (Scan::CUDAKIT_IS_SEGMENTED) head = Scan::cudakit_head(values..., i, n);
        return Rule::item(Scan::cudakit_map(values..., i, n), head);
    }
};
}  // namespace detail

// --- outputs ---

/// How the results of an output reach memory: whole packs of new values; one by one, what is there being seen; indexed.
enum class writing { packed, direct, raw };
__device__ constexpr writing writing_of(int writings, int output) {
    return static_cast<writing>(writings >> 2 * output & 3);
}

/// An output along a line, `step` elements apart, and the results of VEC neighbours on their way there.
template <typename Out, writing WRITING>
struct output_line {
    Out* data;
    long long step;

    template <int VEC>
    struct few {
        neighbours<Out, VEC> results;
        __device__ few(const output_line&, long long) {}
        __device__ Out* at(const output_line&, int v) { return results.values + v; }
        __device__ void store(const output_line& to, long long i, int begin, int end, bool packed) const {
            if (packed && begin == 0 && end == VEC) {
                results.store(to.data + i);
            } else {
#pragma unroll
                for (int v = 0; v < VEC; ++v)
                    if (v >= begin && v < end) to.data[(i + v) * to.step] = results.values[v];
            }
        }
    };
    /// Whether results at `early` elements before a multiple of VEC go by whole packs.
    template <int VEC>
    __device__ bool is_packed(int early) const {
        return step == 1 && neighbours<Out, VEC>::are_aligned(data - early);
    }
};
template <typename Out>
struct output_line<Out, writing::direct> {
    Out* data;
    long long step;

    template <int VEC>
    struct few {
        Out* first;
        __device__ few(const output_line& to, long long i) : first(to.data + i * to.step) {}
        __device__ Out* at(const output_line& to, int v) { return first + v * to.step; }
        __device__ void store(const output_line&, long long, int, int, bool) const {}
    };
    template <int VEC>
    __device__ bool is_packed(int) const {
        return true;
    }
};
template <typename Out>
struct output_line<Out, writing::raw> {
    Out* data;
    long long step;

    template <int VEC>
    struct few {
        __device__ few(const output_line&, long long) {}
        __device__ Out* at(const output_line& to, int) { return to.data; }
        __device__ void store(const output_line&, long long, int, int, bool) const {}
    };
    template <int VEC>
    __device__ bool is_packed(int) const {
        return true;
    }
};

template <int WRITINGS, int OUTPUT = 0, typename Places, typename Steps>
__device__ several<> outputs_from(const several<>&, const Places&, const Steps&) {
    return {};
}
template <int WRITINGS, int OUTPUT = 0, typename Out, typename... Others, typename Places, typename Steps>
__device__ auto outputs_from(const several<Out*, Others...>& outputs, const Places& places, const Steps& steps) {
    constexpr writing WRITING = writing_of(WRITINGS, OUTPUT);
    const long long place = WRITING == writing::raw ? 0 : places[OUTPUT];
    return with_first(
        output_line<Out, WRITING>{outputs.first + place, steps[OUTPUT]},
        outputs_from<WRITINGS, OUTPUT + 1>(outputs.others, places, steps));
}

namespace detail {
template <int VEC>
__device__ bool are_packed(const several<>&, int) {
    return true;
}
template <int VEC, typename Line, typename... Lines>
__device__ bool are_packed(const several<Line, Lines...>& outputs, int early) {
    return outputs.first.template is_packed<VEC>(early) && are_packed<VEC>(outputs.others, early);
}

template <int VEC, typename... Lines>
struct several_few {
    __device__ several_few(const several<>&, long long) {}
    __device__ void store(const several<>&, long long, int, int, bool) const {}
    __device__ several<> at(const several<>&, int) { return {}; }
};
template <int VEC, typename Line, typename... Lines>
struct several_few<VEC, Line, Lines...> {
    typename Line::template few<VEC> first;
    several_few<VEC, Lines...> others;

    __device__ several_few(const several<Line, Lines...>& to, long long i) : first(to.first, i), others(to.others, i) {}
    __device__ void store(const several<Line, Lines...>& to, long long i, int begin, int end, bool packed) const {
        first.store(to.first, i, begin, end, packed);
        others.store(to.others, i, begin, end, packed);
    }
    /// Where result v of each output goes.
    __device__ auto at(const several<Line, Lines...>& to, int v) {
        return with_first(first.at(to.first, v), others.at(to.others, v));
    }
};

template <int VEC, typename Lines>
struct few_of;
template <int VEC, typename... Lines>
struct few_of<VEC, several<Lines...>> {
    using type = several_few<VEC, Lines...>;
};
template <int COUNT, typename Lines>
struct packs_of;
template <int COUNT, typename... Lines>
struct packs_of<COUNT, several<Lines...>> {
    using type = several_packs<COUNT, Lines...>;
};
}  // namespace detail

/// What a launch makes of a scan: its results; the last item of each line alone; results that take that too.
enum class scan_pass { results, last, results_with_last };

/// Results of one line: where they go, and how.
template <typename Scan, int VEC, scan_pass PASS, typename Outputs>
struct result_line {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using State = typename Rule::State;
    Outputs outputs;
    State* last;  // of the line

    /// Of VEC neighbours from i on, of which begin … end − 1 are there; `running` is what comes before them.
    template <typename Packs>
    __device__ void write(
        const Item (&item)[VEC], Item running, const Packs& packs, long long i, int begin, int end, long long n,
        bool packed) const {
        const typename Rule::Combine combine;
        typename detail::few_of<VEC, Outputs>::type results(outputs, i);
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            const Item with = combine(running, item[v]);
            if (v >= begin && v < end) {
                if constexpr (PASS == scan_pass::last) {
                    if (i + v == n - 1) *last = Rule::value(with);
                } else {
                    const State& all = PASS == scan_pass::results_with_last ? *last : Rule::value(with);
                    Scan::cudakit_output(
                        Rule::value(with), Rule::before(running, item[v]), all, i + v, n, packs.value(v),
                        results.at(outputs, v));
                }
            }
            running = with;
        }
        if (PASS != scan_pass::last && begin < end) results.store(outputs, i, begin, end, packed);
    }
};

// --- one long line ---

namespace detail {
// The shared memory of a tile: each array that has several elements in a stretch of its own, which begins as far behind
// 16 bytes as the tile does in global memory, so that bulk copies do.
template <typename Line>
struct staged {
    static constexpr bool IS_STAGED = false;
    static constexpr int BYTES = 0;
};
template <typename To, typename From>
struct staged<line_input<To, From, spacing::adjacent>> {
    static constexpr bool IS_STAGED = true;
    static constexpr int BYTES = sizeof(From);
    using Stored = From;
    static constexpr bool IS_WORD = sizeof(From) == alignof(From) && 16 % sizeof(From) == 0;
};
template <typename To, typename From>
struct staged<line_input<To, From, spacing::apart>> : staged<line_input<To, From, spacing::adjacent>> {};
template <int TILE, typename Line>
inline constexpr int stretch_bytes = staged<Line>::IS_STAGED ? (TILE * staged<Line>::BYTES + 31) / 16 * 16 : 0;

template <typename... Lines>
struct stages {
    template <int TILE>
    static constexpr int TOTAL = 0;
    static __device__ int shift(const several<>&) { return 0; }
    template <int TILE>
    static __device__ unsigned int load(const several<>&, unsigned char*, const line_cover&, int, mbarrier&) {
        return 0;
    }
    template <int TILE, int COUNT>
    static __device__ several_packs<COUNT> read(const several<>&, unsigned char*, const line_cover&, int, int) {
        return {};
    }
};
template <typename Line, typename... Lines>
struct stages<Line, Lines...> {
    using Others = stages<Lines...>;
    static constexpr bool IS_STAGED = staged<Line>::IS_STAGED;
    template <int TILE>
    static constexpr int TOTAL = stretch_bytes<TILE, Line> + Others::template TOTAL<TILE>;

    /// Elements by which tiles begin before the line, so that they begin at 16 bytes of the first array that can.
    static __device__ int shift(const several<Line, Lines...>& lines) {
        if constexpr (IS_STAGED) {
            const unsigned long long address = reinterpret_cast<unsigned long long>(lines.first.x);
            return staged<Line>::IS_WORD ? address % 16 / staged<Line>::BYTES : 0;
        } else {
            return Others::shift(lines.others);
        }
    }
    /// Where the tile's first element lies behind 16 bytes.
    static __device__ int phase(const Line& line, int shift) {
        if (line.step != 1) return 0;
        return (reinterpret_cast<unsigned long long>(line.x) - shift * staged<Line>::BYTES) % 16;
    }
    template <int TILE>
    static __device__ unsigned int load(
        const several<Line, Lines...>& lines, unsigned char* stage, const line_cover& part, int shift, mbarrier& full) {
        unsigned int bytes = 0;
        if constexpr (IS_STAGED) {
            using From = typename staged<Line>::Stored;
            From* const to = reinterpret_cast<From*>(stage + phase(lines.first, shift));
            const line_of<const From> line{lines.first.x, lines.first.step};
            bytes = load_span(to, line, part.first, part.begin, part.end, full);
        }
        unsigned char* const next = stage + stretch_bytes<TILE, Line>;
        return bytes + Others::template load<TILE>(lines.others, next, part, shift, full);
    }
    /// Neighbours from element `from` of a stage on; what the line does not cover is anything.
    template <int TILE, int COUNT>
    static __device__ several_packs<COUNT, Line, Lines...> read(
        const several<Line, Lines...>& lines, unsigned char* stage, const line_cover& part, int from, int shift) {
        unsigned char* const next = stage + stretch_bytes<TILE, Line>;
        return {read_one<COUNT>(lines.first, stage, from, shift),
                Others::template read<TILE, COUNT>(lines.others, next, part, from, shift)};
    }
    template <int COUNT>
    static __device__ typename Line::template pack<COUNT> read_one(
        const Line& line, unsigned char* stage, int from, int shift) {
        if constexpr (IS_STAGED) {
            using From = typename staged<Line>::Stored;
            const int behind = phase(line, shift);
            const From* const source = reinterpret_cast<const From*>(stage + behind) + from;
            From values[COUNT];
            if constexpr (staged<Line>::IS_WORD && is_word(sizeof(From) * COUNT)) {
                if (behind == 0) {
                    const auto word = load_pack<COUNT>(source);
                    memcpy(values, &word, sizeof(values));
                } else {
#pragma unroll
                    for (int k = 0; k < COUNT; ++k) values[k] = source[k];
                }
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) values[k] = source[k];
            }
            typename Line::template pack<COUNT> pack;
            memcpy(&pack, values, sizeof(values));
            return pack;
        } else {
            return line.template load<COUNT>(0);
        }
    }
};
}  // namespace detail

/// One line of several arrays and of results, for `line_scan`.
template <typename Scan, int NEIGHBOURS, scan_pass PASS, typename Inputs, typename Outputs>
struct expression_line;
template <typename Scan, int NEIGHBOURS, scan_pass PASS, typename... Inputs, typename Outputs>
struct expression_line<Scan, NEIGHBOURS, PASS, several<Inputs...>, Outputs> {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using Stages = detail::stages<Inputs...>;
    static constexpr int VEC = NEIGHBOURS, EACH = NEIGHBOURS;
    template <int TILE>
    static constexpr int STAGE_BYTES = Stages::template TOTAL<TILE>;
    static constexpr bool IS_READ_AGAIN = Scan::CUDAKIT_OUTPUT_SEES_INPUTS && PASS != scan_pass::last;

    several<Inputs...> inputs;
    result_line<Scan, VEC, PASS, Outputs> results;
    long long n;
    int early;

    __device__ expression_line(
        const several<Inputs...>& inputs, const Outputs& outputs, typename Rule::State* last, long long n)
        : inputs(inputs), results{outputs, last}, n(n), early(Stages::shift(inputs)) {}
    __device__ int shift() const { return early; }
    template <int TILE>
    __device__ unsigned int load(unsigned char* stage, const line_cover& part, mbarrier& full) const {
        return Stages::template load<TILE>(inputs, stage, part, early, full);
    }
    template <int SPAN>
    __device__ void fill(unsigned char*, const line_cover&) const {
        before_bulk_loads();  // the stage's ends came by ordinary stores
    }
    template <int TILE, int COUNT>
    __device__ void read(Item (&item)[COUNT], unsigned char* stage, const line_cover& part, int from) const {
        const auto packs = Stages::template read<TILE, COUNT>(inputs, stage, part, from, early);
#pragma unroll
        for (int v = 0; v < COUNT; ++v) {
            if (from + v >= part.begin && from + v < part.end)
                item[v] = call_with(detail::scan_mapping<Scan>{part.first + from + v, n}, packs.value(v));
            else
                item[v] = Rule::Combine::template identity<Item>();
        }
    }
    __device__ bool target() const { return detail::are_packed<VEC>(results.outputs, early); }
    template <int TILE>
    __device__ void store(
        bool packed, const Item (&item)[VEC], const Item& up_to, Item& before, int lane, unsigned char* stage,
        const line_cover& part, int from, long long) const {
        const typename Rule::Combine combine;
        const Item lanes_before = shuffle_up(up_to, 1);
        const Item running = lane ? combine(before, lanes_before) : before;
        before = combine(before, shuffle(up_to, 31));
        const int begin = part.begin - from, end = part.end - from;
        typename detail::packs_of<VEC, several<Inputs...>>::type packs;
        if constexpr (IS_READ_AGAIN) packs = Stages::template read<TILE, VEC>(inputs, stage, part, from, early);
        results.write(
            item, running, packs, part.first + from, begin > 0 ? begin : 0, end < VEC ? end : VEC, n, packed);
    }
};

/// Where line number `line` of each array begins, line 0 being at `start`; `steps` of the dimensions that count lines.
template <int RANK, int ARRAYS>
struct line_places {
    long long place[ARRAYS];
    template <typename Layout, typename Steps>
    __device__ line_places(const Layout& layout, const long long (&start)[ARRAYS], const Steps& steps, long long line) {
        unsigned long long rest = line;
#pragma unroll
        for (int k = 0; k < ARRAYS; ++k) place[k] = start[k];
#pragma unroll
        for (int d = RANK - 1; d >= 0; --d) {
            const unsigned long long extent = layout.shape[d];
            const long long at = d ? rest % extent : rest;
#pragma unroll
            for (int k = 0; k < ARRAYS; ++k) place[k] += at * steps[k][d];
            if (d) rest /= extent;
        }
    }
    __device__ long long operator[](int k) const { return place[k]; }
};

template <typename Entries>
inline constexpr int entries_of = sizeof(Entries) / sizeof(long long);

/// As `line_scan`; blockIdx.y is a line's number.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, int VEC, int ROWS, int SCANNERS, int REDUCERS>
struct by_line {
    static constexpr int BLOCK = 32 * (2 + REDUCERS + SCANNERS), RESIDENT = 1;

    template <typename Scan, typename Inputs, typename Outputs, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, unsigned char* last, unsigned char* status,
        const Layout& layout) {
        const long long line = blockIdx.y;
        const line_places<RANK, entries_of<decltype(layout.start)>> from(layout, layout.start, layout.steps, line);
        const line_places<RANK, entries_of<decltype(layout.out_start)>> to(
            layout, layout.out_start, layout.out_steps, line);
        const auto in = lines_from<SPACINGS>(inputs, from, layout.step);
        const auto out = outputs_from<WRITINGS>(outputs, to, layout.out_step);
        run_on<Scan>(in, out, last, status, layout.length, static_cast<int>(layout.stages));
    }

private:
    template <typename Scan, typename In, typename Out>
    static __device__ void run_on(
        const In& in, const Out& out, unsigned char* last, unsigned char* status, long long n, int stages) {
        using State = typename Scan::cudakit_state;
        using Lines = expression_line<Scan, VEC, PASS, In, Out>;
        using Run = line_scan<Lines, ROWS, SCANNERS, REDUCERS>;
        extern __shared__ __align__(128) unsigned char ring[];
        __shared__ typename Run::storage shared;
        const long long line = blockIdx.y;
        const long long before = line * (n / Run::TILE + 2);  // one more where a line does not start at 16 bytes
        Run{Lines(in, out, reinterpret_cast<State*>(last) + line, n), status, before, n, stages, ring, shared}.run();
    }
};

// --- many lines ---

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

/// One of many lines, for <cudakit/axis_scan.cuh>.
template <typename Scan, int VEC, scan_pass PASS, typename Inputs, typename Outputs>
struct expression_row {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using Values = typename detail::packs_of<VEC, Inputs>::type;
    Inputs inputs;
    result_line<Scan, VEC, PASS, Outputs> results;
    bool packed_in, packed_out;

    __device__ Values read(long long from, long long n) const {
        const long long left = n - from;
        const int count = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC;
        return detail::load_part<VEC>(inputs, from, count, packed_in);
    }
    template <int ROWS>
    __device__ void read_ahead(Values (&value)[ROWS], long long from, long long n) const {
        // Without a condition, so that the loads are in flight together.
        if (from + ROWS <= n) {
#pragma unroll
            for (int row = 0; row < ROWS; ++row) value[row] = detail::load_part<VEC>(inputs, from + row, VEC, false);
        } else {
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
                if (from + row < n) value[row] = detail::load_part<VEC>(inputs, from + row, VEC, false);
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
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            results.write(item[row], running, kept.values[row], from + row, 0, from + row < n, n, false);
            running = combine(running, item[row][0]);
        }
    }
};

/// Lines of several arrays and of results, for <cudakit/axis_scan.cuh>.
template <
    typename Scan, int NEIGHBOURS, scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, typename Inputs,
    typename Outputs, typename Layout>
struct expression_lines {
    using Rule = scan_rule<Scan>;
    using State = typename Rule::State;
    static constexpr int VEC = NEIGHBOURS;
    const Inputs& inputs;
    const Outputs& outputs;
    State* last;
    const Layout& layout;

    __device__ long long count() const { return layout.lines; }
    __device__ long long length() const { return layout.length; }
    __device__ auto operator[](long long line) const {
        const line_places<RANK, entries_of<decltype(layout.start)>> from(layout, layout.start, layout.steps, line);
        const line_places<RANK, entries_of<decltype(layout.out_start)>> to(
            layout, layout.out_start, layout.out_steps, line);
        return row_of(
            lines_from<SPACINGS>(inputs, from, layout.step), outputs_from<WRITINGS>(outputs, to, layout.out_step),
            last + line);
    }
    template <typename In, typename Out>
    __device__ expression_row<Scan, VEC, PASS, In, Out> row_of(const In& in, const Out& out, State* last) const {
        const bool packed = layout.packed && detail::have_head<VEC>(in, 0);
        return {in, {out, last}, packed, layout.packed && detail::are_packed<VEC>(out, 0)};
    }
    using Values = typename decltype(
        static_cast<const expression_lines*>(nullptr)->row_of(
            lines_from<SPACINGS>(unevaluated<Inputs>(), unevaluated<long long*>(), unevaluated<long long*>()),
            outputs_from<WRITINGS>(unevaluated<Outputs>(), unevaluated<long long*>(), unevaluated<long long*>()),
            static_cast<State*>(nullptr)))::Values;
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
    template <typename Scan, typename Inputs, typename Outputs, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, unsigned char* last, unsigned char*, const Layout& layout) {
        using Lines = expression_lines<Scan, VEC, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Layout>;
        auto* const states = reinterpret_cast<typename Scan::cudakit_state*>(last);
        scan_rows<Lines, WARPS, ROWS>({inputs, outputs, states, layout});
    }
};

/// As `scan_short_rows`.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, int VEC, int WIDTH, int ROWS, int LINES>
struct by_short_rows {
    static constexpr int BLOCK = 256, RESIDENT = ROWS > 1 ? 3 : 4;
    template <typename Scan, typename Inputs, typename Outputs, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, unsigned char* last, unsigned char*, const Layout& layout) {
        using Lines = expression_lines<Scan, VEC, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Layout>;
        auto* const states = reinterpret_cast<typename Scan::cudakit_state*>(last);
        scan_short_rows<Lines, WIDTH, ROWS, LINES>({inputs, outputs, states, layout});
    }
};

/// As `scan_columns`; `layout.along` blocks share a strip.
template <scan_pass PASS, int SPACINGS, int WRITINGS, int RANK, bool ALONG, int WARPS, int ROWS>
struct by_scan_columns {
    static constexpr int BLOCK = 32 * WARPS, RESIDENT = 32 / WARPS;
    template <typename Scan, typename Inputs, typename Outputs, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, unsigned char* last, unsigned char* status,
        const Layout& layout) {
        using Lines = expression_lines<Scan, 1, PASS, SPACINGS, WRITINGS, RANK, Inputs, Outputs, Layout>;
        auto* const states = reinterpret_cast<typename Scan::cudakit_state*>(last);
        scan_columns<Lines, ALONG, WARPS, ROWS>(
            {inputs, outputs, states, layout}, status, static_cast<int>(layout.along));
    }
};

/// Blocks that a multiprocessor holds at least, for the launch bounds of a kernel that runs `How`.
template <typename How, typename Scan>
inline constexpr int SCAN_RESIDENT = sizeof(item_of<Scan>) <= 8 ? How::RESIDENT : 1;

}  // namespace cudakit
