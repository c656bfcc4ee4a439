"""A linear combination from an expression: no kernel, no grid, no types to write down.

Prints::

    5 x + 6 y, largest difference from NumPy: 0.0
    the same, of float64 and int32: float64
    with rows broadcast: shape (3, 4)
"""

import numpy as np

import cudakit as ck

combine = ck.elementwise("A a, T x, B b, T y", "T z", "z = a * x + b * y", name="combine")

stream = ck.stream()
with ck.using(stream) as xp:
    x, y = xp.arange(400, dtype=xp.float32), xp.ones(400, dtype=xp.float32)
    z = combine(5, x, 6, y, stream=stream)
    expected = 5 * ck.to_host(x, stream) + 6 * ck.to_host(y, stream)
    difference = np.abs(ck.to_host(z, stream) - expected).max()
    assert difference == 0
    print(f"5 x + 6 y, largest difference from NumPy: {difference}")

    other = combine(5, x.astype(xp.float64), 6, xp.arange(400, dtype=xp.float64), stream=stream)
    print(f"the same, of float64 and int32: {other.dtype}")

    table = combine(1, xp.zeros((3, 4), dtype=xp.float32), 1, xp.arange(4, dtype=xp.float32), stream=stream)
    np.testing.assert_array_equal(ck.to_host(table, stream), np.broadcast_to(np.arange(4), (3, 4)))
    print(f"with rows broadcast: shape {table.shape}")
