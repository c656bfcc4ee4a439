"""Buffers of device and pinned memory: fill, copies, kernels, and NumPy's view of pinned memory."""

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

code = """
extern "C" __global__ void scale(float* x, float by, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch=f"sm_{device.arch}")
scale = Program(code, "c++", options=options).compile("cubin").get_kernel("scale")

n = 1000
pinned = LegacyPinnedMemoryResource().allocate(4 * n, stream=stream)
host = np.from_dlpack(pinned).view(np.float32)
host[:] = np.arange(n)
buffer = device.allocate(4 * n, stream=stream)
assert buffer.size == 4 * n
assert buffer.is_device_accessible
assert not buffer.is_host_accessible
buffer.copy_from(pinned, stream=stream)
launch(stream, LaunchConfig(grid=4, block=256), scale, buffer, np.float32(2), np.uint32(n))
buffer.copy_to(pinned, stream=stream)
stream.sync()
assert (host == 2 * np.arange(n)).all()

launch(stream, LaunchConfig(grid=4, block=256), scale, pinned, np.float32(0.5), np.uint32(n))  # zero copy
stream.sync()
assert (host == np.arange(n)).all()

buffer.fill(0, stream=stream)
again = buffer.copy_to(stream=stream)
again.fill(np.uint32(7), stream=stream)
again.copy_to(pinned, stream=stream)
stream.sync()
assert (host.view(np.uint32) == 7).all()
for piece in (buffer, again, pinned):
    piece.close(stream)
assert buffer.handle == 0
stream.close()
print("done!")
