import math

import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel

black_scholes = ElementwiseKernel(
    "double *call, double *put, const double *s, const double *k, const double *t, double r, double v",
    """
    double sqrt_t = sqrt(t[i]);
    double d1 = (log(s[i] / k[i]) + (r + 0.5 * v * v) * t[i]) / (v * sqrt_t);
    double d2 = d1 - v * sqrt_t;
    double discount = exp(-r * t[i]);
    call[i] = s[i] * normcdf(d1) - k[i] * discount * normcdf(d2);
    put[i] = k[i] * discount * normcdf(-d2) - s[i] * normcdf(-d1)
    """,
    name="black_scholes",
)
n = 200
s = np.random.uniform(5, 30, n)
k = np.random.uniform(1, 100, n)
t = np.random.uniform(0.25, 10, n)
call = gpuarray.empty(n, np.float64)
put = gpuarray.empty(n, np.float64)
black_scholes(call, put, gpuarray.to_gpu(s), gpuarray.to_gpu(k), gpuarray.to_gpu(t), 0.02, 0.3)

cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
d1 = (np.log(s / k) + (0.02 + 0.045) * t) / (0.3 * np.sqrt(t))
d2 = d1 - 0.3 * np.sqrt(t)
expected = s * cdf(d1) - k * np.exp(-0.02 * t) * cdf(d2)
assert np.allclose(call.get(), expected, atol=1e-9)
assert np.allclose(call.get() - put.get(), s - k * np.exp(-0.02 * t), atol=1e-9)
