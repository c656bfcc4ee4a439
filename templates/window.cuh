#include <cudakit/grid.cuh>
#include <cudakit/image/window.cuh>

// out[n, y, x] = Window::across of Window::along of each row of the window around image[n, y, x].
//
// Shapes: image and out (images, height, width), T and R, C-contiguous; `width` counts elements, C neighbours to a pixel.
//   `fill` stands outside where CONSTANT; else `mode` is one of the other borders.
// Threads: a warp's do 32 COUNT neighbours of ROWS rows, a block's warps lie on each other; a thread walks down its rows and
//   keeps of each what is needed of it further down.
// Memory: sizeof(T) + sizeof(R) bytes an element, by loads of COUNT where rows are ALIGNED, and Window::RIGHT C elements on
//   each side one by one, which are in L1; Window::DOWN rows above and below are read again. No shared memory.
// Preconditions: image and out do not overlap; windows reach no further out than the image is large. ALIGNED: rows begin at
//   multiples of COUNT elements of 16 bytes at most.
// Launch: blocks of (32, any), one for each 32 COUNT × blockDim.y ROWS elements of an image.
// Source: the walk down a strip with a window in registers is as old as filters; the window's halves are those of separable ones.
template <typename T, typename R, typename Window, int C, int COUNT, int ROWS, bool ALIGNED, bool CONSTANT, typename Weights>
__global__ void near(
    const T* __restrict__ image, R* __restrict__ out, int height, int width, int mode, double fill, Weights weights) {
    constexpr int DOWN = Window::DOWN, LINES = 2 * DOWN + 1, PAD = Window::RIGHT * C;
    using Line = typename Window::template line<COUNT>;
    const unsigned across = (width + 32 * COUNT - 1) / (32 * COUNT), high = blockDim.y * ROWS, down = (height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int x = (block % across * 32 + threadIdx.x) * COUNT, y = band % down * high + threadIdx.y * ROWS;
    if (x >= width || y >= height) return;
    const long long offset = static_cast<long long>(band / down) * height * width;
    image += offset;
    out += offset;

    const cudakit::near_border rows(mode, height), columns(mode, width / C);
    constexpr int OWN = ALIGNED ? 0 : COUNT;
    int places[2 * PAD + OWN + 1];
    bool is_inside[2 * PAD + OWN + 1];
#pragma unroll
    for (int k = 0; k < 2 * PAD + OWN; ++k) {
        // Counted from a pixel that is not left of any, for the quotient of negative numbers.
        const int at = x + k - PAD + (k >= PAD ? COUNT - OWN : 0) + PAD, column = at / C - Window::RIGHT;
        places[k] = columns(column) * C + at % C;
        is_inside[k] = columns.has(column);
    }
    const T outside = cudakit::as<T>(fill);
    Line lines[LINES];
#pragma unroll
    for (int r = 0; r < ROWS + 2 * DOWN; ++r) {
        const int at = y + r - DOWN;
        const T* const from = image + static_cast<long long>(rows(at)) * width;
        const bool is_row = !CONSTANT || rows.has(at);
        const auto found = [&](int k) { return !CONSTANT || (is_row && is_inside[k]) ? from[places[k]] : outside; };
        cudakit::row_part<T, COUNT, PAD> row;
        if constexpr (ALIGNED) {
            row.own = cudakit::load_pack<COUNT>(from + x);
            if (CONSTANT && !is_row) {
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
        lines[r % LINES] = Window::along(row, weights);
        const int done = r - 2 * DOWN;
        if (done < 0 || y + done >= height) continue;
        const cudakit::window_lines<Line, LINES> window{lines, done % LINES};
        const cudakit::pack<R, COUNT> values = Window::template across<R, COUNT>(window, weights);
        R* const to = out + static_cast<long long>(y + done) * width + x;
        if constexpr (ALIGNED && sizeof(R) * COUNT <= 16) {
            cudakit::store_pack(to, values);
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                if (x + k < width) to[k] = values.values[k];
        }
    }
}

namespace cudakit {

// scale Σ w v; over the part of the window that is inside, divided by its weights, where the border is VALID_BORDER.
struct summed {
    template <typename V>
    static __device__ V start() {
        return V(0);
    }
    template <typename V>
    static __device__ V next(V sum, V value, const V* weight) {
        return sum + *weight * value;
    }
};
/// The least or greatest.
template <typename Pick>
struct chosen {
    template <typename V>
    static __device__ V start() {
        return Pick::template identity<V>();
    }
    template <typename V>
    static __device__ V next(V found, V value, const V*) {
        return Pick()(found, value);
    }
};

}  // namespace cudakit

// out[n, y, x] = scale Fold of image[n, y + j − down / 2, x + i − right / 2], with weights[j, i], over j < down, i < right.
//
// Shapes: image and out (images, height, width, channels), T and R, C-contiguous, of `size` elements; weights (down, right), V,
//   or null where Fold has none.
// Threads: one an element, then strides.
// Memory: down × right reads an element, of which L1 has nearly all; no shared memory.
// Preconditions: image and out do not overlap.
// Launch: any shape. size = 0 does nothing.
// Source: the sum as it is written.
template <typename T, typename R, typename V, typename Fold>
__global__ void any(
    const T* __restrict__ image, R* __restrict__ out, const V* __restrict__ weights, long long size, int height, int width,
    int channels, int down, int right, int mode, double fill, double scale) {
    for (long long e = cudakit::thread_in_grid(); e < size; e += cudakit::threads_in_grid()) {
        const int channel = e % channels, x = e / channels % width;
        const long long line = e / channels / width;
        const int y = line % height;
        const T* const own = image + (line - y) * width * channels + channel;
        V found = Fold::template start<V>(), inside = 0;
        for (int j = 0; j < down; ++j) {
            const int row = cudakit::beyond(mode, y + j - down / 2, height);
            if (row < 0 && mode == cudakit::VALID_BORDER) continue;
            for (int i = 0; i < right; ++i) {
                const int column = cudakit::beyond(mode, x + i - right / 2, width);
                const V* const weight = weights == nullptr ? nullptr : weights + j * right + i;
                const bool is_inside = row >= 0 && column >= 0;
                if (!is_inside && mode == cudakit::VALID_BORDER) continue;
                if (weight != nullptr) inside += *weight;
                const V value = is_inside ? cudakit::as<V>(own[(static_cast<long long>(row) * width + column) * channels])
                                          : static_cast<V>(fill);
                found = Fold::template next<V>(found, value, weight);
            }
        }
        if (weights == nullptr)
            out[e] = cudakit::as<R>(found);
        else
            out[e] = cudakit::pixel<R>(mode == cudakit::VALID_BORDER ? found / inside : found * static_cast<V>(scale));
    }
}
