import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void triple(float *m)
{
    int at = threadIdx.y * blockDim.x + threadIdx.x;
    m[at] = 3 * m[at];
}
""")
triple = mod.get_function("triple")

m = np.random.randn(5, 6).astype(np.float32)
before = m.copy()

triple(cuda.InOut(m), block=(6, 5, 1))
assert np.array_equal(m, 3 * before)

triple(cuda.InOut(m), block=(6, 5, 1), grid=(1, 1), shared=0)
assert np.allclose(m, 9 * before)
