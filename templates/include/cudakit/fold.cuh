// The elements that a reducer (<cudakit/reducer.cuh>) folds: where they are, and which thread takes which.
//
// A source holds `Value`s: COUNT of them in one load, `load(i, values)`, where i lies a multiple of COUNT past `head()`;
// and one, `load_one(i)`.
#pragma once

#include <cudakit/pack.cuh>
#include <cudakit/strided.cuh>

namespace cudakit {

/// Elements of `x` before the first at which COUNT of them are one aligned word.
template <int COUNT, typename T>
__device__ long long unaligned_head(const T* x) {
    return -static_cast<long long>(reinterpret_cast<unsigned long long>(x) / sizeof(T)) & (COUNT - 1);
}

/// Neighbours in memory, by 16-byte loads.
template <typename T>
struct contiguous {
    static constexpr int COUNT = 16 / sizeof(T);
    using Value = T;
    const T* x;

    __device__ long long head() const { return unaligned_head<COUNT>(x); }
    __device__ void load(long long i, T* values) const {
        const pack<T, COUNT> all = *reinterpret_cast<const pack<T, COUNT>*>(x + i);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] = all.values[k];
    }
    __device__ T load_one(long long i) const { return x[i]; }
};

/// The elements of a view at one place in its first KEPT dimensions, in row-major order of the others.
template <typename T, int RANK, int KEPT>
struct scattered {
    static constexpr int COUNT = 1;
    using Value = T;
    const strided<const T, RANK>& view;
    const T* x;

    __device__ scattered(const strided<const T, RANK>& view, long long row)
        : view(view), x(view.data + offset<0, KEPT>(row)) {}
    __device__ long long head() const { return 0; }
    __device__ void load(long long i, T* values) const { *values = load_one(i); }
    __device__ T load_one(long long i) const { return x[offset<KEPT, RANK>(i)]; }

 private:
    // Of the element with row-major number `index` in dimensions FIRST … LAST − 1; one of them takes no division.
    template <int FIRST, int LAST>
    __device__ long long offset(unsigned long long index) const {
        long long sum = 0;
#pragma unroll
        for (int d = LAST - 1; d > FIRST; --d) {
            const unsigned long long length = view.shape[d];
            sum += static_cast<long long>(index % length) * view.strides[d];
            index /= length;
        }
        return FIRST == LAST ? 0 : sum + static_cast<long long>(index) * view.strides[FIRST];
    }
};

/// An element of each of two arrays.
template <typename A, typename B>
struct couple {
    A a;
    B b;
};

/// a · b of a couple.
struct product {
    template <typename Acc, typename A, typename B>
    static __device__ Acc of(const couple<A, B>& both) {
        return static_cast<Acc>(both.a) * static_cast<Acc>(both.b);
    }
};

/// Neighbours in two arrays, that lie alike to their aligned words of COUNT elements.
template <typename A, typename B, int ELEMENTS>
struct coupled {
    static constexpr int COUNT = ELEMENTS;
    using Value = couple<A, B>;
    const A* x;
    const B* y;

    __device__ long long head() const { return unaligned_head<COUNT>(x); }
    __device__ void load(long long i, Value* values) const {
        const pack<A, COUNT> a = *reinterpret_cast<const pack<A, COUNT>*>(x + i);
        const pack<B, COUNT> b = *reinterpret_cast<const pack<B, COUNT>*>(y + i);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k] = {a.values[k], b.values[k]};
    }
    __device__ Value load_one(long long i) const { return {x[i], y[i]}; }
};

/// The elements of two vectors of any strides.
template <typename A, typename B>
struct coupled_views {
    static constexpr int COUNT = 1;
    using Value = couple<A, B>;
    const strided<const A, 1>& x;
    const strided<const B, 1>& y;

    __device__ long long head() const { return 0; }
    __device__ void load(long long i, Value* values) const { *values = load_one(i); }
    __device__ Value load_one(long long i) const { return {x(i), y(i)}; }
};

/// Number of the k-th of the values that a thread holds: COUNT neighbours, then COUNT more `stride` further on.
template <int COUNT>
struct numbering {
    long long first, stride;
    __device__ long long operator()(int k) const { return first + k / COUNT * stride + k % COUNT; }
};

/// Folds part number `part` of the `parts` of source[0 … count), by THREADS threads of which this is number `thread`.
/// Tiles of THREADS · ITEMS packs, ITEMS of them in flight a thread, part after part; then what is left, a pack a thread
/// in turn; the few elements before and after the packs one by one. A thread meets its elements in ascending order.
template <typename Reducer, int THREADS, int ITEMS, typename Source>
__device__ typename Reducer::State fold_part(
    const Source& source, long long count, long long part, long long parts, int thread) {
    constexpr int COUNT = Source::COUNT;
    using Value = typename Source::Value;
    constexpr long long ROUND = static_cast<long long>(THREADS) * COUNT, TILE = ROUND * ITEMS;
    typename Reducer::State state = Reducer::identity();

    const auto fold_ones = [&](long long from, long long to) {
        for (long long i = from + thread; i < to; i += THREADS) {
            const Value one[1] = {source.load_one(i)};
            state = Reducer::template fold<1>(state, one, numbering<1>{i, 0});
        }
    };

    const long long head = min(source.head(), count);
    const long long end = head + (count - head) / COUNT * COUNT;
    if (COUNT > 1 && part == 0) fold_ones(0, head);
    for (long long tile = head + part * TILE; tile + TILE <= end; tile += parts * TILE) {
        const long long first = tile + thread * COUNT;
        Value values[ITEMS * COUNT];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) source.load(first + j * ROUND, values + j * COUNT);
        state = Reducer::template fold<ITEMS * COUNT>(state, values, numbering<COUNT>{first, ROUND});
    }
    // Less than a tile is left, which all parts share.
    const long long first = head + (end - head) / TILE * TILE + part * ROUND + thread * COUNT;
    if (first < end) {
        Value values[ITEMS][COUNT];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * parts * ROUND < end) source.load(first + j * parts * ROUND, values[j]);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const long long i = first + j * parts * ROUND;
            if (i < end) state = Reducer::template fold<COUNT>(state, values[j], numbering<COUNT>{i, 0});
        }
    }
    if (COUNT > 1 && part == 0) fold_ones(end, count);
    return state;
}

}  // namespace cudakit
