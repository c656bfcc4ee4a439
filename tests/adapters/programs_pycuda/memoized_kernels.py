import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule
from pycuda.tools import clear_context_caches, context_dependent_memoize, dtype_to_ctype

made = []


@context_dependent_memoize
def get_scale_kernel(dtype):
    made.append(dtype)
    mod = SourceModule(
        "__global__ void scale(%(T)s *x, %(T)s by) { x[threadIdx.x] *= by; }" % {"T": dtype_to_ctype(dtype)}
    )
    func = mod.get_function("scale")
    func.prepare(["P", np.dtype(dtype).char])
    return func


for dtype in (np.float32, np.int32, np.float64, np.float32, np.int32):
    x = np.arange(8).astype(dtype)
    x_gpu = cuda.to_device(x)
    get_scale_kernel(dtype).prepared_call((1, 1), (8, 1, 1), x_gpu, 3)
    assert np.array_equal(cuda.from_device_like(x_gpu, x), 3 * x)
assert len(made) == 3
clear_context_caches()
