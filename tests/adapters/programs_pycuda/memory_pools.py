import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

pool = DeviceMemoryPool()
a = np.random.randn(1000).astype(np.float32)

a_gpu = gpuarray.to_gpu(a, allocator=pool.allocate)
b_gpu = 2 * a_gpu + 1
assert np.allclose(b_gpu.get(), 2 * a + 1)
assert pool.active_blocks >= 2
assert pool.active_bytes >= 2 * a.nbytes
assert b_gpu.allocator == pool.allocate

del a_gpu, b_gpu
assert pool.active_blocks == 0
assert pool.held_blocks >= 1

block = pool.allocate(4000)
assert len(block) == 4000
assert int(block) != 0
cuda.memcpy_htod(block, a)
assert np.array_equal(cuda.from_device(block, a.shape, a.dtype), a)
block.free()

pool.free_held()
assert pool.held_blocks == 0
pool.stop_holding()

host_pool = PageLockedMemoryPool()
x = host_pool.allocate((10, 20), np.float32)
x[:] = 1
assert x.shape == (10, 20)
assert host_pool.active_blocks == 1
x_gpu = gpuarray.to_gpu_async(x, stream=cuda.Stream())
cuda.Context.synchronize()
assert x_gpu.get().sum() == 200
del x, x_gpu
assert host_pool.active_blocks == 0
host_pool.stop_holding()
