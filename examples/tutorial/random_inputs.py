"""Dot product and maximum of random inputs, and the error of a sum in float32.

The error of a float32 sum depends on its order. The ops of cudakit add pairwise, so the error stays small for many
elements. Look at the relative error, measured against a sum in float64.

Prints::

    n = 1000: dot 257.977, relative error below 1e-05; max agrees with NumPy
    n = 100000: dot 24868.055, relative error below 1e-05; max agrees with NumPy
"""

import numpy as np

import cudakit as ck

stream = ck.stream()
rng = np.random.default_rng(12)
for n in (1000, 100_000):
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    with ck.using(stream):  # so that float(…) waits for the op: it reads on CuPy's current stream
        a, b = ck.to_device(x, stream), ck.to_device(y, stream)
        dot, greatest = float(ck.ops.dot(a, b, stream=stream)), float(ck.ops.max(a, stream=stream))
    exact = float(x.astype(float) @ y.astype(float))
    assert abs(dot / exact - 1) < 1e-5
    assert greatest == x.max()
    print(f"n = {n}: dot {dot:.3f}, relative error below 1e-05; max agrees with NumPy")
