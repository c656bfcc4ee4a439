import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
#define TILE 32
__global__ void forces(float3 *acc, const float4 *body, int n)
{
    __shared__ float4 tile[TILE];
    int i = blockIdx.x * TILE + threadIdx.x;
    float4 me = body[i];
    float3 sum = make_float3(0, 0, 0);
    for (int t = 0; t < n / TILE; t++) {
        tile[threadIdx.x] = body[t * TILE + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float s = tile[k].w * inv * inv * inv;
            sum.x += s * dx; sum.y += s * dy; sum.z += s * dz;
        }
        __syncthreads();
    }
    acc[i] = sum;
}
""")
forces = mod.get_function("forces")
n = 64
bodies = np.random.rand(n, 4).astype(np.float32)
bodies_gpu = gpuarray.to_gpu(bodies)
acc_gpu = gpuarray.zeros((n, 3), np.float32)
forces(acc_gpu, bodies_gpu, np.int32(n), block=(32, 1, 1), grid=(n // 32, 1))

d = bodies[None, :, :3] - bodies[:, None, :3]
r2 = (d**2).sum(-1) + np.float32(0.01)
expected = (bodies[None, :, 3, None] * d / r2[..., None] ** 1.5).sum(1)
assert np.allclose(acc_gpu.get(), expected, rtol=1e-3, atol=1e-3)
