"""Constant memory: a small table that all threads read at the same place.

A `__constant__` variable is written from Python by its name, `kernel.globals.write`. Look at the two polynomials: the
same kernel computes both, after the table is written anew.

Prints::

    polynomial 1 + 2 x + 3 x²: [ 1.  6. 17. 34.]
    polynomial 4 - x:          [4. 3. 2. 1.]
"""

import numpy as np

import cudakit as ck

polynomial = ck.Kernel("""
__constant__ float coefficients[8];

__global__ void polynomial(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int power = 7; power >= 0; --power) sum = sum * x[i] + coefficients[power];  // Horner
    y[i] = sum;
}
""")


def padded(*coefficients: float) -> np.ndarray:
    """Return eight coefficients, zeros for the highest powers."""
    return np.pad(np.array(coefficients, np.float32), (0, 8 - len(coefficients)))


stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.arange(4, dtype=xp.float32)
    y = xp.empty_like(x)
    for label, coefficients in (("1 + 2 x + 3 x²:", padded(1, 2, 3)), ("4 - x:         ", padded(4, -1))):
        polynomial.globals.write("coefficients", coefficients, stream)
        polynomial(stream, ck.cover(x.size), x, y, x.size)
        np.testing.assert_array_equal(ck.to_host(y, stream), np.polyval(coefficients[::-1], np.arange(4)))
        print(f"polynomial {label} {y}")
