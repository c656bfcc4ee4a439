import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__device__ int counter;
__device__ float *buffer;
__constant__ float factors[4];

__global__ void count(float *x)
{
    atomicAdd(&counter, 1);
    x[threadIdx.x] = factors[threadIdx.x % 4];
}

__global__ void through_pointer()
{
    buffer[threadIdx.x] += 1;
}
""")
counter, counter_size = mod.get_global("counter")
factors, factors_size = mod.get_global("factors")
pointer, pointer_size = mod.get_global("buffer")
assert (counter_size, factors_size, pointer_size) == (4, 16, 8)

cuda.memset_d32(counter, 0, 1)
host_factors = np.array([1, 2, 3, 4], np.float32)
cuda.memcpy_htod(factors, host_factors)
x = np.zeros(64, np.float32)
mod.get_function("count")(cuda.Out(x), block=(64, 1, 1))

total = np.zeros(1, np.int32)
cuda.memcpy_dtoh(total, counter)
assert total[0] == 64
assert np.array_equal(x, np.tile(host_factors, 16))

data = cuda.to_device(x)
cuda.memcpy_htod(pointer, np.array([int(data)], np.uint64))
mod.get_function("through_pointer")(block=(64, 1, 1))
assert np.array_equal(cuda.from_device_like(data, x), x + 1)
