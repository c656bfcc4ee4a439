import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel

mod = SourceModule("""
__global__ void lengths(float *out, const float4 *v, float4 shift)
{
    float4 a = v[threadIdx.x];
    a.x += shift.x; a.y += shift.y; a.z += shift.z; a.w += shift.w;
    out[threadIdx.x] = sqrtf(a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w);
}
""")
v = np.zeros(20, gpuarray.vec.float4)
for name in "xyzw":
    v[name] = np.random.randn(20)
out = np.zeros(20, np.float32)
shift = gpuarray.vec.make_float4(1, 2, 3, 4)
mod.get_function("lengths")(cuda.Out(out), cuda.In(v), shift, block=(20, 1, 1))
plain = v.view(np.float32).reshape(20, 4) + np.array([1, 2, 3, 4], np.float32)
assert np.allclose(out, np.sqrt((plain**2).sum(axis=1)), rtol=1e-5)

swap = ElementwiseKernel("int2 *p", "int t = p[i].x; p[i].x = p[i].y; p[i].y = t")
pairs = np.zeros(10, gpuarray.vec.int2)
pairs["x"] = np.arange(10)
p_gpu = gpuarray.to_gpu(pairs)
swap(p_gpu)
assert np.array_equal(p_gpu.get()["y"], np.arange(10))
assert not p_gpu.get()["x"].any()
assert gpuarray.vec.float4.itemsize == 16

p_gpu[3] = gpuarray.vec.make_int2(30, 40)
assert p_gpu[3].get() == np.array((30, 40), gpuarray.vec.int2)
assert p_gpu.get()["x"].sum() == 30
