import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
surface<void, cudaSurfaceType3D> volume;

__global__ void change()
{
    int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
    float value;
    surf3Dread(&value, volume, x * sizeof(float), y, z);
    surf3Dwrite(2 * value + z, volume, x * sizeof(float), y, z);
}
""")
a = np.random.rand(3, 4, 8).astype(np.float32)
array = drv.np_to_array(a, order="C", allowSurfaceBind=True)
surface = mod.get_surfref("volume")
surface.set_array(array)
mod.get_function("change")(block=(8, 4, 1), grid=(3, 1))

result = np.zeros_like(a)
copy = drv.Memcpy3D()
copy.set_src_array(array)
copy.set_dst_host(result)
copy.width_in_bytes = copy.src_pitch = copy.dst_pitch = result.strides[1]
copy.src_height = copy.dst_height = copy.height = 4
copy.depth = 3
copy()
assert np.array_equal(result, 2 * a + np.arange(3, dtype=np.float32)[:, None, None])
