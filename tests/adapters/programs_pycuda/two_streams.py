import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void scale(float *x, float by)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] *= by;
}
""")
scale = mod.get_function("scale")

streams = [cuda.Stream(), cuda.Stream()]
data = [cuda.pagelocked_empty(1024, np.float32) for _ in streams]
results = [cuda.pagelocked_zeros_like(d) for d in data]
on_gpu = [cuda.mem_alloc(d.nbytes) for d in data]
events = []

for k, d in enumerate(data):
    d[:] = np.arange(1024) + k

for k, stream in enumerate(streams):
    cuda.memcpy_htod_async(on_gpu[k], data[k], stream)
for k, stream in enumerate(streams):
    scale(on_gpu[k], np.float32(k + 2), block=(256, 1, 1), grid=(4, 1), stream=stream)
for k, stream in enumerate(streams):
    cuda.memcpy_dtoh_async(results[k], on_gpu[k], stream)
    events.append(cuda.Event().record(stream))

for k, stream in enumerate(streams):
    stream.synchronize()
    assert stream.is_done()
    assert events[k].query()
    assert np.array_equal(results[k], data[k] * np.float32(k + 2))

# the second stream waits for the first
scale(on_gpu[0], np.float32(0.5), block=(256, 1, 1), grid=(4, 1), stream=streams[0])
ready = cuda.Event()
ready.record(streams[0])
streams[1].wait_for_event(ready)
cuda.memcpy_dtod_async(on_gpu[1], on_gpu[0], data[0].nbytes, streams[1])
cuda.memcpy_dtoh_async(results[1], on_gpu[1], streams[1])
cuda.Context.synchronize()
assert np.array_equal(results[1], data[0])
