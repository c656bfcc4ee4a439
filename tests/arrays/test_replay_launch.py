"""Lines of a replayed call that launch, with parameters that are written once or at each call."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from support import without_device
from support.without_device import Array

import cudakit as ck
from cudakit.arrays.log import Launched
from cudakit.arrays.replay import _Memory, _ReplayPath
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.param_buffer import PackedLaunch

pytestmark = pytest.mark.emulator


class Packed(PackedLaunch):
    """A launch whose parameters are bytes, and which tells what it was bound to."""

    def __init__(self) -> None:
        self.bound_to: list[Any] = []

    def bound(self, stream: Any, config: Any, kernel: Any, values: Any) -> Any:
        self.bound_to.append((stream, config, kernel, values))
        return print


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Any:
    without_device.stand_in(monkeypatch, lambda: None)
    found: Any = object.__new__(_ReplayPath)
    found.call, found.is_known, found.new = SimpleNamespace(stream="stream"), True, []
    found._add_name = lambda prefix, value: prefix
    found._value = lambda fragment, value, source: source or repr(value)
    return found


def shape_of(run: Any) -> Any:
    loaded = SimpleNamespace(kernel="kernel", launch_config=lambda config, device: ("config of", device))
    return SimpleNamespace(run=run, device_id=3, loaded=loaded, fragments=(Fragment("True", "{a}", "q"),) * 2)


def launched(*passed: Any, sources: tuple[str | None, ...] = ()) -> Launched:
    kernel: Any = None
    return Launched(kernel, ck.config(1, 32), passed, sources)


TEXT = "launch(core, config, kernel, 1, 2)"


def written(way: Any, run: Any, step: Launched) -> str:
    """The launch of a step, in one line."""
    return ast.unparse(ast.parse(way._launch(shape_of(run), step)))


def test_parameters_that_stay_are_written_once(way: Any) -> None:
    run = Packed()
    assert written(way, run, launched(1, 2)) == "bound()"
    assert run.bound_to == [("core", ("config of", 3), "kernel", [1, 2])]
    first, second = (Array((2,), "f4", 4096 * k) for k in (1, 2))
    way.new = [_Memory.of("x", first), _Memory.of("y", second)]
    same = "new_address_0 == 4096 and new_address_1 == 8192"
    assert written(way, run, launched(1, 2)) == f"bound() if {same} else {TEXT}"


def test_parameters_that_vary_are_written_at_each_call(way: Any) -> None:
    run = Packed()
    assert written(way, run, launched(1, 2, sources=("a0", None))) == "launch(core, config, kernel, a0, 2)"
    assert run.bound_to == []
    array = Array((2,), "f4", 4096)
    way._value = lambda fragment, value, source: "value"
    assert written(way, run, launched(array, 2, sources=("a0", None))) == "bound()"
    way.is_known = False
    assert written(way, run, launched(1, 2)) == "launch(core, config, kernel, value, value)"
    way.is_known = True
    assert written(way, print, launched(1, 2)) == "bound()", "of plain numbers too"
    assert len(run.bound_to) == 1


def test_memory_that_arrays_reach() -> None:
    for strides, start, end in (((4,), 0, 16), ((8,), 0, 28), ((-8,), -24, 4)):
        found = _Memory.of("x", Array((4,), "f4", Array((64,), "f4", 1 << 20).data, strides))
        assert (found.name, found.start, found.end) == ("x", (1 << 20) + start, (1 << 20) + end)
    empty = _Memory.of("x", Array((0,), "f4", 1 << 20))
    assert (empty.start, empty.end) == (1 << 20, 1 << 20)
    both = Array((2, 3), "f4", Array((64,), "f4", 1 << 20).data, (-16, 8))
    assert (_Memory.of("x", both).start, _Memory.of("x", both).end) == ((1 << 20) - 16, (1 << 20) + 20)
