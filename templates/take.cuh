#include <cudakit/pack.cuh>

namespace cudakit {

/// What an index beyond the ends means: `wrap` counts on from the other end, again and again (so that −1 is the last);
/// `clip` is the nearest end; `check` is `wrap` from −n to n − 1, and raises the flag beyond.
enum class beyond { wrap, clip, check };

template <beyond MODE>
__device__ inline long long index_within(long long k, long long n, unsigned int* flag) {
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
//   inner), contiguous, of `size` elements. W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16 bytes; I is the
//   type of an index; Index is unsigned int where `size` fits it, else unsigned long long; flag (1) is 0, or null.
// Threads: thread t of a block does its t-th 16 bytes of out, then those BLOCK further on, ITEMS in all.
// Memory: 2 sizeof(W) bytes an element, and the indices. By loads of 16 bytes where inner is long enough, wherever they
//   start, else one element at a time; stores of 16 bytes.
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
        return o * x_outer + cudakit::index_within<MODE>(static_cast<long long>(indices[k]), n, flag) * x_step;
    };

    long long row[ITEMS], place[ITEMS];
    bool is_whole = first + STEP * (ITEMS - 1) + COUNT <= size;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const Index at = static_cast<Index>(first + j * STEP);
        row[j] = at / length;
        place[j] = at - static_cast<Index>(row[j]) * length;
        is_whole = is_whole && place[j] + COUNT <= inner;
    }
    if (is_whole) {
        // All indices are under way before the first is waited for, then all elements.
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) place[j] += row_at(row[j]);
        cudakit::pack<W, COUNT> packs[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) packs[j] = cudakit::load_neighbours<COUNT>(from + place[j], from, from + x_size);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) cudakit::store_some(to + first + j * STEP, packs[j], COUNT);
        return;
    }
    for (int j = 0; j < ITEMS; ++j) {
        const long long begin = first + j * STEP;
        const int wanted = static_cast<int>(max(0ll, min(size - begin, static_cast<long long>(COUNT))));
        long long places[COUNT];
        long long at_row = static_cast<Index>(begin) / length, i = static_cast<Index>(begin) - static_cast<Index>(at_row) * length;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k < wanted) places[k] = row_at(at_row) + i;
            if (++i == inner) {
                i = 0;
                ++at_row;
            }
        }
        cudakit::pack<W, COUNT> pack;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < wanted) pack.values[k] = from[places[k]];
        cudakit::store_some(to + begin, pack, wanted);
    }
}
