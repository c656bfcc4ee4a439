"""Reductions: ready-made ones, and one of your own with two results in one pass.

`ck.ops` has NumPy's reductions, such as `max`, `sum` and `dot`. `ck.reduction` makes others from C++ expressions: `map`
for each element, `reduce` for two values, `post` for the result. Look at `moments`: it returns mean and variance.

Prints::

    max:                 49.0
    dot:                 40425.0
    sum of x[10:20]:     145.0
    sum of x > 40:       405.0
    mean and variance:   24.5 208.25
"""

import numpy as np

import cudakit as ck

dot = ck.reduction("T x, T y", "T out", map="x * y", reduce="a + b", identity="0", name="dot")
sum_above = ck.reduction(
    "T x, T bound", "T out", map="x > bound ? x : T(0)", reduce="a + b", identity="0", name="sum_above"
)
moments = ck.reduction(
    "T x",
    "T mean, T variance",
    map="Moments{x, x * x}",
    reduce="a + b",
    identity="Moments{0, 0}",
    post="mean = a.sum / n; variance = a.squares / n - mean * mean",
    preamble="""
        struct Moments { double sum, squares; };
        __device__ Moments operator+(Moments a, Moments b) { return {a.sum + b.sum, a.squares + b.squares}; }
    """,
    acc="Moments",
    name="moments",
)

stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.arange(50, dtype=xp.float64)
    host = np.arange(50.0)
    results = {
        "max:": (ck.ops.max(x, stream=stream), host.max()),
        "dot:": (dot(x, x, stream=stream), host @ host),
        "sum of x[10:20]:": (ck.ops.sum(x[10:20], stream=stream), host[10:20].sum()),
        "sum of x > 40:": (sum_above(x, 40.0, stream=stream), host[host > 40].sum()),
    }
    for label, (result, expected) in results.items():
        assert float(result) == expected
        print(f"{label:20} {float(result)}")
    mean, variance = moments(x, stream=stream)
    assert (float(mean), float(variance)) == (host.mean(), host.var())
    print(f"mean and variance:   {float(mean)} {float(variance)}")
