#include <cudakit/image/border.cuh>
#include <cudakit/grid.cuh>

namespace cudakit {

/// Between which elements of an axis a result lies, and how far from the first: pixels are squares that both images share, so
/// that their middles are half a pixel from the rims; beyond the outermost middles the outermost pixel stands.
struct between {
    int first, second;
    double part;

    __device__ between(int at, double scale, int n) {
        const double place = (at + 0.5) * scale - 0.5, below = floor(place);
        part = place - below;
        first = static_cast<int>(below);
        if (first < 0) first = 0, part = 0;
        if (first >= n - 1) first = n - 1, part = 0;
        second = min(first + 1, n - 1);
    }
};

template <typename V>
__device__ V mixed(V a, V b, V part) {
    return a + part * (b - a);
}

}  // namespace cudakit

// out[n, y, x] = image[n, y', x'] with y' = (y + ½) height / out_height − ½ and x' alike, between the four pixels around it; where
// not LINEAR, image[n, ⌊y height / out_height⌋, ⌊x width / out_width⌋].
//
// Shapes: image (images, height, width, channels), out (images, out_height, out_width, channels), T, C-contiguous.
// Threads: a warp's do 32 COUNT neighbours of ROWS rows, a block's warps lie on each other; rows of the image that two of them
//   have in common are interpolated once.
// Memory: what is seen of the image, and sizeof(T) bytes a result; by loads of one element, which L1 gathers, and stores of
//   COUNT where they lie for it. No shared memory.
// Preconditions: image and out do not overlap.
// Launch: blocks of (32, any), one for each 32 COUNT × blockDim.y ROWS elements of a result.
// Source: OpenCV's INTER_LINEAR and INTER_NEAREST for where pixels are.
template <typename T, typename V, bool LINEAR, int COUNT, int ROWS>
__global__ void resized(
    const T* __restrict__ image, T* __restrict__ out, int height, int width, int out_height, int out_width, int channels) {
    const unsigned wide = out_width * channels, high = blockDim.y * ROWS;
    const unsigned across = (wide + 32 * COUNT - 1) / (32 * COUNT), down = (out_height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int x = (block % across * 32 + threadIdx.x) * COUNT, y = band % down * high + threadIdx.y * ROWS;
    if (x >= static_cast<int>(wide)) return;
    image += static_cast<long long>(band / down) * height * width * channels;
    out += static_cast<long long>(band / down) * out_height * wide;

    const double y_scale = static_cast<double>(height) / out_height, x_scale = static_cast<double>(width) / out_width;
    int first[COUNT], second[COUNT];
    V part[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const int column = (x + k) / channels, channel = (x + k) % channels;
        if constexpr (LINEAR) {
            const cudakit::between place(column, x_scale, width);
            first[k] = place.first * channels + channel;
            second[k] = place.second * channels + channel;
            part[k] = static_cast<V>(place.part);
        } else {
            first[k] = min(static_cast<int>(column * x_scale), width - 1) * channels + channel;
        }
    }
    const auto row_at = [=](int row) { return image + static_cast<long long>(row) * width * channels; };
    int upper_row = -1, lower_row = -1;
    V upper[COUNT], lower[COUNT];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (y + r >= out_height) break;
        cudakit::pack<T, COUNT> values;
        if constexpr (LINEAR) {
            const cudakit::between place(y + r, y_scale, height);
            const auto along = [&](int row, V(&found)[COUNT]) {
                const T* const from = row_at(row);
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    found[k] = cudakit::mixed(cudakit::as<V>(from[first[k]]), cudakit::as<V>(from[second[k]]), part[k]);
            };
            if (place.first != upper_row) {
                if (place.first == lower_row) {
#pragma unroll
                    for (int k = 0; k < COUNT; ++k) upper[k] = lower[k];
                } else {
                    along(place.first, upper);
                }
                upper_row = place.first;
            }
            if (place.second != lower_row) {
                along(place.second, lower);
                lower_row = place.second;
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                values.values[k] = cudakit::pixel<T>(cudakit::mixed(upper[k], lower[k], static_cast<V>(place.part)));
        } else {
            const T* const from = row_at(min(static_cast<int>((y + r) * y_scale), height - 1));
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values.values[k] = from[first[k]];
        }
        cudakit::store_some(out + static_cast<long long>(y + r) * wide + x, values, static_cast<int>(wide) - x);
    }
}

// out[n, y, x] = image[n, y', x'] with (x', y') = inverse (x, y, 1), between the four pixels around it, of which those outside are
// what `mode` says, or `fill`; where not LINEAR, the nearest.
//
// Shapes: image (images, height, width, channels), out (images, out_height, out_width, channels) of `size` elements, T,
//   C-contiguous; inverse (2, 3), in a struct.
// Threads: one a result, then strides.
// Memory: four elements read, of which L1 and L2 have most, and one written. No shared memory.
// Preconditions: image and out do not overlap.
// Launch: any shape. size = 0 does nothing.
// Source: OpenCV's warpAffine, its positions not rounded to 1/32 of a pixel.
template <typename T, typename V, bool LINEAR, typename Matrix>
__global__ void warped(
    const T* __restrict__ image, T* __restrict__ out, long long size, int height, int width, int out_height, int out_width,
    int channels, int mode, double fill, Matrix inverse) {
    for (long long e = cudakit::thread_in_grid(); e < size; e += cudakit::threads_in_grid()) {
        const int channel = e % channels, x = e / channels % out_width;
        const long long line = e / channels / out_width;
        const int y = line % out_height;
        const T* const own = image + line / out_height * height * width * channels + channel;
        const double u = inverse.all[0] * x + inverse.all[1] * y + inverse.all[2];
        const double v = inverse.all[3] * x + inverse.all[4] * y + inverse.all[5];
        const auto at = [&](int row, int column) {
            row = cudakit::beyond(mode, row, height);
            column = cudakit::beyond(mode, column, width);
            if (row < 0 || column < 0) return static_cast<V>(fill);
            return cudakit::as<V>(own[(static_cast<long long>(row) * width + column) * channels]);
        };
        // So far outside all pixels are alike, or it does not matter which.
        constexpr double FAR = 1 << 30;
        const double across = min(max(LINEAR ? u : u + 0.5, -FAR), FAR), down = min(max(LINEAR ? v : v + 0.5, -FAR), FAR);
        const int left = static_cast<int>(floor(across)), top = static_cast<int>(floor(down));
        if constexpr (LINEAR) {
            const V part = static_cast<V>(across - left);
            const V above = cudakit::mixed(at(top, left), at(top, left + 1), part);
            const V below = cudakit::mixed(at(top + 1, left), at(top + 1, left + 1), part);
            out[e] = cudakit::pixel<T>(cudakit::mixed(above, below, static_cast<V>(down - top)));
        } else {
            out[e] = cudakit::as<T>(at(top, left));
        }
    }
}
