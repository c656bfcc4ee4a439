"""sqrt(abs(x)): two ready functions, one expression, and one traced from Python: the same values.

Prints::

    40 × 40 random numbers, negative ones too
    ck.math:        as NumPy has it
    ck.elementwise: as NumPy has it
    ck.fuse:        as NumPy has it
"""

import numpy as np

import cudakit as ck

from_expression = ck.elementwise("T x", "T y", "y = sqrt(fabs(x))", name="sqrt_abs")


@ck.fuse
def from_python(x):
    """Traced once for each dtype, into one kernel."""
    return np.sqrt(np.abs(x))


stream = ck.stream()
side = 4000 if ck.has_gpu() else 40
given = np.random.default_rng(4).normal(size=(side, side)).astype(np.float32)
assert given.min() < 0 < given.max()
print(f"{side} × {side} random numbers, negative ones too")

x = ck.to_device(given, stream)
for words, result in (
    ("ck.math:       ", ck.math.sqrt(ck.math.absolute(x, stream=stream), stream=stream)),
    ("ck.elementwise:", from_expression(x, stream=stream)),
    ("ck.fuse:       ", from_python(x, stream=stream)),
):
    found = ck.to_host(result, stream)
    assert (found.dtype, found.shape) == (given.dtype, given.shape)
    np.testing.assert_allclose(found.astype(float) ** 2, np.abs(given), rtol=1e-6)  # the square of a root
    np.testing.assert_allclose(found, np.sqrt(np.abs(given)), rtol=1e-6)
    print(f"{words} as NumPy has it")
