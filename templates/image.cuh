#include <cudakit/accumulator.cuh>
#include <cudakit/grid.cuh>
#include <cudakit/pack.cuh>

namespace cudakit {

// 65536 × (0.299, 0.587, 0.114), rounded so that they add up to 65536: white stays white. 32768 rounds to nearest.
__device__ inline unsigned char luma(unsigned char red, unsigned char green, unsigned char blue) {
    return static_cast<unsigned char>((19595u * red + 38470u * green + 7471u * blue + 32768u) >> 16);
}
// The same of four pixels in three words: the weights' upper and lower bytes, red first, times four bytes in one instruction.
__device__ inline unsigned luma(unsigned a, unsigned b, unsigned c) {
    constexpr unsigned UPPER = 0x1d964c, LOWER = 0x2f468b;
    const auto sum = [](unsigned bytes, unsigned upper, unsigned lower) {
        return (__dp4a(bytes, upper, 0u) << 8) + __dp4a(bytes, lower, 32768u);
    };
    const unsigned first = sum(a, UPPER, LOWER), second = sum(__funnelshift_r(a, b, 24), UPPER, LOWER);
    const unsigned third = sum(__funnelshift_r(b, c, 16), UPPER, LOWER), fourth = sum(c, UPPER << 8, LOWER << 8);
    return __byte_perm(__byte_perm(first, second, 0x0062), __byte_perm(third, fourth, 0x0062), 0x5410);
}
__device__ inline float luma(float red, float green, float blue) {
    return 0.299f * red + 0.587f * green + 0.114f * blue;
}
__device__ inline double luma(double red, double green, double blue) {
    return 0.299 * red + 0.587 * green + 0.114 * blue;
}

// (1, 4, 6, 4, 1) at `step`: weights 16, so that two passes weigh 256.
template <typename Acc, typename T>
__device__ Acc binomial(const T* first, int step) {
    const Acc outer = static_cast<Acc>(first[0]) + static_cast<Acc>(first[4 * step]);
    const Acc inner = static_cast<Acc>(first[step]) + static_cast<Acc>(first[3 * step]);
    return outer + Acc(4) * inner + Acc(6) * static_cast<Acc>(first[2 * step]);
}

}  // namespace cudakit

// out[p] = 0.299 red[p] + 0.587 green[p] + 0.114 blue[p]; for unsigned char in 16-bit fixed point, to the nearest.
//
// Shapes: rgb (pixels, 3) and out (pixels), T, C-contiguous; T is unsigned char, float or double.
// Threads: thread i does pixels COUNT i to COUNT i + COUNT − 1, then strides; COUNT pixels are 16 bytes of a channel. One pixel at
//   a time for the last pixels % COUNT, and where a pointer is not aligned to 16 bytes.
// Memory: 4 sizeof(T) bytes a pixel, by three loads and one store of 16 bytes; no shared memory.
// Preconditions: rgb and out do not overlap.
// Launch: any shape; ceil(pixels / COUNT) threads are enough. pixels = 0 does nothing.
// Source: ITU-R BT.601-7, 2.5.1. The fixed-point weights are those of libImaging (Pillow), Convert.c.
template <typename T>
__global__ void gray(const T* __restrict__ rgb, T* __restrict__ out, long long pixels) {
    constexpr int COUNT = 16 / sizeof(T);
    const long long first = cudakit::thread_in_grid(), step = cudakit::threads_in_grid();
    long long done = 0;
    if (cudakit::is_aligned<cudakit::pack<T, COUNT>>(rgb) && cudakit::is_aligned<cudakit::pack<T, COUNT>>(out)) {
        for (long long i = first; i < pixels / COUNT; i += step) {
            cudakit::pack<T, COUNT> parts[3], result;
#pragma unroll
            for (int k = 0; k < 3; ++k) parts[k] = cudakit::load_pack<COUNT>(rgb + (3 * i + k) * COUNT);
            if constexpr (sizeof(T) == 1) {
                unsigned words[12], grays[4];
                memcpy(words, parts, sizeof(words));
#pragma unroll
                for (int k = 0; k < 4; ++k) grays[k] = cudakit::luma(words[3 * k], words[3 * k + 1], words[3 * k + 2]);
                memcpy(&result, grays, sizeof(grays));
            } else {
                const auto channel = [&](int k) { return parts[k / COUNT].values[k % COUNT]; };
#pragma unroll
                for (int k = 0; k < COUNT; ++k)
                    result.values[k] = cudakit::luma(channel(3 * k), channel(3 * k + 1), channel(3 * k + 2));
            }
            cudakit::store_pack(out + i * COUNT, result);
        }
        done = pixels / COUNT * COUNT;
    }
    for (long long p = done + first; p < pixels; p += step)
        out[p] = cudakit::luma(rgb[3 * p], rgb[3 * p + 1], rgb[3 * p + 2]);
}

// out[y, x] = Σ b[i] b[j] image[clamp(y + i − 2), clamp(x + j − 2)] / 256 over i, j < 5, with b = (1, 4, 6, 4, 1);
// for integers to the nearest, a half upward.
//
// Shapes: image and out (height, width), T, C-contiguous; T is an integer of 8 or 16 bits, or a floating-point type.
// Threads: a block does a tile of TILE_Y × TILE_X, then strides; of each pass (load with the halo of 2, filter along x,
//   filter along y) its thread t does elements t, t + threads, ….
// Memory: 2 sizeof(T) bytes an element, and the halo, (1 + 4/TILE_X)(1 + 4/TILE_Y) − 1 = 0.41 more reads, mostly met by
//   L2. Shared: the tile with its halo, T, and the rows filtered, window_accumulator_t<T>. Neither needs padding: a
//   warp reads along a row, neighbours from neighbouring banks, which TILE_X as a multiple of 32 ensures.
// Preconditions: image and out do not overlap.
// Launch: any shape; blocks of TILE_X × TILE_Y / 2 or so, one a tile, are a good one. An empty image does nothing.
// Source: the binomial filter, e.g. Jähne, Digital Image Processing, 6th ed., 11.4.
template <typename T, int TILE_X = 32, int TILE_Y = 16>
__global__ void blur(const T* __restrict__ image, T* __restrict__ out, long long height, long long width) {
    static_assert(TILE_X > 0 && TILE_X % 32 == 0, "a warp must lie in one row of the tile, or its reads share banks");
    static_assert(TILE_Y > 0, "a tile has rows");
    using Acc = cudakit::window_accumulator_t<T>;
    constexpr bool IS_INTEGER = Acc(1) / Acc(2) == Acc(0);
    static_assert(!IS_INTEGER || sizeof(T) <= 2, "256 times a wider integer may not fit its accumulator");
    constexpr int HALO = 2, WIDE = TILE_X + 2 * HALO, HIGH = TILE_Y + 2 * HALO;
    __shared__ T tile[HIGH * WIDE];
    __shared__ Acc rows[HIGH * TILE_X];

    const int thread = cudakit::thread_in_block(), threads = cudakit::threads_in_block();
    const long long tiles_x = (width + TILE_X - 1) / TILE_X, tiles_y = (height + TILE_Y - 1) / TILE_Y;
    for (long long t = cudakit::block_in_grid(); t < tiles_x * tiles_y; t += cudakit::blocks_in_grid()) {
        const long long top = t / tiles_x * TILE_Y, left = t % tiles_x * TILE_X;
        for (int i = thread; i < HIGH * WIDE; i += threads) {
            const long long y = min(max(top + i / WIDE - HALO, 0ll), height - 1);
            const long long x = min(max(left + i % WIDE - HALO, 0ll), width - 1);
            tile[i] = image[y * width + x];
        }
        __syncthreads();
        for (int i = thread; i < HIGH * TILE_X; i += threads)
            rows[i] = cudakit::binomial<Acc>(tile + i / TILE_X * WIDE + i % TILE_X, 1);
        __syncthreads();
        for (int i = thread; i < TILE_Y * TILE_X; i += threads) {
            const long long y = top + i / TILE_X, x = left + i % TILE_X;
            if (y < height && x < width) {
                const Acc sum = cudakit::binomial<Acc>(rows + i, TILE_X);
                if constexpr (IS_INTEGER)
                    out[y * width + x] = static_cast<T>((sum + 128) >> 8);
                else
                    out[y * width + x] = static_cast<T>(sum * Acc(1.0 / 256));
            }
        }
        // No barrier here: the next round writes tile, whose last readers passed the barrier above, and rows only after
        // the next one.
    }
}
