// Lines of an array along any of its axes, at any strides and of any length: read twice where registers do not hold
// them. What is done to a line is an operation as <cudakit/rows/row.cuh> describes.
#pragma once

#include <cudakit/rows/row.cuh>
#include <cudakit/strided.cuh>

namespace cudakit {

/// An array seen as lines: all but the last INNER dimensions of `view` number the lines, the last INNER their elements.
template <typename T, int RANK, int INNER>
struct lines {
    static_assert(0 < INNER && INNER < RANK, "both are numbered by at least one dimension");
    using element = T;
    strided<T, RANK> view;

    __device__ long long count() const { return extent<0, RANK - INNER>(); }
    __device__ long long length() const { return extent<RANK - INNER, RANK>(); }

    /// Where line number `line` begins, and how far its element number `at` is from there.
    __device__ T* begin(long long line) const { return view.data + offset<0, RANK - INNER>(line); }
    __device__ long long distance(long long at) const { return offset<RANK - INNER, RANK>(at); }

    /// Where elements `first`, `first + STEP`, `first + 2 · STEP` … of a line lie.
    template <int STEP>
    __device__ auto places(T* begin, long long first) const {
        if constexpr (INNER == 1) {
            T* const base = begin + distance(first);
            const long long step = distance(STEP);
            return [base, step](int p) { return base + p * step; };
        } else {
            return [this, begin, first](int p) { return begin + distance(first + p * STEP); };
        }
    }

private:
    template <int FIRST, int LAST>
    __device__ long long extent() const {
        long long product = 1;
#pragma unroll
        for (int d = FIRST; d < LAST; ++d) product *= view.shape[d];
        return product;
    }
    template <int FIRST, int LAST>
    __device__ long long offset(long long index) const {
        unsigned long long rest = static_cast<unsigned long long>(index);
        long long sum = 0;
#pragma unroll
        for (int d = LAST - 1; d > FIRST; --d) {
            const unsigned long long length = static_cast<unsigned long long>(view.shape[d]);
            sum += static_cast<long long>(rest % length) * view.strides[d];
            rest /= length;
        }
        return sum + static_cast<long long>(rest) * view.strides[FIRST];
    }
};

/// WIDTH lines side by side in a block of BLOCK threads, which take PACKS packs a thread at a time along them, of COUNT
/// elements that lie side by side (1, unless WIDTH is).
template <int WIDTH, int BLOCK, int PACKS, int COUNT, typename Op>
struct line_group {
    static_assert(COUNT == 1 || WIDTH == 1, "neighbours are those along a line, or those of lines side by side");
    using State = typename Op::state;
    static constexpr int DEPTH = BLOCK / WIDTH;
    static constexpr int TILE = DEPTH * PACKS * COUNT;

    const Op& op;
    const int lane = threadIdx.x / WIDTH;
    row_values<typename Op::value, DEPTH, PACKS, COUNT, false> part;
    State own;

    __device__ explicit line_group(const Op& op) : op(op), part(lane * COUNT, 0) {}

    __device__ static long long line() { return static_cast<long long>(blockIdx.x) * WIDTH + threadIdx.x % WIDTH; }

    /// Reads and summarises the elements from `first`, TILE of them or as many as there are before `end`.
    template <typename Lines, typename T>
    __device__ void load(const Lines& x, T* begin, long long first, long long end) {
        part.length = static_cast<int>(end - first < TILE ? end - first : TILE);
        part.template load<false>(x.template places<DEPTH * COUNT>(begin, first + lane * COUNT), Op::PAD);
        own = part.summarise(op);
    }

    /// Writes the results of what was read last, from `first`.
    template <typename Lines, typename Out>
    __device__ void store(const Lines& out, Out* begin, long long first, const State& all) {
        part.template store<Out>(out.template places<DEPTH * COUNT>(begin, first + lane * COUNT), op, own, all, first);
    }

    /// The state of a line from those of its DEPTH threads. Every thread of the block must call it.
    __device__ State combined(State state) const {
        __shared__ alignas(16) unsigned char bytes[BLOCK * sizeof(State)];
        State* const states = reinterpret_cast<State*>(bytes);
        __syncthreads();
        states[threadIdx.x] = state;
#pragma unroll
        for (int half = DEPTH / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) states[threadIdx.x] = op.combine(states[threadIdx.x], states[threadIdx.x + half * WIDTH]);
        }
        __syncthreads();
        return states[threadIdx.x % WIDTH];
    }

    /// The state of a line's elements `first` … `end` − 1; the last TILE of them stay in registers.
    template <typename Lines, typename T>
    __device__ State state_of(const Lines& x, T* begin, long long first, long long end) {
        load(x, begin, first, end);
        State state = own;
        for (first += TILE; first < end; first += TILE) {
            load(x, begin, first, end);
            state = op.combine(state, own);
        }
        return combined(state);
    }
};

/// Part `blockIdx.y` of the `gridDim.y` parts of a line of `length` elements: [first, end).
template <int TILE>
__device__ void part_of_line(long long length, long long& first, long long& end) {
    const long long tiles = (length + TILE - 1) / TILE;
    first = tiles * blockIdx.y / gridDim.y * TILE;
    end = tiles * (blockIdx.y + 1) / gridDim.y * TILE;
    if (end > length) end = length;
}

/// out[line] = the results of x[line]: one read where a line has at most TILE elements, else two.
template <int WIDTH, int BLOCK, int PACKS, int COUNT, typename In, typename Results, typename Op>
__device__ void for_each_line(const In& x, const Results& out, const Op& op) {
    using Out = typename Results::element;
    line_group<WIDTH, BLOCK, PACKS, COUNT, Op> group(op);
    const long long line = group.line();
    const bool exists = line < x.count();
    const long long length = exists ? x.length() : 0;
    auto* const source = x.begin(exists ? line : 0);
    const auto all = group.state_of(x, source, 0, length);
    if (!exists) return;
    Out* const target = out.begin(line);
    if constexpr (Op::PER_ROW) {
        if (group.lane == 0) *target = static_cast<Out>(op.total(all));
    } else {
        // Backwards: the last tile is in registers, those before it perhaps still in the cache.
        long long first = (length - 1) / group.TILE * group.TILE;
        group.store(out, target, first, all);
        while ((first -= group.TILE) >= 0) {
            group.load(x, source, first, length);
            group.store(out, target, first, all);
        }
    }
}

/// states[line][part] = the state of a part of x[line], for lines too few to fill the device.
template <int WIDTH, int BLOCK, int PACKS, int COUNT, typename In, typename Op>
__device__ void summarise_lines(const In& x, typename Op::state* states, const Op& op) {
    line_group<WIDTH, BLOCK, PACKS, COUNT, Op> group(op);
    const long long line = group.line();
    const bool exists = line < x.count();
    long long first, end;
    part_of_line<group.TILE>(exists ? x.length() : 0, first, end);
    const auto all = group.state_of(x, x.begin(exists ? line : 0), first, end);
    if (exists && group.lane == 0) states[line * gridDim.y + blockIdx.y] = all;
}

/// The results of each part of x[line], from the states of all of its `parts`.
template <int WIDTH, int BLOCK, int PACKS, int COUNT, typename In, typename Results, typename Op>
__device__ void finish_lines(
    const In& x, const Results& out, const typename Op::state* states, int parts, const Op& op) {
    using Out = typename Results::element;
    line_group<WIDTH, BLOCK, PACKS, COUNT, Op> group(op);
    const long long line = group.line();
    const bool exists = line < x.count();
    typename Op::state own = Op::nothing();
    for (int part = group.lane; exists && part < parts; part += group.DEPTH)
        own = op.combine(own, states[line * parts + part]);
    const auto all = group.combined(own);
    if (!exists) return;
    Out* const target = out.begin(line);
    if constexpr (Op::PER_ROW) {
        if (group.lane == 0) *target = static_cast<Out>(op.total(all));
    } else {
        long long begin, end;
        part_of_line<group.TILE>(x.length(), begin, end);
        // Backwards: what was read last may still be in the cache.
        for (long long first = end - 1 - (end - 1 - begin) % group.TILE; first >= begin; first -= group.TILE) {
            group.load(x, x.begin(line), first, end);
            group.store(out, target, first, all);
        }
    }
}

}  // namespace cudakit
