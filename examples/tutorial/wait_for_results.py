"""Wait for results: a launch returns before its work is done, and the host must wait before it reads.

`ck.to_host` waits for the array that it returns, and `stream.sync()` for all work of a stream. `Device.sync()`, which
waits for all streams of a GPU, is in setup_check.py. The emulator's work is done when the call returns; write the wait
all the same, or the program is wrong on a GPU.

Prints::

    ck.to_host:    waits for the array that it returns
    stream.sync(): waits for the work of one stream, a queued copy too
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
host_x = np.arange(1000, dtype=np.float32)
x = ck.to_device(host_x, stream)

# 1. to_host waits by itself.
double_it(stream, ck.cover(x.size), x, x.size)
np.testing.assert_array_equal(ck.to_host(x, stream), 2 * host_x)
print("ck.to_host:    waits for the array that it returns")

# 2. With wait=False the copy is only queued; the target is pinned memory. An event says when it is done.
result = ck.empty(x.size, np.float32, kind="pinned")
result[:] = -1
double_it(stream, ck.cover(x.size), x, x.size)
ck.to_host(x, stream, out=result, wait=False)
copied = stream.record()
stream.sync()
assert copied.is_done
np.testing.assert_array_equal(result, 4 * host_x)
print("stream.sync(): waits for the work of one stream, a queued copy too")
