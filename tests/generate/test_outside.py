"""What a traced function reads from outside: its kernel follows when that changes."""

from __future__ import annotations

import functools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.generate.outside import Outside
from cudakit.ops.epilogue import activation_of

RATE = 2.0
STEP = {"by": [1.0, 2.0], "name": "a"}


def helper(x: Any) -> Any:
    return x * RATE


class Settings:
    rate = 2.0

    def __init__(self) -> None:
        self.own = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.own


SETTINGS = Settings()
PROJECT = types.ModuleType("project")
PROJECT.rate = 2.0  # type: ignore[attr-defined]
PROJECT.__file__ = "/home/me/project.py"
ARRAY = np.array([2.0, 3.0])


def by_helper(x: Any) -> Any:
    return helper(x)


def within(x: Any) -> Any:
    return next(each * RATE for each in (x,))


def changed(name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(sys.modules[__name__], name, value)


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RATE", 2.0), ("helper", helper), ("STEP", {"by": [1.0, 2.0], "name": "a"})):
        monkeypatch.setattr(sys.modules[__name__], name, value)
    monkeypatch.setattr(Settings, "rate", 2.0)
    monkeypatch.setattr(sys.modules[__name__], "SETTINGS", Settings())
    monkeypatch.setattr(PROJECT, "rate", 2.0)
    monkeypatch.setattr(sys.modules[__name__], "ARRAY", np.array([2.0, 3.0]))


CHANGES: list[tuple[Any, Callable[[], None]]] = [
    (lambda x: x * RATE, changed("RATE", 5.0)),
    (lambda x: x * RATE, changed("RATE", np.float32(2))),
    (lambda x: x * RATE, changed("RATE", 2)),
    (lambda x: np.copysign(x, RATE), changed("RATE", -2.0)),
    (within, changed("RATE", 5.0)),
    (by_helper, changed("RATE", 5.0)),
    (by_helper, changed("helper", lambda x: x)),
    (functools.partial(by_helper), changed("RATE", 5.0)),
    (lambda x: x * STEP["by"][1], lambda: STEP["by"].__setitem__(1, 5.0)),  # type: ignore[attr-defined]
    (lambda x: x * SETTINGS.own, lambda: setattr(SETTINGS, "own", 5.0)),
    (lambda x: x * Settings.rate, lambda: setattr(Settings, "rate", 5.0)),
    (lambda x: SETTINGS(x), lambda: setattr(SETTINGS, "own", 5.0)),
    (lambda x: x * PROJECT.rate, lambda: setattr(PROJECT, "rate", 5.0)),
    (lambda x: x * float(ARRAY[0]), lambda: ARRAY.__setitem__(0, 5.0)),
]


@pytest.mark.parametrize(("function", "change"), CHANGES)
def test_a_change_is_seen(function: Any, change: Callable[[], None]) -> None:
    outside = Outside(function)
    first = outside()
    assert outside() == first
    change()
    assert outside() != first


def test_a_change_back_is_the_first_again() -> None:
    outside = Outside(lambda x: x * RATE)
    first = outside()
    for value in (5.0, 2.0):
        changed("RATE", value)()
        assert (outside() == first) is (value == 2.0)


def test_what_cannot_change_is_not_looked_at() -> None:
    assert Outside(lambda x: np.sqrt(x) * math.pi + ck.math.exp(x) + abs(x)).is_empty
    assert not Outside(lambda x: x * RATE).is_empty


def test_variables_of_functions_around() -> None:
    rate = 2.0
    count: list[int] = []

    def function(x: Any) -> Any:
        count.append(1)
        return x * rate

    outside = Outside(function)
    before = outside.values()
    function(1)
    outside.traced(before)
    first = outside()
    count.append(2)  # what tracing changes does not count
    assert outside() == first
    rate = 3.0
    assert outside() != first


def test_a_fused_function_follows(xp: Any) -> None:
    fused = ck.fuse(lambda x: x * RATE)
    x = xp.ones(3, "f4")
    for value in (2.0, 5.0, 5.0, 2.0):
        changed("RATE", value)()
        for _ in range(4):  # frozen calls too
            assert to_host(fused(x)).tolist() == [value] * 3
    assert len({id(made) for made in fused._traced_calls.values()}) == 2


def test_a_stencil_follows(xp: Any) -> None:
    stencil = ck.stencil(lambda u: u(1) * RATE)
    x = xp.ones(4, "f4")
    for value in (2.0, 5.0):
        changed("RATE", value)()
        assert to_host(stencil(x)).max() == value


def test_an_activation_follows() -> None:
    def function(x: Any) -> Any:
        return x * RATE

    texts = []
    for value in (2.0, 5.0, 2.0):
        changed("RATE", value)()
        texts.append(activation_of("matmul", function, np.dtype("f4")).source)
    assert texts[0] == texts[2] != texts[1]
