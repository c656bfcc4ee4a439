#include <cudakit/elementwise/neighbours.cuh>
#include <cudakit/elementwise/walk.cuh>

namespace cudakit {

// Which element of x, along one dimension of `extent` elements, goes to place k of out, `at`: below 0 for none, where out
// takes the fill value. From place k on, `run` places (or more, where it says 16) go up by `rise`: 1, −1, or 0.
struct rising {
    template <typename Index>
    static __device__ int rise(Index, Index, Index) {
        return 1;
    }
};

struct identity : rising {
    template <typename Index>
    static __device__ Index at(Index k, Index, Index) {
        return k;
    }
    template <typename Index>
    static __device__ Index run(Index, Index, Index) {
        return 16;
    }
};

/// Moved by `shift` places, 0 ≤ shift < extent, those that leave at the end come in at the front.
struct rolled : rising {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        return k < shift ? k - shift + extent : k - shift;
    }
    template <typename Index>
    static __device__ Index run(Index k, Index shift, Index) {
        return k < shift ? shift - k : 16;
    }
};

/// Runs of an array that is padded: before it, its own, after it.
struct padded {
    template <typename Index>
    static __device__ Index run(Index k, Index shift, Index extent) {
        if (k < shift) return shift - k;
        return k < shift + extent ? shift + extent - k : 16;
    }
};

/// Padded by `shift` places before, with the fill value.
struct padded_constant : padded, rising {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k -= shift;
        return k < extent ? k : Index(-1);
    }
};

/// Padded with the first and last element.
struct padded_edge : padded {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        return max(min(k - shift, extent - 1), Index(0));
    }
    template <typename Index>
    static __device__ int rise(Index k, Index shift, Index extent) {
        return k >= shift && k < shift + extent;
    }
};

/// Padded with the array again and again.
struct padded_wrap : rising {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k -= shift;
        if (k >= 0 && k < extent) return k;
        k %= extent;
        return k < 0 ? k + extent : k;
    }
    template <typename Index>
    static __device__ Index run(Index k, Index shift, Index extent) {
        return extent - at(k, shift, extent);
    }
};

/// Padded with the array mirrored at its first and last element, which are not repeated.
struct padded_reflect {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k = place(k - shift, extent);
        return k < extent ? k : 2 * (extent - 1) - k;
    }
    template <typename Index>
    static __device__ Index run(Index k, Index shift, Index extent) {
        k = place(k - shift, extent);
        return k < extent ? extent - k : 2 * (extent - 1) - k;
    }
    template <typename Index>
    static __device__ int rise(Index k, Index shift, Index extent) {
        return place(k - shift, extent) < extent ? 1 : -1;
    }

 private:
    // In a period: to the last element and back to the second.
    template <typename Index>
    static __device__ Index place(Index k, Index extent) {
        if (k >= 0 && k < extent) return k;
        if (extent == 1) return 0;
        const Index period = 2 * (extent - 1);
        k %= period;
        return k < 0 ? k + period : k;
    }
};

/// Padded with the array mirrored at its ends, which are repeated.
struct padded_symmetric {
    template <typename Index>
    static __device__ Index at(Index k, Index shift, Index extent) {
        k = place(k - shift, extent);
        return k < extent ? k : 2 * extent - 1 - k;
    }
    template <typename Index>
    static __device__ Index run(Index k, Index shift, Index extent) {
        k = place(k - shift, extent);
        return k < extent ? extent - k : 2 * extent - k;
    }
    template <typename Index>
    static __device__ int rise(Index k, Index shift, Index extent) {
        return place(k - shift, extent) < extent ? 1 : -1;
    }

 private:
    // In a period: to the last element and back to the first.
    template <typename Index>
    static __device__ Index place(Index k, Index extent) {
        if (k >= 0 && k < extent) return k;
        k %= 2 * extent;
        return k < 0 ? k + 2 * extent : k;
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
        cudakit::store_neighbours(
            static_cast<W*>(out) + first, cudakit::load_neighbours(from + first, from, from + size), COUNT);
    } else {
        for (long long i = first; i < size; ++i) static_cast<W*>(out)[i] = from[i];
    }
}

// out[k₀, k₁, …] = x[m₀(k₀), m₁(k₁), …], where m is Map::at along each dimension; fill where one of them has none.
//
// Shapes: out layout.shape, x layout.extent, RANK dimensions, at distances layout.out and layout.x in elements (negative
//   for a reversed dimension, 0 for a repeated one) from element x_start and out_start. layout.shift is Map's,
//   layout.divisor of layout.shape as <cudakit/elementwise/walk.cuh> wants it, layout.fill 16 bytes that begin with the fill value.
//   W is an unsigned word of the elements' size: 1, 2, 4, 8 or 16 bytes; Index is int where all indices fit it, else
//   long long; DENSE where out is C-contiguous.
// Threads: thread t does the t-th 16 bytes of out (one element where out is not DENSE).
// Memory: 2 sizeof(W) bytes an element. Stores are of 16 bytes; loads too where the elements are neighbours in x, in
//   either order and wherever they start, or two such runs, else one element at a time. No shared memory.
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

    cudakit::walk<RANK, Index> walk(static_cast<Index>(first), layout.shape, layout.divisor);
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
    W fill;
    memcpy(&fill, layout.fill, sizeof(W));
    if constexpr (!DENSE) {
        const Index k = start < 0 ? Index(-1) : along(RANK - 1, walk.at[RANK - 1]);
        to[walk.offset(layout.out)] = k < 0 ? fill : from[start + k * step];
        return;
    }

    const int count = static_cast<int>(min(size - first, static_cast<long long>(COUNT)));
    const Index length = static_cast<Index>(layout.shape[RANK - 1]);
    const Index extent = static_cast<Index>(layout.extent[RANK - 1]), shift = static_cast<Index>(layout.shift[RANK - 1]);
    // Elements from where `walk` is that lie side by side in x, or are all the same.
    const auto run_of = [=](const cudakit::walk<RANK, Index>& walk) {
        const Index at = walk.at[RANK - 1], rest = length - at;
        return static_cast<int>(min(min(Map::run(at, shift, extent), rest), Index(COUNT)));
    };
    // 16 bytes with those elements at `place` and the next ones.
    const auto load_run = [&](int place) {
        const Index at = walk.at[RANK - 1], k = start < 0 ? Index(-1) : along(RANK - 1, at);
        if (k < 0) return cudakit::repeated(fill);
        const int direction = static_cast<int>(step), rise = direction * Map::rise(at, shift, extent);
        const W* const element = from + start + k * direction;
        if (rise == 0) return cudakit::repeated(*element);
        if (rise > 0) return cudakit::load_neighbours(element - place, from, from + x_size);
        return cudakit::reversed<W>(cudakit::load_neighbours(element - (COUNT - 1 - place), from, from + x_size));
    };
    const int run = run_of(walk);
    auto after = walk;
    const bool leaves_row = run < count && after.next(layout.shape, run);
    const int next_run = run < count ? run_of(after) : 0;
    if (COUNT > 1 && step >= -1 && step <= 1 && run + next_run >= count) {
        uint4 words = load_run(0);
        if (next_run > 0) {
            walk = after;
            if (leaves_row) start = row();
            words = cudakit::joined<W>(words, load_run(run), run);
        }
        cudakit::store_neighbours(to + first, words, count);
        return;
    }
    // A few at a time: all of them would take a register each.
    constexpr int TOGETHER = COUNT < 4 ? COUNT : 4;
    uint4 words = {0, 0, 0, 0};
#pragma unroll 1
    for (int j = 0; j < COUNT; j += TOGETHER) {
        W values[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            values[i] = fill;
            if (j + i >= count) continue;
            const Index k = start < 0 ? Index(-1) : along(RANK - 1, walk.at[RANK - 1]);
            if (k >= 0) values[i] = from[start + k * step];
            if (walk.next(layout.shape)) start = row();
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) cudakit::push(words, values[i]);
    }
    cudakit::store_neighbours(to + first, words, count);
}
