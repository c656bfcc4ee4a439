#include <cudakit/pack.cuh>
#include <cudakit/walk.cuh>

namespace cudakit {

// Which element of x, along one dimension of `extent` elements, goes to place k of out; below 0 for none, where out takes
// the fill value. Places go up or down by one, or stand still, or leap back: two places COUNT − 1 apart whose elements are
// COUNT − 1 apart have the elements between them in between.
struct identity {
    template <typename Index>
    static __device__ Index at(Index k, Index, Index) {
        return k;
    }
};

/// Moved by `shift` places, 0 ≤ shift < extent, those that leave at the end come in at the front.
struct rolled {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        return k < shift ? k - shift + extent : k - shift;
    }
};

/// Padded by `shift` places before, with the fill value.
struct padded_constant {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k -= shift;
        return k < extent ? k : Index(-1);
    }
};

/// Padded with the first and last element.
struct padded_edge {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        return max(min(k - shift, extent - 1), Index(0));
    }
};

/// Padded with the array again and again.
struct padded_wrap {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k -= shift;
        if (k >= 0 && k < extent) return k;
        k %= extent;
        return k < 0 ? k + extent : k;
    }
};

/// Padded with the array mirrored at its first and last element, which are not repeated.
struct padded_reflect {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k -= shift;
        if (k >= 0 && k < extent) return k;
        if (extent == 1) return 0;
        const Index period = 2 * (extent - 1);
        k %= period;
        if (k < 0) k += period;
        return k < extent ? k : period - k;
    }
};

}  // namespace cudakit

// out[i] = x[i]
//
// Shapes: x and out (size), contiguous. W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16 bytes.
// Threads: thread t does 16 bytes of out.
// Memory: 2 sizeof(W) bytes an element, by loads of 16 bytes wherever x starts, and stores of 16 where out is aligned.
// Preconditions: x and out do not overlap.
// Launch: BLOCK threads, one for each 16 bytes.
template <typename W, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK)
    copied(const void* __restrict__ x, void* __restrict__ out, long long size) {
    constexpr int COUNT = 16 / sizeof(W);
    const W* const from = static_cast<const W*>(x);
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT;
    if (first + COUNT <= size) {
        cudakit::store_some(static_cast<W*>(out) + first, cudakit::load_neighbours<COUNT>(from + first, from, from + size), COUNT);
    } else {
        for (long long i = first; i < size; ++i) static_cast<W*>(out)[i] = from[i];
    }
}

// out[k₀, k₁, …] = x[m₀(k₀), m₁(k₁), …], where m is Map::at along each dimension; fill where one of them has none.
//
// Shapes: out layout.shape, x layout.extent, RANK dimensions, at distances layout.out and layout.x in elements (negative
//   for a reversed dimension, 0 for a repeated one) from element x_start and out_start. layout.shift is Map's, layout.fill
//   16 bytes that begin with the fill value. W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16 bytes; Index
//   is int where all indices fit it, else long long; DENSE where out is C-contiguous.
// Threads: thread t of a block does its t-th 16 bytes of out (one element where out is not DENSE), then those BLOCK further
//   on, ITEMS in all.
// Memory: 2 sizeof(W) bytes an element. Stores are of 16 bytes; loads too where the elements are neighbours in a row of x,
//   in either order and wherever they start, else one element at a time. No shared memory.
// Preconditions: x and out do not overlap; x_size is the number of elements that may be read from x.
// Launch: BLOCK threads, each with ITEMS · 16 bytes of out (ITEMS elements where it is not DENSE).
template <
    typename W, int RANK, typename Map, typename Index, typename Layout, bool DENSE = true, int ITEMS = 2, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) mapped(
    const void* __restrict__ x, void* __restrict__ out, long long x_start, long long x_size, long long out_start,
    long long size, Layout layout) {
    constexpr int COUNT = DENSE ? 16 / sizeof(W) : 1, STEP = BLOCK * COUNT;
    using Pack = cudakit::pack<W, COUNT>;
    using Walk = cudakit::walk<RANK, Index>;
    const W* const from = static_cast<const W*>(x);
    W* const to = static_cast<W*>(out) + out_start;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x) * COUNT;
    const long long step = layout.x[RANK - 1];

    const auto along = [&layout](int d, Index k) {
        return Map::at(k, static_cast<Index>(layout.shift[d]), static_cast<Index>(layout.extent[d]));
    };
    // Where the row begins in x that `walk` is in; below 0 where the whole row is filled.
    const auto row = [&](const Walk& walk) {
        long long start = x_start;
#pragma unroll
        for (int d = 0; d < RANK - 1; ++d) {
            const Index k = along(d, walk.at[d]);
            if (k < 0) return -1ll;
            start += k * layout.x[d];
        }
        return start;
    };

    if (COUNT > 1 && (step == 1 || step == -1) && first + STEP * (ITEMS - 1) + COUNT <= size) {
        // Where each of the packs begins in x, if its elements are neighbours there.
        long long lowest[ITEMS];
        bool forward[ITEMS], are_neighbours = true;
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const Walk walk(static_cast<Index>(first + j * STEP), layout.shape);
            const long long start = row(walk);
            const Index k = along(RANK - 1, walk.at[RANK - 1]), last = along(RANK - 1, walk.at[RANK - 1] + (COUNT - 1));
            const Index rise = last - k;
            are_neighbours = are_neighbours && start >= 0 && k >= 0 && last >= 0
                             && walk.at[RANK - 1] + COUNT <= static_cast<Index>(layout.shape[RANK - 1])
                             && (rise == COUNT - 1 || rise == 1 - COUNT);
            forward[j] = (rise > 0) == (step > 0);
            lowest[j] = start + (forward[j] ? k : last) * step;
        }
        if (are_neighbours) {
            Pack packs[ITEMS];
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) packs[j] = cudakit::load_neighbours<COUNT>(from + lowest[j], from, from + x_size);
#pragma unroll
            for (int j = 0; j < ITEMS; ++j)
                cudakit::store_some(to + first + j * STEP, forward[j] ? packs[j] : cudakit::reversed(packs[j]), COUNT);
            return;
        }
    }
    W fill;
    memcpy(&fill, layout.fill, sizeof(W));
    for (int j = 0; j < ITEMS; ++j) {
        const long long begin = first + j * STEP;
        if (begin >= size) return;
        const int count = static_cast<int>(min(size - begin, static_cast<long long>(COUNT)));
        Walk walk(static_cast<Index>(begin), layout.shape);
        long long start = row(walk);
        Pack pack;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k >= count) break;
            const Index place = start < 0 ? Index(-1) : along(RANK - 1, walk.at[RANK - 1]);
            const W value = place < 0 ? fill : from[start + place * step];
            if constexpr (DENSE)
                pack.values[k] = value;
            else
                to[walk.offset(layout.out)] = value;
            if (COUNT > 1 && walk.next(layout.shape)) start = row(walk);
        }
        if constexpr (DENSE) cudakit::store_some(to + begin, pack, count);
    }
}
