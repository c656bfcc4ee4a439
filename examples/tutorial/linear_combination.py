"""A linear combination from an expression: no kernel, no grid and no dtypes to write.

`ck.elementwise` makes a function of arrays from a C++ expression. Look at the dtypes and shapes: the result's dtype
follows NumPy's rules, rows are broadcast, and `out=` takes an array that is there already.

Prints::

    5 x + 6 y, float32: agrees with NumPy
    with out=: the same result in an array that was there
    5 x + 6 y, float64 and int32: float64
    2 x + 3 y, a matrix and a row: shape (3, 4)
"""

import numpy as np

import cudakit as ck

combine = ck.elementwise("A a, T x, B b, T y", "T z", "z = a * x + b * y", name="combine")

stream = ck.stream()
with ck.using(stream) as xp:
    rng = xp.random.default_rng(5)
    x, y = rng.random(400, dtype=xp.float32), rng.random(400, dtype=xp.float32)
    expected = 5 * ck.to_host(x, stream) + 6 * ck.to_host(y, stream)
    z = combine(5, x, 6, y, stream=stream)
    assert z.dtype == np.float32
    np.testing.assert_allclose(ck.to_host(z, stream), expected, rtol=1e-6)
    print("5 x + 6 y, float32: agrees with NumPy")

    out = xp.zeros(400, dtype=xp.float32)
    assert combine(5, x, 6, y, out=out, stream=stream) is out
    np.testing.assert_array_equal(ck.to_host(out, stream), ck.to_host(z, stream))
    print("with out=: the same result in an array that was there")

    integers = rng.integers(-100, 100, size=400, dtype=xp.int32)
    mixed = combine(5, x.astype(xp.float64), 6, integers, stream=stream)
    expected = 5 * ck.to_host(x, stream).astype(np.float64) + 6 * ck.to_host(integers, stream)
    np.testing.assert_allclose(ck.to_host(mixed, stream), expected, rtol=1e-14, atol=1e-12)
    print(f"5 x + 6 y, float64 and int32: {mixed.dtype}")
    assert mixed.dtype == np.float64

    rows = xp.arange(12, dtype=xp.float32).reshape(3, 4)
    table = combine(2, rows, 3, xp.arange(4, dtype=xp.float32), stream=stream)
    np.testing.assert_array_equal(ck.to_host(table, stream), 2 * np.arange(12).reshape(3, 4) + 3 * np.arange(4))
    print(f"2 x + 3 y, a matrix and a row: shape {table.shape}")
