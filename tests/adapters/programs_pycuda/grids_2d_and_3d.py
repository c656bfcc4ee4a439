import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void index_2d(int *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = 1000 * y + x;
}

__global__ void index_3d(int *out, int nx, int ny, int nz)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < nx && y < ny && z < nz)
        out[(z * ny + y) * nx + x] = 10000 * z + 100 * y + x;
}
""")
width, height = 30, 20
out = np.zeros((height, width), np.int32)
mod.get_function("index_2d")(
    cuda.Out(out), np.int32(width), np.int32(height), block=(8, 8, 1), grid=((width + 7) // 8, (height + 7) // 8)
)
y, x = np.indices(out.shape)
assert np.array_equal(out, 1000 * y + x)

cube = np.zeros((5, 6, 7), np.int32)
mod.get_function("index_3d")(cuda.Out(cube), np.int32(7), np.int32(6), np.int32(5), block=(4, 4, 4), grid=(2, 2, 2))
z, y, x = np.indices(cube.shape)
assert np.array_equal(cube, 10000 * z + 100 * y + x)
