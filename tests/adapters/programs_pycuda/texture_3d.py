import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
texture<float, 3, cudaReadModeElementType> volume;

__global__ void slice(float *out, int z, int width, int height)
{
    int x = threadIdx.x, y = threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = tex3D(volume, x + 0.5f, y + 0.5f, z + 0.5f);
}
""")
volume = np.random.rand(4, 6, 8).astype(np.float32)
depth, height, width = volume.shape

descr = drv.ArrayDescriptor3D()
descr.width = width
descr.height = height
descr.depth = depth
descr.format = drv.dtype_to_array_format(volume.dtype)
descr.num_channels = 1
descr.flags = 0
array = drv.Array(descr)

copy = drv.Memcpy3D()
copy.set_src_host(volume)
copy.set_dst_array(array)
copy.width_in_bytes = copy.src_pitch = volume.strides[1]
copy.src_height = copy.height = height
copy.depth = depth
copy()

texref = mod.get_texref("volume")
texref.set_array(array)
texref.set_filter_mode(drv.filter_mode.POINT)
cut = mod.get_function("slice")
for z in range(depth):
    out = np.zeros((height, width), np.float32)
    cut(drv.Out(out), np.int32(z), np.int32(width), np.int32(height), block=(8, 6, 1), texrefs=[texref])
    assert np.array_equal(out, volume[z])
assert texref.get_array() is not None
