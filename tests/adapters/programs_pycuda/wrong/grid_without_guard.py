import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void square(float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = x[i] * x[i];
}
""")
x = np.arange(1000, dtype=np.float32)
mod.get_function("square")(cuda.InOut(x), block=(256, 1, 1), grid=(4, 1))
