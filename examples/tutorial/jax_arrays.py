"""JAX arrays as inputs of a kernel, its result as a JAX array, and a kernel inside a compiled program.

A JAX array is read-only, so it is passed as `const float*`. JAX shows no stream: wait for JAX before the kernel reads,
and for the kernel before JAX reads. Inside a compiled program `ck.jax.call` needs no waits. Look at the gradient, which
passes through the kernel.

Prints::

    1000 numbers of JAX, read without a copy
    result as a JAX array: its sum is the sum of sin²
    compiled by JAX: the same sum, and its gradient
"""

import os
import sys

import numpy as np

import cudakit as ck

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of a GPU's memory
try:
    import jax
except ImportError:
    print("JAX is not installed: pip install jax, or jax[cuda13]")
    sys.exit()
if ck.has_gpu() and jax.default_backend() != "gpu":
    print("this JAX has no GPU: pip install jax[cuda13]")
    sys.exit()

square = ck.Kernel("""
__global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
""")

stream = ck.stream()
x = jax.numpy.sin(jax.numpy.arange(1000, dtype=jax.numpy.float32))
x.block_until_ready()  # waits until JAX has computed x
with ck.using(stream) as xp:
    y = xp.full(x.shape, -1, dtype=xp.float32)
    square(stream, ck.cover(x.size), x, y, x.size)  # x is read-only
    stream.sync()  # waits until y is written
    result = jax.dlpack.from_dlpack(y)
print(f"{x.size} numbers of JAX, read without a copy")
assert isinstance(result, jax.Array)
np.testing.assert_array_equal(np.asarray(result), np.asarray(x) ** 2)
total = jax.jit(lambda values: values.sum())(result)
np.testing.assert_allclose(float(total), (np.sin(np.arange(1000.0)) ** 2).sum(), rtol=1e-5)
print("result as a JAX array: its sum is the sum of sin²")

squared = ck.jax.call(square, lambda x: x, backward=lambda x, dy: 2 * x * dy)
program = jax.jit(lambda x: (3 * squared(jax.numpy.sin(x))).sum())
angles = jax.numpy.arange(1000, dtype=jax.numpy.float32)
np.testing.assert_allclose(float(program(angles)), 3 * float(total), rtol=1e-5)
np.testing.assert_allclose(jax.grad(program)(angles), 3 * np.sin(2 * np.asarray(angles)), atol=1e-3)
print("compiled by JAX: the same sum, and its gradient")
