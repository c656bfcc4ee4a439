"""A linear combination from an expression: no kernel, no grid, no types to write down.

Prints::

    5 x + 6 y of random x and y, made on the device: as NumPy has it
    into an array that is there: the same
    of float64 and int32: float64
    with rows broadcast: shape (3, 4)
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
    print("5 x + 6 y of random x and y, made on the device: as NumPy has it")

    there = xp.zeros(400, dtype=xp.float32)
    assert combine(5, x, 6, y, out=there, stream=stream) is there
    np.testing.assert_array_equal(ck.to_host(there, stream), ck.to_host(z, stream))
    print("into an array that is there: the same")

    whole = rng.integers(-100, 100, size=400, dtype=xp.int32)
    mixed = combine(5, x.astype(xp.float64), 6, whole, stream=stream)
    expected = 5 * ck.to_host(x, stream).astype(np.float64) + 6 * ck.to_host(whole, stream)
    np.testing.assert_allclose(ck.to_host(mixed, stream), expected, rtol=1e-14, atol=1e-12)
    print(f"of float64 and int32: {mixed.dtype}")
    assert mixed.dtype == np.float64

    rows = xp.arange(12, dtype=xp.float32).reshape(3, 4)
    table = combine(2, rows, 3, xp.arange(4, dtype=xp.float32), stream=stream)
    np.testing.assert_array_equal(ck.to_host(table, stream), 2 * np.arange(12).reshape(3, 4) + 3 * np.arange(4))
    print(f"with rows broadcast: shape {table.shape}")
