#include <cudakit/rows/lines.cuh>

namespace cudakit {

// exp, to an error of 2 units in the last place of float. Where results are rounded to half or bfloat16, by one
// multiplication and one instruction: for −88 < v ≤ 0 that is wrong by at most 105 units of float, under 2^-17 of the
// value, where the rounding may take 2^-9 of it (bfloat16), and half knows no exp(v) below v = −17.4.
template <typename T>
__device__ float exponential(float v) {
    if constexpr (sizeof(T) == 2) return __expf(v);
    else return expf(v);
}
template <typename T>
__device__ double exponential(double v) {
    return exp(v);
}

// What softmax, log_softmax and logsumexp know of some elements: their maximum m (NaN aside), and Σ exp(x − shift) with
// shift = m, or 0 where m is infinite. T is the type of the elements, A that of the arithmetic.
template <typename T, typename A>
struct exponentials {
    using value = A;
    struct state {
        A maximum, sum;
    };
    static constexpr A PAD = A(-1) / A(0);

    __device__ static state nothing() { return {PAD, A(0)}; }
    __device__ static A shift(A maximum) { return isinf(maximum) ? A(0) : maximum; }

    /// exp(from − to), which is 1 for equal infinities: what a sum that was shifted by `from` is multiplied by.
    __device__ static A factor(A from, A to) { return from == to ? A(1) : exponential<T>(from - to); }

    template <int COUNT>
    __device__ static A maximum_of(const A (&values)[COUNT]) {
        A maximum = values[0];
#pragma unroll
        for (int k = 1; k < COUNT; ++k) maximum = fmax(maximum, values[k]);
        return maximum;
    }

    template <int COUNT, typename Present>
    __device__ static state summarise(A (&values)[COUNT], const Present&) {
        const A maximum = maximum_of(values);
        A sum = A(0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) sum += exponential<T>(values[k] - shift(maximum));
        return {maximum, sum};
    }

    __device__ static state combine(const state& a, const state& b) {
        const A maximum = fmax(a.maximum, b.maximum);
        return {maximum, a.sum * factor(a.maximum, maximum) + b.sum * factor(b.maximum, maximum)};
    }

    // One exponential a lane, where combining the lanes in pairs would take two at each of five steps.
    template <int WIDTH>
    __device__ static state gather(const state& own) {
        const A maximum = warp_reduce<WIDTH>(own.maximum, [](A a, A b) { return fmax(a, b); });
        const A scaled = own.sum * factor(own.maximum, maximum);
        return {maximum, warp_reduce<WIDTH>(scaled, [](A a, A b) { return a + b; })};
    }
};

/// exp(x) / Σ exp(x)
template <typename T, typename A>
struct softmax : exponentials<T, A> {
    static constexpr bool PER_ROW = false;
    using base = exponentials<T, A>;
    using typename base::state;

    // Leaves the exponentials in the values' places: each is computed once.
    template <int COUNT, typename Present>
    __device__ static state summarise(A (&values)[COUNT], const Present&) {
        const A maximum = base::maximum_of(values);
        A sum = A(0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) sum += values[k] = exponential<T>(values[k] - base::shift(maximum));
        return {maximum, sum};
    }

    __device__ static A scaling(const state& own, const state& all) {
        // ∞ − ∞ where the row's maximum is infinite: all of its results are NaN.
        const A none = all.maximum - all.maximum;
        return none + base::factor(own.maximum, all.maximum) / all.sum;
    }
    template <int COUNT>
    __device__ static void finish(A (&values)[COUNT], long long, A scale) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] *= scale;
    }
};

/// x − log Σ exp(x)
template <typename T, typename A>
struct log_softmax : exponentials<T, A> {
    static constexpr bool PER_ROW = false;
    using base = exponentials<T, A>;
    using typename base::state;

    struct terms {
        A shift, rest;
    };
    __device__ static terms scaling(const state&, const state& all) { return {base::shift(all.maximum), log(all.sum)}; }
    template <int COUNT>
    __device__ static void finish(A (&values)[COUNT], long long, const terms& by) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] = values[k] - by.shift - by.rest;
    }
};

/// log Σ exp(x), one value a row
template <typename T, typename A>
struct logsumexp : exponentials<T, A> {
    static constexpr bool PER_ROW = true;
    using typename exponentials<T, A>::state;

    __device__ static A total(const state& all) { return all.maximum + log(all.sum); }
};

}  // namespace cudakit

// out[r] = Op(x[r]) for every row r, Op being cudakit::softmax, log_softmax or logsumexp:
//   softmax y_i = exp(x_i − m) / s;   log_softmax y_i = x_i − m − log s;   logsumexp y = m + log s,
//   with m = max x_i and s = Σ exp(x_i − m).
//
// Shapes: x (rows, length), T; out (rows, length), or (rows) for logsumexp; both C-contiguous; they may be the same
//   array.
// Threads: GROUP threads a row: some lanes of a warp, a block, or a cluster of blocks. Thread t has packs t, t + GROUP,
//   … of COUNT neighbours, in registers from the one load to the one store; it sums exp(x − its own maximum), so that
//   each element is raised once, and the row's maximum and sum are found in one go.
// Memory: sizeof(T) + sizeof(Out) bytes an element, by loads of sizeof(T) · COUNT ≤ 16 bytes, PACKS in flight a thread.
// Preconditions: x and out are aligned to COUNT elements; a row touches at most GROUP · PACKS packs of COUNT elements;
//   COUNT divides length unless ENDS is ragged, where the packs that a row begins and ends in are moved element by
//   element, or staged, where short rows come and go by shared memory and x and out are aligned to 16 bytes.
// Launch: one-dimensional, BLOCK threads a block, ⌈rows · GROUP / BLOCK⌉ blocks, in clusters of GROUP / BLOCK if that
//   is more than 1.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018), for the pair (m, s).
template <typename T, typename Out, typename Op, int GROUP, int BLOCK, int PACKS, int COUNT, cudakit::ends ENDS>
__global__ void __launch_bounds__(BLOCK, cudakit::resident_blocks<Op, BLOCK, PACKS * COUNT>())
    rows(const T* x, Out* out, long long rows, int length) {
    cudakit::for_each_row<GROUP, BLOCK, PACKS, COUNT, ENDS>(x, out, rows, length, Op());
}

// The same along any axes, at any strides, of lines of any length.
//
// Shapes: x and out of RANK dimensions, of which the last INNER number a line's elements and the others the lines;
//   where Op gives one value a line, those of out have extent 1.
// Threads: a block has WIDTH lines side by side, BLOCK / WIDTH threads each, which take PACKS · COUNT elements at a
//   time.
// Memory: an element is read once where a line has at most BLOCK / WIDTH · PACKS · COUNT, else twice; by loads of COUNT
//   elements, which is 1 unless WIDTH is.
// Preconditions: where COUNT > 1, the elements of a line lie side by side, and each line is aligned to COUNT of them
//   and has a multiple of COUNT.
// Launch: one-dimensional, BLOCK threads a block, ⌈lines / WIDTH⌉ blocks.
// Source: as of `rows`.
template <typename T, typename Out, int RANK, typename Op, int INNER, int WIDTH, int BLOCK, int PACKS, int COUNT>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    lines(cudakit::strided<const T, RANK> x, cudakit::strided<Out, RANK> out) {
    const cudakit::lines<const T, RANK, INNER> from{x};
    const cudakit::lines<Out, RANK, INNER> to{out};
    cudakit::for_each_line<WIDTH, BLOCK, PACKS, COUNT>(from, to, Op());
}

// The states of parts of lines, for lines too few to fill the device: the first of two launches, of which `join` is the
// second.
//
// Shapes: x as in `lines`; workspace, bytes, from 4096 on: states (lines, gridDim.y), Op::state.
// Threads: as in `lines`, block (b, p) doing part p of its lines.
// Memory: sizeof(T) bytes an element, and a state a part.
// Preconditions: as of `lines`.
// Launch: ⌈lines / WIDTH⌉ × parts blocks of BLOCK threads.
// Source: as of `rows`.
template <typename T, int RANK, typename Op, int INNER, int WIDTH, int BLOCK, int PACKS, int COUNT>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    parts(cudakit::strided<const T, RANK> x, unsigned char* workspace) {
    const cudakit::lines<const T, RANK, INNER> from{x};
    auto* const states = reinterpret_cast<typename Op::state*>(workspace + 4096);
    cudakit::summarise_lines<WIDTH, BLOCK, PACKS, COUNT>(from, states, Op());
}

// The results of parts of lines from the states that `parts` has left.
//
// Shapes: x and out as in `lines`; workspace as in `parts`, of `count` parts a line.
// Threads: as in `parts`; all threads of a line combine its states first.
// Memory: sizeof(T) + sizeof(Out) bytes an element; the last elements that `parts` has read may still be in the cache.
// Preconditions: as of `parts`, whose launch it follows, with its shape.
// Launch: as of `parts`; one part where Op gives one value a line.
// Source: as of `rows`.
template <typename T, typename Out, int RANK, typename Op, int INNER, int WIDTH, int BLOCK, int PACKS, int COUNT>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK) join(
    cudakit::strided<const T, RANK> x, cudakit::strided<Out, RANK> out, const unsigned char* workspace, int count) {
    const cudakit::lines<const T, RANK, INNER> from{x};
    const cudakit::lines<Out, RANK, INNER> to{out};
    const auto* const states = reinterpret_cast<const typename Op::state*>(workspace + 4096);
    cudakit::finish_lines<WIDTH, BLOCK, PACKS, COUNT>(from, to, states, count, Op());
}
