import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__constant__ int weights[9];

__device__ int at(const unsigned char *p, int x, int y, int w, int h)
{
    x = min(max(x, 0), w - 1);
    y = min(max(y, 0), h - 1);
    return p[y * w + x];
}

__global__ void sobel(unsigned char *out, const unsigned char *in, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int gx = 0, gy = 0;
    #pragma unroll
    for (int j = -1; j <= 1; j++)
        #pragma unroll
        for (int i = -1; i <= 1; i++) {
            gx += weights[3 * (j + 1) + i + 1] * at(in, x + i, y + j, w, h);
            gy += weights[3 * (i + 1) + j + 1] * at(in, x + i, y + j, w, h);
        }
    out[y * w + x] = min(255, (abs(gx) + abs(gy)) / 8);
}
""")
weights = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.int32)
cuda.memcpy_htod(mod.get_global("weights")[0], weights)
image = np.random.randint(0, 256, (20, 30)).astype(np.uint8)
edges = np.empty_like(image)
h, w = image.shape
mod.get_function("sobel")(
    cuda.Out(edges), cuda.In(image), np.int32(w), np.int32(h), block=(16, 16, 1), grid=(-(-w // 16), -(-h // 16))
)
p = np.pad(image.astype(int), 1, mode="edge")
gx = sum(weights[j, i] * p[j : j + h, i : i + w] for j in range(3) for i in range(3))
gy = sum(weights[i, j] * p[j : j + h, i : i + w] for j in range(3) for i in range(3))
assert np.array_equal(edges, np.minimum(255, (abs(gx) + abs(gy)) // 8))
