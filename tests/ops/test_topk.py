"""The greatest and least few against NumPy's stable sort, to the bit, in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.sorting import check, order_of, some, taken
from support.tiers import in_tiers, slow

import cudakit as ck
from cudakit.ops import topk

F4 = np.dtype("f4")


def wanted(host: np.ndarray, k: int, axis: int | None, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    order = np.take(order_of(host, axis, largest), np.arange(k), -1 if axis is None else axis)
    return taken(host, order, axis), order


#: Rows that are sorted; a block's of each size; longer ones; a row in parts.
SIZES: list[tuple[tuple[int, ...], int]] = [
    ((4, 60), 3),
    ((3, 300), 5),
    ((3, 300), 75),
    ((3, 1025), 64),
    ((2, 9000), 1),
    ((2, 20_000), 6000),
    ((70_000,), 5),
]
#: Of float32 all sizes; of other dtypes some, in both directions.
WHOLE = [
    *(("f4", True, case) for case in SIZES),
    *(("f4", False, SIZES[k]) for k in (1, 4)),
    *(("i4", False, SIZES[k]) for k in (1, 5)),
    *(("u1", True, SIZES[2]), ("u1", False, SIZES[6])),
    *(("?", False, SIZES[0]), ("?", True, SIZES[4])),
    *(("f2", True, SIZES[3]), ("f2", False, SIZES[5])),
    *(("f8", False, SIZES[3]), ("f8", True, SIZES[6])),
]


@in_tiers(
    "code, largest, case",
    ["?", "u1", "i4", "f2", "f4", "f8"],
    [True, False],
    SIZES,
    strength=1,
    also=lambda *case: case in WHOLE,
    quick=lambda code, largest, case: (
        (code == "f4" and largest and SIZES.index(case) in (0, 4, 6)) or (code == "i4" and SIZES.index(case) == 1)
    ),
)
def test_sizes(stream: Any, xp: Any, code: str, largest: bool, case: tuple[tuple[int, ...], int]) -> None:
    shape, k = case
    host = some(shape, np.dtype(code))
    found = topk(xp.asarray(host), k, largest=largest, stream=stream)
    for got, want in zip(found, wanted(host, k, -1, largest), strict=True):
        check(got, want)


@pytest.mark.parametrize("shape", [(30, 7), *slow((3, 1100, 2)), (1100, 3)])
def test_axes(stream: Any, xp: Any, shape: tuple[int, ...]) -> None:
    host = some(shape, F4)
    for axis in (*range(-len(shape), len(shape)), None):
        k = 20 if axis is None else min(3, shape[axis])
        values, index = wanted(host, k, axis, True)
        got = topk(xp.asarray(host), k, axis, stream=stream)
        check(got[0], values)
        check(got[1], index)


@pytest.mark.slow
def test_equal_elements_are_taken_from_the_front(stream: Any, xp: Any) -> None:
    host = np.random.default_rng(0).integers(0, 3, (2, 5000)).astype("i4")
    for k in (1, 100, 4000, 5000):
        values, index = wanted(host, k, -1, True)
        got = topk(xp.asarray(host), k, stream=stream)
        check(got[0], values)
        check(got[1], index)


def test_unsorted_are_the_same_elements(stream: Any, xp: Any) -> None:
    host = some((2, 3000), F4)
    values, index = topk(xp.asarray(host), 50, sorted=False, stream=stream)
    check(np.sort(to_host(index)), np.sort(wanted(host, 50, -1, True)[1]))
    check(values, np.take_along_axis(host, to_host(index), -1))


def test_rows_that_registers_do_not_hold(stream: Any, xp: Any) -> None:
    """Chosen elements of the second pass over a row lie behind those of the first, of equal ones too."""
    host = np.random.default_rng(0).integers(0, 40, 17_000).astype(F4)
    values, index = topk(xp.asarray(host), 2200, sorted=False, stream=stream)
    check(np.sort(to_host(index)), np.sort(wanted(host, 2200, -1, True)[1]))
    check(values, host[to_host(index)])


def test_outputs_and_nothing(stream: Any, xp: Any) -> None:
    host = some((3, 2000), F4)
    out = xp.zeros((3, 8), F4)[:, ::2], xp.zeros((3, 4), np.int64)
    assert topk(xp.asarray(host), 4, out=out, stream=stream)[1] is out[1]
    values, index = wanted(host, 4, -1, True)
    check(xp.ascontiguousarray(out[0]), values)
    check(out[1], index)
    for shape, k in (((3, 5), 0), ((0, 5), 2), ((3, 0), 0)):
        values, index = topk(xp.zeros(shape, F4), k, stream=stream)
        assert values.shape == index.shape == (shape[0], k)


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), F4)
    wrong = [
        ("k is 7, more than the 6", lambda: topk(x, 7, stream=stream)),
        ("k is a number from 0 up, got -1", lambda: topk(x, -1, stream=stream)),
        ("k is a number from 0 up, got 1.5", lambda: topk(x, 1.5, stream=stream)),  # type: ignore[arg-type]
        ("axis 2", lambda: topk(x, 1, 2, stream=stream)),
        ("x has dtype complex64", lambda: topk(x.astype("c8"), 1, stream=stream)),
        ("out must be two", lambda: topk(x, 1, out=x, stream=stream)),
        ("out has shape", lambda: topk(x, 1, out=(x, None), stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()
