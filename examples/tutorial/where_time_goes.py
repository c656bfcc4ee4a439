"""Where does the time go? Allocation, copies in, kernel and copy out, the second time with all of it ready.

`ck.trace()` records what is put on the streams; the file opens in ui.perfetto.dev and in chrome://tracing. Memory is
allocated by the host, whose clock times it.

Prints::

    round 1 is right
    round 2 is right
    8 works on the stream; no GPU here to time them on
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
size = (1 << (24 if ck.has_gpu() else 12)) - 100
x_host, y_host = np.ones(size, np.float32), np.full(size, 2, np.float32)
with ck.trace({"work": stream}) as trace:
    for turn in (1, 2):  # the second round finds code and memory ready
        start = time.perf_counter()
        x, y = (ck.empty(size, np.float32, stream=stream) for _ in range(2))
        allocated = time.perf_counter()
        ck.to_device(x_host, stream, out=x)
        ck.to_device(y_host, stream, out=y)
        saxpy(stream, ck.cover(size), 3.0, x, y, size)
        result = ck.to_host(y, stream)
        done = time.perf_counter()
        np.testing.assert_array_equal(result, np.full(size, 5, np.float32))
        times = f": allocation {(allocated - start) * 1e6:.0f} µs, all {(done - start) * 1e3:.1f} ms"
        print(f"round {turn}{times if ck.has_gpu() else ' is right'}")
        del x, y  # back to the pool

# The host compiles what is in no cache yet; that is in the trace, too.
work = [(span.kind, span.size) for span in trace.spans if span.kind != "compile"]
assert work == 2 * [("copy", x_host.nbytes), ("copy", y_host.nbytes), ("kernel", 0), ("copy", result.nbytes)]
print(trace.summary() if ck.has_gpu() else f"{len(work)} works on the stream; no GPU here to time them on")
path = picture_path("profile.json")
trace.save(path)
events = json.loads(path.read_text())["traceEvents"]
assert sum("saxpy" in event["name"] for event in events) >= 2
print(f"timeline: {path}")
