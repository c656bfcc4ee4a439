"""What ops are given beside arrays: a flag is a bool, a number is one that the dtype holds; all else is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.tiers import slow

import cudakit as ck
from cudakit.errors import ArgumentError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LINE, IMAGE = X.ravel(), np.zeros((5, 6), np.uint8)
HEADS = np.zeros((1, 4, 2, 64), np.float16)
#: Op → arrays and what else it needs.
CALLS: dict[str, tuple[Any, ...]] = {
    "attention": (HEADS, HEADS, HEADS),
    "cast": (X, np.int32),
    "cumsum": (X,),
    "histogram": (LINE, 4, (0, 12)),
    "run_length": (LINE,),
    "sort_by_key": (LINE, LINE),
    "topk": (X, 2),
    "warp_affine": (IMAGE, np.eye(2, 3)),
}
FLAGS = [
    (name, parameter.name)
    for name in ck.ops.__all__
    if not inspect.ismodule(op := getattr(ck.ops, name))
    for parameter in inspect.signature(op).parameters.values()
    if parameter.annotation in (bool, "bool")
]


def test_all_flags_are_looked_at() -> None:
    assert len(FLAGS) > 30
    assert {name for name, _ in FLAGS} >= {"cast", "attention", "histogram", "topk", "sort", "sum", "cumsum", "unique"}


@pytest.mark.parametrize(("name", "flag"), FLAGS)
@pytest.mark.parametrize("value", ["no", 2, 0.5, [], None, np.array([True])])
def test_a_flag_is_true_or_false(name: str, flag: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"{flag}\b.* is True or False, got "):
        getattr(ck.ops, name)(*CALLS.get(name, (X,)), **{flag: value})


NUMBERS: list[tuple[str, Callable[[Any], Any]]] = [
    *(
        (f"{name}, value", lambda value, name=name, more=more: getattr(ck.ops, name)(IMAGE, *more, value=value))
        for name, more in {
            "gaussian_blur": (3,), "box_blur": (3,), "sobel": (), "convolve2d": (np.ones((3, 3)),),
            "median3": (), "erode": (3,), "dilate": (3,), "warp_affine": (np.eye(2, 3),), "pad": (1,),
        }.items()
    ),
    ("pad, value", lambda value: ck.ops.pad(IMAGE, 1, value=(0, value))),
    ("sum, initial", lambda value: ck.ops.sum(IMAGE, initial=value, dtype=np.uint8)),
    ("cumsum, initial", lambda value: ck.ops.cumsum(IMAGE, initial=value, dtype=np.uint8)),
    ("max, initial", lambda value: ck.ops.max(IMAGE, initial=value)),
]  # fmt: skip
TIMES = [np.datetime64("2020"), np.timedelta64(1, "s")]
WRONG = [300, -1, 1.5, float("nan"), float("inf"), "1", b"1", 1j, *TIMES, {}, 2**70]


@pytest.mark.parametrize(("what", "call"), NUMBERS)
def test_a_number_is_one_of_the_dtype(what: str, call: Callable[[Any], Any]) -> None:
    op, name = what.split(", ")
    for value in WRONG:
        with pytest.raises(ArgumentError, match=rf"{op}: {name} (takes uint8, got |.* does not fit: )"):
            call(value)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "call"), NUMBERS)
def test_a_number_of_the_dtype_is_taken(what: str, call: Callable[[Any], Any]) -> None:
    for value in (7, np.int16(7), np.array(7), np.uint8(255)):
        call(value)


@pytest.mark.parametrize("call", [
    lambda value: ck.ops.matmul(X, X.T, scale=value),
    lambda value: ck.ops.attention(HEADS, HEADS, HEADS, scale=value),
    lambda value: ck.ops.sum(X, initial=value),
    lambda value: ck.ops.pad(X, 1, value=value),
    lambda value: ck.ops.gaussian_blur(X, 3, mode="constant", value=value),
])  # fmt: skip
@pytest.mark.parametrize("value", ["2", b"2", 1j, np.datetime64("2020"), {}])
def test_what_is_no_number_is_refused(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"(scale|initial|value) takes float(32|64), got "):
        call(value)


@pytest.mark.parametrize("kernel", [np.ones((3, 3), complex), [["1"] * 3] * 3, np.zeros((3, 3), "M8[s]"), [[None] * 3]])
def test_a_kernel_of_what_are_no_numbers_is_refused(kernel: Any) -> None:
    with pytest.raises(ArgumentError, match="convolve2d: kernel is no matrix of numbers in host memory: it is of "):
        ck.ops.convolve2d(X, kernel)


LONG = np.arange(1000.0)
INDICES: dict[str, Callable[[Any, np.dtype], Any]] = {
    "argmin": lambda xp, dtype: ck.ops.argmin(xp.asarray(-LONG), out=xp.empty((), dtype)),
    "argmax": lambda xp, dtype: ck.ops.argmax(xp.asarray(LONG), dtype=dtype),
    "argsort": lambda xp, dtype: ck.ops.argsort(xp.asarray(LONG), out=xp.empty(1000, dtype)),
    "searchsorted": lambda xp, dtype: ck.ops.searchsorted(
        xp.asarray(LONG), xp.asarray([2000.0]), out=xp.empty(1, dtype)
    ),
    "topk": lambda xp, dtype: ck.ops.topk(xp.asarray(LONG), 1, out=(xp.empty(1), xp.empty(1, dtype)))[1],
    "compact": lambda xp, dtype: ck.ops.compact(
        xp.asarray(LONG), xp.asarray(LONG >= 0), out=xp.empty(1000), count=xp.empty(1, dtype)
    )[1],
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_that_a_dtype_does_not_hold_are_refused(xp: Any, name: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"{name}: (out|dtype) is int8, which does not hold indices up to (1,000|999)"
    ):
        INDICES[name](xp, np.dtype(np.int8))


@pytest.mark.parametrize("name", ["argmax", *slow(*(name for name in INDICES if name != "argmax"))])
def test_indices_that_a_dtype_holds_are_written(xp: Any, name: str) -> None:
    expected = 1000 if name in ("searchsorted", "compact") else 999
    assert int(to_host(INDICES[name](xp, np.dtype(np.int16))).ravel()[-1]) == expected


@pytest.mark.parametrize("index", [-11, -10, -6, -5, -1, 0, 4, 5, 10, 12])
def test_indices_that_wrap_around(xp: Any, index: int) -> None:
    x, indices = xp.arange(5), xp.asarray(np.array([index], np.int64))
    assert to_host(ck.ops.take(x, indices, 0)).tolist() == [index % 5]
    assert to_host(ck.ops.take(x, indices, 0, "clip")).tolist() == [min(max(index, 0), 4)]


@pytest.mark.parametrize("index", [2**64 - 1, 2**63 + 2, 7, 4])
def test_unsigned_indices_of_64_bits(xp: Any, index: int) -> None:
    x, indices = xp.arange(5), xp.asarray(np.array([index], np.uint64))
    assert to_host(ck.ops.take(x, indices, 0, "clip")).tolist() == [4]
    assert to_host(ck.ops.take(x, indices, 0, "wrap")).tolist() == [index % 5]
    if index > 4:
        with pytest.raises(ck.BoundsError, match="out of bounds for 5 elements"):
            ck.ops.take(x, indices, 0, "raise")
