"""Two streams, ordered by events."""

import cupy as cp
import numpy as np
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, StreamOptions, launch

code = 'extern "C" __global__ void add(int* x, int by) { x[threadIdx.x] += by; }'
device = Device()
device.set_current()
first = device.create_stream()
second = device.create_stream(options=StreamOptions(nonblocking=True, priority=0))
assert first != second
assert second.is_nonblocking
add = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("add")
x = cp.zeros(32, dtype=cp.int32)
device.sync()
config = LaunchConfig(grid=1, block=32)
begin = first.record(options=EventOptions(timing_enabled=True))
launch(first, config, add, x.data.ptr, np.int32(1))
end = first.record(options=EventOptions(timing_enabled=True))
second.wait(end)
launch(second, config, add, x.data.ptr, 10)
first.wait(second)
launch(first, config, add, x.data.ptr, np.int32(100))
first.sync()
assert end.is_done
assert isinstance(end - begin, float)
assert (cp.asnumpy(x) == 111).all()
print("done!")
