"""A function that takes arrays of any library, by strided memory views."""

import cupy as cp
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from cuda.core.utils import StridedMemoryView, args_viewable_as_strided_memory

code = """
extern "C" __global__ void add_index(int* data, size_t n) {
    for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x) data[i] += i;
}
"""


@args_viewable_as_strided_memory((0,))
def add_index(array, stream, kernel):
    view = array.view(stream.handle)
    assert isinstance(view, StridedMemoryView)
    assert view.dtype == np.int32
    assert view.shape == (1024,)
    assert view.is_device_accessible
    launch(stream, LaunchConfig(grid=4, block=256), kernel, view.ptr, np.uint64(view.shape[0]))
    stream.sync()


device = Device()
device.set_current()
stream = device.create_stream()
kernel = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("add_index")
array = cp.ones(1024, dtype=cp.int32)
add_index(array, stream, kernel)
assert cp.allclose(array, 1 + cp.arange(1024))
host = StridedMemoryView.from_any_interface(np.zeros((3, 4), dtype=np.float64)[:, ::2], stream_ptr=-1)
assert host.shape == (3, 2)
assert host.strides == (4, 2)
assert not host.is_device_accessible
print("done!")
