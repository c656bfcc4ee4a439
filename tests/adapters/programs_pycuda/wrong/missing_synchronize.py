import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda

stream = cuda.Stream()
source = cuda.pagelocked_empty(1 << 20, np.float32)
source[:] = 3
back = cuda.pagelocked_zeros(1 << 20, np.float32)
x_gpu = cuda.mem_alloc(source.nbytes)
cuda.memcpy_htod_async(x_gpu, source, stream)
cuda.memcpy_dtoh_async(back, x_gpu, stream)
# nothing has waited
assert (back == 3).all(), "the copy is not done"
