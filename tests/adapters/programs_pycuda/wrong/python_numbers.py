import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("__global__ void scale(float *x, float by) { x[threadIdx.x] *= by; }")
x = np.ones(32, np.float32)
mod.get_function("scale")(cuda.InOut(x), 2.0, block=(32, 1, 1))
