import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

everywhere = cuda.mem_attach_flags.GLOBAL
print("managed memory:", pycuda.autoinit.device.get_attribute(cuda.device_attribute.MANAGED_MEMORY))

mod = SourceModule("""
__global__ void halve(float *x)
{
    x[threadIdx.x] *= 0.5f;
}
""")
halve = mod.get_function("halve")

x = cuda.managed_empty(shape=12, dtype=np.float32, mem_flags=everywhere)
x[:] = np.arange(12)
halve(x, block=(12, 1, 1), grid=(1, 1))
pycuda.autoinit.context.synchronize()
assert np.array_equal(x, np.arange(12, dtype=np.float32) / 2)

# the host writes, and the kernel sees it
x[5] = 64
halve(x, block=(12, 1, 1), grid=(1, 1))
cuda.Context.synchronize()
assert x[5] == 32

stream = cuda.Stream()
y = cuda.managed_zeros_like(x, mem_flags=everywhere)
y[:] = 8
halve(y, block=(12, 1, 1), grid=(1, 1), stream=stream)
stream.synchronize()
assert (y == 4).all()
assert x.base is not None
