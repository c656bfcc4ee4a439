"""Mapped memory: a kernel reads and writes the host's pinned memory in place, over the bus, and nothing is copied.

It is worth it for what is touched once. Memory that the host has already is pinned for a time by `register`.

Prints::

    a pinned array: 1000 elements doubled in place
    an array that was there: doubled in place, while it is registered
    copies on the stream: 0
"""

import numpy as np

import cudakit as ck

double_it = ck.Kernel("""
__global__ void double_it(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
""")
stream = ck.stream()
given = np.arange(1, 1001, dtype=np.float32)
with ck.trace() as trace:
    pinned = ck.empty(given.shape, given.dtype, kind="pinned")
    pinned[:] = given  # the host writes, the kernel reads
    double_it(stream, ck.cover(pinned.size), pinned, pinned.size)
    stream.sync()  # before the host touches it again
    np.testing.assert_array_equal(pinned, given + given)
    print(f"a pinned array: {pinned.size} elements doubled in place")

    there = given.copy()
    with ck.memory.register(there):
        double_it(stream, ck.cover(there.size), there, there.size)
        stream.sync()
    np.testing.assert_array_equal(there, given + given)
    print("an array that was there: doubled in place, while it is registered")
kinds = [span.kind for span in trace.spans]
assert kinds.count("kernel") == 2
assert kinds.count("copy") == 0
print(f"copies on the stream: {kinds.count('copy')}")
