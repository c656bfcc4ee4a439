import numpy as np
import pycuda.autoprimaryctx
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray

assert pycuda.autoprimaryctx.device == cuda.Device(0)
assert pycuda.autoprimaryctx.context is not None
x = gpuarray.arange(0, 10, 0.5, dtype=np.float64)
assert np.array_equal(x.get(), np.arange(0, 10, 0.5))
cuda.Context.synchronize()
