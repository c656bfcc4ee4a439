// Which block of a launch comes last: how one kernel does what else takes a second one.
#pragma once

namespace cudakit {

/// Whether this block is the last of `blocks` to come here, the same answer for all its threads; what the others wrote
/// to global memory before they came is then visible to it. `counter` starts at 0 and is left at 0.
/// Every thread of the block must call it.
__device__ inline bool is_last_block(unsigned int* counter, unsigned int blocks) {
    __shared__ bool last;
    __syncthreads();
    // After the barrier one fence does for what all of the block wrote, and before the next for what all will read.
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == blocks - 1;
        if (last) {
            *counter = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return last;
}

}  // namespace cudakit
