import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
#define RADIUS 3
#define TILE 64
__constant__ float weights[2 * RADIUS + 1];

__global__ void convolve(float *out, const float *in, int n)
{
    __shared__ float tile[TILE + 2 * RADIUS];
    int g = blockIdx.x * TILE + threadIdx.x;
    for (int k = threadIdx.x; k < TILE + 2 * RADIUS; k += TILE) {
        int at = blockIdx.x * TILE + k - RADIUS;
        tile[k] = (at >= 0 && at < n) ? in[at] : 0;
    }
    __syncthreads();
    if (g < n) {
        float sum = 0;
        for (int j = 0; j < 2 * RADIUS + 1; j++)
            sum += weights[j] * tile[threadIdx.x + j];
        out[g] = sum;
    }
}
""")
convolve = mod.get_function("convolve")
weights = np.array([1, 2, 4, 8, 4, 2, 1], np.float32) / 22

address, size = mod.get_global("weights")
assert size == weights.nbytes
cuda.memcpy_htod(address, weights)

signal = np.random.randn(500).astype(np.float32)
out = np.empty_like(signal)
convolve(cuda.Out(out), cuda.In(signal), np.int32(500), block=(64, 1, 1), grid=(8, 1))
assert np.allclose(out, np.convolve(signal, weights, "same"), atol=1e-5)
