"""Device code of two programs, linked, as PTX and as LTO IR."""

import cupy as cp
from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch

caller = """
extern __device__ float twist(float);
extern "C" __global__ void apply(float* x) { x[threadIdx.x] = twist(x[threadIdx.x]); }
"""
library = "__device__ float twist(float x) { return 3 * x + 1; }"
device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
for target, wanted in (("ptx", False), ("ltoir", True)):
    options = ProgramOptions(relocatable_device_code=True, link_time_optimization=wanted, arch=arch)
    parts = [Program(text, "c++", options=options).compile(target) for text in (caller, library)]
    linker = Linker(*parts, options=LinkerOptions(arch=arch, link_time_optimization=wanted))
    apply = linker.link("cubin").get_kernel("apply")
    x = cp.arange(8, dtype=cp.float32)
    device.sync()
    launch(stream, LaunchConfig(grid=1, block=8), apply, x.data.ptr)
    stream.sync()
    assert cp.allclose(x, 3 * cp.arange(8) + 1)
print("done!")
