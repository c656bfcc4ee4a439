import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

mod = SourceModule("""
#define NUM_BINS 256

__global__ void histogram(const unsigned char *data, int size, unsigned int *histo)
{
    __shared__ unsigned int temp[NUM_BINS];
    for (int b = threadIdx.x; b < NUM_BINS; b += blockDim.x)
        temp[b] = 0;
    __syncthreads();

    int i = threadIdx.x + blockIdx.x * blockDim.x;
    int offset = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&temp[data[i]], 1);
        i += offset;
    }
    __syncthreads();

    for (int b = threadIdx.x; b < NUM_BINS; b += blockDim.x)
        atomicAdd(&histo[b], temp[b]);
}
""")
histogram = mod.get_function("histogram")

image = np.random.randint(0, 256, (50, 60)).astype(np.uint8)
image_gpu = gpuarray.to_gpu(image)
histo_gpu = gpuarray.zeros(256, dtype=np.uint32)

histogram(image_gpu, np.int32(image.size), histo_gpu, block=(128, 1, 1), grid=(4, 1))
assert np.array_equal(histo_gpu.get(), np.bincount(image.ravel(), minlength=256))

# the same with memset and pointers
counts = drv.mem_alloc(256 * 4)
drv.memset_d32(counts, 0, 256)
histogram(image_gpu.gpudata, np.int32(image.size), counts, block=(256, 1, 1), grid=(1, 1))
assert np.array_equal(drv.from_device(counts, (256,), np.uint32), histo_gpu.get())
