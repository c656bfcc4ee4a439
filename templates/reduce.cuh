#include <cudakit/block.cuh>
#include <cudakit/fold.cuh>
#include <cudakit/reducer.cuh>
#include <cudakit/ticket.cuh>

// Every reduction is one of these kernels with a reducer (<cudakit/reducer.cuh>): the kernel decides which thread takes
// which element, the reducer what becomes of it. `divisor` is for reducers that divide.
//
// A result is put together in an order that the sizes and the launch shape alone decide: the same bits on each run.
// `workspace` begins with 1024 counters, 0 before and after; the states of unfinished parts follow it.

namespace cudakit {

inline constexpr int TICKET_BYTES = 4096;

// 64 registers a thread, so that 1024 threads fit a multiprocessor; for states that need more, as many as they take.
template <typename Reducer, int BLOCK>
inline constexpr int RESIDENT_BLOCKS = sizeof(typename Reducer::State) <= 8 ? 1024 / BLOCK : 1;

template <typename Reducer>
struct combination {
    using State = typename Reducer::State;
    __device__ State operator()(const State& a, const State& b) const { return Reducer::combine(a, b); }
};

// out[row] = reduction of source_of(row), by blocks of BLOCK threads, WIDTH of them (a warp or less, or all) for a row.
// Where a row has several blocks, `parts`, each leaves its state in the workspace, and the one that comes last combines
// them.
template <typename Reducer, int WIDTH, int BLOCK, int ITEMS, typename SourceOf, typename Out>
__device__ void reduce_rows(
    const SourceOf source_of, Out* out, unsigned char* workspace, long long rows, long long length, int parts,
    double divisor) {
    using State = typename Reducer::State;
    const combination<Reducer> combine;
    if constexpr (WIDTH < BLOCK) {
        static_assert(WIDTH <= 32 && BLOCK % 32 == 0, "a row is a warp's or a block's");
        const int lane = threadIdx.x % WIDTH;
        for (long long first = blockIdx.x * (BLOCK / WIDTH); first < rows; first += gridDim.x * (BLOCK / WIDTH)) {
            const long long row = first + threadIdx.x / WIDTH;
            State state = Reducer::identity();
            if (row < rows) state = fold_part<Reducer, WIDTH, ITEMS>(source_of(row), length, 0, 1, lane);
            state = warp_reduce<WIDTH>(state, combine);
            if (lane == 0 && row < rows) out[row] = Reducer::template finish<Out>(state, divisor);
        }
    } else {
        __shared__ block_reduce_storage<State, BLOCK> storage;
        State* const partials = reinterpret_cast<State*>(workspace + TICKET_BYTES);
        unsigned int* const tickets = reinterpret_cast<unsigned int*>(workspace);
        for (long long block = blockIdx.x; block < rows * parts; block += gridDim.x) {
            const long long row = block / parts;
            const int part = block % parts;
            State state = fold_part<Reducer, BLOCK, ITEMS>(source_of(row), length, part, parts, threadIdx.x);
            state = block_reduce<BLOCK>(state, combine, storage);
            if (parts > 1) {
                if (threadIdx.x == 0) partials[block] = state;
                if (!is_last_block(tickets + row, parts)) continue;
                state = Reducer::identity();
                for (int p = threadIdx.x; p < parts; p += BLOCK) state = combine(state, partials[row * parts + p]);
                state = block_reduce<BLOCK>(state, combine, storage);
            }
            if (threadIdx.x == 0) out[row] = Reducer::template finish<Out>(state, divisor);
        }
    }
}

}  // namespace cudakit

// out[r] = reduction of x[r · step + 0 … length)
//
// Shapes: x, rows of `length` neighbours whose first elements are `step` apart; out (rows). One row: a reduction over
//   everything.
// Threads: WIDTH for a row: neighbours in a warp, for short rows; or a block, that takes ITEMS packs of COUNT elements a
//   thread at once, then strides. A few long rows have `parts` blocks each, whose tiles take turns.
// Memory: sizeof(T) bytes an element, COUNT in a load between a row's first and last aligned ones. With 16-byte loads,
//   ITEMS = 8 and 1024 threads a multiprocessor 128 KiB are in flight on each; two waves of blocks that stride read 1.2
//   times as fast as one block a tile.
// Preconditions: parts > 1 for WIDTH = BLOCK and rows ≤ 1024 only; workspace has room for rows · parts states then.
// Launch: one-dimensional, BLOCK threads a block, any number of blocks.
// Source: Harris, Optimizing parallel reduction in CUDA (2007); the last-block pattern of NVIDIA's threadFenceReduction.
template <typename T, typename Out, typename Reducer, int COUNT, int WIDTH, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(BLOCK, cudakit::RESIDENT_BLOCKS<Reducer, BLOCK>) rows(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long rows,
    long long length, long long step, int parts, double divisor) {
    const auto source_of = [=](long long row) { return cudakit::contiguous<T, COUNT>{x + row * step}; };
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(source_of, out, workspace, rows, length, parts, divisor);
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
__global__ void __launch_bounds__(BLOCK) columns(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long outer,
    long long length, long long inner, long long outer_step, long long step, int parts, double divisor) {
    using State = typename Reducer::State;
    using Pack = cudakit::loaded<T, COUNT>;
    constexpr int GROUPS = BLOCK / WIDTH / HEIGHT;
    static_assert(GROUPS * HEIGHT * WIDTH == BLOCK, "every thread has its place");
    static_assert((HEIGHT & (HEIGHT - 1)) == 0, "rows of threads are halved until one is left");
    alignas(16) __shared__ unsigned char bytes[HEIGHT > 1 ? BLOCK * COUNT * sizeof(State) : 1];
    State* const shared = reinterpret_cast<State*>(bytes);
    State* const partials = reinterpret_cast<State*>(workspace + cudakit::TICKET_BYTES);
    unsigned int* const tickets = reinterpret_cast<unsigned int*>(workspace);
    const int across = threadIdx.x % WIDTH, down = threadIdx.x / WIDTH % HEIGHT, group = threadIdx.x / WIDTH / HEIGHT;
    const bool aligned = reinterpret_cast<unsigned long long>(x) % sizeof(Pack) == 0;

    State states[COUNT];
    // Of the rows of threads, into the first.
    const auto combine_rows = [&] {
#pragma unroll
        for (int half = HEIGHT / 2; half > 0; half /= 2) {
            __syncthreads();
            if (down >= half && down < 2 * half)
                for (int c = 0; c < COUNT; ++c) shared[c * BLOCK + threadIdx.x - half * WIDTH] = states[c];
            __syncthreads();
            if (down < half)
                for (int c = 0; c < COUNT; ++c)
                    states[c] = Reducer::combine(states[c], shared[c * BLOCK + threadIdx.x]);
        }
    };
    const auto load = [&](const T* from) {
        if (aligned) return Pack(from);
        T values[COUNT];
        for (int c = 0; c < COUNT; ++c) values[c] = from[c];
        Pack pack;
        memcpy(&pack.word, values, sizeof(values));
        return pack;
    };

    const long long tiles = (inner + WIDTH * COUNT - 1) / (WIDTH * COUNT), sets = (outer + GROUPS - 1) / GROUPS;
    for (long long block = blockIdx.x; block < sets * parts * tiles; block += gridDim.x) {
        // Neighbouring blocks read neighbouring columns.
        const long long tile = block % tiles, set = block / tiles / parts;
        const int part = block / tiles % parts;
        const long long column = (tile * WIDTH + across) * COUNT, o = set * GROUPS + group;
        const bool inside = column < inner && o < outer;
        const T* const from = x + o * outer_step + column;
#pragma unroll
        for (int c = 0; c < COUNT; ++c) states[c] = Reducer::identity();
        long long i = inside ? static_cast<long long>(part) * HEIGHT * ITEMS + down : length;
        const T* next = from + i * step;
        for (; i < length; i += static_cast<long long>(parts) * HEIGHT * ITEMS) {
            const int rest = min(length - i, static_cast<long long>(HEIGHT) * ITEMS);
            Pack packs[ITEMS];
            const T* row = next;
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                if (j * HEIGHT < rest) packs[j] = load(row);
                row += HEIGHT * step;
            }
            next += parts * ITEMS * HEIGHT * step;
            const bool whole = (ITEMS - 1) * HEIGHT < rest;
#pragma unroll
            for (int c = 0; c < COUNT; ++c) {
                T values[ITEMS];
#pragma unroll
                for (int j = 0; j < ITEMS; ++j) values[j] = packs[j].value(c);
                if (whole) {
                    states[c] = Reducer::template fold<ITEMS>(states[c], values, cudakit::numbering<1>{i, HEIGHT});
                } else {
#pragma unroll
                    for (int j = 0; j < ITEMS; ++j) {
                        const T one[1] = {values[j]};
                        const cudakit::numbering<1> at{i + j * HEIGHT, 0};
                        if (j * HEIGHT < rest) states[c] = Reducer::template fold<1>(states[c], one, at);
                    }
                }
            }
        }
        combine_rows();
        if (parts > 1) {
            if (down == 0 && inside)
                for (int c = 0; c < COUNT; ++c) partials[(o * parts + part) * inner + column + c] = states[c];
            if (!cudakit::is_last_block(tickets + set * tiles + tile, parts)) continue;
#pragma unroll
            for (int c = 0; c < COUNT; ++c) states[c] = Reducer::identity();
            if (inside)
                for (int p = down; p < parts; p += HEIGHT)
                    for (int c = 0; c < COUNT; ++c)
                        states[c] = Reducer::combine(states[c], partials[(o * parts + p) * inner + column + c]);
            combine_rows();
        }
        if (down == 0 && inside)
            for (int c = 0; c < COUNT; ++c)
                out[o * inner + column + c] = Reducer::template finish<Out>(states[c], divisor);
    }
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
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(source_of, out, workspace, rows, length, parts, divisor);
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
    if (cudakit::unaligned_head<COUNT>(x) == cudakit::unaligned_head<COUNT>(y))
        cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(coupled, out, workspace, 1, length, parts, 0);
    else
        cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(single, out, workspace, 1, length, parts, 0);
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
    cudakit::reduce_rows<Reducer, WIDTH, BLOCK, ITEMS>(coupled, out, workspace, 1, length, parts, 0);
}
