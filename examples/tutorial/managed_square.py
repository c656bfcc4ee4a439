"""Managed memory: one array that the host writes, the device squares, and the host reads, with no copy in between.

Prints::

    [0. 1. 2. 3. 4.]
    [ 0.  1.  4.  9. 16.]
"""

import numpy as np

import cudakit as ck

square = ck.Kernel("""
__global__ void square(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= x[i];
}
""")

stream = ck.stream()
x = ck.empty(5, np.float32, kind="managed", stream=stream)
on_host = ck.memory.host_view(x)  # the same memory, as NumPy sees it
stream.sync()  # the memory is there once the stream has come to it
on_host[:] = np.arange(5)
print(on_host)
square(stream, ck.cover(x.size), x, x.size)
stream.sync()  # the host reads what the device wrote: it must have done so
print(on_host)
np.testing.assert_array_equal(on_host, np.arange(5) ** 2)
