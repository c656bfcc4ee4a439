"""Expressions of variables, as C++ computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.emulator.debug.dwarf import Entry, Value, evaluate
from cudakit.errors import ArgumentError

LANES = 3
PART = Entry("struct", {"name": "Part"})
HELD = np.array([[(k, 10 * lane + k) for k in range(4)] for lane in range(LANES)], "i4, f8")
VARIABLES = {
    "i": Value(np.array([-7, 0, 7], "i4")),
    "b": Value(np.array([3, 200, 255], "u1")),
    "x": Value(np.array([1.5, -2.5, 4.0], "f4")),
    "t": Value(np.array([5, 6, 7], "i4"), None, np.array([True, False, True])),
    "u": Value(np.array([1, 1, 1], "i4"), None, np.array([True, True, False])),
    "rows": Value(np.arange(12).reshape(LANES, 4)),
    "kept": Value(np.arange(12).reshape(LANES, 4), None, np.array([False, True, True])),
    "part": Value(HELD[:, 1]),
    "p": Value(np.array([100, 200, 300], "u8"), PART),
    "threadIdx.x": Value(np.arange(LANES)),
}


class Lanes:
    """Variables of three lanes; a pointer's are parts of 16 bytes."""

    def variable(self, name: str) -> Value:
        if name not in VARIABLES:
            raise ArgumentError(f"no {name}")
        return VARIABLES[name]

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        numbers = np.broadcast_to(value.data + 16 * index.astype("u8"), (LANES,))
        return Value(np.array([(number, -1.0) for number in numbers], "i4, f8"), None, value.has_value)


def values(text: str) -> list[Any]:
    value = evaluate(text, Lanes())
    known = [True] * len(value.data) if value.has_value is None else value.has_value
    return [each if is_known else None for each, is_known in zip(value.data.tolist(), known, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", [3]),
        ("1.5f", [1.5]),
        ("7ul + 1", [8]),
        ("true", [True]),
        ("false", [False]),
        ("i + 1", [-6, 1, 8]),
        ("i - 1", [-8, -1, 6]),
        ("i * 3", [-21, 0, 21]),
        ("i / 2", [-3, 0, 3]),
        ("i / i", [1, 0, 1]),
        ("7 / i", [-1, 0, 1]),
        ("i % 4", [-3, 0, 3]),
        ("x / 2", [0.75, -1.25, 2.0]),
        ("i / 2.0", [-3.5, 0.0, 3.5]),
        ("x % 1", [0.5, -0.5, 0.0]),
        ("b << 2", [12, 800, 1020]),
        ("b + b", [6, 400, 510]),
        ("b >> 1", [1, 100, 127]),
        ("b & 1", [1, 0, 1]),
        ("b | 4", [7, 204, 255]),
        ("b ^ 1", [2, 201, 254]),
        ("-i", [7, 0, -7]),
        ("+i", [-7, 0, 7]),
        ("~i", [6, -1, -8]),
        ("!i", [False, True, False]),
        ("i == 0", [False, True, False]),
        ("i != 0", [True, False, True]),
        ("i < 0", [True, False, False]),
        ("i <= 0", [True, True, False]),
        ("i > 0", [False, False, True]),
        ("i >= 0", [False, True, True]),
        ("i < 0 && b == 3", [True, False, False]),
        ("i < 0 || b == 200", [True, True, False]),
        ("i < 0 || b == 200 || x == 4", [True, True, True]),
        ("t + 1", [6, None, 8]),
        ("t + u", [6, None, None]),
        ("-t", [-5, None, -7]),
        ("threadIdx.x * 2", [0, 2, 4]),
        ("rows[2]", [2, 6, 10]),
        ("rows[threadIdx.x]", [0, 5, 10]),
        ("rows[i]", [None, 4, None]),
        ("rows[t - 4]", [1, None, 11]),
        ("rows[4 - threadIdx.x]", [None, 7, 10]),
        ("kept[0]", [None, 4, 8]),
        ("part.f0", [1, 1, 1]),
        ("part.f1", [1, 11, 21]),
        ("p->f0", [100, 200, 300]),
        ("p[2].f0", [132, 232, 332]),
        ("p[threadIdx.x].f0", [100, 216, 332]),
    ],
)
def test_what_expressions_give(text: str, expected: list[Any]) -> None:
    assert values(text) == expected


def test_pointers_keep_their_target_but_not_what_is_computed_of_them() -> None:
    assert evaluate("p", Lanes()).target is PART
    assert evaluate("p + 1", Lanes()).target is None
    assert evaluate("-p", Lanes()).target is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i +", "'i \\+' is not an expression of variables, numbers"),
        ("nope", "no nope"),
        ("f(i)", r"'f\(i\)': 'f\(i\)' cannot be computed here"),
        ("0 < i < 3", "cannot be computed here"),
        ("'text'", "cannot be computed here"),
        ("i ** 2", "this operator is not known here"),
        ("part.z", "there is no member z"),
        ("i.z", "there is no member z"),
        ("rows[x]", "an index is a whole number"),
        ("i[0]", r"\[ \] follows a value that is not an array"),
        ("rows[4]", "index 4 is outside the 4 elements"),
        ("rows[-1]", "index -1 is outside the 4 elements"),
        ("x & 1", "'x & 1' cannot be computed"),
    ],
)
def test_what_cannot_be_computed(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        evaluate(text, Lanes())
