"""sqrt(abs(x)) in three ways: ready functions, a C++ expression, and a Python function.

`ck.math` has NumPy's functions, each one kernel. `ck.elementwise` compiles an expression, and `ck.fuse` a Python
function, into one kernel. Look at the results: all three agree with NumPy.

Prints::

    40 × 40 random numbers, some of them negative
    ck.math:        agrees with NumPy
    ck.elementwise: agrees with NumPy
    ck.fuse:        agrees with NumPy
"""

import numpy as np

import cudakit as ck

from_expression = ck.elementwise("T x", "T y", "y = sqrt(fabs(x))", name="sqrt_abs")


@ck.fuse
def from_python(x):
    """Return sqrt(abs(x)); traced once for each dtype, into one kernel."""
    return np.sqrt(np.abs(x))


stream = ck.stream()
side = 4000 if ck.has_gpu() else 40
host_x = np.random.default_rng(4).normal(size=(side, side)).astype(np.float32)
assert host_x.min() < 0 < host_x.max()
print(f"{side} × {side} random numbers, some of them negative")

x = ck.to_device(host_x, stream)
for label, result in (
    ("ck.math:       ", ck.math.sqrt(ck.math.absolute(x, stream=stream), stream=stream)),
    ("ck.elementwise:", from_expression(x, stream=stream)),
    ("ck.fuse:       ", from_python(x, stream=stream)),
):
    host_result = ck.to_host(result, stream)
    assert (host_result.dtype, host_result.shape) == (host_x.dtype, host_x.shape)
    np.testing.assert_allclose(host_result.astype(float) ** 2, np.abs(host_x), rtol=1e-6)  # the square of a root
    np.testing.assert_allclose(host_result, np.sqrt(np.abs(host_x)), rtol=1e-6)
    print(f"{label} agrees with NumPy")
