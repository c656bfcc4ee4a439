// Where a thread stands, counted over a launch of any shape, so that a grid-stride loop is right for all of them.
#pragma once

namespace cudakit {

/// The number of this thread in its block, x fastest.
__device__ inline int thread_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
/// How many threads a block has.
__device__ inline int threads_in_block() {
    return blockDim.x * blockDim.y * blockDim.z;
}
/// The number of this block in the grid, x fastest.
__device__ inline long long block_in_grid() {
    return blockIdx.x + gridDim.x * (blockIdx.y + static_cast<long long>(gridDim.y) * blockIdx.z);
}
/// How many blocks the grid has.
__device__ inline long long blocks_in_grid() {
    return static_cast<long long>(gridDim.x) * gridDim.y * gridDim.z;
}
/// The number of this thread in the grid, block after block.
__device__ inline long long thread_in_grid() {
    return block_in_grid() * threads_in_block() + thread_in_block();
}
/// How many threads the grid has.
__device__ inline long long threads_in_grid() {
    return blocks_in_grid() * threads_in_block();
}

}  // namespace cudakit
