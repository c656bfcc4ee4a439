import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("__global__ void add(float *x, float v, int n) { if (threadIdx.x < n) x[threadIdx.x] += v; }")
add = mod.get_function("add")

a = np.zeros(100, np.float32)
a_gpu = cuda.to_device(a)
add(np.intp(int(a_gpu) + 40 * a.itemsize), np.float32(1), np.int32(10), block=(32, 1, 1))
expected = a.copy()
expected[40:50] += 1
assert np.array_equal(cuda.from_device_like(a_gpu, a), expected)

# copies at an offset
cuda.memcpy_htod(int(a_gpu) + 4 * 90, np.full(10, 9, np.float32))
expected[90:] = 9
tail = np.empty(20, np.float32)
cuda.memcpy_dtoh(tail, int(a_gpu) + 4 * 80)
assert np.array_equal(tail, expected[80:])

# an array on memory of another one
view = gpuarray.GPUArray((50,), np.float32, gpudata=a_gpu)
assert view.gpudata is a_gpu
assert np.array_equal(view.get(), expected[:50])
add(view.gpudata, np.float32(2), np.int32(50), block=(64, 1, 1))
expected[:50] += 2
part = gpuarray.GPUArray((10,), np.float32, base=a_gpu, gpudata=int(a_gpu) + 4 * 40)
assert np.array_equal(part.get(), expected[40:50])
add(view[10:20], np.float32(5), np.int32(10), block=(32, 1, 1))
expected[10:20] += 5
assert np.array_equal(cuda.from_device_like(a_gpu, a), expected)

other = cuda.mem_alloc(a.nbytes)
cuda.memcpy_dtod(other, a_gpu, a.nbytes)
assert np.array_equal(cuda.from_device_like(other, a), expected)
