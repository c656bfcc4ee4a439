// The sum of an array by three kernels: naive, coalesced, and as fast as memory.
#include <cudakit/block.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/ticket.cuh>

// *out += Σ x[0 … size), naive: each thread sums a part of its own, as cores of a CPU would.
//
// Memory: at each step the 32 threads of a warp read 32 elements that are far apart: 32 sectors of 32 bytes are read, and
//   128 bytes are used. The next steps need the other bytes, if the cache still holds them.
// Order: threads add to *out as they finish, so the last bits differ from run to run.
__global__ void naive(const float* __restrict__ x, float* __restrict__ out, long long size) {
    const long long thread = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    const long long length = (size + threads - 1) / threads;
    float sum = 0;
    for (long long i = thread * length; i < min(size, (thread + 1) * length); ++i) sum += x[i];
    atomicAdd(out, sum);
}

// The same, coalesced: neighbouring threads read neighbouring elements, then all go on by the number of threads.
//
// Memory: a load of a warp reads 128 neighbouring bytes: 4 sectors, every byte used. Not best yet: a load of a thread has
//   only 4 bytes, and few loads are under way at once, as many as the compiler unrolls the loop to.
// Order: the threads of a block combine in a fixed order; blocks still add to *out as they finish.
__global__ void __launch_bounds__(512) coalesced(
    const float* __restrict__ x, float* __restrict__ out, long long size) {
    __shared__ cudakit::block_reduce_storage<float, 512> storage;
    float sum = 0;
    for (long long i = blockIdx.x * 512ll + threadIdx.x; i < size; i += gridDim.x * 512ll) sum += x[i];
    sum = cudakit::block_reduce<512>(sum, cudakit::plus(), storage);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

// *out = Σ x[0 … size), fast: as cudakit.ops.sum, without its cases for other types and shapes.
//
// Memory: a load has 16 bytes, and 8 loads start before the first is used. That is 128 bytes under way in each thread, and
//   128 KiB in a multiprocessor with 1024 threads.
// Order: each block writes its sum to `sums`. The last block to finish adds them up, in their order, so every run gives
//   the same bits. *out need not be 0 before. `ticket` is 0 before and after.
// Preconditions: x is aligned to 16 bytes.
__global__ void __launch_bounds__(512) fast(
    const float* __restrict__ x, float* __restrict__ out, float* __restrict__ sums, unsigned int* __restrict__ ticket,
    long long size) {
    constexpr int ITEMS = 8, TILE = 512 * ITEMS;
    using Pack = cudakit::pack<float, 4>;
    __shared__ cudakit::block_reduce_storage<float, 512> storage;
    const Pack* const packs = reinterpret_cast<const Pack*>(x);
    const long long tiles = size / 4 / TILE;
    float sum = 0;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Pack pack[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) pack[j] = packs[tile * TILE + j * 512 + threadIdx.x];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const float* const v = pack[j].values;
            sum += (v[0] + v[1]) + (v[2] + v[3]);
        }
    }
    for (long long i = tiles * TILE * 4 + blockIdx.x * 512ll + threadIdx.x; i < size; i += gridDim.x * 512ll)
        sum += x[i];
    sum = cudakit::block_reduce<512>(sum, cudakit::plus(), storage);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!cudakit::is_last_block(ticket, gridDim.x)) return;
    sum = 0;
    for (int block = threadIdx.x; block < gridDim.x; block += 512) sum += sums[block];
    sum = cudakit::block_reduce<512>(sum, cudakit::plus(), storage);
    if (threadIdx.x == 0) *out = sum;
}
