"""A template, compiled by its name expression, on arrays of CuPy."""

import cupy as cp
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

code = """
template <typename T>
__global__ void vector_add(const T* a, const T* b, T* c, size_t n) {
    const unsigned int tid = threadIdx.x + blockIdx.x * blockDim.x;
    for (size_t i = tid; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
program = Program(code, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
module = program.compile("cubin", name_expressions=("vector_add<float>", "vector_add<double>"))

for dtype, name in ((cp.float32, "float"), (cp.float64, "double")):
    kernel = module.get_kernel(f"vector_add<{name}>")
    size = 5000
    rng = cp.random.default_rng()
    a, b = rng.random(size, dtype=dtype), rng.random(size, dtype=dtype)
    c = cp.empty_like(a)
    device.sync()
    config = LaunchConfig(grid=(size + 255) // 256, block=256)
    launch(stream, config, kernel, a.data.ptr, b.data.ptr, c.data.ptr, cp.uint64(size))
    stream.sync()
    assert cp.allclose(c, a + b)
print("done!")
