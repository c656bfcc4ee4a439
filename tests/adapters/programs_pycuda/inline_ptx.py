import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
__device__ int lane()
{
    int id;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(id));
    return id;
}
__device__ float product(float a, float b)
{
    float c;
    asm("mul.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
__global__ void f(int *lanes, float *x)
{
    lanes[threadIdx.x] = lane();
    x[threadIdx.x] = product(x[threadIdx.x], 3.0f);
}
""")
lanes = np.zeros(80, np.int32)
x = np.random.rand(80).astype(np.float32)
expected = x * np.float32(3)
mod.get_function("f")(drv.Out(lanes), drv.InOut(x), block=(80, 1, 1))
assert np.array_equal(lanes, np.arange(80) % 32)
assert np.array_equal(x, expected)
