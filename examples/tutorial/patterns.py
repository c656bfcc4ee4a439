"""Four patterns: map, elementwise, reduce and scan, each from an expression, for arrays of any length.

`ck.elementwise`, `ck.reduction` and `ck.scan` compile the kernels. Look at the scan: it is right for 100,000 elements,
which no single block can hold. Ready-made ops are `ck.ops.sum`, `ck.ops.cumsum` and `ck.ops.cummax`.

Prints::

    map         x²:        [0, 1, 4, 9, 16] …
    elementwise x + 2 y:   [0, 3, 6, 9, 12] …
    reduce      Σ x:       4999950000
    scan        Σ x[:i+1]: [0, 1, 3, 6, 10] … 4999950000
    scan        maximum of |sin x| so far: 1.000 at the end
"""

import numpy as np

import cudakit as ck

square = ck.elementwise("T x", "T y", "y = x * x", name="square")
add_twice = ck.elementwise("T x, T y", "T z", "z = x + 2 * y", name="add_twice")
total = ck.reduction("T x", "T out", map="x", reduce="a + b", identity="0", name="total")
running_sum = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="y = item", name="running_sum")
running_max = ck.scan(
    "T x", "T y", map="fabs(x)", reduce="a > b ? a : b", identity="0", output="y = item", name="running_max"
)


def first(array: np.ndarray) -> str:
    """Return the first five values as text."""
    return f"[{', '.join(f'{value:g}' for value in array[:5])}] …"


n = 100_000
stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.arange(n, dtype=xp.float32)
    integers = xp.arange(n, dtype=xp.int64)
    host = np.arange(n)

    squared = ck.to_host(square(x, stream=stream), stream)
    np.testing.assert_array_equal(squared, host.astype(np.float32) ** 2)
    print(f"map         x²:        {first(squared)}")

    combined = ck.to_host(add_twice(x, x, stream=stream), stream)
    np.testing.assert_array_equal(combined, 3 * host)
    print(f"elementwise x + 2 y:   {first(combined)}")

    sum_of_all = int(total(integers, stream=stream))
    assert sum_of_all == host.sum()
    print(f"reduce      Σ x:       {sum_of_all}")

    sums = ck.to_host(running_sum(integers, stream=stream), stream)
    np.testing.assert_array_equal(sums, host.cumsum())
    print(f"scan        Σ x[:i+1]: {first(sums)} {sums[-1]}")

    values = xp.sin(-x)  # negative at first, so that absolute values matter
    greatest = ck.to_host(running_max(values, stream=stream), stream)
    np.testing.assert_array_equal(greatest, np.maximum.accumulate(np.abs(ck.to_host(values, stream))))
    print(f"scan        maximum of |sin x| so far: {greatest[-1]:.3f} at the end")
