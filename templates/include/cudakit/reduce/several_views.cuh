// Columns and views of several arrays at once (<cudakit/reduce/several.cuh>), as <cudakit/reduce/reduction.cuh> reduces them.
#pragma once

#include <cudakit/reduce/several.cuh>

namespace cudakit {

namespace detail {
template <int COUNT>
__device__ several_packs<COUNT> gather_several(const several<>&) {
    return {};
}
template <int COUNT, typename Line, typename... Lines>
__device__ several_packs<COUNT, Line, Lines...> gather_several(const several<Line, Lines...>& lines) {
    return {lines.first.template gather<COUNT>(), gather_several<COUNT>(lines.others)};
}
// Apart: as instructions that are skipped one by one, its loads would outnumber the others.
template <int COUNT, typename... Lines>
__device__ __noinline__ several_packs<COUNT, Lines...> gathered(const several<Lines...> lines) {
    return gather_several<COUNT>(lines);
}

template <typename Inputs>
struct values_of;
template <typename... Inputs>
struct values_of<several<Inputs...>> {
    using type = decltype(bare(unevaluated<several<typename Inputs::Value...>>()));
};

template <typename To, typename From, typename Offset>
__device__ To value_at(const array_input<To, From>& input, Offset offset) {
    return as<To>(input.x[offset]);
}
template <typename T, typename Offset>
__device__ T value_at(const value_input<T>& input, Offset) {
    return input.value;
}
// Of each input the element at an offset of its own.
template <int INPUT = 0, typename Offsets>
__device__ several<> values_at(const several<>&, const Offsets&) {
    return {};
}
template <int INPUT = 0, typename Input, typename... Others, typename Offsets>
__device__ auto values_at(const several<Input, Others...>& inputs, const Offsets& offsets) {
    return with_first(value_at(inputs.first, offsets[INPUT]), values_at<INPUT + 1>(inputs.others, offsets));
}
}  // namespace detail

/// The columns of several arrays, as `reduce_columns` walks them: those with neighbours lie side by side there.
template <int COUNT, int SPACINGS, typename Layout, typename Inputs>
struct several_columns {
    const Layout& layout;
    const Inputs& inputs;

    template <typename Lines>
    struct place_in {
        Lines lines;
        bool aligned;
        __device__ void advance(long long count) { cudakit::advance(lines, count); }
        __device__ auto load() const { return aligned ? load_aligned() : detail::gathered<COUNT>(lines); }
        __device__ auto load_aligned() const { return load_several<COUNT>(lines, 0); }
    };
    __device__ auto at(long long o, long long column) const {
        long long places[sizeof(layout.start) / sizeof(long long)];
#pragma unroll
        for (int k = 0; k < sizeof(places) / sizeof(long long); ++k)
            places[k] = layout.start[k] + o * layout.outer_step[k]
                        + (spacing_of(SPACINGS, k) == spacing::same ? 0 : column);
        return place_of(lines_from<SPACINGS>(inputs, places, layout.step));
    }
    template <typename Lines>
    __device__ place_in<Lines> place_of(const Lines& lines) const {
        return {lines, detail::have_head<COUNT>(lines, 0)};
    }
};

/// Several arrays of any strides at one place in the first KEPT of RANK dimensions, in row-major order of the others.
template <int RANK, int KEPT, typename Layout, typename Inputs>
struct several_views {
    static constexpr int COUNT = 1, INPUTS = sizeof(Layout::start) / sizeof(long long);
    using Value = typename detail::values_of<Inputs>::type;
    const Layout& layout;
    const Inputs& inputs;
    long long start[INPUTS];

    __device__ several_views(const Layout& layout, const Inputs& inputs, long long row)
        : layout(layout), inputs(inputs) {
#pragma unroll
        for (int k = 0; k < INPUTS; ++k) start[k] = layout.start[k];
        add<0, KEPT>(start, row);
    }
    __device__ long long head() const { return 0; }
    __device__ Value load_one(long long i) const {
        long long offsets[INPUTS];
#pragma unroll
        for (int k = 0; k < INPUTS; ++k) offsets[k] = start[k];
        add<KEPT, RANK>(offsets, i);
        return bare(detail::values_at(inputs, offsets));
    }
    __device__ Value load(long long i) const { return load_one(i); }
    static __device__ void unpack(const Value& value, Value* values) { *values = value; }

private:
    // What element number `index` of dimensions FIRST … LAST − 1 lies at, of each input; one of them takes no division.
    template <int FIRST, int LAST>
    __device__ void add(long long (&offsets)[INPUTS], unsigned long long index) const {
#pragma unroll
        for (int d = LAST - 1; d >= FIRST; --d) {
            const unsigned long long extent = layout.shape[d];
            const long long at = d == FIRST ? index : index % extent;
#pragma unroll
            for (int k = 0; k < INPUTS; ++k) offsets[k] += at * layout.steps[k][d];
            if (d > FIRST) index /= extent;
        }
    }
};

}  // namespace cudakit
