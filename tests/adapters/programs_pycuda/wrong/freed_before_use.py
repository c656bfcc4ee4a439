import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("__global__ void add_one(float *x) { x[threadIdx.x] += 1; }")
x = np.zeros(32, np.float32)
x_gpu = cuda.to_device(x)
x_gpu.free()
mod.get_function("add_one")(x_gpu, block=(32, 1, 1))
