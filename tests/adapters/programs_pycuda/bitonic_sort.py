import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void bitonic_step(float *values, int j, int k)
{
    unsigned int i = threadIdx.x + blockDim.x * blockIdx.x;
    unsigned int ixj = i ^ j;
    if (ixj > i) {
        bool up = (i & k) == 0;
        if ((values[i] > values[ixj]) == up) {
            float temp = values[i];
            values[i] = values[ixj];
            values[ixj] = temp;
        }
    }
}
""")
step = mod.get_function("bitonic_step")

n = 256
values = np.random.randn(n).astype(np.float32)
values_gpu = gpuarray.to_gpu(values)
k = 2
while k <= n:
    j = k >> 1
    while j > 0:
        step(values_gpu, np.int32(j), np.int32(k), block=(128, 1, 1), grid=(n // 128, 1))
        j >>= 1
    k <<= 1
assert np.array_equal(values_gpu.get(), np.sort(values))
