"""Four patterns: map, elementwise, reduce and scan; the scan right for any length, not only for one block.

Prints::

    map         x²:       [0. 1. 4. 9. 16.] …
    elementwise x + 2 y:  [0. 3. 6. 9. 12.] …
    reduce      Σ x:      4999950000
    scan        Σ x[:i]:  [0 1 3 6 10] … 4999950000
    scan        running maximum of |sin|: ends at 1.000
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
    """The first five values, in short."""
    return f"[{' '.join(f'{value:g}' + '.' * (array.dtype.kind == 'f') for value in array[:5])}] …"


n = 100_000
stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.arange(n, dtype=xp.float32)
    whole = xp.arange(n, dtype=xp.int64)
    host = np.arange(n)

    squared = ck.to_host(square(x, stream=stream), stream)
    np.testing.assert_array_equal(squared, host.astype(np.float32) ** 2)
    print(f"map         x²:       {first(squared)}")

    summed = ck.to_host(add_twice(x, x, stream=stream), stream)
    np.testing.assert_array_equal(summed, 3 * host)
    print(f"elementwise x + 2 y:  {first(summed)}")

    everything = int(total(whole, stream=stream))
    assert everything == host.sum()
    print(f"reduce      Σ x:      {everything}")

    running = ck.to_host(running_sum(whole, stream=stream), stream)
    np.testing.assert_array_equal(running, host.cumsum())
    print(f"scan        Σ x[:i]:  {first(running)} {running[-1]}")

    waves = xp.sin(-x)  # negative at first, so that its absolute values are others
    greatest = ck.to_host(running_max(waves, stream=stream), stream)
    np.testing.assert_array_equal(greatest, np.maximum.accumulate(np.abs(ck.to_host(waves, stream))))
    print(f"scan        running maximum of |sin|: ends at {greatest[-1]:.3f}")
