// Reductions whose map, combination and result are expressions: what `cudakit.reduction` generates calls these with
//   Fold::cudakit_state                      what is known of some of the elements
//   Fold::cudakit_identity()                 of none, where Fold::CUDAKIT_HAS_IDENTITY
//   Fold::cudakit_map(values..., i)          of one: its values in the inputs, and its number
//   Fold::cudakit_reduce(a, b)               of two sets of elements
//   Fold::cudakit_post(a, n, outputs...)     writes the results of n elements
// They run in the kernels of every other reduction (<cudakit/reduce/reduction.cuh>).
#pragma once

#include <cudakit/accumulator.cuh>
#include <cudakit/reduce/reduction.cuh>
#include <cudakit/reduce/several.cuh>
#include <cudakit/reduce/several_views.cuh>

namespace cudakit {

/// A state, or that there is none yet: for combinations without an identity.
template <typename T>
struct perhaps {
    T value;
    bool is_there;
};

// Structs, as NVRTC 13.0 takes no generic lambda here.
template <typename Fold>
struct mapping {
    long long i;
    template <typename... Values>
    __device__ typename Fold::cudakit_state operator()(const Values&... values) const {
        return Fold::cudakit_map(values..., i);
    }
};
template <typename Fold>
struct posting {
    const typename Fold::cudakit_state& state;
    long long row, n;
    template <typename... Out>
    __device__ void operator()(Out*... out) const {
        Fold::cudakit_post(state, n, out[row]...);
    }
};

/// A reducer (<cudakit/reduce/reducer.cuh>) of expressions.
template <typename Fold, bool HAS_IDENTITY = Fold::CUDAKIT_HAS_IDENTITY>
struct expressed {
    using State = typename Fold::cudakit_state;
    static __device__ State identity() { return Fold::cudakit_identity(); }
    static __device__ State combine(const State& a, const State& b) { return Fold::cudakit_reduce(a, b); }
    template <int COUNT, typename Values, typename At>
    static __device__ State fold(const State& state, const Values (&values)[COUNT], const At& at) {
        return Fold::cudakit_reduce(state, tree<0, COUNT>(values, at));
    }
    static __device__ const State& result(const State& state) { return state; }

    /// Pairwise, so that an error grows with the logarithm of COUNT and no step waits for all that came before.
    template <int FIRST, int COUNT, int SIZE, typename Values, typename At>
    static __device__ State tree(const Values (&values)[SIZE], const At& at) {
        if constexpr (COUNT == 1) {
            return call_with(mapping<Fold>{at(FIRST)}, values[FIRST]);
        } else {
            const State low = tree<FIRST, COUNT / 2>(values, at);
            return Fold::cudakit_reduce(low, tree<FIRST + COUNT / 2, COUNT - COUNT / 2>(values, at));
        }
    }
};
template <typename Fold>
struct expressed<Fold, false> {
    using Bare = expressed<Fold, true>;
    using State = perhaps<typename Fold::cudakit_state>;
    static __device__ State identity() {
        State state;
        state.is_there = false;
        return state;
    }
    static __device__ State combine(const State& a, const State& b) {
        if (!a.is_there) return b;
        if (!b.is_there) return a;
        return {Fold::cudakit_reduce(a.value, b.value), true};
    }
    template <int COUNT, typename Values, typename At>
    static __device__ State fold(const State& state, const Values (&values)[COUNT], const At& at) {
        const auto more = Bare::template tree<0, COUNT>(values, at);
        if (!state.is_there) return {more, true};
        return {Fold::cudakit_reduce(state.value, more), true};
    }
    static __device__ const typename Fold::cudakit_state& result(const State& state) { return state.value; }
};

template <typename Fold>
using state_of = typename expressed<Fold>::State;

/// Fold::cudakit_post to element `row` of each output; the number of elements is length_of(row).
template <typename Fold, typename Outputs, typename LengthOf>
struct posted {
    Outputs outputs;
    LengthOf length_of;
    __device__ void operator()(long long row, const typename expressed<Fold>::State& state) const {
        call_with(posting<Fold>{expressed<Fold>::result(state), row, length_of(row)}, outputs);
    }
};

/// All results are of the same number of elements.
struct same_length {
    long long length;
    __device__ long long operator()(long long) const { return length; }
};

/// Elements offsets[row] … offsets[row + 1] − 1, where that is within `size`.
template <typename Offset>
struct segment_lengths {
    const Offset* offsets;
    long long size;
    __device__ long long begin(long long row) const { return within(offsets[row]); }
    __device__ long long operator()(long long row) const {
        const long long length = within(offsets[row + 1]) - begin(row);
        return length > 0 ? length : 0;
    }
    __device__ long long within(Offset offset) const {
        if (offset < Offset(1)) return 0;
        return offset < size ? static_cast<long long>(offset) : size;
    }
};

namespace detail {
// Rows of elements that are neighbours, or the same: by words of COUNT where all arrays lie alike to them.
template <
    typename Fold, int SPACINGS, int COUNT, int WIDTH, int BLOCK, int ITEMS, typename Lines, typename LengthOf,
    typename Outputs>
__device__ void reduce_lines(
    const Lines lines_of, bool alike, const LengthOf length_of, const Outputs& outputs, unsigned char* workspace,
    long long rows, int parts) {
    const posted<Fold, Outputs, LengthOf> store{outputs, length_of};
    if (COUNT == 1 || alike) {
        const auto source_of = [=](long long row) { return source_from<COUNT>(lines_of(row)); };
        reduce_rows<expressed<Fold>, WIDTH, BLOCK, ITEMS>(source_of, length_of, store, workspace, rows, parts);
    } else {
        const auto source_of = [=](long long row) { return source_from<1>(lines_of(row)); };
        reduce_rows<expressed<Fold>, WIDTH, BLOCK, ITEMS>(source_of, length_of, store, workspace, rows, parts);
    }
}
}  // namespace detail

/// As `rows` of templates/reduce.cuh: SPACINGS of the elements of a row, `layout.row_step` from one row to the next.
template <int SPACINGS, int COUNT, int WIDTH, int THREADS, int ITEMS>
struct by_rows {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = true;

    template <typename Fold, typename Inputs, typename Outputs, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Offset*, unsigned char* workspace, const Layout& layout) {
        const auto lines_of = [=](long long row) {
            long long places[sizeof(layout.start) / sizeof(long long)];
#pragma unroll
            for (int k = 0; k < sizeof(places) / sizeof(long long); ++k)
                places[k] = layout.start[k] + row * layout.row_step[k];
            return lines_from<SPACINGS>(inputs, places, layout.step);
        };
        const auto first = lines_of(0);
        const bool alike = detail::have_head<COUNT>(first, detail::head_of<COUNT>(first));
        detail::reduce_lines<Fold, SPACINGS, COUNT, WIDTH, BLOCK, ITEMS>(
            lines_of, alike, same_length{layout.length}, outputs, workspace, layout.rows, layout.parts);
    }
};

/// As `by_rows`, where row r is elements offsets[r] … offsets[r + 1] − 1.
template <int SPACINGS, int COUNT, int WIDTH, int THREADS, int ITEMS>
struct by_segments {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = true;

    template <typename Fold, typename Inputs, typename Outputs, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Offset* offsets, unsigned char* workspace,
        const Layout& layout) {
        const segment_lengths<Offset> length_of{offsets, layout.length};
        const auto lines_of = [=](long long row) {
            const long long begin = length_of.begin(row);
            long long places[sizeof(layout.start) / sizeof(long long)];
#pragma unroll
            for (int k = 0; k < sizeof(places) / sizeof(long long); ++k)
                places[k] = layout.start[k] + begin * layout.step[k];
            return lines_from<SPACINGS>(inputs, places, layout.step);
        };
        const auto first = lines_from<SPACINGS>(inputs, layout.start, layout.step);
        const bool alike = detail::have_head<COUNT>(first, detail::head_of<COUNT>(first));
        detail::reduce_lines<Fold, SPACINGS, COUNT, WIDTH, BLOCK, ITEMS>(
            lines_of, alike, length_of, outputs, workspace, layout.rows, layout.parts);
    }
};

/// As `columns` of templates/reduce.cuh.
template <int SPACINGS, int COUNT, int WIDTH, int HEIGHT, int THREADS, int ITEMS>
struct by_columns {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = false;

    template <typename Fold, typename Inputs, typename Outputs, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Offset*, unsigned char* workspace, const Layout& layout) {
        const same_length length_of{layout.length};
        reduce_columns<expressed<Fold>, COUNT, WIDTH, HEIGHT, BLOCK, ITEMS>(
            several_columns<COUNT, SPACINGS, Layout, Inputs>{layout, inputs},
            posted<Fold, Outputs, same_length>{outputs, length_of}, workspace, layout.outer, layout.length,
            layout.inner, layout.parts);
    }
};

/// As `views` of templates/reduce.cuh.
template <int RANK, int KEPT, int WIDTH, int THREADS, int ITEMS>
struct by_views {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = false;

    template <typename Fold, typename Inputs, typename Outputs, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Outputs& outputs, const Offset*, unsigned char* workspace, const Layout& layout) {
        const auto source_of = [&](long long row) {
            return several_views<RANK, KEPT, Layout, Inputs>(layout, inputs, row);
        };
        const same_length length_of{layout.length};
        reduce_rows<expressed<Fold>, WIDTH, BLOCK, ITEMS>(
            source_of, length_of, posted<Fold, Outputs, same_length>{outputs, length_of}, workspace, layout.rows,
            layout.parts);
    }
};

/// Blocks that a multiprocessor holds at least, for the launch bounds of a kernel that runs `How`.
template <typename How, typename Fold>
inline constexpr int RESIDENT = How::IS_DENSE ? RESIDENT_BLOCKS<expressed<Fold>, How::BLOCK> : 1;

}  // namespace cudakit
