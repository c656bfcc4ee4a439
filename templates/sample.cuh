#include <cudakit/image/border.cuh>
#include <cudakit/grid.cuh>

namespace cudakit {

/// Between which elements of an axis of n a result lies, and how far from the first: pixels are squares that both images share, so
/// that their middles are half a pixel from the rims; beyond the outermost middles the outermost pixel stands.
template <typename V>
struct between {
    int first, second;
    V part;

    /// `step`: from result to result, in 2^−32 of an element.
    __device__ between(int at, long long step, double scale, int n) {
        if constexpr (sizeof(V) == sizeof(double)) {
            const double place = (at + 0.5) * scale - 0.5, below = floor(place);
            part = place - below;
            first = static_cast<int>(below);
        } else {
            const long long place = at * step + step / 2 - (1ll << 31);
            part = static_cast<unsigned>(place) * (1.0f / 4294967296.0f);
            first = static_cast<int>(place >> 32);
        }
        if (first < 0 || first >= n - 1) part = 0;
        first = max(min(first, n - 1), 0);
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
// Preconditions: image and out do not overlap. y_step and x_step are height / out_height and width / out_width in 2^−32, rounded.
// Launch: blocks of (32, any), one for each 32 COUNT × blockDim.y ROWS elements of a result.
// Source: OpenCV's INTER_LINEAR and INTER_NEAREST for where pixels are.
template <typename T, typename V, bool LINEAR, int COUNT, int ROWS>
__global__ void resized(
    const T* __restrict__ image, T* __restrict__ out, int height, int width, int out_height, int out_width, int channels,
    long long y_step, long long x_step) {
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
            const cudakit::between<V> place(column, x_step, x_scale, width);
            first[k] = place.first * channels + channel;
            second[k] = place.second * channels + channel;
            part[k] = place.part;
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
            const cudakit::between<V> place(y + r, y_step, y_scale, height);
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
                values.values[k] = cudakit::pixel<T>(cudakit::mixed(upper[k], lower[k], place.part));
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

// As `resized`, LINEAR, of bytes to half the height and width: means of four, a half upward.
//
// Shapes: image (rows, 2 width), out (rows / 2, width), of all images; width a multiple of 8.
// Threads: one does 8 neighbours of a result, then strides.
// Memory: 4 bytes read and one written a result, by loads of 16 and stores of 8; sums of two pixels are in one register.
// Preconditions: both lie on multiples of 16 bytes.
// Launch: any shape; packs = results / 8.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) halved(
    const unsigned char* __restrict__ image, unsigned char* __restrict__ out, long long packs, int width) {
    constexpr unsigned LOW = 0x00ff00ff;
    for (long long i = cudakit::thread_in_grid(); i < packs; i += cudakit::threads_in_grid()) {
        const long long row = i / (width / 8), x = i % (width / 8);
        const unsigned char* const from = image + row * 4 * width + 16 * x;
        unsigned above[4], below[4], made[2];
        const auto first = cudakit::load_pack<16>(from), second = cudakit::load_pack<16>(from + 2 * width);
        memcpy(above, &first, 16);
        memcpy(below, &second, 16);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            unsigned sums[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const unsigned a = above[2 * k + j], b = below[2 * k + j];
                sums[j] = ((a & LOW) + (a >> 8 & LOW) + (b & LOW) + (b >> 8 & LOW) + 0x00020002) >> 2;
            }
            made[k] = __byte_perm(sums[0], sums[1], 0x6420);
        }
        cudakit::pack<unsigned char, 8> result;
        memcpy(&result, made, 8);
        cudakit::store_pack(out + row * width + 8 * x, result);
    }
}

namespace cudakit {

/// What lies a quarter of a pixel left and right of the middles of COUNT neighbours in a row.
template <typename T, typename V>
struct quarters {
    static constexpr int COUNT = sizeof(T) < 8 ? 8 / sizeof(T) : 1;
    V left[COUNT], right[COUNT];

    __device__ quarters(const T* row, int x, int width) {
        const auto found = load_pack<COUNT>(row + x);
        V values[COUNT + 2];
        values[0] = as<V>(row[max(x - 1, 0)]);
        values[COUNT + 1] = as<V>(row[min(x + COUNT, width - 1)]);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) values[k + 1] = as<V>(found.values[k]);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            left[k] = mixed(values[k], values[k + 1], V(0.75));
            right[k] = mixed(values[k + 1], values[k + 2], V(0.25));
        }
    }
    /// A row of results between two rows: three quarters from the first, or one.
    template <bool FAR>
    static __device__ pack<T, 2 * COUNT> between_rows(const quarters& first, const quarters& second) {
        pack<T, 2 * COUNT> found;
        constexpr V PART = FAR ? V(0.75) : V(0.25);
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            found.values[2 * k] = pixel<T>(mixed(first.left[k], second.left[k], PART));
            found.values[2 * k + 1] = pixel<T>(mixed(first.right[k], second.right[k], PART));
        }
        return found;
    }
};

/// Of bytes four times as much, in whole numbers, two to a word.
template <typename V>
struct quarters<unsigned char, V> {
    static constexpr int COUNT = 8;
    unsigned left[4], right[4];

    __device__ quarters(const unsigned char* row, int x, int width) {
        unsigned own[2];
        const auto found = load_pack<8>(row + x);
        memcpy(own, &found, 8);
        const unsigned before = row[max(x - 1, 0)], after = row[min(x + 8, width - 1)];
        const unsigned between[5] = {
            before | (own[0] & 0xff) << 16,
            __byte_perm(own[0], 0, 0x4241),
            __byte_perm(own[0], own[1], 0x0403) & 0x00ff00ff,
            __byte_perm(own[1], 0, 0x4241),
            own[1] >> 24 | after << 16,
        };
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const unsigned middle = 3 * __byte_perm(own[j / 2], 0, j % 2 == 0 ? 0x4140 : 0x4342);
            left[j] = middle + between[j];
            right[j] = middle + between[j + 1];
        }
    }
    template <bool FAR>
    static __device__ pack<unsigned char, 16> between_rows(const quarters& first, const quarters& second) {
        const quarters &near = FAR ? second : first, &far = FAR ? first : second;
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const unsigned left = 3 * near.left[j] + far.left[j] + 0x00080008, right = 3 * near.right[j] + far.right[j] + 0x00080008;
            words[j] = (left >> 4 & 0x00ff00ff) | (right << 4 & 0xff00ff00);
        }
        pack<unsigned char, 16> found;
        memcpy(&found, words, 16);
        return found;
    }
};

}  // namespace cudakit

// As `resized`, LINEAR, to twice the height and width: each lies a quarter of a pixel from one, and three from the next.
//
// Shapes: image (images, height, width), out (images, 2 height, 2 width), T; width a multiple of COUNT = 8 / sizeof(T), or 1.
// Threads: a warp's do 32 COUNT neighbours of ROWS rows of the image, a block's warps lie on each other.
// Memory: one element read and four written a pixel of the image, by loads of 8 bytes and stores of 16; two bytes are in one
//   register.
// Preconditions: both lie on multiples of 16 bytes.
// Launch: blocks of (32, any), one for each 32 COUNT × blockDim.y ROWS pixels of an image.
template <typename T, typename V, int ROWS>
__global__ void doubled(const T* __restrict__ image, T* __restrict__ out, int height, int width) {
    using Line = cudakit::quarters<T, V>;
    constexpr int WIDE = 32 * Line::COUNT;
    const unsigned high = blockDim.y * ROWS, across = (width + WIDE - 1) / WIDE, down = (height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int x = (block % across * 32 + threadIdx.x) * Line::COUNT, y = band % down * high + threadIdx.y * ROWS;
    if (x >= width || y >= height) return;
    image += static_cast<long long>(band / down) * height * width;
    out += static_cast<long long>(band / down) * height * width * 4 + static_cast<long long>(y) * width * 4 + 2 * x;
    const auto line = [=](int row) {
        return Line(image + static_cast<long long>(max(min(row, height - 1), 0)) * width, x, width);
    };
    Line above = line(y - 1), own = line(y);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (y + r >= height) break;
        const Line below = line(y + r + 1);
        cudakit::store_pack(out, Line::template between_rows<true>(above, own));
        cudakit::store_pack(out + 2 * width, Line::template between_rows<false>(own, below));
        out += 4 * static_cast<long long>(width);
        above = own;
        own = below;
    }
}
