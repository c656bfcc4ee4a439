import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray

a = np.random.randn(100).astype(np.float32)
b = np.random.randn(100).astype(np.float32)
a_gpu, b_gpu = gpuarray.to_gpu(a), gpuarray.to_gpu(b)

assert np.array_equal(gpuarray.if_positive(a_gpu, a_gpu, b_gpu).get(), np.where(a > 0, a, b))
assert np.array_equal(gpuarray.maximum(a_gpu, b_gpu).get(), np.maximum(a, b))
assert np.array_equal(gpuarray.minimum(a_gpu, 0.25).get(), np.minimum(a, np.float32(0.25)))
assert np.array_equal(gpuarray.where(a_gpu > b_gpu, a_gpu, b_gpu).get(), np.maximum(a, b))

index = np.array([5, 50, 99, 0, 5], np.int32)
assert np.array_equal(gpuarray.take(a_gpu, gpuarray.to_gpu(index)).get(), a[index])

both = gpuarray.logical_and(a_gpu > 0, b_gpu > 0).get()
assert np.array_equal(both.astype(bool), (a > 0) & (b > 0))
either = gpuarray.logical_or(a_gpu > 0, b_gpu > 0).get()
assert np.array_equal(either.astype(bool), (a > 0) | (b > 0))

assert (a_gpu != b_gpu).all().get()
clipped = gpuarray.minimum(gpuarray.maximum(a_gpu, np.float32(-0.5)), np.float32(0.5))
assert np.allclose(clipped.get(), a.clip(-0.5, 0.5))
