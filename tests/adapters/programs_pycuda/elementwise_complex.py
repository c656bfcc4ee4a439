import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.elementwise import ElementwiseKernel

n = 100
x = (np.random.randn(n) + 1j * np.random.randn(n)).astype(np.complex64)
y = (np.random.randn(n) + 1j * np.random.randn(n)).astype(np.complex64)
x_gpu, y_gpu = gpuarray.to_gpu(x), gpuarray.to_gpu(y)
z_gpu = gpuarray.empty_like(x_gpu)

rotate = ElementwiseKernel(
    "pycuda::complex<float> *x, pycuda::complex<float> *y, pycuda::complex<float> *z",
    "z[i] = x[i] * conj(y[i]) + pycuda::complex<float>(0, 1)",
    "rotate",
    preamble="#include <pycuda-complex.hpp>",
)
rotate(x_gpu, y_gpu, z_gpu)
assert np.allclose(z_gpu.get(), x * y.conj() + 1j, atol=1e-5)
assert np.allclose(z_gpu.real.get(), z_gpu.get().real)
assert np.allclose(z_gpu.imag.get(), z_gpu.get().imag)
assert np.allclose(z_gpu.conj().get(), z_gpu.get().conj())
assert np.allclose(abs(z_gpu).get(), abs(z_gpu.get()))
assert np.allclose((x_gpu * 2j).get(), x * 2j)
