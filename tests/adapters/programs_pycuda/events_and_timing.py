import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void work(float *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    for (int n = 0; n < 20; n++)
        v = 0.5f * v + 1;
    x[i] = v;
}
""")
work = mod.get_function("work")

start = cuda.Event()
end = cuda.Event()

x = np.random.randn(512).astype(np.float32)
x_gpu = cuda.mem_alloc(x.nbytes)
cuda.memcpy_htod(x_gpu, x)

start.record()  # start timing
work(x_gpu, block=(128, 1, 1), grid=(4, 1))
end.record()
end.synchronize()
assert end.query()
secs = start.time_till(end) * 1e-3
assert secs >= 0
assert abs(end.time_since(start) * 1e-3 - secs) < 1e-6
print("SourceModule time: %f seconds" % secs)

seconds = work(x_gpu, block=(128, 1, 1), grid=(4, 1), time_kernel=True)
assert seconds >= 0

result = np.empty_like(x)
cuda.memcpy_dtoh(result, x_gpu)
v = x
for _ in range(40):
    v = np.float32(0.5) * v + 1
assert np.allclose(result, v)
