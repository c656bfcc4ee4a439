import numpy as np
import pycuda.autoinit
from pycuda import driver, gpuarray
from pycuda.compiler import SourceModule

TILE = 16
code = """
#define TILE %(tile)d
__global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float ta[TILE][TILE];
    __shared__ float tb[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < (k + TILE - 1) / TILE; t++) {
        int ka = t * TILE + threadIdx.x, kb = t * TILE + threadIdx.y;
        ta[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0;
        tb[threadIdx.y][threadIdx.x] = col < n && kb < k ? b[kb * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n)
        c[row * n + col] = sum;
}
""" % {"tile": TILE}
matmul = SourceModule(code).get_function("matmul")

m, n, k = 20, 33, 30
a = np.random.randn(m, k).astype(np.float32)
b = np.random.randn(k, n).astype(np.float32)
a_gpu, b_gpu = gpuarray.to_gpu(a), gpuarray.to_gpu(b)
c_gpu = gpuarray.empty((m, n), np.float32)

matmul(
    a_gpu,
    b_gpu,
    c_gpu,
    np.int32(m),
    np.int32(n),
    np.int32(k),
    block=(TILE, TILE, 1),
    grid=((n + TILE - 1) // TILE, (m + TILE - 1) // TILE),
)
driver.Context.synchronize()
print("largest error:", np.abs(c_gpu.get() - a @ b).max())
assert np.allclose(c_gpu.get(), a @ b, atol=1e-4)
