// What becomes of the elements that a reduction meets. A reducer is a struct of
//   State                        what is known of some of the elements; trivially copyable
//   identity()                   of none of them
//   fold(state, values, at)      of more: COUNT ≤ 16 values in registers, values[k] being element at(k), ascending with k
//   combine(state, state)        of two sets of elements; commutative, for threads meet elements out of order
//   finish<Out>(state, divisor)  the result
// so that every reduction runs in the same ways (<cudakit/reduce/ways.cuh>).
#pragma once

#include <cudakit/monoid.cuh>
#include <cudakit/narrow.cuh>

namespace cudakit {

// --- what a fold takes of a value ---

struct itself {
    template <typename A, typename T>
    static __device__ A of(T value) {
        return static_cast<A>(value);
    }
};

/// 1 for what is not 0, NaN included.
struct nonzero {
    template <typename A, typename T>
    static __device__ A of(T value) {
        return value != T(0) ? A(1) : A(0);
    }
};

/// |value|
struct magnitude {
    template <typename A, typename T>
    static __device__ A of(T value) {
        if constexpr (detail::is_complex<T>(0)) return hypot(value.real(), value.imag());
        else return fabs(static_cast<A>(value));
    }
};

/// |value|²
struct square {
    template <typename A, typename T>
    static __device__ A of(T value) {
        if constexpr (detail::is_complex<T>(0)) return value.real() * value.real() + value.imag() * value.imag();
        else return static_cast<A>(value) * static_cast<A>(value);
    }
};

/// |value|^p; p is given by its bits.
template <unsigned long long P>
struct powered {
    template <typename A, typename T>
    static __device__ A of(T value) {
        return pow(magnitude::of<A>(value), static_cast<A>(__longlong_as_double(P)));
    }
};

/// a · b of two values together.
struct product {
    template <typename A, typename Both>
    static __device__ A of(const Both& both) {
        return static_cast<A>(both.first) * static_cast<A>(both.others.first);
    }
};

// --- what becomes of the last state ---

struct unchanged {
    template <typename A>
    static __device__ A of(A value, double) {
        return value;
    }
};
struct divided {
    template <typename A>
    static __device__ auto of(A value, double divisor) {
        if constexpr (detail::is_complex<A>(0)) return value / static_cast<decltype(A().real())>(divisor);
        else if constexpr (A(0.5) == A(0)) return value / divisor;
        else return value / static_cast<A>(divisor);
    }
};
struct root {
    template <typename A>
    static __device__ A of(A value, double) {
        return sqrt(value);
    }
};
/// value^(1 / p)
template <unsigned long long P>
struct rooted {
    template <typename A>
    static __device__ A of(A value, double) {
        return pow(value, static_cast<A>(1 / __longlong_as_double(P)));
    }
};

namespace detail {
// Pairwise, so that an error grows with the logarithm of COUNT and no addition waits for all that came before.
template <typename Op, typename Map, typename A, int FIRST, int COUNT, int SIZE, typename T>
__device__ A tree(const T (&values)[SIZE]) {
    if constexpr (COUNT == 1) {
        return Map::template of<A>(values[FIRST]);
    } else {
        const A low = tree<Op, Map, A, FIRST, COUNT / 2>(values);
        return Op()(low, tree<Op, Map, A, FIRST + COUNT / 2, COUNT - COUNT / 2>(values));
    }
}

template <typename A, typename B>
inline constexpr bool same_type = false;
template <typename A>
inline constexpr bool same_type<A, A> = true;

// What the sum and the squares of a few values are kept in: exactly for integers of 8 and 16 bits, whose window
// accumulator is int.
template <typename Window, typename T, typename Acc, int SIZE = sizeof(T)>
struct exact_part {
    using type = Acc;
};
template <typename T, typename Acc>
struct exact_part<int, T, Acc, 1> {
    using type = int;
};
template <typename T, typename Acc>
struct exact_part<int, T, Acc, 2> {
    using type = long long;
};

// A few small integers add up as integers, at a third of what 64 bits or floating point cost.
template <typename Op, typename Map, typename T, typename Acc>
struct part {
    using type = Acc;
};
template <typename T>
struct part<plus, itself, T, long long> {
    using type = window_accumulator_t<T>;
};
template <typename T>
struct part<plus, itself, T, unsigned long long> {
    using type = window_accumulator_t<T>;
};
template <typename T>
struct part<plus, nonzero, T, long long> {
    using type = int;
};
template <typename T, typename Acc>
struct part<plus, square, T, Acc> {
    using type = typename exact_part<window_accumulator_t<T>, T, Acc>::type;
};

template <typename T>
struct word_of_bytes {
    using type = unsigned int;
};
template <>
struct word_of_bytes<signed char> {
    using type = int;
};
// Σ of bytes, or of their squares, four by each instruction.
template <typename Map, int COUNT, typename T>
__device__ auto sum_of_bytes(const T (&values)[COUNT]) {
    typename word_of_bytes<T>::type words[COUNT / 4], sum = 0;
    memcpy(words, values, COUNT);
#pragma unroll
    for (int k = 0; k < COUNT / 4; ++k) {
        const auto ones = static_cast<decltype(sum)>(0x01010101);
        sum = __dp4a(words[k], same_type<Map, square> ? words[k] : ones, sum);
    }
    return sum;
}

template <typename T>
inline constexpr bool is_byte = same_type<T, signed char> || same_type<T, unsigned char>;
// Numbers of 8 or 16 bits.
template <typename T>
inline constexpr bool is_small_integer = is_byte<T> || same_type<T, bool> || same_type<T, short> || same_type<T, unsigned short>;
template <typename T>
inline constexpr bool is_small = is_small_integer<T> || is_narrow<T>;
template <typename Op>
inline constexpr bool is_extreme = same_type<Op, minimum> || same_type<Op, maximum>;
template <typename Op, typename Map, typename T>
inline constexpr bool sums_bytes = false;
template <typename T>
inline constexpr bool sums_bytes<plus, itself, T> = is_byte<T>;
template <typename T>
inline constexpr bool sums_bytes<plus, square, T> = is_byte<T>;
}  // namespace detail

/// Finish(Op over Map of each value), kept in Acc. Sums are pairwise within a tile.
template <typename Op, typename Acc, typename Map = itself, typename Finish = unchanged>
struct folded {
    using State = Acc;
    static __device__ State identity() { return Op::template identity<Acc>(); }
    template <int COUNT, typename T, typename At>
    static __device__ State fold(State state, const T (&values)[COUNT], At) {
        return Op()(state, together(values));
    }
    /// What a few values come to.
    template <int COUNT, typename T>
    static __device__ State together(const T (&values)[COUNT]) {
        using Part = typename detail::part<Op, Map, T, Acc>::type;
        if constexpr (detail::sums_bytes<Op, Map, T> && COUNT % 4 == 0)
            return static_cast<Acc>(detail::sum_of_bytes<Map>(values));
        else
            return static_cast<Acc>(detail::tree<Op, Map, Part, 0, COUNT>(values));
    }
    static __device__ State combine(State a, State b) { return Op()(a, b); }
    template <typename Out>
    static __device__ Out finish(State state, double divisor) {
        // Of no values at all the least or greatest is the end of Acc's range, which Out would cut to another number.
        if constexpr (detail::is_small_integer<Out> && detail::is_extreme<Op>)
            state = Op()(state, static_cast<Acc>(Op::template identity<Out>()));
        return static_cast<Out>(Finish::of(state, divisor));
    }
};

namespace detail {
// Of two 16-bit numbers each, with the bytes that are compared on top; what is below decides between equal ones.
template <typename T>
__device__ unsigned int best_of_pairs(maximum, unsigned int a, unsigned int b) {
    return T(-1) < T(0) ? __vmaxs2(a, b) : __vmaxu2(a, b);
}
template <typename T>
__device__ unsigned int best_of_pairs(minimum, unsigned int a, unsigned int b) {
    return T(-1) < T(0) ? __vmins2(a, b) : __vminu2(a, b);
}

// Values among which the best is sought: 16 bytes as words, for taken apart they would have to be put together again.
template <typename Acc, typename T, int COUNT, bool ARE_BYTES = is_byte<T> && COUNT == 16>
struct candidates {
    Acc parts[COUNT];

    __device__ explicit candidates(const T (&values)[COUNT]) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) parts[k] = static_cast<Acc>(values[k]);
    }
    __device__ Acc operator()(int k) const { return parts[k]; }
    template <typename Op>
    __device__ Acc best() const {
        return tree<Op, itself, Acc, 0, COUNT>(parts);
    }
};
template <typename Acc, typename T, int COUNT>
struct candidates<Acc, T, COUNT, true> {
    unsigned int words[4];

    __device__ explicit candidates(const T (&values)[COUNT]) { memcpy(words, values, 16); }
    __device__ Acc operator()(int k) const { return static_cast<T>(words[k / 4] >> k % 4 * 8); }
    template <typename Op>
    __device__ Acc best() const {
        unsigned int pairs[8];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            pairs[k] = words[k];
            pairs[4 + k] = words[k] << 8;
        }
#pragma unroll
        for (int half = 4; half > 0; half /= 2)
#pragma unroll
            for (int k = 0; k < half; ++k) pairs[k] = best_of_pairs<T>(Op(), pairs[k], pairs[k + half]);
        const Acc upper = static_cast<T>(pairs[0] >> 24), lower = static_cast<T>(pairs[0] >> 8);
        return Op()(upper, lower);
    }
};
}  // namespace detail

/// The index of the first of the values that Op (minimum or maximum) would give, or of the first NaN.
template <typename Op, typename Acc>
struct position {
    struct State {
        Acc value;
        long long index;
    };
    static constexpr long long NOWHERE = ~0ull >> 1;

    static __device__ State identity() { return {Op::template identity<Acc>(), NOWHERE}; }
    template <int COUNT, typename T, typename At>
    static __device__ State fold(State state, const T (&values)[COUNT], At at) {
        const detail::candidates<Acc, T, COUNT> among(values);
        const Acc best = among.template best<Op>();
        if (!beats(best, state)) return state;
        // A comparison and a selection for each element: less than to keep an index beside each value.
        int where = 0;
#pragma unroll
        for (int k = COUNT - 1; k >= 0; --k)
            if (same(among(k), best)) where = k;
        return {best, at(where)};
    }
    static __device__ State combine(State a, State b) {
        const bool first = same(a.value, b.value) ? a.index < b.index : beats(a.value, b);
        return first ? a : b;
    }
    template <typename Out>
    static __device__ Out finish(State state, double) {
        return state.index;
    }

 private:
    static __device__ bool same(Acc a, Acc b) { return a == b || (a != a && b != b); }
    static __device__ bool beats(Acc value, State state) {
        // Without a branch, by up to a tenth faster on an H200; but not with values of 8 bytes, where rows lose a fifth.
        if constexpr (sizeof(Acc) < 8) {
            return (state.index == NOWHERE) | (!same(value, state.value) & same(Op()(value, state.value), value));
        } else {
            if (state.index == NOWHERE) return true;
            return !same(value, state.value) && same(Op()(value, state.value), value);
        }
    }
};

/// Of values of 8 or 16 bits that one thread meets: value and row as one number, so that the greatest is the first of the
/// best, found by one comparison a value.
template <typename Reducer, typename T>
struct keys {
    static constexpr bool EXIST = false;
};
template <typename Op, typename Acc, typename T>
struct keys<position<Op, Acc>, T> {
    static constexpr bool EXIST = detail::is_small<T>;
    static constexpr int BITS = 13, ROWS = 1 << BITS, NONE = -1 << 31;

    /// Of a value that is number `row`, below ROWS.
    static __device__ int of(T value, int row) {
        constexpr bool IS_LEAST = detail::same_type<Op, minimum>;
        if constexpr (detail::is_small_integer<T>) {
            const int number = static_cast<int>(value);
            return (IS_LEAST ? -number : number) * ROWS + (ROWS - 1 - row);
        } else {
            // + 0: no −0, which equals 0. float has more than 13 bits below those of the value.
            const float number = static_cast<float>(value);
            const int bits = __float_as_int((IS_LEAST ? -number : number) + 0.0f);
            return ((bits ^ (bits >> 31 & 0x7fffffff)) & -ROWS) | (ROWS - 1 - row);
        }
    }
    static __device__ int row(int key) { return ROWS - 1 - (key & (ROWS - 1)); }
    static __device__ Acc value(int key) {
        constexpr bool IS_LEAST = detail::same_type<Op, minimum>;
        if constexpr (detail::is_small_integer<T>) {
            return IS_LEAST ? -(key >> BITS) : key >> BITS;
        } else {
            const float number = __int_as_float(key < 0 ? (key | (ROWS - 1)) ^ 0x7fffffff : key & -ROWS);
            return IS_LEAST ? -number : number;
        }
    }
};

/// Σ |value − mean|² / divisor, or its Root, from mean and sum of squares about it: nothing cancels.
/// Source: Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979).
template <typename Acc, typename Real, typename Finish = unchanged>
struct spread {
    struct State {
        Acc mean;
        Real squares;
        long long count;
    };
    static __device__ State identity() { return {Acc(0), Real(0), 0}; }
    template <int COUNT, typename T, typename At>
    static __device__ State fold(State state, const T (&values)[COUNT], At) {
        using Part = typename detail::exact_part<window_accumulator_t<T>, T, Acc>::type;
        Part parts[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) parts[k] = static_cast<Part>(values[k]);
        const Part sum = detail::tree<plus, itself, Part, 0, COUNT>(parts);
        if constexpr (detail::same_type<Part, Acc>) {
            const Acc mean = sum * Real(1.0 / COUNT);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) parts[k] = parts[k] - mean;
            return combine(state, {mean, detail::tree<plus, square, Real, 0, COUNT>(parts), COUNT});
        } else {
            static_assert(COUNT <= 16, "COUNT · Σ v² of 8 bits must fit int");
            const Part squares = COUNT * detail::tree<plus, square, Part, 0, COUNT>(parts) - sum * sum;
            return combine(state, {Acc(sum) * Real(1.0 / COUNT), Real(squares) * Real(1.0 / COUNT), COUNT});
        }
    }
    static __device__ State combine(State a, State b) {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        const long long count = a.count + b.count;
        const Real share = Real(b.count) / Real(count);
        const Acc apart = b.mean - a.mean;
        const Real squares = a.squares + b.squares + square::of<Real>(apart) * (Real(a.count) * share);
        return {a.mean + apart * share, squares, count};
    }
    template <typename Out>
    static __device__ Out finish(State state, double divisor) {
        return static_cast<Out>(Finish::of(state.squares / static_cast<Real>(divisor), divisor));
    }
};

/// The same of integers of 8 bits, as (n Σ v² − (Σ v)²) / n: in whole numbers, of which none is rounded.
template <typename Finish = unchanged>
struct byte_spread {
    struct State {
        long long sum, squares, count;
    };
    static __device__ State identity() { return {0, 0, 0}; }
    template <int COUNT, typename T, typename At>
    static __device__ State fold(State state, const T (&values)[COUNT], At at) {
        using Sum = folded<plus, long long>;
        using Squares = folded<plus, long long, square>;
        return {Sum::fold(state.sum, values, at), Squares::fold(state.squares, values, at), state.count + COUNT};
    }
    static __device__ State combine(State a, State b) {
        return {a.sum + b.sum, a.squares + b.squares, a.count + b.count};
    }
    template <typename Out>
    static __device__ Out finish(State state, double divisor) {
        const unsigned long long count = state.count, squares = state.squares;
        const unsigned long long sum = state.sum < 0 ? -state.sum : state.sum, low = count * squares, less = sum * sum;
        // The difference of two numbers of 128 bits.
        const unsigned long long high = __umul64hi(count, squares) - __umul64hi(sum, sum) - (low < less);
        const double apart = static_cast<double>(high) * 0x1p64 + static_cast<double>(low - less);
        return static_cast<Out>(Finish::of(apart / static_cast<double>(count) / divisor, divisor));
    }
};

namespace detail {
// Whether a value counts is beside it: a chosen one of `folded` is as good as any, others are what changes nothing.
template <typename Op, typename Map>
struct where_chosen {
    template <typename A, typename Both>
    static __device__ A of(const Both& both) {
        return both.others.first ? Map::template of<A>(both.first) : Op::template identity<A>();
    }
};
template <typename Reducer>
struct chosen_fold {
    template <int COUNT, typename Both, typename At>
    static __device__ typename Reducer::State fold(
        typename Reducer::State state, const Both (&values)[COUNT], const At& at) {
        for (int k = 0; k < COUNT; ++k) {
            if (!values[k].others.first) continue;
            const decltype(values[k].first) one[1] = {values[k].first};
            state = Reducer::template fold<1>(state, one, [&](int) { return at(k); });
        }
        return state;
    }
};
template <typename Op, typename Acc, typename Map, typename Finish>
struct chosen_fold<folded<Op, Acc, Map, Finish>> {
    template <int COUNT, typename Both, typename At>
    static __device__ Acc fold(Acc state, const Both (&values)[COUNT], const At&) {
        return Op()(state, tree<Op, where_chosen<Op, Map>, Acc, 0, COUNT>(values));
    }
};
}  // namespace detail

/// Another reducer of those values beside which another, of a mask, is true; `divisor` is taken from their number.
template <typename Reducer>
struct chosen {
    struct State {
        typename Reducer::State of;
        long long count;
    };
    static __device__ State identity() { return {Reducer::identity(), 0}; }
    template <int COUNT, typename Both, typename At>
    static __device__ State fold(State state, const Both (&values)[COUNT], At at) {
        int count = 0;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) count += values[k].others.first;
        return {detail::chosen_fold<Reducer>::fold(state.of, values, at), state.count + count};
    }
    static __device__ State combine(State a, State b) {
        return {Reducer::combine(a.of, b.of), a.count + b.count};
    }
    template <typename Out>
    static __device__ Out finish(State state, double divisor) {
        return Reducer::template finish<Out>(state.of, max(static_cast<double>(state.count) - divisor, 0.0));
    }
};

}  // namespace cudakit
