import numpy as np
import pycuda.autoinit
import pycuda.cumath as cumath
import pycuda.gpuarray as gpuarray

a = np.linspace(0.1, 0.9, 200).astype(np.float32)
a_gpu = gpuarray.to_gpu(a)

for name in ["sin", "cos", "tan", "exp", "log", "sqrt", "sinh", "cosh", "tanh", "floor", "ceil", "fabs", "log10"]:
    result = getattr(cumath, name)(a_gpu).get()
    assert np.allclose(result, getattr(np, name)(a), rtol=1e-5, atol=1e-6), name
assert np.allclose(cumath.asin(a_gpu).get(), np.arcsin(a), rtol=1e-5)
assert np.allclose(cumath.acos(a_gpu).get(), np.arccos(a), rtol=1e-5)
assert np.allclose(cumath.atan(a_gpu).get(), np.arctan(a), rtol=1e-5)

out = gpuarray.empty_like(a_gpu)
cumath.exp(a_gpu, out=out)
assert np.allclose(out.get(), np.exp(a), rtol=1e-5)

b = np.full(200, 0.25, np.float32)
b_gpu = gpuarray.to_gpu(b)
assert np.allclose(cumath.fmod(a_gpu, b_gpu).get(), np.fmod(a, b), atol=1e-6)
fraction, whole = cumath.modf(10 * a_gpu)
assert np.allclose(whole.get() + fraction.get(), 10 * a)
significand, exponent = cumath.frexp(a_gpu)
assert np.allclose(cumath.ldexp(significand, exponent).get(), a)
