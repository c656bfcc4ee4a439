import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void all_of_them(int *r, const int *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&r[0], x[i]);
    atomicMax(&r[1], x[i]);
    atomicMin(&r[2], x[i]);
    atomicOr(&r[3], 1 << (x[i] & 31));
    atomicCAS(&r[4], 0, x[i] != 0);
    atomicSub(&r[5], 1);
}
__global__ void float_sum(float *sum, const float *x)
{
    atomicAdd(sum, x[threadIdx.x]);
}
""")
x = np.random.randint(-100, 100, 300).astype(np.int32)
r = np.array([0, -1000, 1000, 0, 0, 0], np.int32)
mod.get_function("all_of_them")(cuda.InOut(r), cuda.In(x), np.int32(x.size), block=(128, 1, 1), grid=(3, 1))
bits = np.bitwise_or.reduce(np.uint32(1) << (x & 31).astype(np.uint32))
assert list(r[:3]) == [x.sum(), x.max(), x.min()]
assert r[3:4].view(np.uint32)[0] == bits
assert list(r[4:]) == [1, -300]

f = np.random.randint(0, 10, 128).astype(np.float32)
total = np.zeros(1, np.float32)
mod.get_function("float_sum")(cuda.InOut(total), cuda.In(f), block=(128, 1, 1))
assert total[0] == f.sum()
