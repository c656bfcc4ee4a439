import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__device__ float helper(float x) { return 3 * x; }
__global__ void add(float *a, float b) { a[threadIdx.x] += b; }
__global__ void sub(float *a, float b) { a[threadIdx.x] -= b; }
__global__ void mul(float *a, float b) { a[threadIdx.x] *= b; }
__global__ void three(float *a) { a[threadIdx.x] = helper(a[threadIdx.x]); }
""")

a = np.arange(16, dtype=np.float32)
a_gpu = cuda.mem_alloc_like(a)
cuda.memcpy_htod(a_gpu, a)

operations = {name: mod.get_function(name) for name in ("add", "sub", "mul")}
for name, value in [("add", 5), ("mul", 2), ("sub", 1)]:
    operations[name](a_gpu, np.float32(value), block=(16, 1, 1))
mod.get_function("three")(a_gpu, block=(16, 1, 1))
result = cuda.from_device(a_gpu, a.shape, a.dtype)
assert np.array_equal(result, 3 * ((a + 5) * 2 - 1))
