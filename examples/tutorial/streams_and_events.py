"""Streams and events: two streams at work, one waiting for the other where it must, and the time between events.

cudakit puts in the wait that an array's use on two streams needs. An event says so by hand, and measures time.

Prints::

    written on one stream, read on the other: [2. 2. 2.]
    with an event, by hand:                   [4. 4. 4.]
    ... between two events
"""

import numpy as np

import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
""")
first, second = ck.stream(), ck.stream()
n = 100_000
with ck.using(first) as xp:
    x, y, z = xp.ones(n, dtype=xp.float32), xp.empty(n, dtype=xp.float32), xp.empty(n, dtype=xp.float32)

scale(first, ck.cover(n), x, y, 2.0, n)
scale(second, ck.cover(n), y, z, 1.0, n)  # waits for the launch before: it reads y
print(f"written on one stream, read on the other: {ck.to_host(z, second)[:3]}")

scale(first, ck.cover(n), x, y, 4.0, n)
written = first.record()  # an event: all that `first` was given so far
second.wait(written)
scale(second, ck.cover(n), y, z, 1.0, n)
result = ck.to_host(z, second)
np.testing.assert_array_equal(result, np.full(n, 4, np.float32))
print(f"with an event, by hand:                   {result[:3]}")

with ck.Timer(second) as timer:
    for _ in range(10):
        scale(second, ck.cover(n), y, z, 1.0, n)
if ck.has_gpu():
    print(f"ten launches: {timer.elapsed_ms * 1e3:.0f} µs between two events")
else:
    print(f"ten launches: {timer.elapsed_steps} of the emulator's steps between two events")
