// The sum of an array three times: as one writes it first, so that memory is read well, and as fast as memory goes.
#include <cudakit/block.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/ticket.cuh>

// *out += Σ x[0 … size), naive: a thread sums a stretch of its own, as a loop on a CPU would be cut among cores.
//
// Memory: at each step the 32 threads of a warp read 32 places a stretch apart: 32 sectors of 32 bytes are fetched for
//   the 128 bytes that are used. The other bytes are wanted at the next steps, if they are still in the cache by then.
// Order: threads add to *out as they finish, another order each time, so the last bits differ from run to run.
__global__ void naive(const float* __restrict__ x, float* __restrict__ out, long long size) {
    const long long thread = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    const long long stretch = (size + threads - 1) / threads;
    float sum = 0;
    for (long long i = thread * stretch; i < min(size, (thread + 1) * stretch); ++i) sum += x[i];
    atomicAdd(out, sum);
}

// The same, coalesced: neighbouring threads read neighbouring elements, then all go on by the number of threads.
//
// Memory: a warp's load is 128 neighbouring bytes: 4 sectors, every byte used. What is left to gain: a load has 4 bytes,
//   and a thread asks for no more of them ahead than the compiler unrolls the loop to.
// Order: a block's threads combine in a fixed order; blocks still add to *out as they finish.
__global__ void __launch_bounds__(512) coalesced(
    const float* __restrict__ x, float* __restrict__ out, long long size) {
    __shared__ cudakit::block_reduce_storage<float, 512> storage;
    float sum = 0;
    for (long long i = blockIdx.x * 512ll + threadIdx.x; i < size; i += gridDim.x * 512ll) sum += x[i];
    sum = cudakit::block_reduce<512>(sum, cudakit::plus(), storage);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

// *out = Σ x[0 … size), fast: what cudakit.ops.sum does, with the cases taken away that only other types and shapes need.
//
// Memory: 16 bytes a load, and 8 loads asked for before the first is used: 128 bytes a thread, 128 KiB a multiprocessor
//   under way with 1024 threads on it.
// Order: each block leaves its sum in `sums`; the block that comes last adds these up, in their order: the same bits on
//   each run, and *out need not be 0 before. `ticket` is 0 before and after.
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
