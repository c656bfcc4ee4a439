// The elements that a reducer (<cudakit/reduce/reducer.cuh>) folds: where they are, and which thread takes which.
//
// A source holds `Value`s: COUNT of them in one `load(i)`, where i lies a multiple of COUNT past `head()`, which
// `unpack` takes apart; and one, `load_one(i)`.
#pragma once

#include <cudakit/pack.cuh>

namespace cudakit {

/// Elements of `x` before the first at which COUNT of them are one aligned word.
template <int COUNT, typename T>
__device__ long long unaligned_head(const T* x) {
    return -static_cast<long long>(reinterpret_cast<unsigned long long>(x) / sizeof(T)) & (COUNT - 1);
}

/// COUNT neighbours as they were loaded, in up to four registers; values of 8 or 16 bits, taken apart, are one each.
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT) loaded {
    static constexpr int BYTES = sizeof(T) * COUNT;
    using Word = typename detail::moved<BYTES>::type;
    Word word;

    loaded() = default;
    /// Of COUNT neighbours, from an address that is a multiple of their size; nothing writes there while the kernel runs.
    __device__ explicit loaded(const T* from) : word(__ldg(reinterpret_cast<const Word*>(from))) {}
    __device__ void unpack(T* values) const { memcpy(values, &word, BYTES); }
    __device__ T value(int k) const {
        T values[COUNT];
        unpack(values);
        return values[k];
    }
};

/// Number of the k-th of the values that a thread folds: COUNT neighbours, then COUNT more `stride` further on.
template <int COUNT>
struct numbering {
    long long first, stride;
    __device__ long long operator()(int k) const { return first + k / COUNT * stride + k % COUNT; }
};

/// Folds part number `part` of the `parts` of source[0 … count), by THREADS threads of which this is number `thread`.
/// Tiles of THREADS · ITEMS packs, ITEMS of them in flight a thread, as many for each part; then what is left, a pack a
/// thread in turn; the few elements before and after the packs one by one. A thread meets its elements in ascending
/// order, up to 16 at once: enough for a tree, few enough for its registers.
template <typename Reducer, int THREADS, int ITEMS, typename Source>
__device__ typename Reducer::State fold_part(
    const Source& source, long long count, long long part, long long parts, int thread) {
    constexpr int COUNT = Source::COUNT, TOGETHER = COUNT * ITEMS < 16 ? ITEMS : 16 / COUNT;
    using Value = typename Source::Value;
    using Pack = decltype(source.load(0));
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
    const long long tiles = (end - head) / TILE, rest = head + (parts == 1 ? tiles : tiles - tiles % parts) * TILE;
    for (long long tile = head + part * TILE; tile < rest; tile += parts * TILE) {
        const long long first = tile + thread * COUNT;
        Pack packs[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) packs[j] = source.load(first + j * ROUND);
#pragma unroll
        for (int j = 0; j < ITEMS; j += TOGETHER) {
            Value values[TOGETHER * COUNT];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) Source::unpack(packs[j + k], values + k * COUNT);
            const numbering<COUNT> at{first + j * ROUND, ROUND};
            state = Reducer::template fold<TOGETHER * COUNT>(state, values, at);
        }
    }
    constexpr int AHEAD = ITEMS < 4 ? ITEMS : 4;
    const long long step = parts * ROUND, last = end - COUNT;
    for (long long i = rest + part * ROUND + thread * COUNT; i < end; i += AHEAD * step) {
        // The last pack again where there is none: a load that waits for no comparison, and no register without a value.
        Pack packs[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) packs[j] = source.load(min(i + j * step, last));
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            if (i + j * step > last) continue;
            Value values[COUNT];
            Source::unpack(packs[j], values);
            state = Reducer::template fold<COUNT>(state, values, numbering<COUNT>{i + j * step, 0});
        }
    }
    if (COUNT > 1 && part == 0) fold_ones(end, count);
    return state;
}

}  // namespace cudakit
