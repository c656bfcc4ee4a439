import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel

escape = ElementwiseKernel(
    "const pycuda::complex<double> *c, int *steps, int most",
    """
    pycuda::complex<double> z(0, 0);
    int k = 0;
    while (k < most && norm(z) <= 4) {
        z = z * z + c[i];
        k++;
    }
    steps[i] = k;
    """,
    "escape",
    preamble="#include <pycuda-complex.hpp>",
)

x = np.linspace(-2, 0.6, 27)
y = np.linspace(-1.1, 1.1, 17)
c = x[None, :] + 1j * y[:, None]
c_gpu = gpuarray.to_gpu(c)
steps_gpu = gpuarray.empty(c.shape, np.int32)
escape(c_gpu, steps_gpu, 25)

z, steps = np.zeros_like(c), np.zeros(c.shape, np.int32)
for _ in range(25):
    inside = abs(z) ** 2 <= 4
    z[inside] = z[inside] ** 2 + c[inside]
    steps[inside] += 1
assert (steps_gpu.get() == steps).mean() > 0.97
for row in steps_gpu.get():
    print("".join(" .:-=+*#%@"[min(n // 2, 9)] for n in row))
