"""Why a block synchronises: without __syncthreads() a thread reads what its neighbour has not written yet.

Each thread writes to shared memory and reads another's value. The kernel without the barrier is wrong wherever the
writer is slower than the reader, which here it is made to be.

Prints::

    with __syncthreads():    every element is right
    without __syncthreads(): ... of 64 elements are wrong
"""

import numpy as np

import cudakit as ck

SOURCE = """
template <bool SYNCHRONISED>
__global__ void reverse(const int* x, int* y) {
    __shared__ int values[64];
    values[threadIdx.x] = -1;
    __syncthreads();
    if (threadIdx.x >= 32)  // the second warp is late
        for (int i = 0; i < 1000; ++i) __nanosleep(100);
    values[threadIdx.x] = x[threadIdx.x];
    if (SYNCHRONISED) __syncthreads();
    y[threadIdx.x] = values[63 - threadIdx.x];
}
"""
reverse = ck.Kernel(SOURCE)
stream = ck.stream()
x = np.arange(64, dtype=np.int32)
for synchronised, words in ((True, "with __syncthreads():   "), (False, "without __syncthreads():")):
    y = np.empty_like(x)
    reverse[synchronised](stream, ck.config(1, 64), ck.In(x), ck.Out(y))
    stream.sync()
    wrong = int((y != x[::-1]).sum())
    assert (wrong == 0) == synchronised
    print(f"{words} {f'{wrong} of {x.size} elements are wrong' if wrong else 'every element is right'}")
