import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void square(float *x)
{
    int i = threadIdx.x;
    x[i] = x[i] * x[i];
}
""")
square = mod.get_function("square")

x = drv.pagelocked_empty(100, np.float32, mem_flags=drv.host_alloc_flags.DEVICEMAP)
x[:] = np.arange(100)
address = np.intp(x.base.get_device_pointer())

square(address, block=(100, 1, 1), grid=(1, 1))
drv.Context.synchronize()
assert np.array_equal(x, np.arange(100, dtype=np.float32) ** 2)

z = drv.pagelocked_zeros((4, 5), np.float64)
assert z.shape == (4, 5)
assert not z.any()

a = drv.aligned_zeros((1024,), np.float32, alignment=4096)
a[:] = 3
pinned = drv.register_host_memory(a)
a_gpu = drv.mem_alloc(a.nbytes)
stream = drv.Stream()
drv.memcpy_htod_async(a_gpu, pinned, stream)
back = drv.pagelocked_empty_like(z)
back = drv.pagelocked_empty(1024, np.float32)
drv.memcpy_dtoh_async(back, a_gpu, stream)
stream.synchronize()
assert (back == 3).all()
pinned.base.unregister()
