#include <cudakit/reduce/reducer.cuh>
#include <cudakit/reduce/reduction.cuh>

// Every reduction is one of these kernels with a reducer (<cudakit/reduce/reducer.cuh>): the kernel decides which thread takes
// which element, the reducer what becomes of it. `divisor` is for reducers that divide. `workspace` and the order of
// combination are those of <cudakit/reduce/reduction.cuh>.

namespace cudakit {

/// out[row] = what the reducer makes of a state.
template <typename Reducer, typename Out>
struct finished {
    Out* out;
    double divisor;
    __device__ void operator()(long long row, const typename Reducer::State& state) const {
        out[row] = Reducer::template finish<Out>(state, divisor);
    }
};

/// All rows have one length.
struct uniform {
    long long length;
    __device__ long long operator()(long long) const { return length; }
};

/// Rows of `step` apart, `outer_step` from the first of a set to the next: reduced across, COUNT neighbours at a time.
template <typename T, int COUNT>
struct beside {
    using Pack = loaded<T, COUNT>;
    const T* x;
    long long outer_step, step;
    bool aligned;

    __device__ beside(const T* x, long long outer_step, long long step)
        : x(x), outer_step(outer_step), step(step),
          aligned(reinterpret_cast<unsigned long long>(x) % sizeof(Pack) == 0) {}

    struct place {
        const T* x;
        long long step;
        bool aligned;
        __device__ void advance(long long rows) { x += rows * step; }
        __device__ Pack load() const {
            return aligned ? Pack(x) : gathered(x);
        }
        // Apart: as instructions that are skipped one by one, its loads would outnumber the others.
        static __device__ __noinline__ Pack gathered(const T* x) {
            T values[COUNT];
            for (int c = 0; c < COUNT; ++c) values[c] = x[c];
            Pack pack;
            memcpy(&pack.word, values, sizeof(values));
            return pack;
        }
    };
    __device__ place at(long long o, long long column) const { return {x + o * outer_step + column, step, aligned}; }
};

}  // namespace cudakit

// out[r] = reduction of x[r · step + 0 … length)
//
// Shapes: x, rows of `length` neighbours whose first elements are `step` apart; out (rows). One row: a reduction over
//   everything.
// Threads: WIDTH for a row: neighbours in a warp, for short rows; or a block, that takes ITEMS packs of COUNT elements a
//   thread at once, then strides. A few long rows have `parts` blocks each, whose tiles take turns.
// Memory: sizeof(T) bytes an element, COUNT in a load between a row's first and last aligned ones. With 16-byte loads,
//   ITEMS = 8 and 1024 threads a multiprocessor 128 KiB are in flight on each; one wave of blocks that stride reads 1.2
//   times as fast as one block a tile.
// Preconditions: parts > 1 for WIDTH = BLOCK and rows ≤ 1024 only; workspace has room for rows · parts states then.
// Launch: one-dimensional, BLOCK threads a block, any number of blocks.
// Source: Harris, Optimizing parallel reduction in CUDA (2007); the last-block pattern of NVIDIA's threadFenceReduction.
template <typename T, typename Out, typename Reducer, int COUNT, int WIDTH, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, cudakit::RESIDENT_BLOCKS<Reducer, BLOCK>) rows(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long rows,
    long long length, long long step, int parts, double divisor) {
    const auto source_of = [=](long long row) { return cudakit::contiguous<T, COUNT>{x + row * step}; };
    const cudakit::finished<Reducer, Out> store{out, divisor};
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(
        source_of, cudakit::uniform{length}, store, workspace, rows, parts);
}

// out[o, i] = reduction of x[o · outer_step + (0 … length) · step + i]
//
// Shapes: x, an array (outer, length, inner) whose last axis has neighbours; out (outer, inner).
// Threads: a block is WIDTH · HEIGHT threads for each of GROUPS indices o. WIDTH neighbours stand side by side along
//   `inner`, each for COUNT columns; HEIGHT rows of them take elements along `length` in turn, ITEMS at once, and then
//   combine in shared memory. `parts` blocks share a column.
// Memory: sizeof(T) bytes an element; a row of threads reads WIDTH · COUNT neighbours, COUNT in a load where all rows are
//   aligned to that. Shared: BLOCK · COUNT states.
// Preconditions: COUNT divides inner, step and outer_step; ⌈outer / GROUPS⌉ · ⌈inner / (WIDTH · COUNT)⌉ ≤ 1024 where
//   parts > 1, with room in the workspace for outer · parts · inner states.
// Launch: one-dimensional, BLOCK threads a block, any number of blocks.
// Source: as for `rows`.
template <typename T, typename Out, typename Reducer, int COUNT, int WIDTH, int HEIGHT, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, cudakit::RESIDENT_BLOCKS<Reducer, BLOCK>) columns(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long outer,
    long long length, long long inner, long long outer_step, long long step, int parts, double divisor) {
    cudakit::reduce_columns<Reducer, COUNT, WIDTH, HEIGHT, BLOCK, ITEMS>(
        cudakit::beside<T, COUNT>(x, outer_step, step), cudakit::finished<Reducer, Out>{out, divisor}, workspace, outer,
        length, inner, parts);
}

// out[k] = reduction of x[k, …], for a view of any strides
//
// Shapes: x, RANK dimensions, of which the first KEPT have `rows` elements and the others `length`; out (rows).
// Threads: as for `rows`.
// Memory: one element a load, coalesced where the last of the dimensions that neighbouring threads walk is contiguous:
//   a reduced one, or a kept one for WIDTH = 1. An index of several dimensions costs a division for each but one.
// Preconditions: as for `rows`.
// Launch: as for `rows`.
// Source: as for `rows`.
template <typename T, int RANK, int KEPT, typename Out, typename Reducer, int WIDTH, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK) views(
    cudakit::strided<const T, RANK> x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long rows,
    long long length, int parts, double divisor) {
    const auto source_of = [&](long long row) { return cudakit::scattered<T, RANK, KEPT>(x, row); };
    const cudakit::finished<Reducer, Out> store{out, divisor};
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(
        source_of, cudakit::uniform{length}, store, workspace, rows, parts);
}

// out = Σ x[i] · y[i], or what else the reducer makes of the couples
//
// Shapes: x, y (length), A and B, contiguous; out (1).
// Threads: as for `rows`, with one row and WIDTH = BLOCK.
// Memory: sizeof(A) + sizeof(B) bytes an element, by loads of which the wider has 16 bytes; one element a load where x
//   and y do not lie alike to such words.
// Preconditions: workspace has room for `parts` states.
// Launch: as for `rows`.
// Source: as for `rows`.
template <typename A, typename B, typename Out, typename Reducer, int WIDTH, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, cudakit::RESIDENT_BLOCKS<Reducer, BLOCK>) dot(
    const A* __restrict__ x, const B* __restrict__ y, Out* __restrict__ out, unsigned char* __restrict__ workspace,
    long long length, int parts) {
    constexpr int COUNT = 16 / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B));
    const auto coupled = [=](long long) { return cudakit::coupled<A, B, COUNT>{x, y}; };
    const auto single = [=](long long) { return cudakit::coupled<A, B, 1>{x, y}; };
    const cudakit::uniform length_of{length};
    const cudakit::finished<Reducer, Out> store{out, 0};
    if (cudakit::unaligned_head<COUNT>(x) == cudakit::unaligned_head<COUNT>(y))
        cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(coupled, length_of, store, workspace, 1, parts);
    else
        cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(single, length_of, store, workspace, 1, parts);
}

// The same for vectors of any strides
//
// Shapes: x, y (length); out (1).
// Threads: as for `dot`.
// Memory: one element of each vector a load, coalesced for a stride of 1 or −1.
// Preconditions: as for `dot`.
// Launch: as for `rows`.
// Source: as for `rows`.
template <typename A, typename B, typename Out, typename Reducer, int WIDTH, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK) dot_views(
    cudakit::strided<const A, 1> x, cudakit::strided<const B, 1> y, Out* __restrict__ out,
    unsigned char* __restrict__ workspace, long long length, int parts) {
    const auto coupled = [&](long long) { return cudakit::coupled_views<A, B>{x, y}; };
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(
        coupled, cudakit::uniform{length}, cudakit::finished<Reducer, Out>{out, 0}, workspace, 1, parts);
}
