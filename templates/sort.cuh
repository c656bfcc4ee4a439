#include <cudakit/sort/carried.cuh>
#include <cudakit/sort/digit_words.cuh>
#include <cudakit/sort/order.cuh>
#include <cudakit/sort/ranks.cuh>
#include <cudakit/ticket.cuh>

// Stable sorts by radix, least significant digit first. Rows of a few thousand keys are sorted by a block each
// (`rows`). Longer ones take `counts` once, and `digit` for each 8 bits of a key: a read and a write each.
//
// `state`, in Words: COUNTERS of them; then for each row and pass the counts of 256 digits; then 256 words for each
// tile, one a digit: how many the tile has (PART), or it and all tiles of the row before it, with all lesser digits of
// the row (WHOLE). The caller zeroes it. Passes take turns with `spare`, of as many words as tiles have: each zeroes
// those that the next one works with.

namespace cudakit {

inline constexpr int COUNTERS = 64;
// Among them, in turns of a pass each: which tile is the next; and whether all rows have one digit throughout. Between
// them the ticket of the kernel that counts, which looks for such digits in so few rows.
inline constexpr int DRAWN = 0, TICKET = 16, EQUAL = 32, MOST_LOOKED_AT = 8;

/// The tile that a block does.
struct drawn_tile {
    long long number;            // among the tiles of all rows
    long long row_first, first;  // where its row begins, and the tile
    long long in_row;            // tiles before it in its row
    int valid;                   // its keys
    bool are_equal;              // whether all keys, everywhere, have one digit

    template <typename Word>
    __device__ void draw(Word* state, int pass, long long size, long long tiles, int most) {
        are_equal = state[EQUAL + pass] != 0;
        number = atomicAdd(state + DRAWN + pass, static_cast<Word>(1));
        const unsigned int row = static_cast<unsigned int>(number) / static_cast<unsigned int>(tiles);
        in_row = number - row * tiles;
        row_first = row * size;
        first = row_first + in_row * most;
        valid = static_cast<int>(min(size - in_row * most, static_cast<long long>(most)));
    }
};

}  // namespace cudakit

// state = how many keys of each row have each digit, for all passes.
//
// Shapes: keys (rows, size), contiguous; state as above.
// Threads: `blocks` blocks a row, each the chunks of BLOCK · ITEMS keys that are its turn.
// Memory: a read of the keys. Shared, dynamic: COPIES counters of 4 bytes a pass and digit, which lanes take in turns:
//   with 32 no two lanes meet in a bank, and the time is that of the read, whatever the keys are.
// Preconditions: state is zero; BLOCK ≥ 256; less than 2^32 keys a block.
// Launch: rows · blocks blocks of BLOCK threads.
// Source: Adinets and Merrill (2022).
template <typename Order, typename Word, int COPIES, int ITEMS = 16, int BLOCK = 512>
__global__ void __launch_bounds__(BLOCK) counts(
    const void* __restrict__ keys, Word* __restrict__ state, long long size, long long rows, long long blocks) {
    using W = typename Order::word;
    constexpr int PASSES = Order::BYTES;
    extern __shared__ unsigned int counters[];
    const int thread = threadIdx.x;
    for (int k = thread; k < PASSES * cudakit::DIGITS * COPIES; k += BLOCK) counters[k] = 0;
    __syncthreads();
    const long long row = blockIdx.x / blocks;
    const W* const from = static_cast<const W*>(keys) + row * size;
    unsigned int* const own = counters + thread % COPIES;
    const auto count = [own](W key) {
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass)
            atomicAdd(own + (pass * cudakit::DIGITS + cudakit::digit_of<Order>(key, pass)) * COPIES, 1u);
    };
    for (long long chunk = blockIdx.x % blocks * (BLOCK * ITEMS); chunk < size; chunk += blocks * (BLOCK * ITEMS)) {
        if (chunk + BLOCK * ITEMS > size) {
            for (long long at = chunk + thread; at < size; at += BLOCK) count(from[at]);
            break;
        }
        W key[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) key[i] = from[chunk + i * BLOCK + thread];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) count(key[i]);
    }
    __syncthreads();
    Word* const totals = state + cudakit::COUNTERS + row * PASSES * cudakit::DIGITS;
    for (int k = thread; k < PASSES * cudakit::DIGITS; k += BLOCK) {
        Word sum = 0;
#pragma unroll
        for (int copy = 0; copy < COPIES; ++copy) sum += counters[k * COPIES + (thread + copy) % COPIES];
        if (sum) atomicAdd(totals + k, sum);
    }

    unsigned int* const ticket = reinterpret_cast<unsigned int*>(state + cudakit::TICKET);
    if (rows > cudakit::MOST_LOOKED_AT || !cudakit::is_last_block(ticket, gridDim.x)) return;
    for (int pass = 0; pass < PASSES; ++pass) {
        bool are_equal = true;
        for (int r = 0; r < rows; ++r) {
            const Word* const counted = state + cudakit::COUNTERS + (r * PASSES + pass) * cudakit::DIGITS;
            const bool has_all =
                thread < cudakit::DIGITS && cudakit::detail::load_relaxed(counted + thread) == static_cast<Word>(size);
            are_equal = __syncthreads_or(has_all) && are_equal;
        }
        if (thread == 0) state[cudakit::EQUAL + pass] = are_equal;
    }
}

// keys_out, values_out = each row of keys, and what goes with them, in the order of one digit, equal ones as they were;
//   where all keys have the same, this is a copy.
//
// Shapes: keys, keys_out, values, values_out (rows, size), contiguous; Carried says what the values are, Out is the
//   word that they are stored as (as they are, or indices of another width); state and spare as above.
// Threads: a block draws one tile of BLOCK · ITEMS keys of a row; <cudakit/sort/ranks.cuh> says which thread has which.
//   It is put in order in shared memory, so that neighbours are written by neighbours. Thread d looks after digit d.
// Memory: a read and a write of keys (if STORES_KEYS) and values, and 3 words a digit and tile. Shared: a tile's keys,
//   in turns with the counters of ranks.cuh, then the values. What bounds it are shared memory and votes, two thirds
//   busy each on an H200: so warps are many, which means few registers, and no loop asks twice whether a tile is full.
// Preconditions: BLOCK ≥ 256; 2^30 keys a row at most where Word has 32 bits; outputs overlap no input; `counts` ran.
// Launch: rows · tiles blocks of BLOCK threads.
// Source: Adinets and Merrill (2022); the look-back of Merrill and Garland (2016), a chain for each digit.
template <
    typename Order, typename Carried, typename Out, typename Word, bool STORES_KEYS, int ITEMS, int BLOCK = 384,
    int RESIDENT = 1>
__global__ void __launch_bounds__(BLOCK, RESIDENT) digit(
    const void* __restrict__ keys, const void* __restrict__ values, void* __restrict__ keys_out,
    void* __restrict__ values_out, Word* __restrict__ state, Word* __restrict__ spare, long long size, long long rows,
    long long tiles, int pass) {
    using W = typename Order::word;
    using Value = typename Carried::carried;
    using Ranks = cudakit::digit_ranks<BLOCK, ITEMS>;
    using Words = cudakit::digit_words<Word>;
    constexpr int TILE = BLOCK * ITEMS, DIGITS = cudakit::DIGITS, TOGETHER = 3;
    constexpr int KEY_BYTES = TILE * sizeof(W), VALUE_BYTES = Carried::ANY ? TILE * sizeof(Value) : 0;
    constexpr int MOST = KEY_BYTES > VALUE_BYTES ? KEY_BYTES : VALUE_BYTES;
    constexpr int RANK_BYTES = sizeof(typename Ranks::storage);
    static_assert(BLOCK >= DIGITS, "a thread looks after a digit");
    __shared__ __align__(16) unsigned char shared[MOST > RANK_BYTES ? MOST : RANK_BYTES];
    __shared__ typename Words::difference starts[DIGITS];
    __shared__ cudakit::drawn_tile drawn;
    // Volatile, to be read again wherever it is asked for: the registers are for keys.
    const volatile cudakit::drawn_tile& tile = drawn;
    const int thread = threadIdx.x, own = thread / 32 * (32 * ITEMS) + thread % 32;
    if (thread == 0) drawn.draw(state, pass, size, tiles, TILE);
    Ranks ranks(*reinterpret_cast<typename Ranks::storage*>(shared));
    __syncthreads();
    // The words of this thread's digit and the block's tile, in the array of this pass (0) or of the next (1).
    const auto words = [&](int turn) {
        Word* const first = (pass + turn) % 2 ? spare : state + cudakit::COUNTERS + rows * Order::BYTES * DIGITS;
        return first + tile.number * DIGITS + thread;
    };
    if (thread < DIGITS) *words(1) = 0;

    W key[ITEMS];
    unsigned int rank[ITEMS];
    {
        const int valid = tile.valid - own;
        const W* const from = static_cast<const W*>(keys) + tile.first + own;
        if (tile.valid == TILE) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) key[i] = from[32 * i];
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) key[i] = 32 * i < valid ? from[32 * i] : static_cast<W>(0);
        }
        if (tile.are_equal) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                if (32 * i >= valid) break;
                const long long at = tile.first + own + 32 * i;
                if (STORES_KEYS) static_cast<W*>(keys_out)[at] = key[i];
                if constexpr (Carried::ANY)
                    static_cast<Out*>(values_out)[at] = static_cast<Out>(Carried::load(values, at, at - tile.row_first));
            }
            return;
        }
        // What is not there comes last: it has the last digit, after all that are.
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            rank[i] = 32 * i < valid ? cudakit::digit_of<Order>(key[i], pass) : DIGITS - 1;
    }

    unsigned int total[1], start[1];
    ranks.count(rank, total);
    const Word count = total[0] - (thread == DIGITS - 1 ? TILE - tile.valid : 0);
    if (tile.in_row > 0) {
        if (thread < DIGITS) cudakit::detail::store_relaxed(words(0), Words::PART | count);
    } else {
        const Word* const counted =
            state + cudakit::COUNTERS + (tile.row_first / size * Order::BYTES + pass) * DIGITS + thread;
        Word all;
        const Word before = cudakit::sum_before<BLOCK>(thread < DIGITS ? *counted : static_cast<Word>(0), all);
        __syncthreads();
        if (thread < DIGITS) {
            starts[thread] = before;
            cudakit::detail::store_relaxed(words(0), Words::WHOLE | (before + count));
        }
    }
    ranks.start(total, start);
    ranks.rank(rank);

    W* const near = reinterpret_cast<W*>(shared);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) near[rank[i]] = key[i];
    Value value[ITEMS];  // under way while others are waited for
    if constexpr (Carried::ANY) {
        const int valid = tile.valid - own;
        const long long at = tile.first + own, in_row = at - tile.row_first;
        if (tile.valid == TILE) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) value[i] = Carried::load(values, at + 32 * i, in_row + 32 * i);
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i)
                value[i] = 32 * i < valid ? Carried::load(values, at + 32 * i, in_row + 32 * i) : Value();
        }
    }
    if (thread < DIGITS) {
        if (tile.in_row > 0) {
            starts[thread] = Words::before(words(0), tile.in_row);
            cudakit::detail::store_relaxed(words(0), Words::WHOLE | (starts[thread] + count));
        }
        starts[thread] -= start[0];
    }
    __syncthreads();

    // From here on `to` is where an element goes, but for its place in the tile, which the compiler knows in part.
    typename Words::difference to[ITEMS];
    W* const to_keys = static_cast<W*>(keys_out) + tile.row_first + thread;
    if (tile.valid == TILE) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += TOGETHER) {
            W element[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER && i + k < ITEMS; ++k) element[k] = near[(i + k) * BLOCK + thread];
#pragma unroll
            for (int k = 0; k < TOGETHER && i + k < ITEMS; ++k)
                to[i + k] = starts[cudakit::digit_of<Order>(element[k], pass)];
#pragma unroll
            for (int k = 0; k < TOGETHER && i + k < ITEMS; ++k)
                if (STORES_KEYS) to_keys[to[i + k] + (i + k) * BLOCK] = element[k];
            __syncwarp();
        }
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (i * BLOCK + thread >= tile.valid) break;
            const W element = near[i * BLOCK + thread];
            to[i] = starts[cudakit::digit_of<Order>(element, pass)];
            if (STORES_KEYS) to_keys[to[i] + i * BLOCK] = element;
        }
    }
    if constexpr (Carried::ANY) {
        Value* const near_values = reinterpret_cast<Value*>(shared);
        Out* const to_values = static_cast<Out*>(values_out) + tile.row_first + thread;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) near_values[rank[i]] = value[i];
        __syncthreads();
        if (tile.valid == TILE) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                to_values[to[i] + i * BLOCK] = static_cast<Out>(near_values[i * BLOCK + thread]);
                __syncwarp();
            }
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                if (i * BLOCK + thread >= tile.valid) break;
                to_values[to[i] + i * BLOCK] = static_cast<Out>(near_values[i * BLOCK + thread]);
            }
        }
    }
}

// keys_out, values_out = each row of keys in order, and what goes with them.
//
// Shapes: keys and values (rows, size), contiguous; keys_out and values_out (rows, most): of each row the first `most`;
//   Carried and Out as above.
// Threads: a block a row; thread and key as above, by turns of 8 bits.
// Memory: a read and a write. Shared: BLOCK · ITEMS keys, in turns with the counters, then the places of the values.
// Preconditions: size ≤ BLOCK · ITEMS ≤ 65536; outputs overlap no input.
// Launch: rows blocks of BLOCK threads.
// Source: as above, within a block.
template <typename Order, typename Carried, typename Out, bool STORES_KEYS, int ITEMS, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 768 / BLOCK) rows(
    const void* __restrict__ keys, const void* __restrict__ values, void* __restrict__ keys_out,
    void* __restrict__ values_out, long long size, long long most) {
    using W = typename Order::word;
    using Ranks = cudakit::digit_ranks<BLOCK, ITEMS>;
    constexpr int TILE = BLOCK * ITEMS, KEY_BYTES = TILE * sizeof(W), PLACE_BYTES = Carried::ANY ? TILE * 2 : 0;
    constexpr int MOST = KEY_BYTES > PLACE_BYTES ? KEY_BYTES : PLACE_BYTES;
    constexpr int RANK_BYTES = sizeof(typename Ranks::storage);
    static_assert(TILE <= 65536, "places have 16 bits");
    __shared__ __align__(16) unsigned char shared[MOST > RANK_BYTES ? MOST : RANK_BYTES];
    const int thread = threadIdx.x, valid = static_cast<int>(size), own = thread / 32 * (32 * ITEMS) + thread % 32;
    const long long first = blockIdx.x * size, first_out = blockIdx.x * most;
    W* const near = reinterpret_cast<W*>(shared);
    unsigned short* const near_places = reinterpret_cast<unsigned short*>(shared);

    W key[ITEMS];
    unsigned short place[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        place[i] = static_cast<unsigned short>(own + 32 * i);
        if (own + 32 * i < valid) key[i] = static_cast<const W*>(keys)[first + own + 32 * i];
        else key[i] = 0;
    }
#pragma unroll 1
    for (int pass = 0; pass < Order::BYTES; ++pass) {
        unsigned int total[Ranks::EACH], start[Ranks::EACH], rank[ITEMS];
        // What is not there stays last: it has the last digit in each pass.
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            rank[i] = own + 32 * i < valid ? cudakit::digit_of<Order>(key[i], pass) : cudakit::DIGITS - 1;
        Ranks ranks(*reinterpret_cast<typename Ranks::storage*>(shared));
        ranks.count(rank, total);
        ranks.start(total, start);
        ranks.rank(rank);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) near[rank[i]] = key[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) key[i] = near[own + 32 * i];
        __syncthreads();
        if constexpr (Carried::ANY) {
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) near_places[rank[i]] = place[i];
            __syncthreads();
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) place[i] = near_places[own + 32 * i];
            __syncthreads();
        }
    }
    const int stored = static_cast<int>(min(size, most));
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int at = own + 32 * i;
        if (at >= stored) break;
        if (STORES_KEYS) static_cast<W*>(keys_out)[first_out + at] = key[i];
        if constexpr (Carried::ANY)
            static_cast<Out*>(values_out)[first_out + at] =
                static_cast<Out>(Carried::load(values, first + place[i], place[i]));
    }
}

// As `rows`, for rows of up to WIDTH keys: as many lanes compare each with all.
//
// Threads: a lane a key; the warp's other lanes do further rows.
// Memory: a read and a write.
// Preconditions: size ≤ WIDTH ≤ 32, a power of two; outputs overlap no input.
// Launch: WIDTH threads a row, at least.
// Source: Sorting by counting.
template <typename Order, typename Carried, typename Out, bool STORES_KEYS, int WIDTH, int BLOCK>
__global__ void __launch_bounds__(BLOCK) short_rows(
    const void* __restrict__ keys, const void* __restrict__ values, void* __restrict__ keys_out,
    void* __restrict__ values_out, long long size, long long most, long long rows) {
    using W = typename Order::word;
    const int lane = threadIdx.x % WIDTH, valid = static_cast<int>(size);
    const long long row = blockIdx.x * static_cast<long long>(BLOCK / WIDTH) + threadIdx.x / WIDTH;
    const bool is_there = row < rows && lane < valid;
    const long long at = row * size + lane;
    const W element = is_there ? static_cast<const W*>(keys)[at] : static_cast<W>(0);
    const W key = Order::key(element);
    int place = 0;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        const W other = cudakit::shuffle(key, k, WIDTH);
        if (k < valid && (other < key || (other == key && k < lane))) ++place;
    }
    if (!is_there || place >= most) return;
    if (STORES_KEYS) static_cast<W*>(keys_out)[row * most + place] = element;
    if constexpr (Carried::ANY)
        static_cast<Out*>(values_out)[row * most + place] = static_cast<Out>(Carried::load(values, at, lane));
}

// out[r, k] = values[r, index[r, k]]
//
// Shapes: values, index, out (rows, size), contiguous; W is an unsigned word of the elements' size.
// Threads: one an element.
// Memory: a read of the index, a read of the values anywhere, a write.
// Preconditions: 0 ≤ index < size; out overlaps neither.
// Launch: rows · size threads.
// Source: Permutation by index.
template <typename W, typename Index>
__global__ void gathered(
    const void* __restrict__ values, const Index* __restrict__ index, void* __restrict__ out, long long size,
    long long all) {
    const long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < all) static_cast<W*>(out)[k] = static_cast<const W*>(values)[k / size * size + index[k]];
}
