"""A first kernel: square each element of an array, one thread an element.

Prints::

    on the host:   [-2. -1.  0.  1.  2.] …
    on the device: 1000 elements in 4 blocks of 256 threads
    back again:    [4. 1. 0. 1. 4.] …, all as NumPy has them
"""

import numpy as np

import cudakit as ck

square = ck.Kernel("""
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // this thread's element
    if (i < n) y[i] = x[i] * x[i];                  // the last block may have threads to spare
}
""")

given = np.arange(-2, 998, dtype=np.float32)
print(f"on the host:   {given[:5]} …")

stream = ck.stream()
x = ck.to_device(given, stream)  # a copy in the device's memory
y = ck.empty(given.shape, given.dtype, stream=stream)
threads = 256
blocks = -(-x.size // threads)  # rounded up; ck.cover(x.size) counts them by itself
square(stream, ck.config(blocks, threads), x, y, x.size)
print(f"on the device: {x.size} elements in {blocks} blocks of {threads} threads")

result = ck.to_host(y, stream)  # waits until it is there
np.testing.assert_array_equal(result, given**2)
print(f"back again:    {result[:5]} …, all as NumPy has them")
