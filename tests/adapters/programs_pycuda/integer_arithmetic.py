import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray

a = np.random.randint(1, 100, 200).astype(np.int32)
b = np.random.randint(1, 10, 200).astype(np.int32)
a_gpu, b_gpu = gpuarray.to_gpu(a), gpuarray.to_gpu(b)

assert (a_gpu + b_gpu).dtype == np.int32
assert np.array_equal((a_gpu + b_gpu).get(), a + b)
assert np.array_equal((a_gpu * b_gpu).get(), a * b)
assert np.array_equal((a_gpu - b_gpu).get(), a - b)
assert np.array_equal((a_gpu * 3).get(), a * 3)
assert np.array_equal((b_gpu**2).get(), b**2)

mixed = a_gpu + gpuarray.to_gpu(np.ones(200, np.float32))
assert np.allclose(mixed.get(), a + 1)
for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64):
    x = np.arange(10, dtype=dtype)
    x_gpu = gpuarray.to_gpu(x)
    assert np.array_equal((x_gpu + x_gpu).get(), x + x)
    assert (x_gpu + x_gpu).dtype == dtype
    assert gpuarray.sum(x_gpu).get() == x.sum()
