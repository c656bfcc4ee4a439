import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
#define TILE 16
__global__ void transpose(float *out, const float *in, int rows, int cols)
{
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < cols && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < rows && y < cols)
        out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}
""")
transpose = mod.get_function("transpose")
transpose.prepare("PPii")


def transposed(matrix):
    rows, cols = matrix.shape
    source = cuda.to_device(matrix)
    target = cuda.mem_alloc(matrix.nbytes)
    grid = ((cols + 15) // 16, (rows + 15) // 16)
    transpose.prepared_call(grid, (16, 16, 1), target, source, rows, cols)
    return cuda.from_device(target, (cols, rows), matrix.dtype)


for shape in [(32, 48), (17, 5), (1, 20)]:
    matrix = np.random.randn(*shape).astype(np.float32)
    assert np.array_equal(transposed(matrix), matrix.T)
