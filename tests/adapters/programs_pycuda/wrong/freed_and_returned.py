import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray


def ones(n):
    memory = cuda.mem_alloc(4 * n)
    result = gpuarray.GPUArray((n,), np.float32, gpudata=memory)
    result.fill(1)
    memory.free()
    return result


print(ones(100).get())
