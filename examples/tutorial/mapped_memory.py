"""Mapped memory: a kernel reads and writes the host's memory in place, over the bus.

The device can reach pinned memory, and `ck.memory.register` pins an array that is there already. Nothing is copied,
which pays if each element is touched once. Look at the last line: the trace has no copies.

Prints::

    pinned array:     1000 elements doubled in place
    registered array: 1000 elements doubled in place
    copies:           0
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
host_x = np.arange(1, 1001, dtype=np.float32)
with ck.trace() as trace:
    pinned = ck.empty(host_x.shape, host_x.dtype, kind="pinned")
    pinned[:] = host_x  # the host writes
    double_it(stream, ck.cover(pinned.size), pinned, pinned.size)
    stream.sync()  # before the host reads the array
    np.testing.assert_array_equal(pinned, host_x + host_x)
    print(f"pinned array:     {pinned.size} elements doubled in place")

    registered = host_x.copy()
    with ck.memory.register(registered):
        double_it(stream, ck.cover(registered.size), registered, registered.size)
        stream.sync()
    np.testing.assert_array_equal(registered, host_x + host_x)
    print(f"registered array: {registered.size} elements doubled in place")
span_kinds = [span.kind for span in trace.spans]
assert span_kinds.count("kernel") == 2
assert span_kinds.count("copy") == 0
print(f"copies:           {span_kinds.count('copy')}")
