#include <cudakit/rows/lines.cuh>

namespace cudakit {

// One factor or term for each element of a row, from memory; `at` is the first of COUNT neighbours, whose parameters
// lie aligned as one pack if ALIGNED. Those of type void are not there.
template <typename W, bool ALIGNED>
struct row_parameters {
    const W* data;

    template <typename A, int COUNT, typename Apply>
    __device__ void apply(A (&values)[COUNT], long long at, Apply change) const {
        constexpr int WIDTH = !ALIGNED ? 1 : COUNT * sizeof(W) <= 16 ? COUNT : 16 / sizeof(W);
#pragma unroll
        for (int k = 0; k < COUNT; k += WIDTH) {
            const pack<W, WIDTH> part = load_pack<WIDTH>(data + at + k);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) values[k + j] = change(values[k + j], static_cast<A>(part.values[j]));
        }
    }
};
template <bool ALIGNED>
struct row_parameters<void, ALIGNED> {
    const void* data;

    template <typename A, int COUNT, typename Apply>
    __device__ void apply(A (&)[COUNT], long long, Apply) const {}
};

/// (x − mean) / √(variance + eps) · weight + bias
template <typename A, typename W, typename B, bool ALIGNED>
struct layernorm {
    using value = A;
    struct state {
        A count, mean, squares;  // squares: Σ (x − mean)²
    };
    static constexpr bool PER_ROW = false;
    static constexpr A PAD = A(0);
    row_parameters<W, ALIGNED> weight;
    row_parameters<B, ALIGNED> bias;
    A eps;

    __device__ static state nothing() { return {A(0), A(0), A(0)}; }

    template <int COUNT, typename Present>
    __device__ static state summarise(const A (&values)[COUNT], const Present& present) {
        A sum = A(0), squares = A(0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) sum += values[k];
        const A count = A(present.count());
        const A mean = count > A(0) ? sum / count : A(0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const A difference = values[k] - mean;
            squares += present(k) ? difference * difference : A(0);
        }
        return {count, mean, squares};
    }

    __device__ static state combine(const state& a, const state& b) {
        const A count = a.count + b.count;
        if (count == A(0)) return nothing();
        const A difference = b.mean - a.mean, share = b.count / count;
        return {count, a.mean + difference * share, a.squares + b.squares + difference * difference * a.count * share};
    }

    template <int WIDTH>
    __device__ static state gather(const state& own) {
        const auto plus = [](A a, A b) { return a + b; };
        const A count = warp_reduce<WIDTH>(own.count, plus);
        const A sum = warp_reduce<WIDTH>(own.count * own.mean, plus);
        const A mean = count == A(0) ? A(0) : sum / count;
        const A difference = own.mean - mean;
        return {count, mean, warp_reduce<WIDTH>(own.squares + own.count * difference * difference, plus)};
    }

    struct factors {
        A mean, scale;
    };
    __device__ factors scaling(const state&, const state& all) const {
        return {all.mean, A(1) / sqrt(all.squares / all.count + eps)};
    }
    template <int COUNT>
    __device__ void finish(A (&values)[COUNT], long long at, const factors& by) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] = (values[k] - by.mean) * by.scale;
        weight.apply(values, at, [](A value, A factor) { return value * factor; });
        bias.apply(values, at, [](A value, A term) { return value + term; });
    }
};

/// x / √(mean of x² + eps) · weight
template <typename A, typename W, typename B, bool ALIGNED>
struct rmsnorm {
    using value = A;
    struct state {
        A count, squares;
    };
    static constexpr bool PER_ROW = false;
    static constexpr A PAD = A(0);
    row_parameters<W, ALIGNED> weight;
    row_parameters<B, ALIGNED> bias;
    A eps;

    __device__ static state nothing() { return {A(0), A(0)}; }

    template <int COUNT, typename Present>
    __device__ static state summarise(const A (&values)[COUNT], const Present& present) {
        A squares = A(0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) squares += values[k] * values[k];
        return {A(present.count()), squares};
    }

    __device__ static state combine(const state& a, const state& b) {
        return {a.count + b.count, a.squares + b.squares};
    }

    template <int WIDTH>
    __device__ static state gather(const state& own) {
        const auto plus = [](A a, A b) { return a + b; };
        return {warp_reduce<WIDTH>(own.count, plus), warp_reduce<WIDTH>(own.squares, plus)};
    }

    __device__ A scaling(const state&, const state& all) const { return A(1) / sqrt(all.squares / all.count + eps); }
    template <int COUNT>
    __device__ void finish(A (&values)[COUNT], long long at, A scale) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] *= scale;
        weight.apply(values, at, [](A value, A factor) { return value * factor; });
        bias.apply(values, at, [](A value, A term) { return value + term; });
    }
};

}  // namespace cudakit

// out[r] = Op(x[r]) for every row r of n elements, Op being cudakit::layernorm or rmsnorm:
//   layernorm y_i = (x_i − μ) / √(σ² + ε) · w_i + b_i, with μ = Σ x_i / n and σ² = Σ (x_i − μ)² / n;
//   rmsnorm y_i = x_i / √(Σ x_i² / n + ε) · w_i.
//
// Shapes: x, out (rows, length), T and Out, C-contiguous; they may be the same array; weight, bias (length), or null
//   where W or B is void.
// Threads: GROUP threads a row: some lanes of a warp, a block, or a cluster of blocks. Thread t has packs t, t + GROUP,
//   … of COUNT neighbours, in registers from the one load to the one store. It knows the mean of its own elements and
//   their squared distances from it, which are shifted to the mean of the warp, and then of the block: no difference of
//   two large sums is ever taken.
// Memory: sizeof(T) + sizeof(Out) bytes an element, by loads of sizeof(T) · COUNT ≤ 16 bytes, PACKS in flight a thread;
//   weight and bias stay in the first level of the cache, which x and out pass by.
// Preconditions: x and out are aligned to COUNT elements; a row touches at most GROUP · PACKS packs of COUNT elements;
//   COUNT divides length unless ENDS is ragged, where the packs that a row begins and ends in are moved element by
//   element, or staged, where short rows come and go by shared memory and x and out are aligned to 16 bytes.
//   Weight and bias are aligned to COUNT elements, or to 16 bytes where that is less, unless the op is told that they
//   are not.
// Launch: one-dimensional, BLOCK threads a block, ⌈rows · GROUP / BLOCK⌉ blocks, in clusters of GROUP / BLOCK if that
//   is more than 1.
// Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979).
template <
    typename T, typename Out, typename W, typename B, typename Op, int GROUP, int BLOCK, int PACKS, int COUNT,
    cudakit::ends ENDS>
__global__ void __launch_bounds__(BLOCK, cudakit::resident_blocks<Op, BLOCK, PACKS * COUNT>())
    rows(const T* x, Out* out, long long rows, int length, const W* weight, const B* bias, double eps) {
    const Op op{{weight}, {bias}, static_cast<typename Op::value>(eps)};
    cudakit::for_each_row<GROUP, BLOCK, PACKS, COUNT, ENDS>(x, out, rows, length, op);
}

// The same along any axes, at any strides, of lines of any length.
//
// Shapes: x and out of RANK dimensions, of which the last INNER number a line's elements and the others the lines.
// Threads: a block has WIDTH lines side by side, BLOCK / WIDTH threads each, which take PACKS · COUNT elements at a
//   time.
// Memory: an element is read once where a line has at most BLOCK / WIDTH · PACKS · COUNT, else twice; by loads of COUNT
//   elements, which is 1 unless WIDTH is.
// Preconditions: where COUNT > 1, the elements of a line lie side by side, and each line is aligned to COUNT of them
//   and has a multiple of COUNT.
// Launch: one-dimensional, BLOCK threads a block, ⌈lines / WIDTH⌉ blocks.
// Source: as of `rows`.
template <
    typename T, typename Out, int RANK, typename W, typename B, typename Op, int INNER, int WIDTH, int BLOCK, int PACKS,
    int COUNT>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK) lines(
    cudakit::strided<const T, RANK> x, cudakit::strided<Out, RANK> out, const W* weight, const B* bias, double eps) {
    const cudakit::lines<const T, RANK, INNER> from{x};
    const cudakit::lines<Out, RANK, INNER> to{out};
    const Op op{{weight}, {bias}, static_cast<typename Op::value>(eps)};
    cudakit::for_each_line<WIDTH, BLOCK, PACKS, COUNT>(from, to, op);
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
    cudakit::summarise_lines<WIDTH, BLOCK, PACKS, COUNT>(from, states, Op{});
}

// The results of parts of lines from the states that `parts` has left.
//
// Shapes: x and out as in `lines`; workspace as in `parts`, of `count` parts a line.
// Threads: as in `parts`; all threads of a line combine its states first.
// Memory: sizeof(T) + sizeof(Out) bytes an element; the last elements that `parts` has read may still be in the cache.
// Preconditions: as of `parts`, whose launch it follows, with its shape.
// Launch: as of `parts`.
// Source: as of `rows`.
template <
    typename T, typename Out, int RANK, typename W, typename B, typename Op, int INNER, int WIDTH, int BLOCK, int PACKS,
    int COUNT>
__global__ void __launch_bounds__(BLOCK, 1024 / BLOCK) join(
    cudakit::strided<const T, RANK> x, cudakit::strided<Out, RANK> out, const unsigned char* workspace, int count,
    const W* weight, const B* bias, double eps) {
    const cudakit::lines<const T, RANK, INNER> from{x};
    const cudakit::lines<Out, RANK, INNER> to{out};
    const auto* const states = reinterpret_cast<const typename Op::state*>(workspace + 4096);
    const Op op{{weight}, {bias}, static_cast<typename Op::value>(eps)};
    cudakit::finish_lines<WIDTH, BLOCK, PACKS, COUNT>(from, to, states, count, op);
}
