import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void reverse_blocks(int *x)
{
    extern __shared__ int temp[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    temp[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = temp[blockDim.x - 1 - threadIdx.x];
}
""")
reverse_blocks = mod.get_function("reverse_blocks")

x = np.arange(256, dtype=np.int32)
x_gpu = cuda.to_device(x)
reverse_blocks(x_gpu, block=(64, 1, 1), grid=(4, 1), shared=64 * x.itemsize)
expected = x.reshape(4, 64)[:, ::-1].ravel()
assert np.array_equal(cuda.from_device_like(x_gpu, x), expected)

reverse_blocks.prepare([np.intp])
reverse_blocks.prepared_call((4, 1), (64, 1, 1), x_gpu, shared_size=64 * x.itemsize)
assert np.array_equal(cuda.from_device_like(x_gpu, x), x)

reverse_blocks.prepare("P")
reverse_blocks.prepared_call((1, 1), (256, 1, 1), x_gpu, shared_size=256 * x.itemsize)
assert np.array_equal(cuda.from_device_like(x_gpu, x), x[::-1])
