"""Comparison of a candidate's results: the kernel and NumPy agree, for each dtype; poison; copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.tuning.arrays import Outputs, close, scale_of, tolerance_of

DIFFERENCES = ck.Kernel.from_template("compare/differences")
WRITE = ck.Kernel("template <typename T> __global__ void write(T* x, int n) {}")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 3001])
def test_the_kernel_counts_what_numpy_does(stream: Any, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    expected = rng.normal(0, 100, size).astype(dtype)
    result = expected.copy()
    for element in (np.nan, np.inf, -np.inf, 0):
        places = rng.integers(0, max(size, 1), size // 16)
        result[places] = element
        expected[places[::2]] = element
    factor = 1 + rng.uniform(0, 3) * tolerance_of(np.dtype(dtype))
    result[rng.integers(0, max(size, 1), size // 8)] *= np.array(factor, dtype)
    outcome = ck.to_device(np.array([0, size], np.uint64), stream)
    a, b = ck.to_device(expected, stream), ck.to_device(result, stream)
    bound, scale = tolerance_of(np.dtype(dtype)), scale_of(expected)
    DIFFERENCES(stream, ck.cover(max(size, 1)), a, b, size, bound, scale, outcome)
    right = close(expected, result)
    first = int(np.argmin(right)) if not right.all() else size
    assert ck.to_host(outcome, stream).tolist() == [(~right).sum(), first]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex64"])
def test_an_element_that_differs_is_named(stream: Any, dtype: str) -> None:
    x = ck.to_device(np.ones((6, 7), dtype), stream)
    arguments = [x, x.size]
    plan = WRITE.plan(stream, ck.config(1, 32), x.reshape(-1), x.size) if dtype != "complex64" else None
    parameters = (plan or WRITE.plan(stream, ck.config(1, 32), x.reshape(-1).view("f4"), x.size)).parameters
    outputs = Outputs(stream, arguments, parameters, {}, DIFFERENCES)
    expected = outputs.results()
    assert outputs.first_difference(expected) is None
    outputs.arguments[0][4, 2] = 0
    outputs.arguments[0][5, 6] = 0
    difference = outputs.first_difference(expected, outputs.results())
    assert difference is not None
    assert (difference.argument, difference.position, difference.number) == ("x", (4, 2), 2)
    outputs.poison()
    assert outputs.first_difference(expected, outputs.results()).number == 42  # type: ignore[union-attr]
    outputs.restore()
    assert outputs.first_difference(expected, outputs.results()) is None
    assert np.all(ck.to_host(x, stream) == np.ones((6, 7), dtype))
