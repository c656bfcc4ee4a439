"""The generated function of a kernel: its text, its names, and what a traceback shows of it; no GPU."""

from __future__ import annotations

import gc
import linecache
import re
import sys
import textwrap
import threading
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.jit.launch import generated
from cudakit.jit.launch.bind import Callee, Fragment, bind, evaluate
from cudakit.jit.launch.dispatch import Dispatcher
from cudakit.jit.launch.launch import CallShape, Settled
from cudakit.jit.specialise.deduce import Evidence
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams import devices
from cudakit.types.arguments import Argument, describe

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    cuda = SimpleNamespace(get_current_stream=lambda *device: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))  # type: ignore[misc]


def text_of(dispatcher: Dispatcher) -> str:
    dispatcher.generate()
    return "".join(linecache.getlines(dispatcher.function.__code__.co_filename))


def numbers(parameters: tuple[str, ...], said: list[Any]) -> Dispatcher:
    """A kernel of numbers, one shape of which is settled."""
    fragments = tuple(Fragment("type({a}) is {k}type", "{a}", "q", {"type": int}) for _ in parameters)
    loaded: Any = SimpleNamespace(
        kernel="the kernel", parameters=tuple(SimpleNamespace(category="scalar") for _ in parameters)
    )
    shape = CallShape(loaded, fragments, ("number",) * len(parameters), 0, lambda *given: said.append(given))
    shape.last_launch = Settled("stream", "config", "core", "resolved", None, None, True, None, ()).flat()
    dispatcher = Dispatcher("f", parameters, lambda *given, **named: said.append(("check", *given, named)))
    dispatcher.add(shape)
    return dispatcher


def test_the_docstring_shows_what_is_generated() -> None:
    array = SimpleNamespace(dtype=np.dtype("f4"))
    memory = Argument(array, "cupy", Evidence("array", "x", array.dtype, 1), 0, 0x1000, True, (8,), (1,), 0x1000)
    parameters = (
        BoundParameter("a", "float", "scalar", np.dtype("f4")),
        BoundParameter("x", "const float*", "pointer", np.dtype("f4"), const=True),
        BoundParameter("y", "float*", "pointer", np.dtype("f4")),
        BoundParameter("n", "size_t", "scalar", np.dtype("u8")),
    )
    described = describe(2.0), memory, memory, describe(8)
    target = Callee("saxpy<float>", 0, False)
    fragments = tuple(
        bind(parameter, each, target, 8, False) for parameter, each in zip(parameters, described, strict=True)
    )
    loaded: Any = SimpleNamespace(kernel="kernel", parameters=parameters)
    dispatcher = Dispatcher("saxpy", [parameter.name for parameter in parameters], print)
    dispatcher.add(CallShape(loaded, fragments, tuple(each.family for each in described), 0, print))
    assert textwrap.indent(text_of(dispatcher), "    ") in str(generated.__doc__)


@pytest.mark.parametrize("twice", [False, True])
def test_no_name_of_a_parameter_is_in_the_way(twice: bool) -> None:
    """Every name that the generated code uses can be a parameter's."""
    names = set(re.findall(r"(?<![\w.])[a-zA-Z_]\w*", str(generated.__doc__).partition("def call")[2]))
    names |= {"shape_1", "kernel_0", "launch_0", "own_shape_0", "K0", "L0", "H0", "R0", "P0", "_w0", "_p0", "x_1_type"}
    for name in sorted(names):
        said: list[Any] = []
        dispatcher = numbers(("x", name), said)
        if twice:
            dispatcher.add(dispatcher.shapes[0])
        dispatcher.function("stream", "config", 100, 101)
        dispatcher.function("stream", "config", 100, **{dispatcher.parameters[1]: 102})
        dispatcher.function("stream", "config", 100, 3.5)
        assert said[:2] == [("core", "resolved", "the kernel", 100, 101), ("core", "resolved", "the kernel", 100, 102)]
        assert said[2][:4] == ("check", "stream", "config", (100, 3.5)), name


@pytest.mark.parametrize(("dtype", "values"), [("f4", (2.0, 3.5, 1)), ("i8", (8, 9, 2.5)), ("f2", (0.5, 2.0, "x"))])
def test_the_same_number_again_is_looked_at_no_more(dtype: str, values: tuple[Any, Any, Any]) -> None:
    """Another of its type is converted; another type is checked in full."""
    same, other, odd = values
    parameter = BoundParameter("a", dtype, "scalar", np.dtype(dtype))
    fragment = bind(parameter, describe(same), Callee("f", 0, False), np.dtype(dtype).itemsize, False)
    said: list[Any] = []
    loaded: Any = SimpleNamespace(kernel="kernel", parameters=(parameter,))
    shape = CallShape(loaded, (fragment,), ("number",), 0, lambda *given: said.append(given[3]))
    numbers = (same, *["remembered"] * len(shape.converted), [None, None, 0])
    shape.last_launch = Settled("stream", "config", "core", "resolved", None, None, True, None, (), numbers).flat()
    assert shape.settled is not None
    assert shape.settled.numbers == numbers
    dispatcher = Dispatcher("f", ["a"], lambda *given: said.append(given[:3]))
    dispatcher.add(shape)
    for value in (same, other, odd):
        dispatcher.function("stream", "config", value)
    expected = evaluate(fragment, other)
    assert said == ["remembered" if shape.converted else same, expected, ("stream", "config", (odd,))]


def test_a_traceback_shows_the_generated_lines() -> None:
    dispatcher = numbers(("x",), [])

    def refuse(*given: Any) -> None:
        raise ValueError

    dispatcher.shapes[0].target = lambda stream: stream  # type: ignore[method-assign]
    dispatcher.shapes[0].launch = refuse  # type: ignore[method-assign]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        dispatcher.function("another", "config", 1)
    assert "return shape.launch(target, config, values, arguments)" in "".join(traceback.format_exception(caught.value))


def test_lines_go_with_their_function() -> None:
    dispatcher = numbers(("x",), [])
    dispatcher.generate()
    former = dispatcher.function.__code__.co_filename
    dispatcher.add(dispatcher.shapes[0])
    gc.collect()
    assert former not in linecache.cache
    file = dispatcher.function.__code__.co_filename
    assert file in linecache.cache
    del dispatcher
    gc.collect()
    assert file not in linecache.cache


def test_a_program_that_launches_once_generates_no_function() -> None:
    said: list[Any] = []
    dispatcher = numbers(("x",), said)
    shape = dispatcher.shapes[0]
    dispatcher.clear()
    checked = dispatcher.function.__code__
    dispatcher.function("stream", "config", 1)
    dispatcher.add(shape)
    assert dispatcher.function.__code__ is checked
    assert said == [("check", "stream", "config", (1,), None, {})]
    dispatcher.function("stream", "config", x=2)
    assert dispatcher.function.__code__ is not checked
    assert said[1:] == [("core", "resolved", "the kernel", 2)]
    dispatcher.function("stream", "config", 3)
    assert said[2:] == [("core", "resolved", "the kernel", 3)]
    dispatcher.function("stream", "config", "text")
    assert said[3][:4] == ("check", "stream", "config", ("text",))
    dispatcher.clear()
    dispatcher.function("stream", "config", 4)
    assert said[4] == ("check", "stream", "config", (4,), None, {})


def test_a_failed_launch_is_checked_and_not_repeated() -> None:
    """The old code of a function may report a failure after another thread's `clear` and `add`."""
    said: list[Any] = []
    dispatcher = numbers(("x",), said)
    check = dispatcher.function.__globals__["check"]
    check("stream", "config", (1,), "CUDA_ERROR")
    assert said == [("check", "stream", "config", (1,), "CUDA_ERROR", {})]


def test_threads_that_call_for_the_second_time_together_run_the_function() -> None:
    said: list[Any] = []
    dispatcher = numbers(("x",), said)
    threads = [threading.Thread(target=dispatcher.function, args=("stream", "config", n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [("core", "resolved", "the kernel", n) for n in range(8)]
