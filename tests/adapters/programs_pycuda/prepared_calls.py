import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void axpy(float *y, float *x, float a, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
""")
axpy = mod.get_function("axpy")
axpy.prepare("PPfI")

n = 500
x = np.arange(n, dtype=np.float32)
y = np.ones(n, dtype=np.float32)
x_gpu = cuda.to_device(x)
y_gpu = cuda.to_device(y)

grid, block = (4, 1), (128, 1, 1)
axpy.prepared_call(grid, block, y_gpu, x_gpu, 2.0, n)

stream = cuda.Stream()
axpy.prepared_async_call(grid, block, stream, y_gpu, x_gpu, 3.0, n)
stream.synchronize()

time_taken = axpy.prepared_timed_call(grid, block, y_gpu, x_gpu, -1.0, n)
assert time_taken() >= 0

result = cuda.from_device(y_gpu, y.shape, y.dtype)
assert np.array_equal(result, 1 + 4 * x)
