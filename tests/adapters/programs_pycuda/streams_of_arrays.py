from time import time

import numpy as np
import pycuda.autoinit
from pycuda import driver as drv, gpuarray
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel

count, size = 5, 320
ker = SourceModule("""
__global__ void mult_ker(float * array, int array_len)
{
     int thd = blockIdx.x*blockDim.x + threadIdx.x;
     int num_iters = array_len / blockDim.x;
     for (int j = 0; j < num_iters; j++) {
         int i = j * blockDim.x + thd;
         for (int k = 0; k < 5; k++) {
             array[i] *= 2.0;
             array[i] /= 2.0;
         }
         array[i] += 1;
     }
}
""")
mult_ker = ker.get_function("mult_ker")
square = ElementwiseKernel("float *x", "x[i] *= x[i];", "square")

data = [np.random.randn(size).astype("float32") for _ in range(count)]
streams = [drv.Stream() for _ in range(count)]
starts, ends = [drv.Event() for _ in streams], [drv.Event() for _ in streams]

t_start = time()
data_gpu = [gpuarray.to_gpu_async(data[k], stream=streams[k]) for k in range(count)]
for k in range(count):
    starts[k].record(streams[k])
    mult_ker(data_gpu[k], np.int32(size), block=(64, 1, 1), grid=(1, 1, 1), stream=streams[k])
    square(data_gpu[k], stream=streams[k])
for k in range(count):
    ends[k].record(streams[k])
gpu_out = [data_gpu[k].get_async(stream=streams[k]) for k in range(count)]
for k in range(count):
    streams[k].synchronize()
t_end = time()

for k in range(count):
    assert np.allclose(gpu_out[k], (data[k] + 1) ** 2, rtol=1e-5)
times = [starts[k].time_till(ends[k]) for k in range(count)]
print("Total time: %f" % (t_end - t_start))
print("Mean kernel duration (milliseconds): %f" % np.mean(times))
assert min(times) >= 0
