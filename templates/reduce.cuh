#include <cudakit/accumulator.cuh>
#include <cudakit/block.cuh>
#include <cudakit/monoid.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/ticket.cuh>

// out = op over x[0 … size), in an order that depends on size and launch shape alone: the same bits on each run.
//
// Shapes: x (size), T, C-contiguous; out (1); partials (gridDim.x), Acc; ticket (1), 0 before and after.
// Threads: a block does tiles of BLOCK · ITEMS packs of 16 bytes, then strides; the block that comes last combines the
//   blocks' partial results in their order.
// Memory: sizeof(T) bytes an element, by 16-byte loads, ITEMS of them in flight; one element at a time at the end.
// Preconditions: x is aligned to 16 bytes.
// Launch: one-dimensional, BLOCK threads a block.
// Source: Harris, Optimizing parallel reduction in CUDA (2007); the last-block pattern of NVIDIA's threadFenceReduction.
template <typename T, typename Out, typename Acc, typename Op, int BLOCK = 512, int ITEMS = 4>
__global__ void __launch_bounds__(BLOCK) whole(
    const T* __restrict__ x, Out* __restrict__ out, unsigned char* __restrict__ workspace, long long size) {
    unsigned int* const ticket = reinterpret_cast<unsigned int*>(workspace);
    Acc* const partials = reinterpret_cast<Acc*>(workspace + 4096);
    constexpr int COUNT = 16 / sizeof(T);
    using Pack = cudakit::pack<T, COUNT>;
    __shared__ cudakit::block_reduce_storage<Acc, BLOCK> storage;
    const Op op;
    const Pack* const packs = reinterpret_cast<const Pack*>(x);
    const long long count = size / COUNT;

    Acc own[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) own[k] = Op::template identity<Acc>();
    const long long step = static_cast<long long>(gridDim.x) * BLOCK * ITEMS;
    long long i = static_cast<long long>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x;
    for (; i + BLOCK * (ITEMS - 1) < count; i += step) {
        Pack pack[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) pack[j] = packs[i + j * BLOCK];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
#pragma unroll
            for (int k = 0; k < COUNT; ++k) own[k] = op(own[k], static_cast<Acc>(pack[j].values[k]));
    }
    for (; i < count; i += BLOCK)
        for (int k = 0; k < COUNT; ++k) own[k] = op(own[k], static_cast<Acc>(packs[i].values[k]));
    Acc sum = own[0];
#pragma unroll
    for (int k = 1; k < COUNT; ++k) sum = op(sum, own[k]);
    const long long tail = count * COUNT + threadIdx.x;
    if (blockIdx.x == 0 && tail < size) sum = op(sum, static_cast<Acc>(x[tail]));
    sum = cudakit::block_reduce<BLOCK>(sum, op, storage);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    if (!cudakit::is_last_block(ticket, gridDim.x)) return;
    sum = Op::template identity<Acc>();
    for (int block = threadIdx.x; block < gridDim.x; block += BLOCK) sum = op(sum, partials[block]);
    sum = cudakit::block_reduce<BLOCK>(sum, op, storage);
    if (threadIdx.x == 0) *out = static_cast<Out>(sum);
}
