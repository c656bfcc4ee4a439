#include <cudakit/pack.cuh>

namespace cudakit {

/// `each(pack)` or, where they do not lie for it, `each(pack of one)` for all elements of an image that this block of `parts` does.
template <typename Each>
__device__ void each_pack(const unsigned char* image, long long size, int part, int parts, const Each& each) {
    const long long first = part * static_cast<long long>(blockDim.x) + threadIdx.x, step = static_cast<long long>(parts) * blockDim.x;
    long long done = 0;
    if (is_aligned<pack<unsigned char, 16>>(image)) {
        done = size / 16 * 16;
        for (long long i = first; i < size / 16; i += step) each(16 * i, load_pack<16>(image + 16 * i));
    }
    for (long long i = done + first; i < size; i += step) each(i, load_pack<1>(image + i));
}

/// Counts a pack's levels.
struct counting {
    unsigned int* counts;
    template <int COUNT>
    __device__ void operator()(long long, const pack<unsigned char, COUNT>& found) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) atomicAdd(counts + found.values[k], 1u);
    }
};

/// Stores what becomes of a pack's levels.
struct replacing {
    const unsigned char* made;
    unsigned char* out;
    template <int COUNT>
    __device__ void operator()(long long at, pack<unsigned char, COUNT> found) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) found.values[k] = made[found.values[k]];
        store_some(out + at, found, COUNT);
    }
};

}  // namespace cudakit

// counts[n, v] += how many pixels of image n are v.
//
// Shapes: image (images, size), unsigned char; counts (images, 256), unsigned int, which begin at zero.
// Threads: a block does a part of one image, of `parts`; its warps count on their own, by atomics in shared memory.
// Memory: one byte a pixel, by loads of 16; shared, 1 KiB a warp. Counters of a warp share no lane's bank by design: pixels decide.
// Preconditions: none.
// Launch: parts × images blocks of BLOCK threads.
// Source: histograms by counters that warps have of their own.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) levels(
    const unsigned char* __restrict__ image, unsigned int* counts, long long size, int parts) {
    static_assert(BLOCK % 32 == 0 && BLOCK >= 256, "a thread adds up one level");
    __shared__ unsigned int own[BLOCK / 32 * 256];
    for (int k = threadIdx.x; k < BLOCK / 32 * 256; k += BLOCK) own[k] = 0;
    __syncthreads();
    const int part = blockIdx.x % parts;
    const long long n = blockIdx.x / parts;
    cudakit::each_pack(image + n * size, size, part, parts, cudakit::counting{own + threadIdx.x / 32 * 256});
    __syncthreads();
    if (threadIdx.x < 256) {
        unsigned int sum = 0;
        for (int warp = 0; warp < BLOCK / 32; ++warp) sum += own[warp * 256 + threadIdx.x];
        if (sum) atomicAdd(counts + n * 256 + threadIdx.x, sum);
    }
}

// out[n, p] = round(255 (C[v] − C[v₀]) / (size − C[v₀])), with v = image[n, p], C the running sum of counts[n] and v₀ the least
// level that there is; v where it is the only one.
//
// Shapes: image and out (images, size), unsigned char; counts (images, 256).
// Threads: a block sums up the counts and does a part of one image, of `parts`.
// Memory: two bytes a pixel, by loads and stores of 16; shared, the new levels and sums.
// Preconditions: size < 2^32.
// Launch: parts × images blocks of 256 threads.
// Source: OpenCV's equalizeHist, for what is rounded when.
template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) equalized(
    const unsigned char* __restrict__ image, const unsigned int* __restrict__ counts, unsigned char* __restrict__ out,
    long long size, int parts) {
    static_assert(BLOCK == 256, "a thread makes one level");
    __shared__ unsigned int sums[256], least;
    __shared__ unsigned char made[256];
    const int part = blockIdx.x % parts, level = threadIdx.x;
    const long long n = blockIdx.x / parts;
    const unsigned int own = counts[n * 256 + level];
    sums[level] = own;
    __syncthreads();
    for (int step = 1; step < 256; step *= 2) {
        const unsigned int before = level >= step ? sums[level - step] : 0;
        __syncthreads();
        sums[level] += before;
        __syncthreads();
    }
    if (own != 0 && sums[level] == own) least = own;
    __syncthreads();
    const float scale = 255.0f / static_cast<float>(static_cast<unsigned int>(size) - least);
    const unsigned int above = max(sums[level], least) - least;
    made[level] = least == size ? level : static_cast<unsigned char>(__float2int_rn(static_cast<float>(above) * scale));
    __syncthreads();
    cudakit::each_pack(image + n * size, size, part, parts, cudakit::replacing{made, out + n * size});
}
