import numpy as np
import pycuda.autoinit
from pycuda import gpuarray

a = np.random.randint(-50, 50, 3000).astype(np.int32)
x = np.random.rand(3000).astype(np.float32)
a_gpu = gpuarray.to_gpu(a)
x_gpu = gpuarray.to_gpu(x)

assert gpuarray.sum(a_gpu).get() == a.sum()
assert gpuarray.max(a_gpu).get() == a.max()
assert gpuarray.min(a_gpu).get() == a.min()
assert np.allclose(gpuarray.sum(x_gpu).get(), x.sum(dtype=np.float64), rtol=1e-5)
assert np.allclose(gpuarray.dot(x_gpu, x_gpu).get(), np.dot(x, x), rtol=1e-4)

total = gpuarray.sum(x_gpu, dtype=np.float64)
assert total.dtype == np.float64
assert total.shape == ()
assert abs(float(total.get()) - x.sum(dtype=np.float64)) < 1e-6

subset = gpuarray.to_gpu(np.array([1, 10, 100, 1000], dtype=np.int32))
assert gpuarray.subset_sum(subset, a_gpu).get() == a[[1, 10, 100, 1000]].sum()
assert gpuarray.subset_max(subset, a_gpu).get() == a[[1, 10, 100, 1000]].max()
assert np.allclose(gpuarray.subset_dot(subset, x_gpu, x_gpu).get(), (x[[1, 10, 100, 1000]] ** 2).sum())

assert (a_gpu > -51).all().get()
assert not (a_gpu > 51).any().get()
