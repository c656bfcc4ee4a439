#include <cudakit/elementwise/neighbours.cuh>

namespace cudakit {

/// What an index beyond the ends means: `wrap` counts on from the other end, again and again (so that −1 is the last);
/// `clip` is the nearest end; `check` is `wrap` from −n to n − 1, and raises the flag beyond.
enum class beyond { wrap, clip, check };

template <beyond MODE, typename I>
__device__ inline long long index_within(I index, long long n, unsigned int* flag) {
    if constexpr (I(-1) > I(0) && sizeof(I) == 8) {
        // It may be beyond what long long holds.
        const unsigned long long count = n;
        if (index < count) return index;
        if constexpr (MODE == beyond::clip) return n - 1;
        if constexpr (MODE == beyond::check) *flag = 1;
        return index % count;
    }
    long long k = static_cast<long long>(index);
    if (k >= 0 && k < n) return k;
    if constexpr (MODE == beyond::clip) return k < 0 ? 0 : n - 1;
    if (k < 0 && k >= -n) return k + n;
    if constexpr (MODE == beyond::check) {
        *flag = 1;
        return 0;
    }
    k %= n;
    return k < 0 ? k + n : k;
}

}  // namespace cudakit

// out[o, k, i] = x[o, indices[k], i]
//
// Shapes: x (outer, n, inner) with neighbours along i, the others x_outer and x_step apart; indices (m); out (outer, m,
//   inner), contiguous, of `size` elements. W is an unsigned word of 1, 2, 4, 8 or 16 bytes: an element, or
//   several that always lie together, which then count as one; I is the type of an index; Index is unsigned int where `size`
//   fits it, else unsigned long long; flag (1) is 0, or null.
// Threads: thread t of a block does its t-th 16 bytes of out, then those BLOCK further on, ITEMS in all.
// Memory: 2 sizeof(W) bytes an element, and the indices. By loads of 16 bytes where `inner` elements have as many, wherever
//   they start, else one element at a time; stores of 16 bytes.
// Preconditions: out overlaps neither x nor indices; n > 0; x_size is the number of elements that may be read from x.
// Launch: BLOCK threads, each with ITEMS · 16 bytes of out.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename W, typename I, typename Index, cudakit::beyond MODE, int ITEMS = 4, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) along(
    const void* __restrict__ x, const I* __restrict__ indices, void* __restrict__ out, unsigned int* flag, long long n,
    long long m, long long inner, long long x_outer, long long x_step, long long x_size, long long size) {
    constexpr int COUNT = 16 / sizeof(W), STEP = BLOCK * COUNT;
    const W* const from = static_cast<const W*>(x);
    W* const to = static_cast<W*>(out);
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x) * COUNT;
    const Index length = static_cast<Index>(inner), count = static_cast<Index>(m);
    // Where in x the row of out's element `at` lies, once its index is there.
    const auto row_at = [&](long long row) {
        const Index o = static_cast<Index>(row) / count, k = static_cast<Index>(row) - o * count;
        return o * x_outer + cudakit::index_within<MODE>(indices[k], n, flag) * x_step;
    };

    if (inner >= COUNT) {
        // All indices are under way before the first is waited for, then all elements.
        long long row[ITEMS], place[ITEMS], element[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const Index at = static_cast<Index>(first + j * STEP);
            row[j] = at / length;
            place[j] = at - static_cast<Index>(row[j]) * length;
            if (first + j * STEP < size) element[j] = row_at(row[j]) + place[j];
        }
        uint4 words[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * STEP < size) words[j] = cudakit::load_neighbours(from + element[j], from, from + x_size);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const long long begin = first + j * STEP;
            if (begin >= size) break;
            const int own = static_cast<int>(min(inner - place[j], static_cast<long long>(COUNT)));
            if (COUNT > 1 && own < COUNT && begin + own < size) {
                const W* const others = from + row_at(row[j] + 1) - own;
                words[j] = cudakit::joined<W>(words[j], cudakit::load_neighbours(others, from, from + x_size), own);
            }
            cudakit::store_neighbours(to + begin, words[j], size - begin);
        }
        return;
    }
    // A few at a time: all of them would take a register each.
    constexpr int TOGETHER = COUNT < 4 ? COUNT : 4;
#pragma unroll 1
    for (int j = 0; j < ITEMS; ++j) {
        const long long begin = first + j * STEP;
        if (begin >= size) break;
        Index row = static_cast<Index>(begin) / length, i = static_cast<Index>(begin) - row * length;
        uint4 words = {0, 0, 0, 0};
#pragma unroll 1
        for (int k = 0; k < COUNT; k += TOGETHER) {
            W values[TOGETHER];
#pragma unroll
            for (int e = 0; e < TOGETHER; ++e) {
                values[e] = W();
                if (begin + k + e < size) values[e] = from[row_at(row) + i];
                if (++i == length) {
                    i = 0;
                    ++row;
                }
            }
#pragma unroll
            for (int e = 0; e < TOGETHER; ++e) cudakit::push(words, values[e]);
        }
        cudakit::store_neighbours(to + begin, words, size - begin);
    }
}
