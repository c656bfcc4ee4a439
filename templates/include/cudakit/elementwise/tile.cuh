// The elements that a block of a generated elementwise kernel does where some arguments are neighbours along another
// dimension than the result: a tile of two dimensions, by way of shared memory.
#pragma once

#include <cudakit/elementwise/values.cuh>
#include <cudakit/elementwise/walk.cuh>

namespace cudakit {

/// Threads of the block that does a tile.
inline constexpr int tile_threads = 256;

/// A tile of one argument in shared memory, element (row, column) at values[column][row]: as words, because shared memory
/// takes no type with a constructor.
template <typename T, int SIDE, bool IS_SMALL = sizeof(T) <= 2>
struct tile {
    using S = stored_t<T>;
    using Word = typename detail::word_of<S>::type;
    Word values[SIDE][SIDE + 1];
    __device__ void put(int column, int row, const S& value) { memcpy(&values[column][row], &value, sizeof(S)); }
    __device__ S get(int column, int row) const {
        S value;
        memcpy(&value, &values[column][row], sizeof(S));
        return value;
    }
};

/// The same of elements of 1 or 2 bytes: by words of 4 bytes, rows of elements beside each other.
template <typename T, int SIDE>
struct tile<T, SIDE, true> {
    using S = stored_t<T>;
    static constexpr int IN_WORD = 4 / sizeof(S);
    unsigned int words[SIDE][SIDE / IN_WORD + 1];

    /// COUNT neighbours of a row.
    template <int COUNT>
    __device__ few<S, COUNT> row(int row, int column) const {
        few<S, COUNT> found;
        if constexpr (COUNT % IN_WORD == 0) {
            unsigned int word[COUNT / IN_WORD];
#pragma unroll
            for (int k = 0; k < COUNT / IN_WORD; ++k) word[k] = words[row][column / IN_WORD + k];
            memcpy(&found, word, sizeof(word));
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const unsigned int word = words[row][(column + k) / IN_WORD] >> (column + k) % IN_WORD * 8 * sizeof(S);
                memcpy(&found.values[k], &word, sizeof(S));
            }
        }
        return found;
    }
};

namespace detail {
/// Words of as many neighbours each as there are words, one below the other: their columns.
__device__ inline void turn(unsigned int (&words)[2]) {
    const unsigned int low = __byte_perm(words[0], words[1], 0x5410);
    words[1] = __byte_perm(words[0], words[1], 0x7632);
    words[0] = low;
}
__device__ inline void turn(unsigned int (&words)[4]) {
    const unsigned int low[2] = {__byte_perm(words[0], words[1], 0x5140), __byte_perm(words[2], words[3], 0x5140)};
    const unsigned int high[2] = {__byte_perm(words[0], words[1], 0x7362), __byte_perm(words[2], words[3], 0x7362)};
    words[0] = __byte_perm(low[0], low[1], 0x5410);
    words[1] = __byte_perm(low[0], low[1], 0x7632);
    words[2] = __byte_perm(high[0], high[1], 0x5410);
    words[3] = __byte_perm(high[0], high[1], 0x7632);
}
}  // namespace detail

/// A block does a tile of the last two dimensions, of which the result's elements are neighbours in the last and some
/// arguments' in the one before: those come by way of shared memory, so that they are read as they lie.
template <int COUNT, bool APART, int RANK, int SIDE>
struct tiled_run {
    static_assert(RANK >= 2, "a tile has two dimensions");
    static constexpr int PACKS = SIDE / COUNT;
    static constexpr int TURNS = (SIDE * PACKS + tile_threads - 1) / tile_threads;
    // What a thread does in the next turn lies so many rows, or columns of what comes by shared memory, further.
    static constexpr int ADVANCE = tile_threads / PACKS;
    static_assert(ADVANCE % COUNT == 0, "what is aligned in the first turn is so in all");
    const long long (&shape)[RANK];
    long long base[RANK];  // where the tile begins
    int rows, columns;     // of the tile, that are there
    int line, first;       // that the thread does: in the first turn, and along it
    int turn = 0;

    __device__ explicit tiled_run(const long long (&shape)[RANK])
        : shape(shape), line(threadIdx.x / PACKS), first(threadIdx.x % PACKS * COUNT) {
        unsigned int rest = blockIdx.x;
        const auto take = [&](int d, int side) {
            const unsigned int tiles = static_cast<unsigned int>((shape[d] + side - 1) / side);
            base[d] = static_cast<long long>(rest % tiles) * side;
            rest /= tiles;
        };
        take(RANK - 1, SIDE);
        take(RANK - 2, SIDE);
#pragma unroll
        for (int d = RANK - 3; d >= 0; --d) take(d, 1);
        rows = within(shape[RANK - 2] - base[RANK - 2]);
        columns = within(shape[RANK - 1] - base[RANK - 1]);
    }
    static __device__ int within(long long left) { return left < SIDE ? static_cast<int>(left) : SIDE; }

    __device__ long long offset(const long long (&steps)[RANK]) const {
        long long sum = 0;
#pragma unroll
        for (int d = 0; d < RANK; ++d) sum += base[d] * steps[d];
        return sum;
    }
    /// Of the thread's element `k` of this turn; all but a few instructions are the same in all turns.
    __device__ long long offset(const long long (&steps)[RANK], int k) const {
        const long long in_tile = line * steps[RANK - 2] + first * steps[RANK - 1];
        return offset(steps) + in_tile + turn * (ADVANCE * steps[RANK - 2]) + k * steps[RANK - 1];
    }

    /// The tile of an argument into shared memory; the block must meet before it is read.
    /// load(words, row, column) for the squares of words that a thread has of a tile.
    template <int WORDS, int SQUARES, int IN_WORD, typename Words, typename Load>
    static __device__ void each_word(Words (&found)[SQUARES][IN_WORD], const Load& load) {
#pragma unroll
        for (int square = 0; square < SQUARES; ++square) {
#pragma unroll
            for (int k = 0; k < IN_WORD; ++k) {
                const int at = threadIdx.x + square * tile_threads;
                load(found[square][k], at % WORDS * IN_WORD, at / WORDS * IN_WORD + k);
            }
        }
    }
    template <typename T>
    __device__ void fetch(tile<T, SIDE, true>& target, const T* x, const long long (&steps)[RANK]) const {
        // A thread turns squares of words, so that whole words are written.
        constexpr int IN_WORD = tile<T, SIDE>::IN_WORD, WORDS = SIDE / IN_WORD;
        constexpr int SQUARES = (WORDS * WORDS + tile_threads - 1) / tile_threads;
        const long long along = steps[RANK - 2], across = steps[RANK - 1];
        const auto* const source = stored(x) + offset(steps);
        using Words = few<stored_t<T>, IN_WORD>;
        Words found[SQUARES][IN_WORD];
        // All loads, then all stores, so that the loads are in flight together.
        if (rows == SIDE && columns == SIDE && along == 1 && across % IN_WORD == 0 && is_word_at<IN_WORD>(source)) {
            each_word<WORDS>(found, [=](Words& words, int row, int column) {
                if (column < SIDE) words = word_at<IN_WORD, APART>(source + column * across + row);
            });
        } else {
            each_word<WORDS>(found, [=](Words& words, int row, int column) {
#pragma unroll
                for (int j = 0; j < IN_WORD; ++j)
                    if (column < columns && row + j < rows) words.values[j] = source[column * across + (row + j) * along];
            });
        }
#pragma unroll
        for (int square = 0; square < SQUARES; ++square) {
            const int at = threadIdx.x + square * tile_threads;
            if (SQUARES * tile_threads > WORDS * WORDS && at >= WORDS * WORDS) continue;
            unsigned int words[IN_WORD];
            memcpy(words, found[square], sizeof(words));
            detail::turn(words);
#pragma unroll
            for (int k = 0; k < IN_WORD; ++k) target.words[at % WORDS * IN_WORD + k][at / WORDS] = words[k];
        }
    }
    template <typename T>
    __device__ void fetch(tile<T, SIDE, false>& target, const T* x, const long long (&steps)[RANK]) const {
        using S = stored_t<T>;
        const long long along = steps[RANK - 2], across = ADVANCE * steps[RANK - 1];
        const S* source = stored(x) + offset(steps) + line * steps[RANK - 1] + first * along;
        few<S, COUNT> found[TURNS];
        // All loads, then all stores, so that the loads are in flight together.
        if (first + COUNT <= rows && along == 1 && is_word_at<COUNT>(source)) {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn, source += across)
                if (line + turn * ADVANCE < columns) found[turn] = word_at<COUNT, APART>(source);
        } else {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn, source += across) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    if (line + turn * ADVANCE < columns && first + k < rows)
                        found[turn].values[k] = source[k * along];
            }
        }
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                if (line + turn * ADVANCE < SIDE) target.put(line + turn * ADVANCE, first + k, found[turn].values[k]);
        }
    }
    /// Begin the thread's turn at COUNT elements; whether there are any.
    __device__ bool begin(int number) {
        turn = number;
        return line + turn * ADVANCE < rows && first < columns;
    }
    __device__ bool has(int k) const { return first + k < columns; }
    __device__ long long index(int k, const long long (&steps)[RANK]) const { return offset(steps, k); }

    template <typename T, typename S>
    __device__ few<T, COUNT> load(const tile<S, SIDE, true>& source) const {
        return as_few<T>(source.template row<COUNT>(line + turn * ADVANCE, first));
    }
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const tile<S, SIDE, false>& source) const {
        few<T, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(k)) result.values[k] = as<T>(source.get(first + k, line + turn * ADVANCE));
        return result;
    }
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x, const long long (&steps)[RANK]) const {
        const auto* const source = stored(x) + offset(steps, 0);
        const long long step = steps[RANK - 1];
        if (step == 1 && has(COUNT - 1)) return load_few<T, COUNT, APART>(source);
        if constexpr (COUNT > 4) {
            if (step == 0) return repeated<COUNT>(as<T>(*source));
        }
        few<T, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(k)) result.values[k] = as<T>(source[k * step]);
        return result;
    }
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values, const long long (&steps)[RANK]) const {
        S* const target = out + offset(steps, 0);
        if (steps[RANK - 1] == 1 && has(COUNT - 1)) {
            store_few(target, values, COUNT);
            return;
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(k)) target[k * steps[RANK - 1]] = as<S>(values.values[k]);
    }
    template <typename S, typename T>
    __device__ void store(
        S* out, const few<T, COUNT>& values, const few<bool, COUNT>& mask, const long long (&steps)[RANK]) const {
        S* const target = out + offset(steps, 0);
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(k) && mask.values[k]) target[k * steps[RANK - 1]] = as<S>(values.values[k]);
    }
};

}  // namespace cudakit
