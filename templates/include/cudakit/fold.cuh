// The elements that a reducer (<cudakit/reducer.cuh>) folds: where they are, and which thread takes which.
//
// A source has COUNT elements in one load, `load(i)`, where i lies a multiple of COUNT past `head()`, and one element,
// `at(i)`; Value is what they are.
#pragma once

#include <cudakit/pack.cuh>

namespace cudakit {

/// Number of the k-th of the values that a thread holds: COUNT neighbours, then COUNT more `stride` further on.
template <int COUNT>
struct numbering {
    long long first, stride;
    __device__ long long operator()(int k) const { return first + k / COUNT * stride + k % COUNT; }
};

/// Neighbours in memory, by 16-byte loads.
template <typename T>
struct contiguous {
    static constexpr int COUNT = 16 / sizeof(T);
    using Value = T;
    const T* x;

    /// Elements before the first that a pack may start at.
    __device__ long long head() const {
        return -(reinterpret_cast<long long>(x) / static_cast<long long>(sizeof(T))) & (COUNT - 1);
    }
    __device__ pack<T, COUNT> load(long long i) const { return *reinterpret_cast<const pack<T, COUNT>*>(x + i); }
    __device__ T at(long long i) const { return x[i]; }
};

/// Folds part number `part` of the `parts` of source[0 … count), by THREADS threads of which this is number `thread`.
/// Tiles of THREADS · ITEMS packs, ITEMS of them in flight a thread, part after part; then packs, then the elements
/// before and after the packs, one a thread.
template <typename Reducer, int THREADS, int ITEMS, typename Source>
__device__ typename Reducer::State fold_part(
    const Source source, long long count, long long part, long long parts, int thread) {
    constexpr int COUNT = Source::COUNT;
    using Value = typename Source::Value;
    using Pack = pack<Value, COUNT>;
    constexpr long long TILE = static_cast<long long>(THREADS) * ITEMS * COUNT;
    typename Reducer::State state = Reducer::identity();

    const long long head = min(source.head(), count);
    const long long end = head + (count - head) / COUNT * COUNT;
    long long tile = head + part * TILE;
    for (; tile + TILE <= end; tile += parts * TILE) {
        const long long first = tile + thread * COUNT;
        Value values[ITEMS * COUNT];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            reinterpret_cast<Pack*>(values)[j] = source.load(first + j * THREADS * COUNT);
        state = Reducer::template fold<ITEMS * COUNT>(state, values, numbering<COUNT>{first, THREADS * COUNT});
    }
    long long i = head + (end - head) / TILE * TILE + (part * THREADS + thread) * COUNT;
    for (; i < end; i += parts * THREADS * COUNT) {
        const Pack pack = source.load(i);
        state = Reducer::template fold<COUNT>(state, pack.values, numbering<COUNT>{i, 0});
    }
    if constexpr (COUNT > 1) {
        // Fewer than COUNT on either side.
        if (part != 0) return state;
        for (long long k = thread; k < head + count - end; k += THREADS) {
            const long long at = k < head ? k : end + k - head;
            const Value one[1] = {source.at(at)};
            state = Reducer::template fold<1>(state, one, numbering<1>{at, 0});
        }
    }
    return state;
}

}  // namespace cudakit
