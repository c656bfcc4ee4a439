// The ways in which a launch goes through the arrays that it reduces, named by its kernel's parameter `How`:
//   How::run<Reducer>(inputs, store, offsets, workspace, layout)
// store(row, state, n) for each result, of n elements. `inputs` are a `several` (<cudakit/reduce/several.cuh>); `layout` is
// a struct with arrays `start`, `step` and others, an entry for each input; offsets are for `by_segments` alone. The
// workspace and the order of combination are those of <cudakit/reduce/reduction.cuh>.
#pragma once

#include <cudakit/reduce/reduction.cuh>
#include <cudakit/reduce/several_views.cuh>

namespace cudakit {

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
// A reducer's results with the number of their elements.
template <typename Store, typename LengthOf>
struct counting {
    Store store;
    LengthOf length_of;
    template <typename State>
    __device__ void operator()(long long row, const State& state) const {
        store(row, state, length_of(row));
    }
};

// Rows of elements that are neighbours, or the same: by words of COUNT where all arrays lie alike to them.
template <
    typename Reducer, int COUNT, int WIDTH, int BLOCK, int ITEMS, typename Lines, typename LengthOf, typename Store>
__device__ void reduce_lines(
    const Lines lines_of, bool alike, const LengthOf length_of, const Store& to, unsigned char* workspace,
    long long rows, int parts) {
    const counting<Store, LengthOf> store{to, length_of};
    if (COUNT == 1 || alike) {
        const auto source_of = [=](long long row) { return source_from<COUNT>(lines_of(row)); };
        reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(source_of, length_of, store, workspace, rows, parts);
    } else {
        const auto source_of = [=](long long row) { return source_from<1>(lines_of(row)); };
        reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(source_of, length_of, store, workspace, rows, parts);
    }
}
}  // namespace detail

/// Rows of neighbours: SPACINGS of the elements of a row, `layout.row_step` from one row to the next. One row: a
/// reduction over everything.
///
/// Threads: WIDTH for a row: neighbours in a warp, for short rows; or a block, that takes ITEMS packs of COUNT elements a
///   thread at once, then strides. A few long rows have `parts` blocks each, whose tiles take turns.
/// Memory: COUNT elements in a load between a row's first and last aligned ones; of several arrays, one where they do
///   not lie alike to such words. With 16-byte loads, ITEMS = 8 and 1024 threads a multiprocessor 128 KiB are in flight on
///   each; one wave of blocks that stride reads 1.2 times as fast as one block a tile.
/// Preconditions: parts > 1 for WIDTH = BLOCK and rows ≤ 1024 only; workspace has room for rows · parts states then.
template <int SPACINGS, int COUNT, int WIDTH, int THREADS, int ITEMS>
struct by_rows {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = true;

    template <typename Reducer, typename Inputs, typename Store, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Store& store, const Offset*, unsigned char* workspace, const Layout& layout) {
        const auto lines_of = [=](long long row) {
            long long places[sizeof(layout.start) / sizeof(long long)];
#pragma unroll
            for (int k = 0; k < sizeof(places) / sizeof(long long); ++k)
                places[k] = layout.start[k] + row * layout.row_step[k];
            return lines_from<SPACINGS>(inputs, places, layout.step);
        };
        const auto first = lines_of(0);
        const bool alike = detail::have_head<COUNT>(first, detail::head_of<COUNT>(first));
        detail::reduce_lines<Reducer, COUNT, WIDTH, BLOCK, ITEMS>(
            lines_of, alike, same_length{layout.length}, store, workspace, layout.rows, layout.parts);
    }
};

/// As `by_rows`, where row r is elements offsets[r] … offsets[r + 1] − 1.
template <int SPACINGS, int COUNT, int WIDTH, int THREADS, int ITEMS>
struct by_segments {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = true;

    template <typename Reducer, typename Inputs, typename Store, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Store& store, const Offset* offsets, unsigned char* workspace,
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
        detail::reduce_lines<Reducer, COUNT, WIDTH, BLOCK, ITEMS>(
            lines_of, alike, length_of, store, workspace, layout.rows, layout.parts);
    }
};

/// Columns: SPACINGS of neighbours along `layout.inner`, of arrays (outer, length, inner) that are reduced along
/// `length`, `layout.step` apart, `layout.outer_step` from one set of columns to the next.
///
/// Threads: a block is WIDTH · HEIGHT threads for each of GROUPS indices of `outer`. WIDTH neighbours stand side by side
///   along `inner`, each for COUNT columns; HEIGHT rows of them take elements along `length` in turn, ITEMS at once, and
///   then combine in shared memory. `parts` blocks share a column.
/// Memory: a row of threads reads WIDTH · COUNT neighbours, COUNT in a load where all rows are aligned to that. Shared:
///   BLOCK · COUNT states.
/// Preconditions: COUNT divides inner, step and outer_step; ⌈outer / GROUPS⌉ · ⌈inner / (WIDTH · COUNT)⌉ ≤ 1024 where
///   parts > 1, with room in the workspace for outer · parts · inner states.
template <int SPACINGS, int COUNT, int WIDTH, int HEIGHT, int THREADS, int ITEMS>
struct by_columns {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = true;

    template <typename Reducer, typename Inputs, typename Store, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Store& store, const Offset*, unsigned char* workspace, const Layout& layout) {
        const same_length length_of{layout.length};
        reduce_columns<Reducer, COUNT, WIDTH, HEIGHT, BLOCK, ITEMS>(
            several_columns<COUNT, SPACINGS, Layout, Inputs>{layout, inputs},
            detail::counting<Store, same_length>{store, length_of}, workspace, layout.outer, layout.length,
            layout.inner, layout.parts);
    }
};

/// Arrays of any strides: RANK dimensions, of which the first KEPT count the results.
///
/// Threads: as `by_rows`.
/// Memory: one element a load, coalesced where the last of the dimensions that neighbouring threads walk is contiguous:
///   a reduced one, or a kept one for WIDTH = 1. An index of several dimensions costs a division for each but one.
/// Preconditions: as `by_rows`.
template <int RANK, int KEPT, int WIDTH, int THREADS, int ITEMS>
struct by_views {
    static constexpr int BLOCK = THREADS;
    static constexpr bool IS_DENSE = false;

    template <typename Reducer, typename Inputs, typename Store, typename Offset, typename Layout>
    static __device__ void run(
        const Inputs& inputs, const Store& store, const Offset*, unsigned char* workspace, const Layout& layout) {
        const auto source_of = [&](long long row) {
            return several_views<RANK, KEPT, Layout, Inputs>(layout, inputs, row);
        };
        const same_length length_of{layout.length};
        reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(
            source_of, length_of, detail::counting<Store, same_length>{store, length_of}, workspace, layout.rows,
            layout.parts);
    }
};

/// Blocks that a multiprocessor holds at least, for the launch bounds of a kernel that runs `How`.
template <typename How, typename Reducer, typename T = double>
inline constexpr int RESIDENT = How::IS_DENSE ? RESIDENT_BLOCKS<Reducer, How::BLOCK, T> : 1;

}  // namespace cudakit
