#include <cudakit/grid.cuh>
#include <cudakit/image/window.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

/// What a thread of `near` does: ROWS rows of COUNT elements from (y, x), some of whose windows reach over a rim. A turn of the
/// loop does as many rows as a window has, so that each line has registers of its own.
template <
    typename T, typename R, typename Window, int C, int COUNT, int ROWS, bool ALIGNED, bool CONSTANT, bool SHIFTED, typename Index,
    typename Weights>
__device__ __forceinline__ void walk_at_rim(
    const T* __restrict__ image, R* __restrict__ out, int height, int width, int y, int x, int mode, double fill,
    const Weights& weights) {
    constexpr int DOWN = Window::DOWN, LINES = 2 * DOWN + 1, PAD = Window::RIGHT * C, OWN = ALIGNED ? 0 : COUNT;
    using Line = typename Window::template line<COUNT>;
    const near_border rows(mode, height), columns(mode, width / C);
    Index places[2 * PAD + OWN + 1];
    bool is_inside[2 * PAD + OWN + 1];
#pragma unroll
    for (int k = 0; k < 2 * PAD + OWN; ++k) {
        // Counted from a pixel that is not left of any, for the quotient of negative numbers.
        const int at = x + k + (k >= PAD ? COUNT - OWN : 0), column = at / C - Window::RIGHT;
        places[k] = columns(column) * C + at % C;
        is_inside[k] = columns.has(column);
    }
    const T outside = as<T>(fill);
    Line lines[LINES];
    int at = y - DOWN;
    const auto next = [&](Line& line) {
        const Index from = static_cast<Index>(rows(at)) * width;
        const bool is_row = !CONSTANT || rows.has(at);
        const auto found = [&](int k) { return !CONSTANT || (is_row && is_inside[k]) ? image[from + places[k]] : outside; };
        row_part<T, COUNT, PAD> row;
        if constexpr (ALIGNED) {
            row.own = load_pack<COUNT>(image + (from + x));
            if (!is_row) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) row.own.values[k] = outside;
            }
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) row.own.values[k] = found(PAD + k);
        }
#pragma unroll
        for (int k = 0; k < PAD; ++k) {
            row.left[k] = found(k);
            row.right[k] = found(PAD + OWN + k);
        }
        line = Window::along(row, weights);
        ++at;
    };
#pragma unroll
    for (int k = 0; k < 2 * DOWN; ++k) next(lines[k]);
#pragma unroll 1
    for (int r = 0; r < ROWS; r += LINES) {
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            const int done = y + r + k;
            if (done >= height) return;
            next(lines[(2 * DOWN + k) % LINES]);
            const window_lines<Line, LINES> window{lines, k};
            const pack<R, COUNT> values = Window::template across<R, COUNT>(window, weights);
            R* const to = out + (static_cast<Index>(done) * width + x);
            if constexpr (ALIGNED && sizeof(R) * COUNT <= 16) {
                store_pack(to, values);
            } else {
                // A strip's words begin in it; those of the strip before end after as many elements.
                const int late = SHIFTED ? -reinterpret_cast<unsigned long long>(to) % 4 : 0;
                const int first = threadIdx.x == 0 && x > 0 ? late : 0, last = SHIFTED && threadIdx.x == 31 ? late : COUNT;
#pragma unroll
                for (int i = 0; i < COUNT; ++i)
                    if (i >= first && i < last && x + i < width) to[i] = values.values[i];
            }
        }
    }
}

/// The same where all windows are inside, and `image` and `out` at the first of these elements.
template <typename T, typename R, typename Window, int C, int COUNT, int ROWS, int NEAR, typename Weights>
__device__ __forceinline__ void walk_inside(const T* __restrict__ image, R* __restrict__ out, int width, const Weights& weights) {
    constexpr int DOWN = Window::DOWN, LINES = 2 * DOWN + 1, PAD = Window::RIGHT * C;
    using Line = typename Window::template line<COUNT>;
    Line lines[LINES];
    image -= static_cast<long long>(DOWN) * width;
    const auto next = [&](Line& line) {
        row_part<T, COUNT, PAD> row;
        row.own = load_pack<COUNT>(image);
        if constexpr (NEAR != 0) {
            const pack<T, NEAR> left = load_pack<NEAR>(image - NEAR), right = load_pack<NEAR>(image + COUNT);
#pragma unroll
            for (int k = 0; k < PAD; ++k) {
                row.left[k] = left.values[NEAR - PAD + k];
                row.right[k] = right.values[k];
            }
        } else {
#pragma unroll
            for (int k = 0; k < PAD; ++k) {
                row.left[k] = image[k - PAD];
                row.right[k] = image[COUNT + k];
            }
        }
        line = Window::along(row, weights);
        image += width;
    };
    // What is reckoned rather than waited for has many rows, and its instructions stay cached.
    constexpr int TURNS = ROWS > 10 ? 1 : ROWS / LINES;
#pragma unroll
    for (int k = 0; k < 2 * DOWN; ++k) next(lines[k]);
#pragma unroll TURNS
    for (int r = 0; r < ROWS; r += LINES) {
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            next(lines[(2 * DOWN + k) % LINES]);
            const window_lines<Line, LINES> window{lines, k};
            store_pack(out, Window::template across<R, COUNT>(window, weights));
            out += width;
        }
    }
}

/// The same of bytes whose rows begin anywhere: what is loaded and stored are words, and the bytes of two are a thread's. Strips overlap
/// by a thread, whose first word is stored by the strip before.
template <typename T, typename R, typename Window, int C, int COUNT, int ROWS, typename Weights>
__device__ __forceinline__ void walk_shifted(const T* __restrict__ image, R* __restrict__ out, int width, const Weights& weights) {
    constexpr int DOWN = Window::DOWN, LINES = 2 * DOWN + 1, PAD = Window::RIGHT * C, BEFORE = (PAD + 3) / 4, OWN = COUNT / 4;
    constexpr int LOADED = 2 * BEFORE + OWN + 1;
    using Line = typename Window::template line<COUNT>;
    Line lines[LINES];
    image -= static_cast<long long>(DOWN) * width + 4 * BEFORE;
    // A row ahead: what is waited for was asked for a row before.
    unsigned ahead[LOADED], beyond;
    const auto load = [&] {
        beyond = reinterpret_cast<unsigned long long>(image) % 4;
        const unsigned* const from = reinterpret_cast<const unsigned*>(image - beyond);
#pragma unroll
        for (int k = 0; k < LOADED; ++k) ahead[k] = from[k];
    };
    load();
    const auto next = [&](Line& line, bool is_last) {
        unsigned words[LOADED - 1];
#pragma unroll
        for (int k = 0; k < LOADED - 1; ++k) words[k] = __funnelshift_r(ahead[k], ahead[k + 1], 8 * beyond);
        image += is_last ? 0 : width;
        load();
        row_part<T, COUNT, PAD> row;
        memcpy(&row.own, words + BEFORE, COUNT);
#pragma unroll
        for (int k = 0; k < PAD; ++k) {
            const int left = 4 * BEFORE - PAD + k;
            row.left[k] = static_cast<T>(words[left / 4] >> left % 4 * 8);
            row.right[k] = static_cast<T>(words[BEFORE + OWN + k / 4] >> k % 4 * 8);
        }
        line = Window::along(row, weights);
    };
    const auto put = [&](const pack<R, COUNT>& values) {
        const unsigned beyond = reinterpret_cast<unsigned long long>(out) % 4;
        unsigned* const to = reinterpret_cast<unsigned*>(out - beyond);
        unsigned words[OWN];
        memcpy(words, &values, COUNT);
        unsigned before = __shfl_up_sync(FULL_WARP, words[OWN - 1], 1);
#pragma unroll
        for (int k = 0; k < OWN; ++k) {
            const unsigned word = __funnelshift_l(before, words[k], 8 * beyond);
            before = words[k];
            if (k == 0 ? (threadIdx.x > 0 || beyond == 0) && (threadIdx.x < 31 || beyond > 0) : threadIdx.x < 31) to[k] = word;
        }
        out += width;
    };
#pragma unroll
    for (int k = 0; k < 2 * DOWN; ++k) next(lines[k], false);
#pragma unroll 1
    for (int r = 0; r < ROWS; r += LINES) {
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            next(lines[(2 * DOWN + k) % LINES], k == LINES - 1 && r == ROWS - LINES);
            const window_lines<Line, LINES> window{lines, k};
            put(Window::template across<R, COUNT>(window, weights));
        }
    }
}

/// Elements of the words that have PAD more beside COUNT, of 4 bytes at least: 0 where they are more than those.
template <typename T, int PAD, int COUNT>
__host__ __device__ constexpr int elements_near() {
    int count = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    while (count < PAD) count *= 2;
    return PAD > 0 && count <= COUNT ? count : 0;
}

}  // namespace cudakit

// out[n, y, x] = Window::across of Window::along of each row of the window around image[n, y, x].
//
// Shapes: image and out (images, height, width), T and R, C-contiguous; `width` counts elements, C neighbours to a pixel.
//   `fill` stands outside where CONSTANT; else `mode` is one of the other borders.
// Threads: a warp's do 32 COUNT neighbours of ROWS rows (31 COUNT of bytes that are not ALIGNED), a block's warps lie on each other; a thread walks down its rows and
//   keeps of each what is needed of it further down.
// Memory: sizeof(T) + sizeof(R) bytes an element, by loads of COUNT where rows are ALIGNED, of words where they are bytes, and Window::RIGHT C elements on
//   each side one by one, which are in L1; Window::DOWN rows above and below are read again. No shared memory.
// Preconditions: image and out do not overlap; windows reach no further out than the image is large. ALIGNED: rows begin at
//   multiples of COUNT elements, of 16 bytes at most.
// Launch: blocks of (32, any), one for each part of as many neighbours and blockDim.y ROWS rows.
// Source: the walk down a strip with a window in registers is as old as filters; the window's halves are those of separable ones.
template <
    typename T, typename R, typename Window, int C, int COUNT, int ROWS, bool ALIGNED, bool CONSTANT, typename Index,
    typename Weights>
__global__ void near(
    const T* __restrict__ image, R* __restrict__ out, int height, int width, int mode, double fill, Weights weights) {
    constexpr int DOWN = Window::DOWN;
    static_assert(ROWS % (2 * DOWN + 1) == 0, "lines come around to their registers");
    constexpr bool SHIFTED = !ALIGNED && sizeof(T) == 1 && sizeof(R) == 1 && COUNT % 4 == 0;
    constexpr int STRIP = (SHIFTED ? 31 : 32) * COUNT;
    const unsigned across = (width + STRIP - 1) / STRIP, high = blockDim.y * ROWS, down = (height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int x = block % across * STRIP + threadIdx.x * COUNT, y = band % down * high + threadIdx.y * ROWS;
    if (x >= width || y >= height) return;
    const long long offset = static_cast<long long>(band / down) * height * width;
    image += offset;
    out += offset;
    constexpr int PAD = Window::RIGHT * C, NEAR = cudakit::elements_near<T, PAD, COUNT>();
    // For a warp as one.
    const int left = x - threadIdx.x * COUNT, end = left + 32 * COUNT;
    const auto is_inside = [&](int reach) { return left >= reach && end + reach <= width && y >= DOWN && y + ROWS + DOWN <= height; };
    const long long at = static_cast<long long>(y) * width + x;
    if constexpr (ALIGNED && sizeof(R) * COUNT <= 16) {
        if (is_inside(NEAR == 0 ? PAD : NEAR)) {
            cudakit::walk_inside<T, R, Window, C, COUNT, ROWS, NEAR>(image + at, out + at, width, weights);
            return;
        }
    }
    if constexpr (SHIFTED) {
        if (is_inside((PAD + 3) / 4 * 4 + 4)) {
            cudakit::walk_shifted<T, R, Window, C, COUNT, ROWS>(image + at, out + at, width, weights);
            return;
        }
    }
    cudakit::walk_at_rim<T, R, Window, C, COUNT, ROWS, ALIGNED, CONSTANT, SHIFTED, Index>(
        image, out, height, width, y, x, mode, fill, weights);
}

namespace cudakit {

// scale Σ w v; over the part of the window that is inside, divided by its weights, where the border is VALID_BORDER.
struct summed {
    static constexpr bool IS_MEAN = true, IS_WEIGHED = true;
    template <typename V>
    static __device__ V start() {
        return V(0);
    }
    template <typename V>
    static __device__ V next(V sum, V value, V weight) {
        return sum + weight * value;
    }
};
// The same without weights.
struct added {
    static constexpr bool IS_MEAN = true, IS_WEIGHED = false;
    template <typename V>
    static __device__ V start() {
        return V(0);
    }
    template <typename V>
    static __device__ V next(V sum, V value, V) {
        return sum + value;
    }
};
// The least or greatest.
template <typename Pick>
struct chosen {
    static constexpr bool IS_MEAN = false, IS_WEIGHED = false;
    template <typename V>
    static __device__ V start() {
        return Pick::template identity<V>();
    }
    template <typename V>
    static __device__ V next(V found, V value, V) {
        return Pick()(found, value);
    }
};

}  // namespace cudakit

// out[n, y, x] = scale Fold of image[n, y + j − down / 2, x + i − right / 2], with weights[j, i], over j < down, i < right.
//
// Shapes: image and out (images, height, width, channels), T and R, C-contiguous; weights (down, right), V, or null where Fold has
//   none; down and right are odd.
// Threads: one for ROWS results that lie on each other, whose windows have most in common, a warp for 32 neighbours of as many
//   rows, a block's warps on each other.
// Memory: (1 + (down − 1) / ROWS) right reads an element, of which L1 has nearly all, and one write; no shared memory.
// Preconditions: image and out do not overlap; windows reach no further out than the image is large.
// Launch: blocks of (32, any), one for each 32 × blockDim.y ROWS elements of an image.
// Source: the sum as it is written.
template <typename T, typename R, typename V, typename Fold, int ROWS>
__global__ void any(
    const T* __restrict__ image, R* __restrict__ out, const V* __restrict__ weights, int height, int width, int channels, int down,
    int right, int mode, double fill, double scale) {
    const unsigned wide = width * channels, high = blockDim.y * ROWS;
    const unsigned across = (wide + 31) / 32, bands = (height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int e = block % across * 32 + threadIdx.x, y = band % bands * high + threadIdx.y * ROWS;
    if (e >= static_cast<int>(wide) || y >= height) return;
    const int x = channels == 1 ? e : e / channels, left = x - right / 2, top = y - down / 2;
    image += static_cast<long long>(band / bands) * height * wide + (e - x * channels);
    out += (static_cast<long long>(band / bands) * height + y) * wide + e;

    const auto weight = [=](int j, int i) { return Fold::IS_WEIGHED ? weights[j * right + i] : V(1); };
    V found[ROWS], inside[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) found[r] = Fold::template start<V>(), inside[r] = 0;
    if (left >= 0 && left + right <= width && top >= 0 && top + down + ROWS - 1 <= height) {
        const T* from = image + (static_cast<long long>(top) * width + left) * channels;
        for (int j = 0; j < down + ROWS - 1; ++j) {
            for (int i = 0; i < right; ++i) {
                const V value = cudakit::as<V>(from[i * channels]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (j >= r && j - r < down) found[r] = Fold::template next<V>(found[r], value, weight(j - r, i));
            }
            from += wide;
        }
        if (Fold::IS_MEAN && mode == cudakit::VALID_BORDER)
            for (int k = 0; k < down * right; ++k)
#pragma unroll
                for (int r = 0; r < ROWS; ++r) inside[r] += weight(0, k);
    } else {
        const cudakit::near_border rows(mode, height), columns(mode, width);
        const bool is_open = mode == cudakit::CONSTANT_BORDER || mode == cudakit::VALID_BORDER;
#pragma unroll 1
        for (int j = 0; j < down + ROWS - 1; ++j) {
            const bool is_row = !is_open || rows.has(top + j);
            if (!is_row && mode == cudakit::VALID_BORDER) continue;
            const T* const from = image + static_cast<long long>(rows(top + j)) * width * channels;
#pragma unroll 1
            for (int i = 0; i < right; ++i) {
                const bool is_inside = is_row && (!is_open || columns.has(left + i));
                if (!is_inside && mode == cudakit::VALID_BORDER) continue;
                const V value = is_inside ? cudakit::as<V>(from[columns(left + i) * channels]) : static_cast<V>(fill);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    if (j < r || j - r >= down) continue;
                    if constexpr (Fold::IS_MEAN) inside[r] += weight(j - r, i);
                    found[r] = Fold::template next<V>(found[r], value, weight(j - r, i));
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (y + r >= height) break;
        if constexpr (!Fold::IS_MEAN)
            out[0] = cudakit::as<R>(found[r]);
        else
            out[0] = cudakit::pixel<R>(mode == cudakit::VALID_BORDER ? found[r] / inside[r] : found[r] * static_cast<V>(scale));
        out += wide;
    }
}
