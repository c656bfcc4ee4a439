#include <cudakit/image/border.cuh>
#include <cudakit/grid.cuh>
#include <cudakit/stage.cuh>

namespace cudakit {

/// Between which elements of an axis of n a result lies, and how far from the first: pixels are squares that both images share, so
/// that their middles are half a pixel from the rims; beyond the outermost middles the outermost pixel stands.
template <typename V>
struct alignas(16) between {
    int first, second;
    V part;

    between() = default;
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

/// Warps for whose registers a multiprocessor must have room where images are resized.
template <typename T, bool PACKED>
inline constexpr int resident = sizeof(T) == 1 && !PACKED ? 32 : 24;

/// What COUNT neighbours of a result, in elements, see of a row, and how it becomes pixels between two rows.
template <typename T, typename V, int COUNT>
struct seen {
    struct bare {
        T first[COUNT], second[COUNT];
    };
    int first[COUNT], second[COUNT];
    V part[COUNT];

    __device__ seen(int x, int channels, long long step, double scale, int width) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const int column = channels == 1 ? x + k : (x + k) / channels, channel = x + k - column * channels;
            const between<V> place(column, step, scale, width);
            first[k] = place.first * channels + channel;
            second[k] = place.second * channels + channel;
            part[k] = place.part;
        }
    }
    __device__ void load(const T* from, bare& found) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) found.first[k] = from[first[k]], found.second[k] = from[second[k]];
    }
    __device__ void row(const T*, const bare& given, V (&found)[COUNT]) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) found[k] = mixed(as<V>(given.first[k]), as<V>(given.second[k]), part[k]);
    }
    static __device__ T value(V upper, V lower, V part) { return pixel<T>(mixed(upper, lower, part)); }
};

/// Of bytes, whose weights in a row have 15 bits: what is seen lies in the last bits of 2^23 + 2^14 + 2^15 times as much, so that
/// nothing is converted, and a shift rounds to the nearest, a half upward.
__device__ inline unsigned byte_weights(float part) {
    const unsigned second = __float2uint_rn(part * 32768);
    return (32768 - second) | second << 16;
}
inline constexpr unsigned BYTES_BEGIN = 0x4b000000 + (1 << 14);  // as a float 2^23 + 2^14
template <int COUNT>
struct seen<unsigned char, float, COUNT> {
    int first[COUNT], second[COUNT];
    unsigned weights[COUNT];
    struct bare {
        unsigned pairs[COUNT];
    };

    __device__ seen(int x, int channels, long long step, double scale, int width) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const int column = channels == 1 ? x + k : (x + k) / channels, channel = x + k - column * channels;
            const between<float> place(column, step, scale, width);
            first[k] = place.first * channels + channel;
            second[k] = place.second * channels + channel;
            weights[k] = byte_weights(place.part);
        }
    }
    __device__ void load(const unsigned char* from, bare& found) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) found.pairs[k] = from[first[k]] | from[second[k]] << 8;
    }
    __device__ void row(const unsigned char*, const bare& given, float (&found)[COUNT]) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) found[k] = __uint_as_float(__dp2a_lo(weights[k], given.pairs[k], BYTES_BEGIN));
    }
    static __device__ unsigned char value(float upper, float lower, float part) {
        // Rounded down to whole units, by the pipe of floats: that of integers has more to do.
        return static_cast<unsigned char>(__float_as_uint(__fmaf_rd(mixed(upper, lower, part), 1.0f / 32768, 8388608.0f)));
    }
};

/// Four neighbours' of eight bytes: `chosen` says which two each of them sees.
__device__ inline void four_between(
    unsigned low, unsigned high, const unsigned* chosen, const unsigned* weights, float* found) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        unsigned pairs;  // without the mask of __byte_perm
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(pairs) : "r"(low), "r"(high), "r"(chosen[k / 2]));
        found[k] = __uint_as_float(__dp2a_lo(weights[k], pairs, BYTES_BEGIN));
        found[k + 1] = __uint_as_float(__dp2a_hi(weights[k + 1], pairs, BYTES_BEGIN));
    }
}

/// The same of one channel, where what four neighbours see lies in eight bytes: these are read as words that are aligned, none that
/// nobody needs.
template <int COUNT>
struct seen_words {
    static_assert(COUNT % 4 == 0, "four see eight bytes");
    static constexpr int GROUPS = COUNT / 4;
    int first[GROUPS], last[GROUPS];
    unsigned weights[COUNT], chosen[COUNT / 2];  // of two neighbours the bytes, for one permutation
    struct bare {
        unsigned words[3 * GROUPS];
    };

    __device__ seen_words(int x, long long step, double scale, int width) {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
#pragma unroll
            for (int k = 4 * g; k < 4 * g + 4; ++k) {
                const between<float> place(x + k, step, scale, width);
                if (k == 4 * g) first[g] = place.first;
                const unsigned pair = (place.first - first[g]) | (place.second - first[g]) << 4;
                chosen[k / 2] = k % 2 ? chosen[k / 2] | pair << 8 : pair;
                weights[k] = byte_weights(place.part);
                last[g] = place.second - first[g];
            }
        }
    }
    /// By how many bytes a group begins after a word.
    __device__ unsigned beyond(const unsigned char* from, int g) const {
        return reinterpret_cast<unsigned long long>(from + first[g]) % 4;
    }
    __device__ void load(const unsigned char* from, bare& found) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const unsigned after = beyond(from, g), end = last[g] + after;
            const unsigned* const words = reinterpret_cast<const unsigned*>(from + (first[g] - static_cast<int>(after)));
            found.words[3 * g] = words[0];
            if (end >= 4) found.words[3 * g + 1] = words[1];
            if (end >= 8) found.words[3 * g + 2] = words[2];
        }
    }
    __device__ void row(const unsigned char* from, const bare& given, float (&found)[COUNT]) const {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const unsigned bits = 8 * beyond(from, g);
            const unsigned low = __funnelshift_r(given.words[3 * g], given.words[3 * g + 1], bits);
            const unsigned high = __funnelshift_r(given.words[3 * g + 1], given.words[3 * g + 2], bits);
            four_between(low, high, chosen + 2 * g, weights + 4 * g, found + 4 * g);
        }
    }
};

}  // namespace cudakit

// out[n, y, x] = image[n, y', x'] with y' = (y + ½) height / out_height − ½ and x' alike, between the four pixels around it; where
// not LINEAR, image[n, ⌊y height / out_height⌋, ⌊x width / out_width⌋].
//
// Shapes: image (images, height, width, channels), out (images, out_height, out_width, channels), T, C-contiguous.
// Threads: a warp's do 32 COUNT neighbours of ROWS rows, a block's warps lie on each other; rows of the image that two of them
//   have in common are interpolated once, and what TOGETHER of them see is on its way at once.
// Memory: what is seen of the image, and sizeof(T) bytes a result; by loads of one element, which L1 gathers, or PACKED by words
//   of four bytes, and stores of COUNT where they lie for it. Shared: where the rows lie, 16 WARPS ROWS bytes.
// Preconditions: image and out do not overlap. y_step and x_step are height / out_height and width / out_width in 2^−32, rounded.
//   PACKED: bytes of one channel, LINEAR, COUNT = 4 or 8, width at most twice out_width, all images together whole words.
// Launch: blocks of (32, WARPS), one for each 32 COUNT × WARPS ROWS elements of a result.
// Source: OpenCV's INTER_LINEAR and INTER_NEAREST for where pixels are.
template <typename T, typename V, bool LINEAR, int COUNT, int WARPS, int ROWS, int TOGETHER, bool PACKED = false>
__global__ void __launch_bounds__(32 * WARPS, cudakit::resident<T, PACKED> / WARPS) resized(
    const T* __restrict__ image, T* __restrict__ out, int height, int width, int out_height, int out_width, int channels,
    long long y_step, long long x_step) {
    if constexpr (PACKED) channels = 1;
    const unsigned wide = out_width * channels, high = blockDim.y * ROWS;
    const unsigned across = (wide + 32 * COUNT - 1) / (32 * COUNT), down = (out_height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int x = (block % across * 32 + threadIdx.x) * COUNT, y = band % down * high + threadIdx.y * ROWS;
    const double y_scale = static_cast<double>(height) / out_height, x_scale = static_cast<double>(width) / out_width;
    __shared__ cudakit::between<V> rows[LINEAR ? WARPS * ROWS : 1];
    cudakit::between<V>* const own = rows + (LINEAR ? threadIdx.y * ROWS : 0);
    if constexpr (LINEAR) {
        static_assert(ROWS <= 32, "a lane of the warp does one");
        if (threadIdx.x < ROWS) own[threadIdx.x] = {min(y + static_cast<int>(threadIdx.x), out_height - 1), y_step, y_scale, height};
        __syncwarp();
    }
    if (x >= static_cast<int>(wide)) return;
    image += static_cast<long long>(band / down) * height * width * channels;
    out += static_cast<long long>(band / down) * out_height * wide;

    const auto row_at = [=](int row) { return image + static_cast<long long>(row) * width * channels; };
    const auto put = [=](int r, const cudakit::pack<T, COUNT>& values) {
        cudakit::store_some(out + static_cast<long long>(y + r) * wide + x, values, static_cast<int>(wide) - x);
    };
    if constexpr (PACKED) {
        const cudakit::seen_words<COUNT> columns(x, x_step, x_scale, width);
        typename cudakit::seen_words<COUNT>::bare above, below;
        float upper[COUNT], lower[COUNT];
        int upper_row = -1, lower_row = -1;
        const int count = min(ROWS, out_height - y);
        unsigned char* to = out + static_cast<long long>(y) * wide + x;
        const auto ask = [&](const cudakit::between<V>& place) {
            if (place.first != upper_row && place.first != lower_row) columns.load(row_at(place.first), above);
            if (place.second != lower_row) columns.load(row_at(place.second), below);
        };
        if (count > 0) ask(own[0]);
#pragma unroll 1
        for (int r = 0; r < count; ++r, to += wide) {
            const cudakit::between<V> place = own[r];
            if (place.first == lower_row) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) upper[k] = lower[k];
            } else if (place.first != upper_row) {
                columns.row(row_at(place.first), above, upper);
            }
            if (place.second != lower_row) columns.row(row_at(place.second), below, lower);
            upper_row = place.first, lower_row = place.second;
            // The next rows are on their way while these are mixed.
            if (r + 1 < count) ask(own[r + 1]);
            cudakit::pack<T, COUNT> values;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values.values[k] = cudakit::seen<T, V, COUNT>::value(upper[k], lower[k], place.part);
            cudakit::store_some(to, values, static_cast<int>(wide) - x);
        }
    } else if constexpr (LINEAR) {
        const cudakit::seen<T, V, COUNT> columns(x, channels, x_step, x_scale, width);
        int upper_row = -1, lower_row = -1;
        V upper[COUNT], lower[COUNT];
#pragma unroll
        for (int r = 0; r < ROWS; r += TOGETHER) {
            if (y + r >= out_height) break;
            // All is asked for before any of it is waited for.
            typename cudakit::seen<T, V, COUNT>::bare above[TOGETHER], below[TOGETHER];
            int last_row = lower_row, former_row = upper_row;
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                const cudakit::between<V> place = own[r + j];
                if (place.first != former_row && place.first != last_row) columns.load(row_at(place.first), above[j]);
                if (place.second != last_row) columns.load(row_at(place.second), below[j]);
                former_row = place.first, last_row = place.second;
            }
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                const cudakit::between<V> place = own[r + j];
                if (place.first != upper_row) {
                    if (place.first == lower_row) {
#pragma unroll
                        for (int k = 0; k < COUNT; ++k) upper[k] = lower[k];
                    } else {
                        columns.row(row_at(place.first), above[j], upper);
                    }
                    upper_row = place.first;
                }
                if (place.second != lower_row) {
                    columns.row(row_at(place.second), below[j], lower);
                    lower_row = place.second;
                }
                cudakit::pack<T, COUNT> values;
#pragma unroll
                for (int k = 0; k < COUNT; ++k) values.values[k] = columns.value(upper[k], lower[k], place.part);
                if (y + r + j < out_height) put(r + j, values);
            }
        }
    } else {
        int first[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const int column = (x + k) / channels;
            first[k] = min(static_cast<int>(column * x_scale), width - 1) * channels + (x + k) % channels;
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (y + r >= out_height) break;
            const T* const from = row_at(min(static_cast<int>((y + r) * y_scale), height - 1));
            cudakit::pack<T, COUNT> values;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values.values[k] = from[first[k]];
            put(r, values);
        }
    }
}

// As `resized`, LINEAR, of bytes, whose tiles are in shared memory first: more of the image is on its way than registers hold.
//
// Shapes: image (images, height, width), out (images, out_height, out_width), C-contiguous.
// Threads: a block does 256 × WARPS ROWS results. Its threads find where these lie, load the pixels around them, 16 bytes at a
//   time, a warp a row; then a thread does 8 neighbours of ROWS rows.
// Memory: what is seen of the image, once but for the rims, and a byte a result, by 16 and 8 bytes. Shared: `pitch` bytes for each
//   row of the image that a block sees, and 2 KiB for places. A warp reads one row, 8 width / out_width bytes from lane to lane.
// Preconditions: image and out do not overlap and lie at 16 bytes; width is a multiple of 16, out_width of 8; height and width
//   are at most twice out_height and out_width. `pitch`, a multiple of 16, has room for what 256 neighbours see,
//   from a multiple of 16 on, and 11 bytes more.
// Launch: blocks of (32, WARPS), one for each tile.
// Source: as above.
template <int WARPS, int ROWS>
__global__ void __launch_bounds__(32 * WARPS) resized_bytes(
    const unsigned char* __restrict__ image, unsigned char* __restrict__ out, int height, int width, int out_height, int out_width,
    long long y_step, long long x_step, int pitch) {
    constexpr int COUNT = 8, WIDE = 32 * COUNT, HIGH = WARPS * ROWS;
    extern __shared__ __align__(16) unsigned char tile[];
    __shared__ __align__(16) int firsts[WIDE];
    __shared__ __align__(16) unsigned parts[WIDE];
    __shared__ cudakit::between<float> rows[HIGH];
    const unsigned across = (out_width + WIDE - 1) / WIDE, down = (out_height + HIGH - 1) / HIGH, band = blockIdx.x / across;
    const int x = blockIdx.x % across * WIDE, y = band % down * HIGH;
    image += static_cast<long long>(band / down) * height * width;
    out += static_cast<long long>(band / down) * out_height * out_width;
    const int thread = threadIdx.y * 32 + threadIdx.x;
    static_assert(WIDE % (32 * WARPS) == 0 && HIGH <= 32 * WARPS, "each thread finds as many places");
#pragma unroll
    for (int k = 0; k < WIDE / (32 * WARPS); ++k) {
        const int i = thread + k * 32 * WARPS;
        const cudakit::between<float> place(min(x + i, out_width - 1), x_step, 0, width);
        firsts[i] = place.first;
        parts[i] = cudakit::byte_weights(place.part);
    }
    if (thread < HIGH) rows[thread] = {min(y + thread, out_height - 1), y_step, 0, height};
    __syncthreads();
    const int left = firsts[0] / 16 * 16, top = rows[0].first, bottom = rows[HIGH - 1].second;
    // Threads read words of 12 bytes, of which the last may lie beyond the row: weights of 0 are for those.
    const int wanted = (firsts[WIDE - 1] + 27 - left) / 16 * 16, bytes = min(wanted, width - left);
    for (int i = threadIdx.x * 16; i < wanted; i += 32 * 16) {
        const unsigned char* from = image + static_cast<long long>(top + threadIdx.y) * width + left + i;
        unsigned char* to = tile + threadIdx.y * pitch + i;
#pragma unroll 4
        for (int row = top + threadIdx.y; row <= bottom; row += WARPS, from += WARPS * 1ll * width, to += WARPS * pitch)
            cudakit::stage<16>(to, from, i < bytes ? 16 : 0);
    }
    cudakit::close_stage();
    cudakit::wait_for_stages<0>();
    __syncthreads();

    const int own = threadIdx.x * COUNT, count = min(ROWS, out_height - y - static_cast<int>(threadIdx.y) * ROWS);
    if (x + own >= out_width || count <= 0) return;
    int begin[2];
    unsigned bits[2], chosen[COUNT / 2], weights[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const int after = firsts[own + k] - firsts[own + k / 4 * 4];
        const unsigned pair = after | (after + 1) << 4;
        chosen[k / 2] = k % 2 ? chosen[k / 2] | pair << 8 : pair;
        weights[k] = parts[own + k];
    }
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        const int at = firsts[own + 4 * g] - left;
        begin[g] = at / 4 * 4, bits[g] = at % 4 * 8;
    }
    const auto read = [&](int row, float (&found)[COUNT]) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const unsigned* const words = reinterpret_cast<const unsigned*>(tile + (row - top) * pitch + begin[g]);
            const unsigned low = __funnelshift_r(words[0], words[1], bits[g]);
            const unsigned high = __funnelshift_r(words[1], words[2], bits[g]);
            cudakit::four_between(low, high, chosen + 2 * g, weights + 4 * g, found + 4 * g);
        }
    };
    float upper[COUNT], lower[COUNT];
    int upper_row = -1, lower_row = -1;
    unsigned char* to = out + static_cast<long long>(y + threadIdx.y * ROWS) * out_width + x + own;
#pragma unroll 1
    for (int r = 0; r < count; ++r, to += out_width) {
        const cudakit::between<float> place = rows[threadIdx.y * ROWS + r];
        if (place.first == lower_row) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) upper[k] = lower[k];
        } else if (place.first != upper_row) {
            read(place.first, upper);
        }
        if (place.second != lower_row) read(place.second, lower);
        upper_row = place.first, lower_row = place.second;
        cudakit::pack<unsigned char, COUNT> values;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            values.values[k] = cudakit::seen<unsigned char, float, COUNT>::value(upper[k], lower[k], place.part);
        cudakit::store_pack(to, values);
    }
}

namespace cudakit {

/// A place along an axis: the element below it, and how far it lies beyond that.
template <typename V, bool NEAR>
struct place {
    int below;
    V part;

    place() = default;
    /// So far outside all pixels are alike, or it does not matter which.
    __device__ explicit place(double at) {
        if constexpr (sizeof(V) == sizeof(double)) {
            constexpr double FAR = 1 << 30;
            at = min(max(at, -FAR), FAR);
            below = static_cast<int>(floor(at));
            part = at - below;
        } else {
            // Added to 1.5 × 2^29, it has 23 bits of its part in its last bits, then the whole: nothing is converted.
            constexpr double FAR = 1 << 26;
            if constexpr (!NEAR) at = fabs(at) < FAR ? at : copysign(FAR, at);
            const long long bits = __double_as_longlong(at + 805306368.0);
            below = static_cast<int>(bits >> 23 & 0x1fffffff) - (1 << 28);
            // As a float, 1 and the part.
            part = __uint_as_float(0x3f800000 | (static_cast<unsigned>(bits) & 0x7fffff)) - 1.0f;
        }
    }
};

}  // namespace cudakit

// out[n, y, x] = image[n, y', x'] with (x', y') = inverse (x, y, 1), between the four pixels around it, of which those outside are
// what `mode` says, or `fill`; where not LINEAR, the nearest.
//
// Shapes: image (images, height, width, channels), out (images, out_height, out_width, channels), T, C-contiguous; inverse
//   (2, 3), in a struct.
// Threads: one for ROWS results, a warp for ACROSS neighbours of 32 / ACROSS rows, ROWS times, a block's warps on each other.
// Memory: four elements read, of which L1 and L2 have most, and one written. No shared memory. A warp's loads take as long as
//   the rows that they meet, whose number ACROSS decides.
// Preconditions: image and out do not overlap. Heights and widths are below 2^26 where V is float. NEAR: so are all places.
//   CHANNELS is their number, or 0. Index holds the elements of an image and of a result.
// Launch: blocks of (32, any), one for each ACROSS × blockDim.y ROWS 32 / ACROSS elements of a result.
// Source: OpenCV's warpAffine, its positions not rounded to 1/32 of a pixel.
template <typename T, typename V, typename Index, bool LINEAR, int ROWS, int ACROSS, int CHANNELS, bool NEAR, typename Matrix>
__global__ void warped(
    const T* __restrict__ image, T* __restrict__ out, int height, int width, int out_height, int out_width, int all_channels,
    int mode, double fill, Matrix inverse) {
    const int channels = CHANNELS == 0 ? all_channels : CHANNELS;
    static_assert(32 % ACROSS == 0, "a warp has whole rows");
    constexpr int DOWN = 32 / ACROSS;
    const unsigned wide = out_width * channels, high = blockDim.y * ROWS * DOWN;
    const unsigned across = (wide + ACROSS - 1) / ACROSS, down = (out_height + high - 1) / high;
    const unsigned block = blockIdx.x, band = block / across;
    const int e = block % across * ACROSS + threadIdx.x % ACROSS;
    const int top = (band < down ? band : band % down) * high + threadIdx.y * DOWN + threadIdx.x / ACROSS;
    if (e >= static_cast<int>(wide)) return;
    const int x = channels == 1 ? e : e / channels, channel = e - x * channels;
    image += channel;
    out += e;
    if (band >= down) {  // a quotient takes as long as half a result
        image += static_cast<long long>(band / down) * height * width * channels;
        out += static_cast<long long>(band / down) * out_height * wide;
    }

    const auto at = [&](int row, int column) {
        row = cudakit::beyond(mode, row, height);
        column = cudakit::beyond(mode, column, width);
        if (row < 0 || column < 0) return static_cast<V>(fill);
        return cudakit::as<V>(image[(static_cast<long long>(row) * width + column) * channels]);
    };
    const double u = inverse.all[0] * x + inverse.all[2], v = inverse.all[3] * x + inverse.all[5];
    const auto row_of = [&](int r) { return top + r * DOWN * static_cast<int>(blockDim.y); };
    if constexpr (LINEAR) {
        using Place = cudakit::place<V, NEAR>;
        Place columns[ROWS], rows[ROWS];
        bool is_inside = true;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            columns[r] = Place(u + inverse.all[1] * row_of(r)), rows[r] = Place(v + inverse.all[4] * row_of(r));
            is_inside &= static_cast<unsigned>(rows[r].below) < static_cast<unsigned>(height - 1);
            is_inside &= static_cast<unsigned>(columns[r].below) < static_cast<unsigned>(width - 1);
        }
        V four[ROWS][4];
        if (is_inside) {
            // All at once: so many loads are on their way together.
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const T* const from = image + (static_cast<Index>(rows[r].below) * width + columns[r].below) * channels;
                const T* const under = from + static_cast<Index>(width) * channels;
                four[r][0] = cudakit::as<V>(from[0]), four[r][1] = cudakit::as<V>(from[channels]);
                four[r][2] = cudakit::as<V>(under[0]), four[r][3] = cudakit::as<V>(under[channels]);
            }
        } else {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int k = 0; k < 4; ++k) four[r][k] = at(rows[r].below + k / 2, columns[r].below + k % 2);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (row_of(r) >= out_height) break;
            const V above = cudakit::mixed(four[r][0], four[r][1], columns[r].part);
            const V below = cudakit::mixed(four[r][2], four[r][3], columns[r].part);
            out[static_cast<Index>(row_of(r)) * wide] = cudakit::pixel<T>(cudakit::mixed(above, below, rows[r].part));
        }
    } else {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int y = row_of(r);
            if (y >= out_height) break;
            const cudakit::place<V, NEAR> column(u + inverse.all[1] * y + 0.5), row(v + inverse.all[4] * y + 0.5);
            out[static_cast<Index>(y) * wide] = cudakit::as<T>(at(row.below, column.below));
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
