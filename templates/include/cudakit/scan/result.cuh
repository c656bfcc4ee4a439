// What a scan of expressions combines, and how its results reach memory; see <cudakit/scan/expression.cuh>.
#pragma once

#include <cudakit/accumulator.cuh>
#include <cudakit/elementwise/convert.cuh>
#include <cudakit/scan/scanning.cuh>
#include <cudakit/reduce/several.cuh>

namespace cudakit {

// --- what is combined ---

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

/// A scan whose combination has no identity: of states that may not be there yet.
template <typename Scan>
struct without_identity {
    using cudakit_state = perhaps<typename Scan::cudakit_state>;
    static constexpr bool CUDAKIT_IS_SEGMENTED = Scan::CUDAKIT_IS_SEGMENTED, CUDAKIT_COMMUTES = false;
    static constexpr bool CUDAKIT_OUTPUT_SEES_INPUTS = Scan::CUDAKIT_OUTPUT_SEES_INPUTS, CUDAKIT_HAS_NEUTRAL = false;
    static constexpr bool CUDAKIT_OUTPUT_IS_ITEM = Scan::CUDAKIT_OUTPUT_IS_ITEM;

    static __device__ cudakit_state cudakit_identity() {
        cudakit_state state;
        state.is_there = false;
        return state;
    }
    static __device__ cudakit_state cudakit_reduce(const cudakit_state& a, const cudakit_state& b) {
        if (!a.is_there) return b;
        if (!b.is_there) return a;
        return {Scan::cudakit_reduce(a.value, b.value), true};
    }
    template <typename... Values>
    static __device__ cudakit_state cudakit_map(const Values&... values) {
        return {Scan::cudakit_map(values...), true};
    }
    template <typename... Values>
    static __device__ bool cudakit_head(const Values&... values) {
        return Scan::cudakit_head(values...);
    }
    template <typename T>
    static __device__ T cudakit_neutral() {
        return T(0);
    }
    template <typename... Others>
    static __device__ void cudakit_output(
        const cudakit_state& item, const cudakit_state& prev_item, const cudakit_state& last_item,
        const Others&... others) {
        Scan::cudakit_output(item.value, prev_item.value, last_item.value, others...);
    }
};

/// What a scan combines (Item: a state, or with the segments' heads), how (Combine), and what it makes of them.
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

/// How the results of an output reach memory: whole packs of new values, of elements apart or of neighbours; one by one,
/// what is there being seen; indexed.
enum class writing { packed, direct, raw, neighbours };
__device__ constexpr writing writing_of(int writings, int output) {
    return static_cast<writing>(writings >> 2 * output & 3);
}

/// An output along a line, `step` elements apart, and the results of VEC neighbours on their way there.
template <typename Out, writing WRITING>
struct output_line {
    Out* data;
    long long step;
    __device__ long long apart() const { return WRITING == writing::neighbours ? 1 : step; }
    __device__ void advance(long long count) { data += count * apart(); }

    template <int VEC>
    struct few {
        neighbours<Out, VEC> results;
        static constexpr bool IS_KEPT = true;
        __device__ few(const output_line&, long long) {}
        __device__ Out* at(const output_line&, int v) { return results.values + v; }
        __device__ void store(const output_line& to, long long i, int begin, int end, bool packed) const {
            if (packed && begin == 0 && end == VEC) {
                results.store(to.data + i);
            } else {
#pragma unroll
                for (int v = 0; v < VEC; ++v)
                    if (v >= begin && v < end) to.data[(i + v) * to.apart()] = results.values[v];
            }
        }
    };
    /// Whether results at `early` elements before a multiple of VEC go by whole packs.
    template <int VEC>
    __device__ bool is_packed(int early) const {
        return apart() == 1 && neighbours<Out, VEC>::are_aligned(data - early);
    }
};
template <typename Out>
struct output_line<Out, writing::direct> {
    Out* data;
    long long step;
    __device__ void advance(long long count) { data += count * step; }

    template <int VEC>
    struct few {
        static constexpr bool IS_KEPT = false;
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
    __device__ void advance(long long) {}

    template <int VEC>
    struct few {
        static constexpr bool IS_KEPT = false;
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
    static constexpr bool ARE_KEPT = true;  // in registers, until they are stored
    __device__ several_few(const several<>&, long long) {}
    __device__ void store(const several<>&, long long, int, int, bool) const {}
    __device__ several<> at(const several<>&, int) { return {}; }
};
template <int VEC, typename Line, typename... Lines>
struct several_few<VEC, Line, Lines...> {
    static constexpr bool ARE_KEPT = Line::template few<VEC>::IS_KEPT && several_few<VEC, Lines...>::ARE_KEPT;
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

// --- ends of lines ---

/// The last items of lines, which one pass leaves for another.
template <typename State>
struct line_ends {
    State* last;
    __device__ line_ends of(long long line) const { return {last + line}; }
    __device__ const State& after(const State& state) const { return state; }
};
/// The same, and what comes before all elements of a line, and of a segment.
template <typename Scan>
struct line_ends_from {
    using State = typename Scan::cudakit_state;
    State* last;
    State initial;
    __device__ line_ends_from of(long long line) const { return {last + line, initial}; }
    __device__ State after(const State& state) const { return Scan::cudakit_reduce(initial, state); }
};

namespace detail {
template <typename State>
struct state_of_value {
    template <typename Value>
    static __device__ State made(const Value& value) {
        return as<State>(value);
    }
};
template <typename T>
struct state_of_value<perhaps<T>> {
    template <typename Value>
    static __device__ perhaps<T> made(const Value& value) {
        return {as<T>(value), true};
    }
};
}  // namespace detail

template <typename Scan>
__device__ line_ends<typename Scan::cudakit_state> ends_of(unsigned char* last) {
    return {reinterpret_cast<typename Scan::cudakit_state*>(last)};
}
template <typename Scan, typename Initial>
__device__ line_ends_from<Scan> ends_of(unsigned char* last, const Initial& initial) {
    using State = typename Scan::cudakit_state;
    return {reinterpret_cast<State*>(last), detail::state_of_value<State>::made(initial)};
}

/// Results of one line: where they go, and how.
template <typename Scan, int VEC, scan_pass PASS, typename Outputs, typename Ends>
struct result_line {
    using Rule = scan_rule<Scan>;
    using Item = typename Rule::Item;
    using State = typename Rule::State;
    Outputs outputs;
    Ends ends;

    /// Of VEC neighbours from i on, of which begin … end − 1 are there; `running` is what comes before them.
    template <typename Packs>
    __device__ void write(
        const Item (&item)[VEC], Item running, const Packs& packs, long long i, int begin, int end, long long n,
        bool packed) const {
        write_at(i, item, running, packs, i, begin, end, n, packed);
    }
    /// The same, to the outputs' elements from `place` on.
    template <typename Packs>
    __device__ void write_at(
        long long place, const Item (&item)[VEC], Item running, const Packs& packs, long long i, int begin, int end,
        long long n, bool packed) const {
        const typename Rule::Combine combine;
        using Results = typename detail::few_of<VEC, Outputs>::type;
        constexpr bool MAY_BE_ABSENT = Scan::CUDAKIT_OUTPUT_IS_ITEM && Results::ARE_KEPT;
        Results results(outputs, place);
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            const Item with = combine(running, item[v]);
            if ((MAY_BE_ABSENT && PASS != scan_pass::last) || (v >= begin && v < end)) {
                if constexpr (PASS == scan_pass::last) {
                    if (i + v == n - 1) *ends.last = ends.after(Rule::value(with));
                } else {
                    const State& all = PASS == scan_pass::results_with_last ? *ends.last : Rule::value(with);
                    Scan::cudakit_output(
                        ends.after(Rule::value(with)), ends.after(Rule::before(running, item[v])), all, i + v, n,
                        packs.value(v), results.at(outputs, v));
                }
            }
            running = with;
        }
        if (PASS != scan_pass::last && begin < end) results.store(outputs, place, begin, end, packed);
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

}  // namespace cudakit
