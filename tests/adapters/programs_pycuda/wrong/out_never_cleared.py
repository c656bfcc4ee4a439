import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void histogram(const unsigned char *data, int n, int *bins)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[data[i]], 1);
}
""")
data = np.random.randint(0, 16, 1000).astype(np.uint8)
bins = np.zeros(16, np.int32)
# Out copies nothing in: the kernel adds to what the memory holds
mod.get_function("histogram")(drv.In(data), np.int32(1000), drv.Out(bins), block=(256, 1, 1), grid=(4, 1))
assert np.array_equal(bins, np.bincount(data, minlength=16)), "the bins are wrong"
