"""Calls that come again, as CuPy's arrays take them: with a module in CuPy's place whose arrays are NumPy's."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays.output import Target
from cudakit.arrays.place import ArrayPlace
from cudakit.generate.call import gather, outs_of
from cudakit.generate.fold import declared, target

pytestmark = pytest.mark.emulator
F4 = np.dtype("f4")


def plans(function: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is planned anew, in the order of the calls."""
    planned: list[Any] = []
    whole = type(function)._job

    def noted(self: Any, *of: Any) -> Any:
        planned.append(of)
        return whole(self, *of)

    monkeypatch.setattr(type(function), "_job", noted)
    return planned


def test_kinds_of_calls(stream: Any) -> None:
    function = ck.elementwise("T x, T y", "T z", "z = x + y", name="sum_of")
    x, y = np.zeros((2, 3), F4), np.zeros((3, 2), F4).T
    of_x, of_y = (F4, (2, 3), (12, 4)), (F4, (2, 3), (4, 8))
    assert gather(function.recipe, (x, 2), stream).layouts == (of_x, int)
    assert gather(function.recipe, (x, 2.5), stream).layouts == (of_x, float)
    assert gather(function.recipe, (x, np.float32(2)), stream, [("out (z)", y)]).layouts == (of_x, F4, of_y)
    with pytest.raises(ck.ArgumentError, match="y is list, not an array"):
        gather(function.recipe, (x, [1]), stream)


def test_a_call_that_comes_again(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = ck.elementwise("T x, T y", "T z", "z = x - 2 * y", name="less")
    planned = plans(function, monkeypatch)
    x, y, out = np.arange(6, dtype=F4).reshape(2, 3), np.ones(3, F4), np.zeros((2, 3), F4)
    for k in range(3):
        np.testing.assert_array_equal(function._ordinary((x + k, y), None, stream), x + k - 2)
    assert len(planned) == 1
    for k in range(2):
        assert function._ordinary((x + k, y), out, stream) is out
        np.testing.assert_array_equal(out, x + k - 2)
    assert len(planned) == 2  # where an output is given, once more
    for _ in range(2):  # an output that is an input is one more kind
        own = x.copy()
        assert function._ordinary((own, y), own, stream) is own
        np.testing.assert_array_equal(own, x - 2)
    assert len(planned) == 3
    np.testing.assert_array_equal(function._ordinary((x, 2.0), None, stream), x - 4)
    np.testing.assert_array_equal(function._ordinary((x, 3.0), None, stream), x - 6)
    assert len(planned) == 4
    for _ in range(2):
        np.testing.assert_array_equal(function._ordinary((x, y), None, stream, np.ones(3, bool)), x - 2)
        np.testing.assert_array_equal(function._ordinary((x, y), None, stream, None, None, 128), x - 2)
    assert len(planned) == 6


def test_an_output_that_overlaps_an_input_otherwise(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = ck.elementwise("T x, T y", "T z", "z = x - 2 * y", name="less")
    planned = plans(function, monkeypatch)
    memory, y = np.arange(12, dtype=F4), np.ones(6, F4)
    apart = np.zeros(6, F4)
    function._ordinary((memory[:6], y), apart, stream)
    want = memory[:6] - 2
    function._ordinary((memory[:6], y), memory[3:9], stream)
    np.testing.assert_array_equal(memory[3:9], want)
    assert len(planned) == 1, "of a copy it is the same call"


def test_what_is_checked_of_each_call(stream: Any) -> None:
    function = ck.elementwise("T x", "T z, T w", "z = x; w = x", name="two")
    x, z, w = np.ones(3, F4), np.zeros(3, F4), np.zeros(3, F4)
    for _ in range(2):
        assert [*map(id, function._ordinary((x,), (z, w), stream))] == [id(z), id(w)]
        with pytest.raises(ck.ArgumentError, match="for two outputs"):
            function._ordinary((x,), (z, z), stream)
    z.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="output z: out is read-only"):
        function._ordinary((x,), (z, w), stream)


def test_kinds_are_bounded(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = ck.elementwise("T x", "T z", "z = x")
    monkeypatch.setattr(type(function), "_MOST_JOBS", 2)
    for size, count in ((1, 1), (2, 2), (3, 1), (3, 1), (4, 2)):
        function._ordinary((np.zeros(size, F4),), None, stream)
        assert len(function._jobs) == count


def test_a_prepared_launch(stream: Any) -> None:
    function = ck.elementwise("T x, T y", "T z", "z = x - 2 * y", name="less")
    x, out = np.arange(6, dtype=F4).reshape(2, 3), np.zeros((2, 3), F4)
    launch, job = function.prepared([x, 1.0], [out])
    assert job.shape == (2, 3)
    launch(stream, x, 1.0, out)
    stream.sync()
    np.testing.assert_array_equal(out, x - 2)
    launch, job = function.prepared([x[:0], 1.0], [out[:0]])
    assert job.kernel is None
    launch(stream, x[:0], 1.0, out[:0])
    for wrong in (np.zeros((2, 4), F4), np.zeros((2, 3), "f8"), np.zeros((1, 3), F4)):
        with pytest.raises(
            ck.ArgumentError, match=r"output z: it is T z of shape \(2, 3\) and dtype float32; got|cannot be broadcast"
        ):
            function.prepared([x, 1.0], [wrong])
    broken = ck.elementwise("T x", "T z", "z = x + unknown", name="broken")
    launch, _ = broken.prepared([x], [out])
    with pytest.raises(ck.CompileError, match=r"identifier \"unknown\" is undefined[\s\S]*names x, z, i, n"):
        launch(stream, x, out)


def test_dtypes_of_results() -> None:
    function = ck.elementwise("T x, S y", "T z, float64 w, S v", "z = x; w = x; v = y", name="three")
    assert function.result_dtypes(F4, int) == (F4, np.dtype("f8"), np.dtype("i8"))
    assert function.result_dtypes(float, np.dtype("i2")) == (np.dtype("f8"), np.dtype("f8"), np.dtype("i2"))


class Array:
    """An array of a module in CuPy's place."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype = F4, contiguous: bool = True) -> None:
        self.shape, self.dtype, self._c_contiguous = shape, dtype, contiguous
        self.strides, self.data = (4,) * len(shape), SimpleNamespace(device_id=3)


def test_arguments_of_a_reduction_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of the current device's library alone are taken as they are, on its current stream."""
    own = SimpleNamespace(ndarray=Array, cuda=SimpleNamespace(get_current_stream=lambda: "current"))
    monkeypatch.setitem(sys.modules, "cupy", own)
    of = declared("f", "T x, T y", "T z", "", (), ())
    x, y = Array((2, 3)), Array((3,))
    y.data.device_id = 5
    given = gather(of, (x, y), None)
    assert given.place == ArrayPlace(own, "current", True, 3)
    assert given.values == (x, y)
    assert given.layouts == ((F4, (2, 3), (4, 4)), (F4, (3,), (4,)))
    assert given.arrays == [x, y]
    assert given._replace(layouts=(given.layouts[0], float)).arrays == [x]
    with pytest.raises(ck.ArgumentError, match="f takes 2 inputs: x, y; got 1"):
        gather(of, (x,), None)
    host = gather(of, (np.ones(3), 2.0), None)
    assert host.place.xp is np
    assert host.layouts == ((np.dtype("f8"), (3,), (8,)), float)


def test_outputs_that_lie_as_new_ones() -> None:
    of = declared("f", "T x", "T y", "", (), ())
    place: Any = SimpleNamespace(xp=SimpleNamespace(ndarray=Array))
    out = Array((2, 3))
    assert target(of, of.outputs[0], place, out, (2, 3), F4) == Target(out, out)
    for other in (Array((2, 3), contiguous=False), Array((3,)), Array((2, 3), np.dtype("f8"))):
        with pytest.raises((ck.ArgumentError, AttributeError)):
            target(of, of.outputs[0], place, other, (2, 3), F4)


def test_new_outputs_that_statements_leave_out_are_0() -> None:
    function = ck.scan("T x", "T y", "x", "a + b", "0", "if (i > 0) y = item", "late")
    place: Any = SimpleNamespace(xp=None, stream=None, inside=nullcontext)
    place.empty = lambda shape, dtype: np.full(shape, 7, dtype)
    assert function._target(0, place, None, (3,), F4).written.tolist() == [0, 0, 0]
    whole = ck.scan("T x", "T y", "x", "a + b", "0", name="whole")
    assert whole._target(0, place, None, (3,), F4).written.tolist() == [7, 7, 7]


def test_outputs_by_their_number() -> None:
    of = declared("f", "T x", "T y, T z", "", (), ())
    x = np.zeros(3)
    assert outs_of(of, None) == (None, None)
    assert outs_of(of, (x, None)) == (x, None)
    with pytest.raises(ck.ArgumentError, match=r"f has 2 outputs \(y, z\); out has 1"):
        outs_of(of, x)
