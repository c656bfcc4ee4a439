import atexit

import numpy as np
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

cuda.init()
dev = cuda.Device(0)
ctx = dev.make_context()
atexit.register(lambda: None)

mod = SourceModule("__global__ void fill(int *x, int v) { x[threadIdx.x] = v; }")
fill = mod.get_function("fill")
x = np.zeros(32, np.int32)
fill(cuda.Out(x), np.int32(5), block=(32, 1, 1), grid=(1, 1))
assert (x == 5).all()

ctx.push()
assert cuda.Context.get_current() == ctx
assert cuda.Context.get_device() == dev
cuda.Context.pop()

ctx.synchronize()
ctx.pop()

primary = dev.retain_primary_context()
primary.push()
try:
    y = cuda.to_device(np.arange(8, dtype=np.int32))
    assert np.array_equal(cuda.from_device(y, (8,), np.int32), np.arange(8))
    y.free()
finally:
    primary.pop()

ctx.detach()
