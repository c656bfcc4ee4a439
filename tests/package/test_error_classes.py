"""Errors are also of the class that NumPy or Python raises for such a mistake: programs moved here still catch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import ops

CLASSES: dict[str, tuple[Callable[[Any], Any], type[Exception], type[Exception]]] = {
    "an axis that there is not": (lambda xp: ops.sum(xp.ones((2, 3)), axis=5), ck.AxisError, np.exceptions.AxisError),
    "an index as an axis": (lambda xp: ops.flip(xp.ones(3), axis=-2), ck.AxisError, IndexError),
    "axes of a transposition": (lambda xp: ops.transpose(xp.ones((2, 3)), (0, 2)), ck.AxisError, ValueError),
    "an axis named twice": (lambda xp: ops.sum(xp.ones((2, 3)), axis=(0, 0)), ck.ArgumentError, ValueError),
    "a bool as an axis": (lambda xp: ops.sum(xp.ones((2, 3)), axis=True), ck.ArgumentError, TypeError),
    "shapes": (lambda xp: ck.math.add(xp.ones((2, 3)), xp.ones(4)), ck.ArgumentError, ValueError),
    "nothing": (lambda xp: ops.max(xp.ones(0)), ck.ArgumentError, ValueError),
    "out": (lambda xp: ops.sum(xp.ones(3), out=xp.ones(5)), ck.ArgumentError, ValueError),
    "no array": (lambda xp: ops.sum("x"), ck.ArgumentError, TypeError),
    "an index": (lambda xp: ops.take(xp.ones(3), xp.asarray([9]), mode="raise"), ck.BoundsError, IndexError),
    "a number": (lambda xp: ck.math.add(xp.ones(2, np.int8), 300), ck.RangeError, OverflowError),
    "a name": (lambda xp: ck.Kernel("__global__ void f() {}", "g"), ck.TemplateError, ValueError),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(xp: Any, name: str) -> None:
    call, own, known = CLASSES[name]
    with pytest.raises(known) as raised:
        call(xp)
    assert type(raised.value) is own
    assert isinstance(raised.value, ck.CudakitError)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is own
    assert str(again) == str(raised.value) != ""


@pytest.mark.parametrize("axis", [True, (True,), np.True_])
@pytest.mark.parametrize("op", ["sum", "argmax", "cumsum", "softmax", "logsumexp", "flip", "norm"])
def test_a_bool_is_no_axis_whatever_was_asked_before(xp: Any, op: str, axis: Any) -> None:
    x = xp.ones((2, 3), np.float32)
    getattr(ops, op)(x, axis=1)  # what is planned for 1 must not be found for True
    with pytest.raises(ck.ArgumentError, match=f"{op}: axis"):
        getattr(ops, op)(x, axis=axis)


def test_a_bool_is_no_axis_of_the_others(xp: Any) -> None:
    x = xp.ones((2, 3), np.float32)
    indices = xp.asarray([0])
    calls: list[Callable[[Any], Any]] = [
        lambda axis: ops.take(x, indices, axis=axis),
        lambda axis: ops.concatenate([x, x], axis=axis),
        lambda axis: ops.roll(x, 1, axis=axis),
        lambda axis: ops.transpose(x, (0, axis)),
        lambda axis: ck.scan("T x", "T y", map="x", reduce="a + b", identity="0")(x, axis=axis),
        lambda axis: ck.reduction("T x", "T y", map="x", reduce="a + b", identity="0")(x, axis=axis),
    ]
    for call in calls:
        call(1)
        with pytest.raises(ck.ArgumentError, match=r"ax[ei]s"):
            call(True)


def test_an_unknown_name_of_a_graph(stream: Any, xp: Any) -> None:
    x = xp.zeros(4, np.float32)
    fill = ck.Kernel("__global__ void fill(float* x, int n) { x[threadIdx.x] = n; }")
    with ck.capture(stream, x=x) as graph:
        fill(stream, ck.config(1, 4), x, 4)
    with pytest.raises(KeyError, match="no argument is named 'y'; named at capture: x") as raised:
        graph["y"]
    assert type(raised.value) is ck.UnknownNameError
    with pytest.raises(ck.UnknownNameError):
        graph(stream, y=x)


def test_a_mistake_in_an_identity_is_told_without_our_templates(xp: Any) -> None:
    running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="zero", name="running")
    with pytest.raises(ck.CompileError, match='identifier "zero" is undefined') as raised:
        running(xp.arange(5))
    assert "instantiation" not in str(raised.value).partition("\noptions:")[0]
    assert "the expression has the names T" in str(raised.value)
