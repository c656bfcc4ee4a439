"""Managed memory: one array that host and device both read and write, without copies.

The host writes the array, the device squares it, and the host reads it. Look at the two `stream.sync()`: the host waits
before it touches what the device may still use.

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
on_host = ck.memory.host_view(x)  # the same memory as a NumPy array
stream.sync()  # waits until the memory is allocated
on_host[:] = np.arange(5)
print(on_host)
square(stream, ck.cover(x.size), x, x.size)
stream.sync()  # waits until the device has written
print(on_host)
np.testing.assert_array_equal(on_host, np.arange(5) ** 2)
