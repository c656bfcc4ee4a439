import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void jacobi(const double *u, double *v, const double *f, int n, double h2)
{
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1 && j > 0 && j < n - 1)
        v[i * n + j] = 0.25 * (u[(i - 1) * n + j] + u[(i + 1) * n + j]
                               + u[i * n + j - 1] + u[i * n + j + 1] + h2 * f[i * n + j]);
}
""")
jacobi = mod.get_function("jacobi")

n = 18
h = 1.0 / (n - 1)
f = np.ones((n, n))
u = np.zeros((n, n))

u_gpu = cuda.to_device(u)
v_gpu = cuda.to_device(u)
f_gpu = cuda.to_device(f)
for _ in range(20):
    jacobi(u_gpu, v_gpu, f_gpu, np.int32(n), np.float64(h * h), block=(16, 16, 1), grid=(2, 2))
    u_gpu, v_gpu = v_gpu, u_gpu
result = np.empty_like(u)
cuda.memcpy_dtoh(result, u_gpu)

for _ in range(20):
    v = u.copy()
    v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + h * h)
    u = v
assert np.allclose(result, u, rtol=1e-12)
