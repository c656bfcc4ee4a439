import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel
from pycuda.tools import ScalarArg, VectorArg

fill = ElementwiseKernel([VectorArg(np.int32, "x"), ScalarArg(np.int32, "value")], "x[i] = value + i", "fill")

x_gpu = gpuarray.zeros(40, np.int32)
fill(x_gpu, 100, slice=slice(10, 20))
expected = np.zeros(40, np.int32)
expected[10:20] = 100 + np.arange(10, 20)
assert np.array_equal(x_gpu.get(), expected)

fill(x_gpu, 0, range=slice(0, 40, 4))
expected[::4] = np.arange(0, 40, 4)
assert np.array_equal(x_gpu.get(), expected)

count_down = ElementwiseKernel(
    "int *y",
    "y[i] = twice(n - i)",
    preamble="__device__ int twice(int v) { return 2 * v; }",
)
y_gpu = gpuarray.empty(7, np.int32)
count_down(y_gpu)
assert np.array_equal(y_gpu.get(), [14, 12, 10, 8, 6, 4, 2])

clamp = ElementwiseKernel(
    "float *x, float low, float high",
    "x[i] = (x[i] - low) / width",
    loop_prep="const float width = high - low",
)
z = np.array([1, 2, 3, 5], np.float32)
z_gpu = gpuarray.to_gpu(z)
clamp(z_gpu, 1, 5)
assert np.allclose(z_gpu.get(), (z - 1) / 4)
