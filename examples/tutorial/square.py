"""A first kernel: square each element of an array, with one thread for each element.

The array is copied to the device, a kernel runs in 4 blocks of 256 threads, and the result is copied back. Look at the
`if (i < n)`: the last block has more threads than there are elements left. The ready-made function is `ck.math.square`.

Prints::

    on the host:   [-2. -1.  0.  1.  2.] …
    on the device: 1000 elements in 4 blocks of 256 threads
    back again:    [4. 1. 0. 1. 4.] …, equal to NumPy's
"""

import numpy as np

import cudakit as ck

square = ck.Kernel("""
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // this thread's element
    if (i < n) y[i] = x[i] * x[i];                  // the last block has more threads than elements
}
""")

host_x = np.arange(-2, 998, dtype=np.float32)
print(f"on the host:   {host_x[:5]} …")

stream = ck.stream()
x = ck.to_device(host_x, stream)  # a copy in the device's memory
y = ck.empty(host_x.shape, host_x.dtype, stream=stream)
threads = 256
blocks = -(-x.size // threads)  # rounded up; ck.cover(x.size) computes them by itself
square(stream, ck.config(blocks, threads), x, y, x.size)
print(f"on the device: {x.size} elements in {blocks} blocks of {threads} threads")

result = ck.to_host(y, stream)  # waits for the result
np.testing.assert_array_equal(result, host_x**2)
print(f"back again:    {result[:5]} …, equal to NumPy's")
