import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda import gpuarray
from pycuda.compiler import SourceModule

template = """
#include <curand_kernel.h>
extern "C" {
__device__ %(precision)s F(%(precision)s x) { return %(function)s; }

__global__ void integrate(int samples, %(precision)s lo, %(precision)s hi, unsigned long long seed, %(precision)s *out)
{
    int tid = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, tid, 0, &state);
    %(precision)s width = (hi - lo) / (blockDim.x * gridDim.x), begin = lo + width * tid, sum = 0;
    for (int k = 0; k < samples; k++)
        sum += F(begin + width * curand_uniform%(p)s(&state));
    out[tid] = sum * width / samples;
}
}
"""


class MonteCarlo:
    def __init__(self, function, precision="float"):
        self.dtype = np.float32 if precision == "float" else np.float64
        self.function = function
        self.source = template % {
            "function": function,
            "precision": precision,
            "p": "" if precision == "float" else "_double",
        }
        self.kernel = SourceModule(self.source, no_extern_c=True).get_function("integrate")

    def __call__(self, lo, hi, samples):
        blocks, threads = 2, 64
        out = gpuarray.empty((blocks * threads,), dtype=self.dtype)
        self.kernel(
            np.int32(samples),
            self.dtype(lo),
            self.dtype(hi),
            np.uint64(3),
            out,
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
        )
        drv.Context.synchronize()
        return out.get().sum()


assert abs(MonteCarlo("x * x")(0, 3, 10) - 9) < 0.05
assert abs(MonteCarlo("sin(x) * x", "double")(0, np.pi, 10) - np.pi) < 0.05
