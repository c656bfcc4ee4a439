import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void sum(const float *__restrict__ x, double *total, int n)
{
    double sum = 0;
    const float4 *v = reinterpret_cast<const float4 *>(x);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += blockDim.x * gridDim.x) {
        float4 q = v[i];
        sum += (double) q.x + q.y + q.z + q.w;
    }
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, sum);
}
""")
x = np.random.rand(2048).astype(np.float32)
x_gpu = gpuarray.to_gpu(x)
total_gpu = gpuarray.zeros((), np.float64)
mod.get_function("sum")(x_gpu, total_gpu, np.int32(x.size), block=(64, 1, 1), grid=(4, 1, 1))
assert np.allclose(total_gpu.get(), x.sum(dtype=np.float64))
