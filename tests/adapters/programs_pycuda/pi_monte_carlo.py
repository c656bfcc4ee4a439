import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

code = """
#include <curand_kernel.h>

extern "C" {
__global__ void estimate(unsigned long long seed, int tries, unsigned int *hits)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    curandState state;
    curand_init(seed, id, 0, &state);
    unsigned int count = 0;
    for (int k = 0; k < tries; k++) {
        float x = curand_uniform(&state);
        float y = curand_uniform(&state);
        if (x * x + y * y <= 1.0f)
            count++;
    }
    hits[id] = count;
}
}
"""
mod = SourceModule(code, no_extern_c=True)
estimate = mod.get_function("estimate")

threads, tries = 128, 40
hits = np.zeros(threads, np.uint32)
estimate(np.uint64(42), np.int32(tries), drv.Out(hits), block=(64, 1, 1), grid=(2, 1))
pi = 4 * hits.sum() / (threads * tries)
print("pi is about", pi)
assert abs(pi - np.pi) < 0.1
