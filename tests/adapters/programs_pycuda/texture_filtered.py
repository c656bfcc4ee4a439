import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
texture<float, 2, cudaReadModeElementType> image;

__global__ void sample(float *out, const float *xs, const float *ys, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex2D(image, xs[i] + 0.5f, ys[i] + 0.5f);
}

texture<float, 1, cudaReadModeElementType> table;

__global__ void look_up(float *out, const int *index)
{
    out[threadIdx.x] = tex1Dfetch(table, index[threadIdx.x]);
}
""")
sample = mod.get_function("sample")
tex = mod.get_texref("image")

picture = np.random.rand(8, 10).astype(np.float32)
tex.set_array(drv.matrix_to_array(picture, "C"))
tex.set_filter_mode(drv.filter_mode.LINEAR)
tex.set_address_mode(0, drv.address_mode.CLAMP)
tex.set_address_mode(1, drv.address_mode.CLAMP)

n = 100
xs = (np.random.rand(n) * 9).astype(np.float32)
ys = (np.random.rand(n) * 7).astype(np.float32)
out = np.zeros(n, np.float32)
sample(drv.Out(out), drv.In(xs), drv.In(ys), np.int32(n), block=(128, 1, 1), grid=(1, 1), texrefs=[tex])

x0, y0 = np.minimum(xs.astype(int), 8), np.minimum(ys.astype(int), 6)
fx, fy = xs - x0, ys - y0
top = picture[y0, x0] * (1 - fx) + picture[y0, x0 + 1] * fx
bottom = picture[y0 + 1, x0] * (1 - fx) + picture[y0 + 1, x0 + 1] * fx
assert np.allclose(out, top * (1 - fy) + bottom * fy, atol=0.02)

look_up = mod.get_function("look_up")
table = mod.get_texref("table")
values = np.random.rand(64).astype(np.float32)
values_gpu = gpuarray.to_gpu(values)
values_gpu.bind_to_texref_ext(table)
index = np.random.permutation(64).astype(np.int32)
found = np.zeros(64, np.float32)
look_up(drv.Out(found), drv.In(index), block=(64, 1, 1), texrefs=[table])
assert np.array_equal(found, values[index])
