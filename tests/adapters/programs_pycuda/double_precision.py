import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda import characterize
from pycuda.compiler import SourceModule

assert characterize.has_double_support()
assert characterize.sizeof("double") == 8
assert characterize.platform_bits() == 64

mod = SourceModule("""
__global__ void series(double *x, const long long *n, short *small)
{
    int i = threadIdx.x;
    double sum = 0;
    for (int k = 1; k <= n[i]; k++)
        sum += 1.0 / ((double) k * k);
    x[i] = sqrt(6 * sum);
    small[i] = (short) n[i];
}
""")
series = mod.get_function("series")
n = np.array([1, 10, 100], np.int64)
x = gpuarray.zeros(3, np.float64)
small = gpuarray.zeros(3, np.int16)
series(x, gpuarray.to_gpu(n), small, block=(3, 1, 1))
expected = [np.sqrt(6 * np.sum(1.0 / np.arange(1.0, m + 1) ** 2)) for m in n]
assert np.allclose(x.get(), expected, rtol=1e-14)
assert np.array_equal(small.get(), n)
