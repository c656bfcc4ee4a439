"""Dot product and maximum of random inputs: a sum in float32 is as good as its order; ours is pairwise.

Prints::

    n = 1000: dot 257.977, relative error below 1e-05; max as NumPy has it
    n = 100000: dot 24868.055, relative error below 1e-05; max as NumPy has it
"""

import numpy as np

import cudakit as ck

stream = ck.stream()
rng = np.random.default_rng(12)
for n in (1000, 100_000):
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    with ck.using(stream):  # float(…) reads on CuPy's current stream: inside the block, after the op
        a, b = ck.to_device(x, stream), ck.to_device(y, stream)
        dot, greatest = float(ck.ops.dot(a, b, stream=stream)), float(ck.ops.max(a, stream=stream))
    exact = float(x.astype(float) @ y.astype(float))
    assert abs(dot / exact - 1) < 1e-5
    assert greatest == x.max()
    print(f"n = {n}: dot {dot:.3f}, relative error below 1e-05; max as NumPy has it")
