import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("__global__ void add_one(float *x) { x[threadIdx.x] += 1; }")
x = cuda.managed_zeros(32, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
mod.get_function("add_one")(x, block=(32, 1, 1))
# nothing has waited
assert (x == 1).all(), "the kernel is not done"
