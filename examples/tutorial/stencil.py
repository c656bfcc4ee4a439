"""A stencil without a kernel: each element from its neighbours, with a rule for the borders.

`ck.stencil` takes the formula: `u(dy, dx)` is the element so many rows and columns away. `mode` says what lies beyond
the borders, by SciPy's names, and `steps` repeats the step. Kernels for the same purpose, written by hand, are
heat_equation.py and game_of_life.py.

Prints::

    mode="constant", two steps:
    [[ 0.  8.  0.  0.  0.]
     [12.  0.  4.  0.  0.]
     [ 0.  8.  0.  0.  0.]
     [ 4.  0.  0.  0.  0.]]
    mode="nearest", two steps:
    [[12.  8.  0.  0.  0.]
     [16.  4.  4.  0.  0.]
     [ 8.  8.  0.  0.  0.]
     [ 4.  0.  0.  0.  0.]]
    mode="wrap", two steps:
    [[ 0.  8.  0.  0.  8.]
     [16.  0.  4.  4.  0.]
     [ 0.  8.  0.  0.  8.]
     [ 8.  0.  0.  0.  0.]]
"""

import numpy as np

import cudakit as ck

AVERAGE = "0.25f * (u(0, -1) + u(0, 1) + u(-1, 0) + u(1, 0))"

stream = ck.stream()
host_u = np.zeros((4, 5), np.float32)
host_u[1, 0] = 64  # at the left border
u = ck.to_device(host_u, stream)
for mode, pad in (("constant", "constant"), ("nearest", "edge"), ("wrap", "wrap")):
    average = ck.stencil("float next", AVERAGE, mode=mode, name=f"average_{mode}")
    result = ck.to_host(average(u, steps=2, stream=stream), stream)
    expected = host_u
    for _ in range(2):
        around = np.pad(expected, 1, mode=pad)
        expected = (around[1:-1, :-2] + around[1:-1, 2:] + around[:-2, 1:-1] + around[2:, 1:-1]) / 4
    np.testing.assert_array_equal(result, expected)
    print(f'mode="{mode}", two steps:')
    print(result)
