// What becomes of the elements that a reduction meets. A reducer is a struct of
//   State                        what is known of some of the elements; trivially copyable
//   identity()                   of none of them
//   fold(state, values, at)      of more: COUNT ≤ 16 values in registers, values[k] being element at(k), ascending with k
//   combine(state, state)        of two sets of elements; commutative, for threads meet elements out of order
//   finish<Out>(state, divisor)  the result
// so that every reduction runs in the same kernels (templates/reduce.cuh).
#pragma once

#include <cudakit/monoid.cuh>

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

// A few small integers add up in int, at a third of what 64 bits cost.
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
}  // namespace detail

namespace detail {
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
}  // namespace detail

namespace detail {
// Σ of 16 bytes, four by each instruction.
__device__ inline int sum_of_bytes(const signed char (&values)[16]) {
    int words[4], sum = 0;
    memcpy(words, values, 16);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = __dp4a(words[k], 0x01010101, sum);
    return sum;
}
__device__ inline unsigned int sum_of_bytes(const unsigned char (&values)[16]) {
    unsigned int words[4], sum = 0;
    memcpy(words, values, 16);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum = __dp4a(words[k], 0x01010101u, sum);
    return sum;
}

template <typename Op, typename Map, typename T, int COUNT>
inline constexpr bool sums_bytes = false;
template <>
inline constexpr bool sums_bytes<plus, itself, signed char, 16> = true;
template <>
inline constexpr bool sums_bytes<plus, itself, unsigned char, 16> = true;
}  // namespace detail

/// Finish(Op over Map of each value), kept in Acc. Sums are pairwise within a tile.
template <typename Op, typename Acc, typename Map = itself, typename Finish = unchanged>
struct folded {
    using State = Acc;
    static __device__ State identity() { return Op::template identity<Acc>(); }
    template <int COUNT, typename T, typename At>
    static __device__ State fold(State state, const T (&values)[COUNT], At) {
        using Part = typename detail::part<Op, Map, T, Acc>::type;
        if constexpr (detail::sums_bytes<Op, Map, T, COUNT>)
            return state + static_cast<Acc>(detail::sum_of_bytes(values));
        else
            return Op()(state, static_cast<Acc>(detail::tree<Op, Map, Part, 0, COUNT>(values)));
    }
    static __device__ State combine(State a, State b) { return Op()(a, b); }
    template <typename Out>
    static __device__ Out finish(State state, double divisor) {
        return static_cast<Out>(Finish::of(state, divisor));
    }
};

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
        Acc parts[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) parts[k] = static_cast<Acc>(values[k]);
        const Acc best = detail::tree<Op, itself, Acc, 0, COUNT>(parts);
        if (!beats(best, state)) return state;
        // A comparison and a selection for each element: less than to keep an index beside each value.
        int where = 0;
#pragma unroll
        for (int k = COUNT - 1; k >= 0; --k)
            if (same(parts[k], best)) where = k;
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
        if (state.index == NOWHERE) return true;
        return !same(value, state.value) && same(Op()(value, state.value), value);
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

}  // namespace cudakit
