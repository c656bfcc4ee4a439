"""Arrays of tuned launches: an element that differs is named; poison; copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.tuning import arrays
from cudakit.tuning.arrays import Outputs
from cudakit.tuning.candidate import Candidate
from cudakit.tuning.tuned import Tuned

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


@pytest.mark.emulator
def test_an_expected_array_may_be_of_the_host_or_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, x = ck.emulator.stream(), np.zeros((2, 3), "f4")
    outputs = Outputs(stream, [x], [BoundParameter("x", "float*", "pointer", x.dtype)], {}, None)
    on_device: Any = SimpleNamespace(__cuda_array_interface__={})
    monkeypatch.setattr(arrays, "to_host", lambda *call: np.ones((2, 3)) if call == (on_device, stream) else None)
    for expected in (on_device, np.ones((2, 3)), [[1, 1, 1], [1, 1, 1]]):
        like = outputs.like(0, expected)
        assert (like.dtype, like.tolist()) == (x.dtype, [[1] * 3] * 2)
    with pytest.raises(ck.ArgumentError, match=r"x has shape \(2, 3\), the expected array \(3,\)"):
        outputs.like(0, [1, 2, 3])


@pytest.mark.parametrize("clocks", [(None, None), (1400, None), (None, 1400), (1980, 1400)])
def test_clocks_are_shown_if_both_were_read(clocks: tuple[int | None, int | None]) -> None:
    variants: Any = SimpleNamespace(kernel=lambda point: SimpleNamespace(name="k"))
    tuned = Tuned(variants, [Candidate({"A": 1}, "right")], {"time": "ms"}, "budget", {}, {}, clocks=clocks)
    assert tuned.clocks == (None if None in clocks else clocks)
    assert ("1,980 MHz before, 1,400 MHz after" in str(tuned)) == (tuned.clocks is not None)
