"""Where the time goes: a timeline of copies and kernels, and the host's time for allocation.

A program runs the same work twice; the second round finds code and memory ready. `ck.trace` records what is put on the
stream. Look at its table: which part is busy, and for how long. On the emulator it counts steps, not time. The saved
file opens in ui.perfetto.dev and in chrome://tracing.

Prints::

    round 1: right
    round 2: right
    6036 steps, 8 spans; 1.00 streams busy at a time

    stream  busy    idle     largest gaps
    work    100.0%  0 steps  none

    stage         kind    count  total       mean       busy   GB/s
    to_device     copy    4      3996 steps  999 steps  66.2%
    to_host       copy    2      1998 steps  999 steps  33.1%
    saxpy<float>  kernel  2      42 steps    21 steps   0.7%

    critical: work, busy for 6036 steps of 6036 steps (100%), one after the other: to_device 66%, to_host 33%,
        ↳ saxpy<float> 1%
    timeline: /tmp/cudakit-tutorial/profile.json
"""

import json
import time

import numpy as np
from tutorial_tools import picture_path

import cudakit as ck

saxpy = ck.Kernel("""
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
""")

stream = ck.stream()
saxpy.prepare(np.float32)  # or the first round would be mostly the compiler's
size = (1 << (24 if ck.has_gpu() else 12)) - 100
host_x, host_y = np.ones(size, np.float32), np.full(size, 2, np.float32)
with ck.trace({"work": stream}) as trace:
    for number in (1, 2):
        start = time.perf_counter()
        x, y = (ck.empty(size, np.float32, stream=stream) for _ in range(2))
        allocated = time.perf_counter()
        ck.to_device(host_x, stream, out=x)
        ck.to_device(host_y, stream, out=y)
        saxpy(stream, ck.cover(size), 3.0, x, y, size)
        result = ck.to_host(y, stream)
        end = time.perf_counter()
        np.testing.assert_array_equal(result, np.full(size, 5, np.float32))
        times = f", allocation {(allocated - start) * 1e6:.0f} µs, all {(end - start) * 1e3:.1f} ms"
        print(f"round {number}: right{times if ck.has_gpu() else ''}")
        del x, y  # back to the pool of memory

spans = [(span.kind, span.size) for span in trace.spans]
assert spans == 2 * [("copy", host_x.nbytes), ("copy", host_y.nbytes), ("kernel", 0), ("copy", result.nbytes)]
print(trace.summary())
path = picture_path("profile.json")
trace.save(path)
events = json.loads(path.read_text())["traceEvents"]
assert sum("saxpy" in event["name"] for event in events) >= 2
print(f"timeline: {path}")
