// The condition of a loop or branch in a graph: flag[0] != 0, for at most `limit` rounds.
//
// Threads: one.
// Memory: reads one T, reads and writes one counter of 8 bytes.
// Launch: grid 1, block 1; before the conditional node (entering), and last in a loop's body.
// Source: CUDA C++ Programming Guide, Conditional Graph Nodes.
#pragma once

extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

/// handle: the driver's number of the condition. rounds: how many the loop has begun.
template <typename T>
__global__ void set_condition(unsigned long long handle, const T* __restrict__ flag, unsigned long long* rounds,
                              unsigned long long limit, bool entering) {
    const unsigned long long done = entering ? 0 : *rounds + 1;
    *rounds = done;
    cudaGraphSetConditional(handle, *flag != T(0) && done < limit);
}
