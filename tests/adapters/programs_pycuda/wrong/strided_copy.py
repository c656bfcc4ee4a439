import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda

a = np.arange(36, dtype=np.float32).reshape(6, 6)
a_gpu = cuda.mem_alloc(a.nbytes // 2)
# every second column is not contiguous
cuda.memcpy_htod(a_gpu, a[:, ::2])
