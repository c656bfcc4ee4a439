import pycuda.autoinit
import pycuda.driver as cuda
from pycuda import tools
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void f(float *x)
{
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[255 - threadIdx.x];
}
""")
f = mod.get_function("f")
assert f.shared_size_bytes == 1024
assert f.num_regs > 0
assert f.local_size_bytes >= 0
assert f.const_size_bytes >= 0
assert f.max_threads_per_block == 1024
assert f.get_attribute(cuda.function_attribute.NUM_REGS) == f.num_regs
f.set_cache_config(cuda.func_cache.PREFER_SHARED)

device = tools.DeviceData()
assert device.max_threads == 1024
assert device.warp_size == 32
record = tools.OccupancyRecord(device, 256, shared_mem=f.shared_size_bytes, registers=f.num_regs)
assert 0 < record.occupancy <= 1
assert record.tb_per_mp >= 1
assert record.limited_by in ("device", "warps", "regs", "smem")
assert device.align_bytes(4) % 4 == 0
assert tools.DeviceData.make_valid_tex_channel_count(3) == 4

context = pycuda.autoinit.context
assert context.get_device() == pycuda.autoinit.device
assert context.get_api_version() > 0
