import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule(
    """
template <typename T>
__device__ T square(T x) { return x * x; }

__global__ void squares(int *x, int n)
{
    if (threadIdx.x < n) x[threadIdx.x] = square<int>(x[threadIdx.x]);
}

template <int N>
__global__ void add_n(float *x)
{
    x[threadIdx.x] += N;
}
template __global__ void add_n<3>(float *);

extern "C" __global__ void halves(float *x)
{
    x[threadIdx.x] *= 0.5f;
}
""",
    no_extern_c=True,
)
squares = mod.get_function("_Z7squaresPii")
add_three = mod.get_function("_Z5add_nILi3EEvPf")
halves = mod.get_function("halves")

a = np.arange(10, dtype=np.int32)
expected = a * a
squares(cuda.InOut(a), np.int32(10), block=(10, 1, 1))
assert np.array_equal(a, expected)

x = np.ones(8, np.float32)
add_three(cuda.InOut(x), block=(8, 1, 1))
halves(cuda.InOut(x), block=(8, 1, 1))
assert (x == 2).all()
