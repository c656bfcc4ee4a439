import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void scan(int *x)
{
    __shared__ int s[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = x[i];
    __syncthreads();
    for (int reach = 1; reach < blockDim.x; reach *= 2) {
        int add = t >= reach ? s[t - reach] : 0;
        __syncthreads();
        s[t] += add;
        __syncthreads();
    }
    x[i] = s[t];
}
""")
x = np.ones(512, np.int32)
x_gpu = gpuarray.to_gpu(x)
# each block begins at zero: there is no second pass
mod.get_function("scan")(x_gpu, block=(128, 1, 1), grid=(4, 1))
assert np.array_equal(x_gpu.get(), np.cumsum(x)), "the sums are wrong"
