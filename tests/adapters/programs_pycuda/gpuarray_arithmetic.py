import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray

a = np.random.randn(4, 4).astype(np.float32)
b = np.random.rand(4, 4).astype(np.float32) + 1
a_gpu = gpuarray.to_gpu(a)
b_gpu = gpuarray.to_gpu(b)

assert np.allclose((2 * a_gpu).get(), 2 * a)
assert np.allclose((a_gpu + b_gpu).get(), a + b)
assert np.allclose((a_gpu - 1).get(), a - 1)
assert np.allclose((1 - a_gpu).get(), 1 - a)
assert np.allclose((a_gpu * b_gpu).get(), a * b)
assert np.allclose((a_gpu / b_gpu).get(), a / b)
assert np.allclose((1 / b_gpu).get(), 1 / b)
assert np.allclose((-a_gpu).get(), -a)
assert np.allclose(abs(a_gpu).get(), abs(a))
assert np.allclose((b_gpu**2).get(), b**2)
assert np.allclose((b_gpu**a_gpu).get(), b**a, rtol=1e-4)

a_gpu += b_gpu
a_gpu *= 3
a_gpu -= 0.5
a_gpu /= 2
assert np.allclose(a_gpu.get(), ((a + b) * 3 - 0.5) / 2, atol=1e-6)

print(a_gpu)
assert ((a_gpu > 0).get() == (a_gpu.get() > 0)).all()
assert ((a_gpu == a_gpu).get()).all()
assert len(a_gpu) == 4
assert a_gpu.shape == (4, 4)
assert a_gpu.size == 16
assert a_gpu.nbytes == 64
assert a_gpu.dtype == np.float32
