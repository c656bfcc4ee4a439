#pragma once

extern "C" __device__ __cudart_builtin__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

// Whether the body of a loop or branch in a graph runs: flag[0] != 0 and rounds < limit, with one more in rounds, or with
// none on entering.
//
// Shapes: flag one element; rounds one.
// Threads: one.
// Memory: reads one T, reads and writes one counter of 8 bytes.
// Preconditions: handle is the driver's number of a condition of the graph that the launch is captured into.
// Launch: grid 1, block 1; before the conditional node (entering), and last in a loop's body.
// Source: CUDA C++ Programming Guide, Conditional Graph Nodes.
template <typename T>
__global__ void set_condition(unsigned long long handle, const T* __restrict__ flag, unsigned long long* rounds,
                              unsigned long long limit, bool entering) {
    const unsigned long long done = entering ? 0 : *rounds + 1;
    *rounds = done;
    cudaGraphSetConditional(handle, *flag != T(0) && done < limit);
}
