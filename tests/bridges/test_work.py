"""What an op of another library runs: calls of elementwise functions and of functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.bridges import work
from cudakit.bridges.work import Role, Work, check_gradients, gradients_in_order, of_elementwise, of_function, roles_of

pytestmark = pytest.mark.emulator


def itself(value: Any) -> Any:
    return value


def told(value: Any) -> Any:
    return (value.dtype, value.shape) if hasattr(value, "shape") else type(value)


def test_names_and_arrays_of_an_op() -> None:
    roles = Role("a", "number"), Role("x", "array"), Role("y", "written")
    found = Work(roles, ("z",), print)
    assert found.names == ("a", "x", "y", "z")
    assert (found.arrays, found.inputs) == ((1, 2), ("x", "y"))


def test_arguments_by_their_names() -> None:
    assert roles_of("op", ["a", "x", "y"], ["a"], ["y"]) == (
        Role("a", "number"),
        Role("x", "array"),
        Role("y", "written"),
    )
    for numbers, mutates, what in ((["b"], [], "numbers"), ("a", [], "numbers"), ([], ["b"], "mutates")):
        with pytest.raises(ck.ArgumentError, match=rf"op: {what}= names some of a, x, as in {what}=\['x'\]; got"):
            roles_of("op", ["a", "x"], numbers, mutates)


def test_gradients_are_of_arguments() -> None:
    check_gradients("op", ["dx", "dy"], ["x", "y", "z"])
    for wrong in ("da", "x", "xx"):
        with pytest.raises(ck.ArgumentError, match=f"op: {wrong} is no gradient of an argument; it writes dx, dy$"):
            check_gradients("op", ["dx", wrong], ["x", "y"])
    assert gradients_in_order("op", (1, 2), ["x", "y", "z"], ["dy", "dx"], [True, True, False]) == [2, 1, None]
    assert gradients_in_order("op", 1, ["x"], [], [True]) == (1,)
    message = "op: backward writes no dx; where there is none, give a function that returns None for it$"
    with pytest.raises(ck.ArgumentError, match=message):
        gradients_in_order("op", 1, ["x", "y"], ["dy"], [True, True])
    with pytest.raises(
        ck.ArgumentError, match="op: backward returned 2 gradients; it is one for each of x, None where"
    ):
        gradients_in_order("op", (1, 2), ["x"], [], [True])


class Twice:
    """An elementwise function that says how often it was prepared."""

    def __init__(self, function: Any) -> None:
        self.function, self.recipe = function, function.recipe
        self.prepared_for: list[Any] = []

    def prepared(self, arrays: Any, outs: Any) -> Any:
        self.prepared_for.append(arrays[1].shape)
        return self.function.prepared(arrays, outs)


def test_calls_alike_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_MOST_LAUNCHES", 2)
    function: Any = Twice(ck.elementwise("T a, T x", "T y", "y = a * x", "times"))
    found = of_elementwise("op", function, ["a"], itself, told)
    assert found.takes == (Role("a", "number"), Role("x", "array"))
    assert found.outputs == ("y",)
    stream = ck.emulator.stream()
    for size in (2, 2, 3, 3, 2, 4, 4, 2):
        x, y = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        found.run(stream, 3.0, x, y)
        stream.sync()
        assert (y == 3 * x).all()
    assert function.prepared_for == [(2,), (3,), (4,), (2,)]
    with pytest.raises(ck.ArgumentError, match=r"numbers= names some of a, x"):
        of_elementwise("op", function, ["b"], itself, told)
    raw = ck.elementwise("T x", "raw T y", "y[i] = x", "raw")
    with pytest.raises(ck.ArgumentError, match="op: the output y is raw, which no op makes; let the body set it"):
        of_elementwise("op", raw, [], itself, told)


def test_arrays_of_any_strides_are_worked_on() -> None:
    function = ck.elementwise("T a, T x", "T y", "y = a * x", "times")
    found = of_elementwise("op", function, ["a"], itself, lambda value: getattr(value, "strides", None))
    stream = ck.emulator.stream()
    whole = np.arange(48, dtype=np.float32).reshape(6, 8)
    for x in (whole[::2, 1:4], whole[::-1].T, whole[:3, :3]):
        for _ in range(2):
            y = np.zeros(x.shape, np.float32)
            found.run(stream, 2.0, x, y)
            stream.sync()
            assert (y == 2 * x).all()


def test_a_function_makes_or_fills_what_the_op_returns() -> None:
    stream, x = ck.emulator.stream(), np.arange(3.0)
    p, q = np.zeros(3), np.zeros(3, np.int32)
    of_function("op", lambda x: [x + 1, x.astype("i4")], ["p", "q"], [], [], itself).run(stream, x, p, q)
    assert (p.tolist(), q.tolist()) == ([1, 2, 3], [0, 1, 2])

    def fill(x: Any, out: Any) -> None:
        out[0][...], out[1][...] = x + 2, 7

    of_function("op", fill, ["p", "q"], [], [], itself).run(stream, x, p, q)
    assert (p.tolist(), q.tolist()) == ([2, 3, 4], [7, 7, 7])
    changed = of_function("op", lambda x, by: x.__imul__(by), [], ["by"], ["x"], itself)
    assert changed.takes == (Role("x", "written"), Role("by", "number"))
    changed.run(stream, x, 3)
    assert x.tolist() == [0, 3, 6]


def test_other_results_than_declared_are_refused() -> None:
    stream, x = ck.emulator.stream(), np.arange(3.0)
    wrong = [
        (lambda x: (x, x), r"op: the function returned 2 arrays, the op has 1 outputs"),
        (lambda x: x[:2], r"op: the function returned float64 with shape \(2,\); out says float64 with shape \(3,\)"),
        (lambda x: x.astype("f4"), r"returned float32 with shape \(3,\); out says float64 with shape \(3,\)"),
        (lambda x: 3, r"returned None with shape None; out says float64"),
    ]
    for function, words in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            of_function("op", function, ["y"], [], [], itself).run(stream, x, np.zeros(3))


def test_a_function_that_makes_arrays_is_not_captured() -> None:
    stream, x, y = ck.emulator.stream(), np.arange(3.0), np.zeros(3)
    with ck.capture(stream):
        with pytest.raises(
            ck.LaunchError, match="op cannot be captured: its function makes arrays of its own, which a"
        ):
            of_function("op", lambda x: x, ["y"], [], [], itself).run(stream, x, y)
        of_function("op", lambda x, out: None, ["y"], [], [], itself).run(stream, x, y)


def test_what_names_no_stream_goes_to_the_ops() -> None:
    stream, seen = ck.emulator.stream(), []

    def function(x: Any, out: Any) -> None:
        seen.append(ck.places.emulator().current())

    of_function("op", function, ["y"], [], [], itself).run(stream, np.zeros(1), np.zeros(1))
    assert seen == [stream]
