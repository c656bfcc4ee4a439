"""Where does the time go? Allocation, copy in, kernel and copy out, seen as a timeline.

`ck.trace()` records what is put on the streams; the file opens in ui.perfetto.dev and in chrome://tracing.

Prints::

    ...
    timeline: ...profile.json
"""

import tempfile
from pathlib import Path

import numpy as np

import cudakit as ck

saxpy = ck.Kernel("""
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
""")

stream = ck.stream()
size = 1 << (24 if ck.has_gpu() else 12)
x_host, y_host = np.ones(size, np.float32), np.full(size, 2, np.float32)
with ck.trace() as trace:
    for _ in range(2):  # the second round finds code and memory ready
        x, y = ck.to_device(x_host, stream), ck.to_device(y_host, stream)
        saxpy(stream, ck.cover(size), 3.0, x, y, size)
        result = ck.to_host(y, stream)
assert (result == 5).all()
print(trace.summary())
path = Path(tempfile.gettempdir()) / "profile.json"
trace.save(path)
print(f"timeline: {path}")
