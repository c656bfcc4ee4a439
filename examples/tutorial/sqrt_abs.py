"""sqrt(abs(x)): two ready functions, one expression, and one traced from Python: the same values.

Prints::

    ck.math:        [3. 2. 1. 0. 1. 2. 3.]
    ck.elementwise: [3. 2. 1. 0. 1. 2. 3.]
    ck.fuse:        [3. 2. 1. 0. 1. 2. 3.]
"""

import numpy as np

import cudakit as ck

from_expression = ck.elementwise("T x", "T y", "y = sqrt(fabs(x))", name="sqrt_abs")


@ck.fuse
def from_python(x):
    """Traced once for each dtype, into one kernel."""
    return np.sqrt(np.abs(x))


stream = ck.stream()
given = np.array([-9, -4, -1, 0, 1, 4, 9], np.float32)
x = ck.to_device(given, stream)
for words, result in (
    ("ck.math:       ", ck.math.sqrt(ck.math.absolute(x, stream=stream), stream=stream)),
    ("ck.elementwise:", from_expression(x, stream=stream)),
    ("ck.fuse:       ", from_python(x, stream=stream)),
):
    found = ck.to_host(result, stream)
    np.testing.assert_array_equal(found, np.sqrt(np.abs(given)))
    print(f"{words} {found}")
