import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda

x = np.zeros(64, np.uint32)
x_gpu = cuda.mem_alloc(x.nbytes)

cuda.memset_d8(x_gpu, 0xAB, x.nbytes)
cuda.memcpy_dtoh(x, x_gpu)
assert (x == 0xABABABAB).all()

cuda.memset_d16(x_gpu, 0x1234, 2 * x.size)
assert (cuda.from_device_like(x_gpu, x) == 0x12341234).all()

cuda.memset_d32(x_gpu, 7, 32)
cuda.memcpy_dtoh(x, x_gpu)
assert (x[:32] == 7).all()
assert (x[32:] == 0x12341234).all()

pitched, pitch = cuda.mem_alloc_pitch(40, 6, 4)
cuda.memset_d2d32(pitched, pitch, 5, 10, 6)
rows = cuda.from_device(pitched, (6, pitch // 4), np.uint32)
assert (rows[:, :10] == 5).all()

stream = cuda.Stream()
cuda.memset_d32_async(x_gpu, 9, 64, stream)
stream.synchronize()
assert (cuda.from_device_like(x_gpu, x) == 9).all()

base, size = cuda.mem_get_address_range(x_gpu)
assert base == int(x_gpu)
assert size >= x.nbytes
