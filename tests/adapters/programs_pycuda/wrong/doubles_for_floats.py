import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("__global__ void halve(float *x) { x[threadIdx.x] *= 0.5f; }")
x_gpu = gpuarray.to_gpu(np.random.randn(100))  # float64
mod.get_function("halve")(x_gpu, block=(100, 1, 1))
