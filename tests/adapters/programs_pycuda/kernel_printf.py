import numpy
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
#include <stdio.h>

__global__ void greet(int times)
{
    for (int k = 0; k < times; k++)
        printf("thread %d of block %d, time %d\\n", threadIdx.x, blockIdx.x, k);
}
""")
greet = mod.get_function("greet")
greet(numpy.int32(2), block=(3, 1, 1), grid=(2, 1))
cuda.Context.synchronize()
assert greet.num_regs >= 0
