// Which bin a value falls into: edges[b] ≤ value < edges[b + 1], and the last bin has its right edge too, as in NumPy.
//
// All threads of a block make a struct of these together, from `edges` (bins + 1 of them, ascending) and from shared
// memory where it wants some; then `find(values, bins, inside)` gives each value its bin, and whether it has one: NaN
// has none. Values and edges are compared as Key. With `is_certain()`, `find<true>` does the same in fewer steps.
#pragma once

#include <cudakit/monoid.cuh>
#include <cudakit/narrow.cuh>

namespace cudakit {

namespace detail {
template <typename T, bool IS_NARROW = is_narrow<T>>
inline constexpr bool is_integer = T(0.5) == T(0) || T(0.5) == T(1);  // bool(0.5) is true
template <typename T>
inline constexpr bool is_integer<T, true> = false;

__device__ inline float before(float value) {
    const int bits = __float_as_int(value);
    return value == 0 ? __int_as_float(0x80000001) : __int_as_float(value > 0 ? bits - 1 : bits + 1);
}
__device__ inline double before(double value) {
    const long long bits = __double_as_longlong(value);
    if (value == 0) return __longlong_as_double(0x8000000000000001ll);
    return __longlong_as_double(value > 0 ? bits - 1 : bits + 1);
}
template <int BYTES>
struct unsigned_as {
    using type = unsigned int;
};
template <>
struct unsigned_as<8> {
    using type = unsigned long long;
};
}  // namespace detail

/// Value v is bin v.
template <typename T>
struct whole_numbers {
    static constexpr int SHARED_BYTES = 0;
    unsigned int bins;

    __device__ whole_numbers(const void*, unsigned int bins, unsigned char*) : bins(bins) {}
    __device__ bool is_certain() const { return true; }
    template <bool = true, int N>
    __device__ void find(const T (&values)[N], unsigned int (&found)[N], bool (&inside)[N]) const {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            found[k] = static_cast<unsigned int>(values[k]);
            // A negative value is a great one without its sign.
            inside[k] = static_cast<typename detail::unsigned_as<sizeof(T)>::type>(values[k]) < bins;
        }
    }
};

/// Edges that are even but for their rounding: a guess by one multiplication and, where it lies so near an edge that
/// rounding decides, a look at the edges.
///
/// The guess is a fixed-point number with the bin in its upper bits, so that "near an edge" is a comparison of the
/// lower ones. A block first tries the guess on both sides of each edge; as it never falls where the value rises, a
/// guess that is right there is right everywhere, and it is certain. So it is for edges that are whole numbers or
/// powers of two.
template <typename T, typename Key, typename Edge, typename Real>
struct even_bins {
    static constexpr int SHARED_BYTES = 0;
    static constexpr unsigned int TRIED = 4096;  // more edges than that are not tried
    static constexpr unsigned int ALWAYS = 0xffffffffu;
    // Of 64 bits they are compared as double, as NumPy does.
    static constexpr bool INTEGER = detail::is_integer<T> && sizeof(T) <= 4;

    const Edge* edges;
    unsigned int last;
    int fraction;              // bits of the guess below the bin
    Key low, high;
    unsigned int first, span;  // integers: the first that counts, and the last's distance from it
    bool none;                 // integers: none counts
    Real factor, offset;       // of the guess
    unsigned int near;         // a fraction below that is near an edge

    __device__ even_bins(const Edge* edges, unsigned int bins, unsigned char*)
        : edges(edges), last(bins - 1), fraction(__clz(bins) - 1), low(edge(0)), high(edge(bins)), none(false) {
        const double lowest = low, highest = high, unit = 1u << fraction, scale = bins / (highest - lowest);
        factor = static_cast<Real>(scale * unit);
        double start = 0;
        if constexpr (INTEGER) {
            constexpr T LEAST = detail::end_of_range<T>(false), MOST = detail::end_of_range<T>(true);
            const double up = ceil(lowest), down = floor(highest);
            none = up > down || up > static_cast<double>(MOST) || down < static_cast<double>(LEAST);
            const T begin = up <= static_cast<double>(LEAST) ? LEAST : static_cast<T>(none ? 0 : up);
            const T end = down >= static_cast<double>(MOST) ? MOST : static_cast<T>(none ? 0 : down);
            first = static_cast<unsigned int>(begin);
            span = static_cast<unsigned int>(end) - first;
            start = (static_cast<double>(begin) - lowest) * scale * unit;
        }
        // What roundings of the guess (a few, relative to it) and of the edges (relative to them) may add up to, in
        // bins.
        constexpr double REAL = sizeof(Real) == 4 ? 0x1p-22 : 0x1p-50;
        constexpr double EDGE = sizeof(Edge) == 2 ? 0x1p-7 : sizeof(Edge) == 4 ? 0x1p-22 : 0x1p-51;
        const double margin = ceil((bins * REAL + fmax(fabs(lowest), fabs(highest)) * scale * EDGE) * unit) + 1;
        offset = static_cast<Real>(start);
        near = 0;
        if (is_right_everywhere(bins)) return;
        // Raised by the margin, a guess is too high or right. That also makes whole-numbered edges certain.
        const bool useful = 2 * margin < unit;
        offset = static_cast<Real>(start + (useful ? margin : 0));
        if (!is_right_everywhere(bins)) near = useful ? static_cast<unsigned int>(2 * margin) + 1 : ALWAYS;
    }

    __device__ bool is_certain() const { return near == 0; }
    template <bool CERTAIN = false, int N>
    __device__ void find(const T (&values)[N], unsigned int (&found)[N], bool (&inside)[N]) const {
        unsigned int guess[N];
        bool close = false;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            guess[k] = guess_of(values[k]);
            found[k] = min(guess[k] >> fraction, last);
            inside[k] = counts(values[k]);
            if constexpr (!CERTAIN) close = close || is_near(guess[k]);
        }
        if (CERTAIN || !close) return;
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (inside[k] && is_near(guess[k])) found[k] = exact(static_cast<Key>(values[k]), found[k], near == ALWAYS);
    }

 private:
    __device__ Key edge(unsigned int i) const { return static_cast<Key>(edges[i]); }
    __device__ bool is_near(unsigned int guess) const { return (guess & ((1u << fraction) - 1)) < near; }
    // The bin, from a guess at it that may be too low only where `upwards`.
    __device__ unsigned int exact(Key value, unsigned int bin, bool upwards) const {
        while (bin > 0 && value < edge(bin)) --bin;
        while (upwards && bin < last && value >= edge(bin + 1)) ++bin;
        return bin;
    }
    template <typename V>
    __device__ bool counts(V value) const {
        if constexpr (INTEGER) {
            return static_cast<unsigned int>(value) - first <= span && !none;
        } else {
            // Both comparisons at once: a branch between them would cost more.
            const Key key = static_cast<Key>(value);
            return (key >= low) & (key <= high);
        }
    }
    template <typename V>
    __device__ unsigned int guess_of(V value) const {
        Real above;
        if constexpr (INTEGER) above = static_cast<Real>(static_cast<unsigned int>(value) - first);
        else above = static_cast<Real>(static_cast<Key>(value)) - static_cast<Real>(low);
        return static_cast<unsigned int>(fma(above, factor, offset));
    }
    template <typename V>
    __device__ bool is_right(V value) const {
        const unsigned int bin = min(guess_of(value) >> fraction, last);
        return !counts(value) || exact(static_cast<Key>(value), bin, true) == bin;
    }
    // For the least value at or above an edge, and for the greatest below it.
    __device__ bool is_right_at(Key edge) const {
        if constexpr (INTEGER) {
            constexpr double LEAST = detail::end_of_range<T>(false), MOST = detail::end_of_range<T>(true);
            const double up = ceil(static_cast<double>(edge));
            if (up <= LEAST || up > MOST) return true;
            return is_right(static_cast<T>(up)) && is_right(static_cast<T>(up - 1));
        } else {
            return is_right(edge) && is_right(detail::before(edge));
        }
    }
    __device__ bool is_right_everywhere(unsigned int bins) const {
        if (bins > TRIED) return false;
        bool right = true;
        for (unsigned int i = 1 + threadIdx.x; i < bins; i += blockDim.x) right = right && is_right_at(edge(i));
        return __syncthreads_and(right);
    }
};

/// Any ascending edges: a table of even cells between the first edge and the last says which few edges lie in a value's
/// cell, and a binary search goes over those. One cell is as good as none.
template <typename T, typename Key, typename Edge, int CELLS = 2048>
struct any_bins {
    static constexpr int SHARED_BYTES = (CELLS + 1) * 4;

    const Edge* edges;
    unsigned int bins;
    unsigned int* cells;  // [c]: the last bin that begins in a cell before c
    Key low, high;
    double origin, scale;

    __device__ any_bins(const Edge* edges, unsigned int bins, unsigned char* shared)
        : edges(edges), bins(bins), cells(reinterpret_cast<unsigned int*>(shared)), low(edge(0)), high(edge(bins)) {
        origin = static_cast<double>(low);
        scale = CELLS / (static_cast<double>(high) - origin);
        // Infinite edges, or all the same: one cell.
        if (!(scale > 0 && scale <= 0x1p1000)) origin = scale = 0;
        for (int cell = threadIdx.x; cell <= CELLS; cell += blockDim.x)
            cells[cell] = search(0, bins - 1, [&](unsigned int i) { return cell_of(edge(i)) < cell; });
        __syncthreads();
    }
    __device__ bool is_certain() const { return true; }
    template <bool = true, int N>
    __device__ void find(const T (&values)[N], unsigned int (&found)[N], bool (&inside)[N]) const {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const Key key = static_cast<Key>(values[k]);
            inside[k] = key >= low && key <= high;
            found[k] = 0;
            if (!inside[k]) continue;
            const int cell = cell_of(key);
            found[k] = search(cells[cell], cells[cell + 1], [&](unsigned int i) { return edge(i) <= key; });
        }
    }

 private:
    __device__ Key edge(unsigned int i) const { return static_cast<Key>(edges[i]); }
    // Never falls where `key` rises: all that the table asks of it.
    __device__ int cell_of(Key key) const {
        return scale == 0 ? 0 : min(static_cast<int>((static_cast<double>(key) - origin) * scale), CELLS - 1);
    }
    /// The last of first … last whose edge `is_low`, or `first`.
    template <typename IsLow>
    static __device__ unsigned int search(unsigned int first, unsigned int last, IsLow is_low) {
        while (first < last) {
            const unsigned int middle = last - (last - first) / 2;
            if (is_low(middle)) first = middle;
            else last = middle - 1;
        }
        return first;
    }
};

}  // namespace cudakit
