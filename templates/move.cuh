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
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
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
// Threads: thread t does the t-th 16 bytes of out (one element where out is not DENSE).
// Memory: 2 sizeof(W) bytes an element. Stores are of 16 bytes; loads too where the elements are neighbours in a row of x,
//   in either order and wherever they start, else one element at a time. No shared memory.
// Preconditions: x and out do not overlap; x_size is the number of elements that may be read from x.
// Launch: BLOCK threads, ceil(size / elements of a thread) in all.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename W, int RANK, typename Map, typename Index, typename Layout, bool DENSE = true, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) mapped(
    const void* __restrict__ x, void* __restrict__ out, long long x_start, long long x_size, long long out_start,
    long long size, Layout layout) {
    constexpr int COUNT = DENSE ? 16 / sizeof(W) : 1;
    const W* const from = static_cast<const W*>(x);
    W* const to = static_cast<W*>(out) + out_start;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT;
    if (first >= size) return;

    cudakit::walk<RANK, Index> walk(static_cast<Index>(first), layout.shape);
    const auto along = [&layout](int d, Index k) {
        return Map::at(k, static_cast<Index>(layout.shift[d]), static_cast<Index>(layout.extent[d]));
    };
    // Where the row begins in x that `walk` is in; below 0 where the whole row is filled.
    const auto row = [&]() {
        long long start = x_start;
#pragma unroll
        for (int d = 0; d < RANK - 1; ++d) {
            const Index k = along(d, walk.at[d]);
            if (k < 0) return -1ll;
            start += k * layout.x[d];
        }
        return start;
    };
    long long start = row();
    const long long step = layout.x[RANK - 1];

    if (COUNT > 1 && start >= 0 && (step == 1 || step == -1)
        && walk.at[RANK - 1] + COUNT <= static_cast<Index>(layout.shape[RANK - 1])) {
        const Index k = along(RANK - 1, walk.at[RANK - 1]), last = along(RANK - 1, walk.at[RANK - 1] + (COUNT - 1));
        const Index rise = last - k;
        if (k >= 0 && last >= 0 && (rise == COUNT - 1 || rise == 1 - COUNT)) {
            const bool forward = (rise > 0) == (step > 0);
            const W* const lowest = from + start + (forward ? k : last) * step;
            const auto pack = cudakit::load_neighbours<COUNT>(lowest, from, from + x_size);
            cudakit::store_some(to + first, forward ? pack : cudakit::reversed(pack), COUNT);
            return;
        }
    }
    W fill;
    memcpy(&fill, layout.fill, sizeof(W));
    const int count = static_cast<int>(min(size - first, static_cast<long long>(COUNT)));
    cudakit::pack<W, COUNT> pack;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        if (j >= count) break;
        const Index k = start < 0 ? Index(-1) : along(RANK - 1, walk.at[RANK - 1]);
        const W value = k < 0 ? fill : from[start + k * step];
        if constexpr (DENSE)
            pack.values[j] = value;
        else
            to[walk.offset(layout.out)] = value;
        if (COUNT > 1 && walk.next(layout.shape)) start = row();
    }
    if constexpr (DENSE) cudakit::store_some(to + first, pack, count);
}
