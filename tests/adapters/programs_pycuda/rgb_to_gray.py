import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void gray(unsigned char *out, const uchar4 *rgba, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 p = rgba[i];
    out[i] = (unsigned char) ((299 * p.x + 587 * p.y + 114 * p.z) / 1000);
}
""")
image = np.random.randint(0, 256, (24, 31, 4)).astype(np.uint8)
out = np.empty(image.shape[:2], np.uint8)
n = out.size
mod.get_function("gray")(cuda.Out(out), cuda.In(image), np.int32(n), block=(128, 1, 1), grid=(-(-n // 128), 1))
expected = image[..., :3].astype(int) @ [299, 587, 114] // 1000
assert np.array_equal(out, expected)
