"""What is no argument at all, to every parameter of everything public: cudakit's own error, and a short message."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.right_calls import Right, right_calls

import cudakit as ck
from cudakit.errors import shortened

#: Characters of a message. Those of the compiler have its log.
MOST = 820


class HugeRepr:
    def __repr__(self) -> str:
        return "x" * 1_000_000


class Broken:
    """Of which nothing can be said."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")


def deep(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


HUGE = {
    "list": list(range(30_000)),
    "tuple": tuple(range(30_000)),
    "dict": dict.fromkeys(range(30_000), 1),
    "set": set(range(30_000)),
    "str": "y" * 100_000,
    "bytes": b"z" * 100_000,
    "array": np.ones(3_000),
    "array of objects": np.array([Broken()] * 3, object),
    "nested": [[[7] * 30] * 30] * 30,
    "deep": deep(2_000),
    "texts": ["v" * 1000] * 1000,
    "object": HugeRepr(),
    "broken": Broken(),
    "int": 10**5000,
}
ODD = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "-1": -1,
    "2**70": 2**70,
    "text": "text",
    "None": None,
    "object": object(),
    "function": lambda: 0,
    "date": np.datetime64("2020"),
    "complex": 1j,
    "[]": [],
    "()": (),
    "{}": {},
    "True": True,
    "2.5": 2.5,
    "pair": np.array([1, 2]),
    "class": int,
    "bytes": b"x",
    "0": 0,
    "array of no dimensions": np.array(3.0),
    "no elements": np.ones(0),
    "texts": ["a", "b"],
    "Nones": [None, None],
    "slice": slice(None),
    "...": ...,
    "float16": np.float16(1),
}
#: Of each room some.
QUICK = (
    *("sum", "norm", "pad", "roll", "concatenate", "take", "sort", "topk", "histogram", "matmul", "gaussian_blur"),
    *("default_rng", "integers", "spawn", "kernel", "specialise", "launch", "config", "cover", "CompileOptions", "In"),
    *("elementwise", "stencil", "fuse", "empty", "memory.limit", "texture", "tensor_map", "trace", "foreign"),
    *("Pipeline", "host", "from_array", "to_images", "scale.map", "testing.shapes", "emulator.stream", "prewarm"),
)


def wrongly_answered(
    calls: dict[str, Right], names: Iterable[str], values: dict[str, Any], share: int = 1
) -> list[str]:
    """Calls with one argument that is another, which end in anything but a result and a short error of cudakit's.

    With a `share` of 3, each parameter meets a third of the values, and the next parameter the next third.
    """
    found = []
    turns = itertools.count()
    for name in names:
        for parameter in calls[name].arguments:
            for word, value in list(values.items())[next(turns) % share :: share]:
                try:
                    calls[name].without(parameter, value)
                except ck.CudakitError as error:
                    if len(str(error)) > MOST and not isinstance(error, ck.CompileError):
                        found.append(f"{name}: {parameter}={word}: {len(str(error))} characters")
                except Exception as error:
                    found.append(f"{name}: {parameter}={word}: {type(error).__name__}")
    return found


@pytest.fixture
def calls(stream: Any, xp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Right]:
    monkeypatch.chdir(tmp_path)
    return right_calls(stream, xp, tmp_path)


@pytest.mark.emulator
@pytest.mark.parametrize("name", QUICK)
def test_one_argument_is_another(calls: dict[str, Right], name: str) -> None:
    values = {**HUGE, **ODD}
    # Those that are right for hardly any argument: results would have to be compiled.
    seldom = ("list", "str", "deep", "object", "broken", "function", "complex", "texts", "date")
    assert wrongly_answered(calls, [name], {word: values[word] for word in seldom}) == []


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("part", range(4))
def test_one_argument_is_another_anywhere(calls: dict[str, Right], part: int, share: int) -> None:
    assert len(calls) > 120
    for name in (names := list(calls)[part::4]):
        calls[name].function(**calls[name].arguments)
    assert "\n".join(wrongly_answered(calls, names, {**HUGE, **ODD}, share)) == ""


def test_a_list_of_a_million_is_shown_by_its_beginning() -> None:
    million = list(range(10**6))
    with pytest.raises(ck.ArgumentError) as raised:
        ck.CompileOptions(max_registers=million)  # type: ignore[arg-type]
    assert str(raised.value).endswith("got [0, 1, 2, 3, 4, 5, 6, 7, ...]")


@pytest.mark.parametrize("of", [list, tuple, np.array])
def test_numbers_for_a_vector_are_counted_first(stream: Any, of: Any) -> None:
    """Each of a million was converted before."""

    class Counted:
        def __index__(self) -> int:
            raise AssertionError("an element is looked at")

        __float__ = __index__

    kernel = ck.Kernel("__global__ void k(float4 v) {}")
    value = of([1.0] * 30_000) if of is np.array else of([Counted()] * 30_000)
    with pytest.raises(ck.ArgumentError, match="takes 4 numbers, got 30000: ") as raised:
        kernel(stream, ck.config(1, 1), value)
    assert len(str(raised.value)) < 400


def test_what_is_shown_of_values() -> None:
    for value in (1, -2.5, "text", b"x", None, True, [1, "a"], (1,), {"a": 1, 2: [3]}, {1}, np.float32(2), int, 1j):
        assert shortened(value) == repr(value)
    for value, shown in (
        (list(range(9)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        (10**1000, "an int of 3322 bits"),
        ("a" * 300, f"'{'a' * 100}'… (300 characters)"),
        (b"a" * 300, f"b'{'a' * 40}'… (300 bytes)"),
        (np.ones((3, 1000)), "array of float64 with shape (3, 1000)"),
        (set(range(20)), "a set of 20"),
        (Broken(), "<Broken whose repr fails>"),
        ([Broken()], "[<Broken whose repr fails>]"),
    ):
        assert shortened(value) == shown
    assert shortened(HugeRepr()) == "x" * 159 + "…"
    assert shortened({i: i for i in range(9)}) == "{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, …}"
    assert len(shortened(deep(5_000))) < 200
    assert shortened(["v" * 90] * 9).endswith("… (9 elements)")
    endless: list[Any] = []
    endless.append(endless)
    assert len(shortened(endless)) < 200


def test_a_long_message_keeps_its_end() -> None:
    error = ck.ArgumentError("begin " + "x" * 10_000 + " end")
    assert str(error).startswith("begin x")
    assert str(error).endswith("x end")
    assert len(str(error)) < MOST
    assert str(ck.errors.AxisError("y" * 5000)).count("y") < MOST
    assert len(str(ck.CompileError("z" * 5000))) == 5000  # the compiler's log
