"""Arrays of tuned launches: an element that differs is named; poison; copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.tuning.arrays import Outputs

DIFFERENCES = ck.Kernel.from_template("compare/differences")
WRITE = ck.Kernel("template <typename T> __global__ void write(T* x, int n) {}")


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
