import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

life = SourceModule("""
__device__ int alive(const int *world, int row, int col, int n)
{
    return world[((row + n) % n) * n + (col + n) % n];
}

__global__ void generation(const int *world, int *next, int n)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n)
        return;
    int neighbours = 0;
    for (int dr = -1; dr <= 1; dr++)
        for (int dc = -1; dc <= 1; dc++)
            if (dr != 0 || dc != 0)
                neighbours += alive(world, row + dr, col + dc, n);
    int here = world[row * n + col];
    next[row * n + col] = neighbours == 3 || (here && neighbours == 2);
}
""").get_function("generation")

N = 24
world = (np.random.rand(N, N) < 0.3).astype(np.int32)
now_gpu = gpuarray.to_gpu(world)
next_gpu = gpuarray.empty_like(now_gpu)
for _ in range(3):
    life(now_gpu, next_gpu, np.int32(N), block=(16, 16, 1), grid=(2, 2, 1))
    now_gpu, next_gpu = next_gpu, now_gpu

for _ in range(3):
    count = sum(np.roll(world, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - world
    world = ((count == 3) | ((world == 1) & (count == 2))).astype(np.int32)
assert np.array_equal(now_gpu.get(), world)
