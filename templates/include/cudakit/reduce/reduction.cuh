// How the threads of a launch share a reduction: by rows or by columns of memory, with any reducer
// (<cudakit/reduce/reducer.cuh>) and any source of values.
//
// A result is put together in an order that the sizes and the launch shape alone decide: the same bits on each run.
// `workspace` begins with 1024 counters, 0 before and after; the states of unfinished parts follow it.
#pragma once

#include <cudakit/block.cuh>
#include <cudakit/reduce/several.cuh>
#include <cudakit/ticket.cuh>

namespace cudakit {

inline constexpr int TICKET_BYTES = 4096;

// 64 registers a thread, so that 1024 threads fit a multiprocessor; for states that need more, as many as they take.
template <typename Reducer, int BLOCK, typename T = double>
inline constexpr int RESIDENT_BLOCKS = sizeof(typename Reducer::State) <= 8 || keys<Reducer, T>::EXIST ? 1024 / BLOCK : 1;

template <typename Reducer>
struct combination {
    using State = typename Reducer::State;
    __device__ State operator()(const State& a, const State& b) const { return Reducer::combine(a, b); }
};

/// store(row, reduction of source_of(row)[0 … length_of(row))), by blocks of BLOCK threads, WIDTH of them (a warp or
/// less, or all) for a row. Where a row has several blocks, `parts`, each leaves its state in the workspace, and the
/// one that comes last combines them.
template <typename Reducer, int WIDTH, int BLOCK, int ITEMS, typename SourceOf, typename LengthOf, typename Store>
__device__ void reduce_rows(
    const SourceOf source_of, const LengthOf length_of, const Store store, unsigned char* workspace, long long rows,
    int parts) {
    using State = typename Reducer::State;
    const combination<Reducer> combine;
    if constexpr (WIDTH < BLOCK) {
        static_assert(WIDTH <= 32 && BLOCK % 32 == 0, "a row is a warp's or a block's");
        const int lane = threadIdx.x % WIDTH;
        for (long long first = blockIdx.x * (BLOCK / WIDTH); first < rows; first += gridDim.x * (BLOCK / WIDTH)) {
            const long long row = first + threadIdx.x / WIDTH;
            State state = Reducer::identity();
            if (row < rows) state = fold_part<Reducer, WIDTH, ITEMS>(source_of(row), length_of(row), 0, 1, lane);
            state = warp_reduce<WIDTH>(state, combine);
            if (lane == 0 && row < rows) store(row, state);
        }
    } else {
        __shared__ block_reduce_storage<State, BLOCK> storage;
        State* const partials = reinterpret_cast<State*>(workspace + TICKET_BYTES);
        unsigned int* const tickets = reinterpret_cast<unsigned int*>(workspace);
        for (long long block = blockIdx.x; block < rows * parts; block += gridDim.x) {
            const long long row = block / parts;
            const int part = block % parts;
            State state = fold_part<Reducer, BLOCK, ITEMS>(source_of(row), length_of(row), part, parts, threadIdx.x);
            state = block_reduce<BLOCK>(state, combine, storage);
            if (parts > 1) {
                if (threadIdx.x == 0) partials[block] = state;
                if (!is_last_block(tickets + row, parts)) continue;
                state = Reducer::identity();
                for (int p = threadIdx.x; p < parts; p += BLOCK) state = combine(state, partials[row * parts + p]);
                state = block_reduce<BLOCK>(state, combine, storage);
            }
            if (threadIdx.x == 0) store(row, state);
        }
    }
}

/// What a thread has met of COUNT columns, in turns of ITEMS rows each, `step` apart, since it was put into their states.
template <typename Reducer, typename T, int COUNT, int ITEMS, bool IS_KEYED = keys<Reducer, T>::EXIST>
struct window {
    static constexpr bool EXISTS = false;
    __device__ window(long long, int, long long) {}
};
template <typename Reducer, typename T, int COUNT, int ITEMS>
struct window<Reducer, T, COUNT, ITEMS, true> {
    static constexpr bool EXISTS = true;
    using Keys = keys<Reducer, T>;
    long long first, step;
    int height, rows = 0;
    int best[COUNT];

    __device__ window(long long first, int height, long long step) : first(first), step(step), height(height) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) best[c] = Keys::NONE;
    }
    __device__ bool is_full() const { return rows + ITEMS > Keys::ROWS; }
    template <typename Pack>
    __device__ void add(const Pack& pack, int j) {
#pragma unroll
        for (int c = 0; c < COUNT; ++c) best[c] = max(best[c], Keys::of(bare(pack.value(c)), rows + j));
    }
    __device__ void advance() { rows += ITEMS; }
    __device__ void flush(typename Reducer::State (&states)[COUNT], long long next) {
        if (rows == 0) return;
#pragma unroll
        for (int c = 0; c < COUNT; ++c) {
            const int row = Keys::row(best[c]);
            const long long at = first + row / ITEMS * step + row % ITEMS * height;
            states[c] = Reducer::combine(states[c], {Keys::value(best[c]), at});
            best[c] = Keys::NONE;
        }
        first = next;
        rows = 0;
    }
};

/// store(o · inner + i, reduction of element (o, 0 … length, i) of `source`), by blocks of WIDTH · HEIGHT threads for
/// each of GROUPS indices o. WIDTH neighbours stand side by side along `inner`, each for COUNT columns; HEIGHT rows of
/// them take elements along `length` in turn, ITEMS at once, and then combine in shared memory. `parts` blocks share a
/// column.
/// source.at(o, i) is where column i begins: a place with advance(elements along length) and load(), COUNT neighbours, or
/// load_aligned() where it is `aligned`.
template <
    typename Reducer, int COUNT, int WIDTH, int HEIGHT, int BLOCK, int ITEMS, typename Source, typename Store>
__device__ void reduce_columns(
    const Source source, const Store store, unsigned char* workspace, long long outer, long long length,
    long long inner, int parts) {
    using State = typename Reducer::State;
    using Pack = decltype(source.at(0, 0).load());
    using Value = decltype(bare(Pack().value(0)));
    constexpr int GROUPS = BLOCK / WIDTH / HEIGHT;
    static_assert(GROUPS * HEIGHT * WIDTH == BLOCK, "every thread has its place");
    static_assert((HEIGHT & (HEIGHT - 1)) == 0, "rows of threads are halved until one is left");
    alignas(16) __shared__ unsigned char bytes[HEIGHT > 1 ? BLOCK * COUNT * sizeof(State) : 1];
    State* const shared = reinterpret_cast<State*>(bytes);
    State* const partials = reinterpret_cast<State*>(workspace + TICKET_BYTES);
    unsigned int* const tickets = reinterpret_cast<unsigned int*>(workspace);
    const int across = threadIdx.x % WIDTH, down = threadIdx.x / WIDTH % HEIGHT, group = threadIdx.x / WIDTH / HEIGHT;

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

    const long long tiles = (inner + WIDTH * COUNT - 1) / (WIDTH * COUNT), sets = (outer + GROUPS - 1) / GROUPS;
    for (long long block = blockIdx.x; block < sets * parts * tiles; block += gridDim.x) {
        // Neighbouring blocks read neighbouring columns.
        const long long tile = block % tiles, set = block / tiles / parts;
        const int part = block / tiles % parts;
        const long long column = (tile * WIDTH + across) * COUNT, o = set * GROUPS + group;
        const bool inside = column < inner && o < outer;
        auto next = source.at(o, column);
#pragma unroll
        for (int c = 0; c < COUNT; ++c) states[c] = Reducer::identity();
        long long i = inside ? static_cast<long long>(part) * HEIGHT * ITEMS + down : length;
        next.advance(i);
        const long long turn = static_cast<long long>(parts) * HEIGHT * ITEMS;
        window<Reducer, Value, COUNT, ITEMS> window(i, HEIGHT, turn);
        for (; i < length; i += turn) {
            const int rest = min(length - i, static_cast<long long>(HEIGHT) * ITEMS);
            Pack packs[ITEMS];
            auto row = next;
            const bool whole = (ITEMS - 1) * HEIGHT < rest;
            if (whole && next.aligned) {
                // No load waits for a comparison.
#pragma unroll
                for (int j = 0; j < ITEMS; ++j) {
                    packs[j] = row.load_aligned();
                    row.advance(HEIGHT);
                }
            } else {
#pragma unroll
                for (int j = 0; j < ITEMS; ++j) {
                    if (j * HEIGHT < rest) packs[j] = row.load();
                    row.advance(HEIGHT);
                }
            }
            next.advance(parts * ITEMS * HEIGHT);
            if constexpr (window.EXISTS) {
                if (window.is_full()) window.flush(states, i);
                if (whole) {
#pragma unroll
                    for (int j = 0; j < ITEMS; ++j) window.add(packs[j], j);
                } else {
#pragma unroll
                    for (int j = 0; j < ITEMS; ++j)
                        if (j * HEIGHT < rest) window.add(packs[j], j);
                }
                window.advance();
                continue;
            }
#pragma unroll
            for (int c = 0; c < COUNT; ++c) {
                Value values[ITEMS];
#pragma unroll
                for (int j = 0; j < ITEMS; ++j) values[j] = bare(packs[j].value(c));
                if (whole) {
                    states[c] = Reducer::template fold<ITEMS>(states[c], values, numbering<1>{i, HEIGHT});
                } else {
#pragma unroll
                    for (int j = 0; j < ITEMS; ++j) {
                        const Value one[1] = {values[j]};
                        const numbering<1> at{i + j * HEIGHT, 0};
                        if (j * HEIGHT < rest) states[c] = Reducer::template fold<1>(states[c], one, at);
                    }
                }
            }
        }
        if constexpr (window.EXISTS) window.flush(states, i);
        combine_rows();
        if (parts > 1) {
            if (down == 0 && inside)
                for (int c = 0; c < COUNT; ++c) partials[(o * parts + part) * inner + column + c] = states[c];
            if (!is_last_block(tickets + set * tiles + tile, parts)) continue;
#pragma unroll
            for (int c = 0; c < COUNT; ++c) states[c] = Reducer::identity();
            if (inside)
                for (int p = down; p < parts; p += HEIGHT)
                    for (int c = 0; c < COUNT; ++c)
                        states[c] = Reducer::combine(states[c], partials[(o * parts + p) * inner + column + c]);
            combine_rows();
        }
        if (down == 0 && inside)
            for (int c = 0; c < COUNT; ++c) store(o * inner + column + c, states[c]);
    }
}

}  // namespace cudakit
