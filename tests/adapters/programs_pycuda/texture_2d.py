import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
texture<float, 2, cudaReadModeElementType> picture;

__global__ void mirrored(float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = tex2D(picture, width - 1 - x, y);
}
""")
mirrored = mod.get_function("mirrored")
texref = mod.get_texref("picture")

a = np.random.rand(9, 14).astype(np.float32)
drv.matrix_to_texref(a, texref, order="C")
out = np.zeros_like(a)
mirrored(drv.Out(out), np.int32(14), np.int32(9), block=(8, 8, 1), grid=(2, 2), texrefs=[texref])
assert np.array_equal(out, a[:, ::-1])

# Fortran's order: the first index of the matrix is the texture's x
b = np.random.rand(14, 9).astype(np.float32)
drv.matrix_to_texref(b, texref, order="F")
mirrored(drv.Out(out), np.int32(14), np.int32(9), block=(8, 8, 1), grid=(2, 2), texrefs=[texref])
assert np.array_equal(out, b[::-1].T)
