import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

a = np.random.randn(10, 12).astype(np.float32)
part = a[2:7, 3:9]
assert not part.flags.c_contiguous

rows, columns = part.shape
on_gpu, pitch = drv.mem_alloc_pitch(columns * 4, rows, 4)
assert pitch >= columns * 4

copy = drv.Memcpy2D()
copy.set_src_host(a)
copy.src_pitch = a.strides[0]
copy.src_x_in_bytes = 3 * 4
copy.src_y = 2
copy.set_dst_device(on_gpu)
copy.dst_pitch = pitch
copy.width_in_bytes = columns * 4
copy.height = rows
copy(aligned=True)

mod = SourceModule("""
__global__ void doublify(float *x, int pitch)
{
    x[threadIdx.y * pitch + threadIdx.x] *= 2;
}
""")
mod.get_function("doublify")(on_gpu, np.int32(pitch // 4), block=(columns, rows, 1))

result = np.zeros((rows, columns), np.float32)
back = drv.Memcpy2D()
back.set_src_device(on_gpu)
back.src_pitch = pitch
back.set_dst_host(result)
back.dst_pitch = result.strides[0]
back.width_in_bytes = columns * 4
back.height = rows
back(drv.Stream())
drv.Context.synchronize()
assert np.array_equal(result, 2 * part)

cube = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
cube_gpu = drv.mem_alloc(cube.nbytes)
copy3 = drv.Memcpy3D()
copy3.set_src_host(cube)
copy3.src_pitch = cube.strides[1]
copy3.src_height = 5
copy3.set_dst_device(cube_gpu)
copy3.dst_pitch = cube.strides[1]
copy3.dst_height = 5
copy3.width_in_bytes = cube.strides[1]
copy3.height = 5
copy3.depth = 4
copy3()
assert np.array_equal(drv.from_device_like(cube_gpu, cube), cube)
