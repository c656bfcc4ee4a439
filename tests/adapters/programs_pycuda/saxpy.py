import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray

x = np.random.randn(300).astype(np.float32)
y = np.random.randn(300).astype(np.float32)
x_gpu = gpuarray.to_gpu(x)
y_gpu = gpuarray.to_gpu(y)

assert np.allclose(x_gpu.mul_add(2, y_gpu, 3).get(), 2 * x + 3 * y, atol=1e-5)
assert np.allclose((2 * x_gpu + 3 * y_gpu).get(), 2 * x + 3 * y, atol=1e-5)

stream = cuda.Stream()
pinned = cuda.pagelocked_empty(300, np.float32)
pinned[:] = x
z_gpu = gpuarray.to_gpu_async(pinned, stream=stream)
result = z_gpu.get_async(stream=stream)
stream.synchronize()
assert np.array_equal(result, x)

z_gpu.set_async(y, stream=stream)
stream.synchronize()
assert np.array_equal(z_gpu.get(), y)
z_gpu.fill(np.float32(4), stream=stream)
stream.synchronize()
assert (z_gpu.get() == 4).all()
