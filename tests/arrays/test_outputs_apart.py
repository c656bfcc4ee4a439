"""What would be written twice is refused: outputs that are one array, or overlap, or repeat their elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck

TWO = ck.elementwise("T x", "T y, T z", "y = x; z = -x")
SUMS = ck.reduction("T x", "T o, T p", map="x", reduce="a + b", identity="0", post="o = a; p = a * 2")
RUNNING = ck.scan("T x", "T y, T z", map="x", reduce="a + b", identity="0", output="y = item; z = -item")


def repeated(xp: Any, shape: tuple[int, ...] = (5,)) -> Any:
    """An array of one element, again and again, that may be written."""
    return xp.lib.stride_tricks.as_strided(xp.zeros(1, "f4"), shape, (0,) * len(shape))


@pytest.mark.parametrize("function", [SUMS, RUNNING, TWO], ids=["reduction", "scan", "elementwise"])
def test_two_outputs_are_two_arrays(stream: Any, xp: Any, function: Any) -> None:
    shape: tuple[int, ...] = () if function is SUMS else (5,)
    x, both, one = xp.ones(5, "f4"), [xp.zeros(shape, "f4"), xp.zeros(shape, "f4")], xp.zeros(shape, "f4")
    with pytest.raises(ck.ArgumentError, match="one array is given for two outputs"):
        function(x, out=(one, one))
    function(x, out=tuple(both))
    if shape:
        with pytest.raises(ck.ArgumentError, match="two outputs overlap"):
            function(x, out=(one, one[::-1]))
        np.testing.assert_array_equal(to_host(both[0]), -to_host(both[1]))
    else:
        assert [float(to_host(each)) for each in both] == [5, 10]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: ck.ops.cumsum(x, out=out),
        lambda x, out: ck.ops.add(x, x, out=out),
        lambda x, out: ck.ops.copy(x, out=out),
        lambda x, out: ck.ops.flip(x, out=out),
        lambda x, out: ck.ops.softmax(x, out=out),
        lambda x, out: ck.math.sin(x, out=out),
        lambda x, out: RUNNING(x, out=(out, None)),
    ],
    ids=["cumsum", "add", "copy", "flip", "softmax", "math", "scan"],
)
def test_an_output_does_not_repeat_elements(stream: Any, xp: Any, call: Callable[[Any, Any], Any]) -> None:
    x = xp.ones(5, "f4")
    with pytest.raises(ck.ArgumentError, match="out repeats elements"):
        call(x, repeated(xp))


def test_an_empty_output_has_no_elements_to_lie_on_each_other(stream: Any, xp: Any) -> None:
    x, out = xp.ones((8, 0), "f4"), repeated(xp, (8, 0))
    assert ck.ops.softmax(x, axis=0, out=out).shape == ck.math.sin(x, out=out).shape == (8, 0)
