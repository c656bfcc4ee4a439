import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel

a = np.arange(60, dtype=np.float32).reshape(6, 10)
a_gpu = gpuarray.to_gpu(a)

assert np.array_equal(a_gpu[:, 2:5].get(), a[:, 2:5])
assert np.array_equal(a_gpu[::2].get(), a[::2])
assert np.array_equal(a_gpu[1:5, 3:9].copy().get(), a[1:5, 3:9])
assert a_gpu[1:5, 3:9].strides == a[1:5, 3:9].strides
assert not a_gpu[:, 2:5].flags.c_contiguous

a_gpu[:, 0:2] = np.zeros((6, 2), np.float32)
a[:, 0:2] = 0
assert np.array_equal(a_gpu.get(), a)

f_order = gpuarray.to_gpu(np.asfortranarray(a))
double_it = ElementwiseKernel("float *x, float *y", "y[i] = 2 * x[i]")
out = gpuarray.empty_like(f_order)
double_it(f_order, out)
assert np.array_equal(out.get(), 2 * a)

t = gpuarray.to_gpu(a.T)
assert t.shape == (10, 6)
assert np.array_equal(t.get(), a.T)
assert np.array_equal(gpuarray.concatenate([a_gpu, a_gpu]).get(), np.concatenate([a, a]))
assert np.array_equal(gpuarray.stack([a_gpu, a_gpu], axis=0).get(), np.stack([a, a], axis=0))
