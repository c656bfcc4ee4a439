import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray

x_gpu = gpuarray.to_gpu(np.ones(100, np.float32))
cuda.start_profiler()
y_gpu = x_gpu + 1
cuda.Context.synchronize()
cuda.stop_profiler()
assert (y_gpu.get() == 2).all()
