// The elements that a thread of a generated elementwise kernel does: COUNT neighbours of a contiguous array, of one with
// strides, or of a tile of two dimensions; how each argument's are loaded and stored.
#pragma once

#include <cudakit/convert.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/walk.cuh>

namespace cudakit {

/// COUNT values of any type, without an alignment of their own.
template <typename T, int COUNT>
struct few {
    T values[COUNT];
};

namespace detail {
template <int... SIZES>
__host__ __device__ constexpr int greatest_size() {
    int found = 1;
    ((found = SIZES > found ? SIZES : found), ...);
    return found;
}
// Whether so many bytes are one word that the hardware moves.
__host__ __device__ constexpr bool is_word(int bytes) {
    return bytes <= 16 && (bytes & (bytes - 1)) == 0;
}
template <typename T, typename Word>
__device__ void put_word(T* target, const Word& word) {
    __stcs(reinterpret_cast<Word*>(target), word);
}
// What stands for a type of T's size in memory that no constructor fills.
template <typename T, bool IS_WORD = is_word(sizeof(T))>
struct word_of {
    using type = T;
};
template <typename T>
struct word_of<T, true> {
    using type = typename moved<sizeof(T)>::type;
};
// cuda::std::complex as its parts, which `convert` knows.
template <typename T>
struct storage {
    using type = T;
};
template <template <typename> class Complex, typename R>
struct storage<Complex<R>> {
    using type = parts<R>;
};
}  // namespace detail

template <typename H>
struct narrow;

namespace detail {
template <typename T>
struct number_of {
    using type = T;
    static constexpr bool is_narrow = false;
};
template <typename H>
struct number_of<narrow<H>> {
    using type = H;
    static constexpr bool is_narrow = true;
};
}  // namespace detail

/// Elements a thread, for arrays of elements of these sizes: 16 bytes of the widest.
template <int... SIZES>
inline constexpr int count_of = detail::is_word(detail::greatest_size<SIZES...>()) ? 16 / detail::greatest_size<SIZES...>() : 1;

/// half and bfloat16 as an expression sees them: read as float, so that numbers and functions of C++ go with them, and
/// rounded where they are set. `value` is the number itself, for intrinsics.
template <typename H>
struct narrow {
    H value;

    narrow() = default;
    __device__ narrow(H value) : value(value) {}
    __device__ narrow(float number) : value(static_cast<H>(number)) {}
    __device__ narrow(double number) : value(static_cast<H>(number)) {}
    template <typename Number>
    __device__ narrow(Number number) : value(static_cast<H>(static_cast<float>(number))) {}
    __device__ operator float() const { return static_cast<float>(value); }
    __device__ narrow& operator+=(float other) { return *this = *this + other; }
    __device__ narrow& operator-=(float other) { return *this = *this - other; }
    __device__ narrow& operator*=(float other) { return *this = *this * other; }
    __device__ narrow& operator/=(float other) { return *this = *this / other; }
};

/// `value` as `To`, by NumPy's rules.
template <typename To, typename From>
__device__ To as(const From& value) {
    if constexpr (detail::is_one_type<To, From>) {
        return value;
    } else if constexpr (detail::number_of<To>::is_narrow) {
        return as<typename detail::number_of<To>::type>(value);
    } else if constexpr (detail::number_of<From>::is_narrow) {
        return as<To>(value.value);
    } else {
        using Source = typename detail::storage<From>::type;
        using Target = typename detail::storage<To>::type;
        Source source;
        memcpy(&source, &value, sizeof(source));
        const Target target = convert<Target>(source);
        To result;
        memcpy(&result, &target, sizeof(result));
        return result;
    }
}

/// Whether COUNT elements at x are one word that one load takes.
template <int COUNT, typename S>
__device__ bool is_word_at(const S* x) {
    return detail::is_word(sizeof(S) * COUNT) && reinterpret_cast<unsigned long long>(x) % (sizeof(S) * COUNT) == 0;
}
/// Those elements. CONSTANT where the kernel does not write them.
template <int COUNT, bool CONSTANT, typename S>
__device__ few<S, COUNT> word_at(const S* x) {
    few<S, COUNT> found;
    if constexpr (detail::is_word(sizeof(S) * COUNT)) {
        using Word = typename detail::moved<sizeof(S) * COUNT>::type;
        const Word* const source = reinterpret_cast<const Word*>(x);
        const Word word = CONSTANT ? __ldg(source) : *source;
        memcpy(&found, &word, sizeof(word));
    }
    return found;
}

/// x[0 … COUNT), as T: by one load where x is aligned. CONSTANT where the kernel does not write them.
template <typename T, int COUNT, bool CONSTANT, typename S>
__device__ few<T, COUNT> load_few(const S* x) {
    few<T, COUNT> result;
    if (is_word_at<COUNT>(x)) {
        const few<S, COUNT> found = word_at<COUNT, CONSTANT>(x);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(found.values[k]);
        return result;
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(x[k]);
    return result;
}

/// `count` of COUNT elements to `out`: by one store where it is all of them and `out` is aligned.
template <int COUNT, typename S, typename T>
__device__ void store_few(S* out, const few<T, COUNT>& values, int count) {
    few<S, COUNT> made;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) made.values[k] = as<S>(values.values[k]);
    if constexpr (detail::is_word(sizeof(S) * COUNT)) {
        using Word = typename detail::moved<sizeof(S) * COUNT>::type;
        if (count >= COUNT && reinterpret_cast<unsigned long long>(out) % sizeof(Word) == 0) {
            Word word;
            memcpy(&word, &made, sizeof(word));
            detail::put_word(out, word);
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        if (k < count) out[k] = made.values[k];
}

/// Thread t does the t-th COUNT elements of contiguous arrays of `size`.
template <int COUNT, bool APART>
struct flat_run {
    long long first, left;

    __device__ explicit flat_run(long long size)
        : first((static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * COUNT), left(size - first) {}
    __device__ bool is_empty() const { return left <= 0; }
    __device__ bool has(int k) const { return k < left; }
    __device__ long long index(int k) const { return first + k; }
    __device__ int count() const { return left < COUNT ? static_cast<int>(left) : COUNT; }

    /// The elements of an array that lies as the result is counted.
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x) const {
        if (left >= COUNT) return load_few<T, COUNT, APART>(x + first);
        few<T, COUNT> result{};
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < left) result.values[k] = as<T>(x[first + k]);
        return result;
    }
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values) const {
        store_few(out + first, values, count());
    }
    /// Only those where `mask` holds.
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values, const few<bool, COUNT>& mask) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < left && mask.values[k]) out[first + k] = as<S>(values.values[k]);
    }
};

/// Thread t does the t-th COUNT elements, in row-major order, of RANK dimensions. `Index` is int where every index fits
/// one, else long long.
template <int COUNT, bool APART, int RANK, typename Index>
struct strided_run : flat_run<COUNT, APART> {
    using Flat = flat_run<COUNT, APART>;
    using Flat::first;
    using Flat::left;
    using Flat::load;
    using Flat::store;
    const long long (&shape)[RANK];
    walk<RANK, Index> at;
    bool is_row;

    __device__ strided_run(long long size, const long long (&shape)[RANK])
        : Flat(size), shape(shape), at(static_cast<Index>(left > 0 ? first : 0), shape),
          is_row(at.at[RANK - 1] + COUNT <= static_cast<Index>(shape[RANK - 1])) {}

    /// The number of element `k` where elements are counted with other `steps`.
    __device__ long long index(int k, const long long (&steps)[RANK]) const {
        if (is_row) return at.offset(steps) + k * steps[RANK - 1];
        walk<RANK, Index> place = at;
#pragma unroll
        for (int j = 0; j < COUNT; ++j)
            if (j < k) place.next(shape);
        return place.offset(steps);
    }
    using Flat::index;

    /// The elements of an array of any strides, `steps` in elements.
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x, const long long (&steps)[RANK]) const {
        const long long step = steps[RANK - 1];
        few<T, COUNT> result;
        if (is_row) {
            const S* const source = x + at.offset(steps);
            if (step == 1) return load_few<T, COUNT, APART>(source);
            if (step == 0) {
                const T value = as<T>(*source);
#pragma unroll
                for (int k = 0; k < COUNT; ++k) result.values[k] = value;
                return result;
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(source[k * step]);
            return result;
        }
        walk<RANK, Index> place = at;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k < left) result.values[k] = as<T>(x[place.offset(steps)]);
            place.next(shape);
        }
        return result;
    }
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values, const long long (&steps)[RANK]) const {
        few<bool, COUNT> all;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) all.values[k] = true;
        if (is_row && steps[RANK - 1] == 1)
            store_few(out + at.offset(steps), values, COUNT);
        else
            store(out, values, all, steps);
    }
    template <typename S, typename T>
    __device__ void store(
        S* out, const few<T, COUNT>& values, const few<bool, COUNT>& mask, const long long (&steps)[RANK]) const {
        walk<RANK, Index> place = at;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k < left && mask.values[k]) out[place.offset(steps)] = as<S>(values.values[k]);
            place.next(shape);
        }
    }
};

/// Threads of the block that does a tile.
inline constexpr int tile_threads = 256;

/// A tile of one argument in shared memory, element (row, column) at values[column][row]: as words, because shared memory
/// takes no type with a constructor.
template <typename S, int SIDE>
struct tile {
    using Word = typename detail::word_of<S>::type;
    Word values[SIDE][SIDE + 1];
    __device__ void put(int column, int row, const S& value) { memcpy(&values[column][row], &value, sizeof(S)); }
    __device__ S get(int column, int row) const {
        S value;
        memcpy(&value, &values[column][row], sizeof(S));
        return value;
    }
};

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
    template <typename S>
    __device__ void fetch(tile<S, SIDE>& target, const S* x, const long long (&steps)[RANK]) const {
        const long long along = steps[RANK - 2], across = ADVANCE * steps[RANK - 1];
        const S* source = x + offset(steps) + line * steps[RANK - 1] + first * along;
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
    __device__ few<T, COUNT> load(const tile<S, SIDE>& source) const {
        few<T, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (has(k)) result.values[k] = as<T>(source.get(first + k, line + turn * ADVANCE));
        return result;
    }
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x, const long long (&steps)[RANK]) const {
        const S* const source = x + offset(steps, 0);
        const long long step = steps[RANK - 1];
        if (step == 1 && has(COUNT - 1)) return load_few<T, COUNT, APART>(source);
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

/// The same value COUNT times.
template <int COUNT, typename T>
__device__ few<T, COUNT> repeated(const T& value) {
    few<T, COUNT> result;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result.values[k] = value;
    return result;
}

/// A raw argument of any strides: x[j] is the element with row-major number j, x(j, k, …) the one at coordinates.
template <typename T, int RANK>
struct raw {
    T* data;
    const long long (&extents)[RANK];
    const long long (&steps)[RANK];

    __device__ T& operator[](long long index) const {
        unsigned long long rest = static_cast<unsigned long long>(index);
        long long offset = 0;
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            const unsigned long long extent = static_cast<unsigned long long>(extents[d]);
            offset += static_cast<long long>(rest % extent) * steps[d];
            rest /= extent;
        }
        return data[offset + static_cast<long long>(rest) * steps[0]];
    }
    template <typename... Index>
    __device__ T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == RANK, "one index for each dimension of the raw argument");
        const long long at[] = {static_cast<long long>(index)...};
        long long offset = 0;
#pragma unroll
        for (int d = 0; d < RANK; ++d) offset += at[d] * steps[d];
        return data[offset];
    }
    __device__ long long shape(int d) const { return extents[d]; }
    __device__ long long size() const {
        long long product = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d) product *= extents[d];
        return product;
    }
};

/// `_ind`: the coordinates of an element, with what CuPy's indexer has.
template <int NDIM>
struct coordinates {
    long long at[NDIM > 0 ? NDIM : 1];
    const long long* extents;
    long long count;

    __device__ coordinates(long long index, const long long* shape, long long size) : at{}, extents(shape), count(size) {
#pragma unroll
        for (int d = NDIM - 1; d >= 0; --d) {
            at[d] = static_cast<long long>(static_cast<unsigned long long>(index) % static_cast<unsigned long long>(shape[d]));
            index /= shape[d];
        }
    }
    __device__ long long operator[](int d) const { return at[d]; }
    __device__ const long long* get() const { return at; }
    __device__ const long long* shape() const { return extents; }
    __device__ long long size() const { return count; }
};

}  // namespace cudakit
