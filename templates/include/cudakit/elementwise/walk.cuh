// The elements of an array of RANK dimensions in row-major order: where the first lies takes divisions, the next none.
#pragma once

namespace cudakit {

namespace detail {
template <int BYTES>
struct unsigned_of {
    using type = unsigned int;
};
template <>
struct unsigned_of<8> {
    using type = unsigned long long;
};
}  // namespace detail

/// Coordinates of an element. `Index` is int where every index of the array fits one, else long long.
template <int RANK, typename Index>
struct walk {
    static_assert(RANK > 0, "an array of one element has one dimension of 1");
    Index at[RANK];

    /// Element number `index` of an array of `shape` (RANK extents).
    template <typename Shape>
    __device__ walk(Index index, const Shape& shape) {
        // Unsigned: the division is cheaper.
        using Unsigned = typename detail::unsigned_of<sizeof(Index)>::type;
        Unsigned rest = static_cast<Unsigned>(index);
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            const Unsigned extent = static_cast<Unsigned>(shape[d]);
            at[d] = static_cast<Index>(rest % extent);
            rest /= extent;
        }
        at[0] = static_cast<Index>(rest);
    }

    /// The same by multiplications where the index has 31 bits: `divisors[d]` is s = ⌈log2 extent⌉, above 32 bits of
    /// ⌊2^32 (2^s − extent) / extent⌋ + 1.
    /// Source: Granlund and Montgomery, Division by invariant integers using multiplication (1994).
    template <typename Shape, typename Divisors>
    __device__ walk(Index index, const Shape& shape, const Divisors& divisors) {
        if constexpr (sizeof(Index) > 4) {
            *this = walk(index, shape);
            return;
        }
        unsigned int rest = static_cast<unsigned int>(index);
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            const unsigned int factor = static_cast<unsigned int>(divisors[d]);
            const unsigned int quotient = (__umulhi(rest, factor) + rest) >> static_cast<int>(divisors[d] >> 32);
            at[d] = static_cast<Index>(rest - quotient * static_cast<unsigned int>(shape[d]));
            rest = quotient;
        }
        at[0] = static_cast<Index>(rest);
    }

    /// To the next element, or that `by` further on in the row, or the next row's first; whether that is where it lies
    /// (the coordinates but the last have changed).
    template <typename Shape>
    __device__ bool next(const Shape& shape, Index by = 1) {
        if ((at[RANK - 1] += by) < static_cast<Index>(shape[RANK - 1])) return false;
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            if (at[d] < static_cast<Index>(shape[d])) break;
            at[d] = 0;
            ++at[d - 1];
        }
        return true;
    }

    /// Σ coordinate × stride over the first COUNT dimensions.
    template <int COUNT = RANK, typename Strides>
    __device__ long long offset(const Strides& strides) const {
        long long sum = 0;
#pragma unroll
        for (int d = 0; d < COUNT; ++d) sum += at[d] * strides[d];
        return sum;
    }
};

}  // namespace cudakit
