import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.curandom import rand
from pycuda.elementwise import ElementwiseKernel

p_gpu = rand((80,))
q_gpu = rand((80,))

blend = ElementwiseKernel(
    "float s, float *p, float t, float *q, float *blended",
    "blended[i] = s * p[i] + t * q[i]",
    "blend",
)
blended_gpu = gpuarray.empty_like(p_gpu)
blend(2, p_gpu, -3, q_gpu, blended_gpu)

assert np.abs((blended_gpu - (2 * p_gpu - 3 * q_gpu)).get()).max() < 1e-5
assert np.allclose(blended_gpu.get(), 2 * p_gpu.get() - 3 * q_gpu.get(), atol=1e-6)
