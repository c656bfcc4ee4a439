import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray

a = np.arange(24, dtype=np.float32)
a_gpu = gpuarray.arange(24, dtype=np.float32)
assert np.array_equal(a_gpu.get(), a)

m_gpu = a_gpu.reshape(4, 6)
m = a.reshape(4, 6)
assert m_gpu.shape == (4, 6)
assert np.array_equal(m_gpu.get(), m)
assert np.array_equal(m_gpu[1].get(), m[1])
assert np.array_equal(m_gpu[1:3].get(), m[1:3])
assert np.array_equal(m_gpu.T.get(), m.T)
assert np.array_equal(a_gpu[5:10].get(), a[5:10])
assert np.array_equal(m_gpu.reshape((2, 12)).get(), m.reshape(2, 12))
assert np.array_equal(m_gpu.ravel().get(), a)
assert np.array_equal(a_gpu.reverse().get(), a[::-1])

a_gpu[0:4] = gpuarray.to_gpu(np.full(4, 7, np.float32))
assert np.array_equal(m_gpu[0].get(), [7, 7, 7, 7, 4, 5])

z = gpuarray.zeros((3, 5), np.float64)
o = gpuarray.ones_like(z)
e = gpuarray.empty_like(z)
e.fill(2.5)
assert np.array_equal((z + o + e).get(), np.full((3, 5), 3.5))
assert z.dtype == np.float64

i_gpu = gpuarray.to_gpu(np.array([1.75, -2.25], np.float32)).astype(np.int32)
assert np.array_equal(i_gpu.get(), [1, -2])
bits = gpuarray.to_gpu(np.array([1.0, 2.0], np.float32)).view(np.uint32)
assert np.array_equal(bits.get(), [0x3F800000, 0x40000000])

f = gpuarray.to_gpu(np.asfortranarray(m))
assert f.flags.f_contiguous
assert not f.flags.c_contiguous
assert np.array_equal(f.get(), m)
c = f.copy()
c.fill(0)
assert np.array_equal(f.get(), m)

new = gpuarray.empty(24, np.float32)
new.set(a)
out = np.empty_like(a)
assert new.get(out) is out
assert np.array_equal(out, a)
