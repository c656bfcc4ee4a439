import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void add(float *dest, const float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        dest[i] = a[i] + b[i];
}
""")
add = mod.get_function("add")

n = 1000
a = np.random.randn(n).astype(np.float32)
b = np.random.randn(n).astype(np.float32)

a_gpu = cuda.mem_alloc(a.nbytes)
b_gpu = cuda.mem_alloc(b.nbytes)
dest_gpu = cuda.mem_alloc(a.nbytes)

cuda.memcpy_htod(a_gpu, a)
cuda.memcpy_htod(b_gpu, b)

add(dest_gpu, a_gpu, b_gpu, np.int32(n), block=(256, 1, 1), grid=((n + 255) // 256, 1))

dest = np.empty_like(a)
cuda.memcpy_dtoh(dest, dest_gpu)

a_gpu.free()
b_gpu.free()
dest_gpu.free()

assert np.array_equal(dest, a + b)
