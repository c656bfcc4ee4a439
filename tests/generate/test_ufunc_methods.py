"""reduce, accumulate, reduceat, outer and at of universal functions, against NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck
from cudakit.generate import ufuncs

_REDUCED = ("multiply", "minimum", "fmax", "logical_and", "bitwise_and", "bitwise_xor", "logaddexp", "divide", "hypot",
            "gcd", "less")  # fmt: skip
_DTYPES = ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8")


def drawn(shape: Any, dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "fc":
        return (random.integers(-8, 8, shape) / 4 + 0.125).astype(dtype)
    return random.integers(0, 2 if dtype == "?" else 7, shape).astype(dtype)


def agree(got: Any, want: Any, rtol: float = 0.0) -> None:
    got, want = to_host(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    rtol = rtol or {"f2": 4e-3, "f4": 2e-6, "c8": 2e-6}.get(want.dtype.str[1:], 1e-13)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6 if want.dtype.kind in "fc" else 0)


def both(name: str, method: str, x: np.ndarray, xp: Any, *args: Any, **named: Any) -> None:
    """NumPy's result, or an error where NumPy has one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = getattr(getattr(np, name), method)(x, *args, **named)
        except (TypeError, ValueError):
            with pytest.raises(ck.ArgumentError):
                getattr(getattr(ck.math, name), method)(xp.asarray(x), *args, **named)
            return
    agree(getattr(getattr(ck.math, name), method)(xp.asarray(x), *args, **named), want)


@in_tiers(
    "dtype, name, method",
    _DTYPES,
    ["add", "maximum", "subtract"],
    ["reduce", "accumulate"],
    quick=lambda dtype, name, method: dtype in ("i1", "f2"),
)
def test_a_few_of_every_dtype(stream: Any, xp: Any, dtype: str, name: str, method: str) -> None:
    both(name, method, drawn((5, 6), dtype), xp, axis=1)


#: How each method is called; of a function that commutes and of one that does not all ways are tried, of others these.
_WAYS = ("one axis", "two axes", "strides", "accumulate", "reduceat")
_ALL_WAYS = {"multiply", "divide"}


@in_tiers(
    "way, name, dtype",
    _WAYS,
    _REDUCED,
    ["i4", "f4"],
    quick=lambda way, name, dtype: (
        (name in ("minimum", "less") and way in ("two axes", "accumulate")) or (name == "divide" and way == "reduceat")
    ),
    whole=lambda way, name, dtype: (
        (name in _ALL_WAYS and (_WAYS.index(way) + _REDUCED.index(name)) % 2 == (dtype == "f4"))
        or (way, dtype) in {("two axes", "i4"), ("accumulate", "f4")}
        or (way == "reduceat" and dtype == ("i4" if _REDUCED.index(name) % 2 else "f4"))
        or (way == "one axis" and dtype == "f4" and _REDUCED.index(name) % 2 == 0)
    ),
    strength=None,
)
def test_every_function_and_method(stream: Any, xp: Any, way: str, name: str, dtype: str) -> None:
    x = drawn((3, 4, 5), dtype)
    if way == "strides":
        both(name, "reduce", x[:, ::2, ::-1], xp, axis=1, keepdims=True)
    elif way == "accumulate":
        both(name, "accumulate", x, xp, axis=1)
    elif way == "reduceat":
        both(name, "reduceat", x, xp, [0, 2, 1, 3], axis=1)
    else:
        both(name, "reduce", x, xp, axis=0 if way == "one axis" else (0, 2))


@in_tiers("name", _REDUCED, quick=lambda name: name in ("multiply", "minimum", "divide"), strength=None)
def test_functions_of_no_elements(stream: Any, xp: Any, name: str) -> None:
    both(name, "reduce", np.zeros((0, 3), "i4"), xp)
    both(name, "accumulate", np.zeros((0, 3), "i4"), xp)


@in_tiers("name", ["add", "maximum", "subtract"], quick=lambda name: name != "add", strength=None)
def test_initial_and_where(stream: Any, xp: Any, name: str) -> None:
    x = drawn((4, 5), "f4")
    mask = np.random.default_rng(1).random((4, 5)) < 0.5
    function, wanted = getattr(ck.math, name), getattr(np, name)
    for where in (mask, mask[:1], mask[:, :1], np.zeros((4, 5), bool)):
        want = wanted.reduce(x, 1, initial=2, where=where)
        agree(function.reduce(xp.asarray(x), 1, initial=2, where=xp.asarray(where)), want)
    agree(function.reduce(xp.asarray(x), 0, initial=3.5), wanted.reduce(x, 0, initial=3.5))
    agree(function.reduce(xp.asarray(x[:0]), 0, initial=3.5), wanted.reduce(x[:0], 0, initial=3.5))
    if wanted.identity is None:
        with pytest.raises(ck.ArgumentError, match="give initial="):
            function.reduce(xp.asarray(x), 1, where=xp.asarray(mask))
        with pytest.raises(ck.ArgumentError, match="give initial="):
            function.reduce(xp.asarray(x[:0]))


@pytest.mark.slow
def test_dtype_and_out(stream: Any, xp: Any) -> None:
    x = drawn((4, 5), "i1")
    device = xp.asarray(x)
    agree(ck.math.add.reduce(device, dtype="i1"), np.add.reduce(x, dtype="i1"))
    agree(ck.math.add.reduce(device, dtype="f8"), np.add.reduce(x, dtype="f8"))
    agree(ck.math.multiply.accumulate(device, 1, dtype="f4"), np.multiply.accumulate(x, 1, dtype="f4"))
    for code in ("i1", "i4", "f4"):
        out, want = xp.zeros(5, code), np.zeros(5, code)
        assert ck.math.add.reduce(device, out=out) is out
        agree(out, np.add.reduce(x, out=want))
    wide = xp.asarray(np.arange(16.0).reshape(4, 4))
    ck.math.add.accumulate(wide.T, 1, out=wide)
    agree(wide, np.add.accumulate(np.arange(16.0).reshape(4, 4).T, 1))
    with pytest.raises(ck.ArgumentError, match="out has dtype int32, the result has float64, which casting"):
        ck.math.add.reduce(wide, out=xp.zeros(4, "i4"))
    with pytest.raises(ck.ArgumentError, match="out has shape"):
        ck.math.add.reduce(wide, out=xp.zeros(5))


def test_orders_that_matter_and_outputs(stream: Any, xp: Any) -> None:
    x = drawn((3, 4), "f4")
    both("subtract", "accumulate", x, xp, axis=0)
    both("subtract", "accumulate", x[:0], xp, axis=1)
    x[1, 2] = np.nan
    both("fmax", "reduce", x, xp, axis=1)
    out = xp.zeros((4,), "f8")
    assert ck.math.add.reduce(xp.asarray(x), out=out) is out
    np.testing.assert_allclose(to_host(out), x.sum(0), rtol=1e-6)
    both("subtract", "reduceat", x[:, :0], xp, [0, 2, 1], 0)


def test_types_along_an_axis() -> None:
    """NumPy's own, for what it has; what is refused is no result for another step."""
    for name, x, dtype, out, want in (
        ("add", "i2", None, None, "i8"),
        ("add", "?", None, None, "i8"),
        ("add", "u4", None, None, "u8"),
        ("multiply", "u1", None, None, "u8"),
        ("add", "f2", None, None, "f2"),
        ("add", "i2", "i4", None, "i4"),
        ("add", "i2", None, "i2", "i2"),
        ("add", "i2", None, "f4", "i2"),
        ("add", "f4", None, "f8", "f4"),
        ("maximum", "i2", None, None, "i2"),
        ("subtract", "i2", None, "i8", "i2"),
        ("logical_and", "f4", None, None, "?"),
        ("logical_or", "f4", "f4", None, "?"),
        ("divide", "f4", None, None, "f4"),
        ("divide", "i4", None, None, "f8"),
    ):
        given = None if out is None else np.zeros(1, out)
        found = ufuncs.types_of(getattr(np, name), "reduce", np.dtype(x), dtype, given)
        assert found == np.dtype(want), (name, x, dtype, out)
    for name, x, dtype, message in (
        ("sin", "f4", None, "sin.reduce: only functions of two arrays with one result have it"),
        ("divmod", "f4", None, "divmod.reduce: only functions of two arrays"),
        ("less", "f4", None, "less.reduce: its results are of bool, and are no arguments for it, of float32"),
        ("bitwise_and", "f4", None, "bitwise_and.reduce: x is of float32: "),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            ufuncs.types_of(getattr(np, name), "reduce", np.dtype(x), dtype)


def test_what_changes_nothing() -> None:
    assert ufuncs._combination("subtract", np.dtype("f4")) is None
    assert ufuncs._combination("fmax", np.dtype("c8")) is None
    of_floats, of_whole = (ufuncs._combination("fmin", np.dtype(dtype)) for dtype in ("f2", "i4"))
    assert of_floats == ("cudakit::ufunc::fmin(a, b)", "static_cast<float>(__int_as_float(0x7fc00000))")
    assert of_whole is not None
    assert of_whole[1] == ufuncs._COMBINED["minimum"][1].replace("A", "int")
    assert ufuncs._combination("fmax", np.dtype("u1")) == (
        "cudakit::ufunc::fmax(a, b)",
        ufuncs._COMBINED["maximum"][1].replace("A", "unsigned char"),
    )


def test_outer(stream: Any, xp: Any) -> None:
    x, y = drawn((2, 3), "f4"), drawn((4,), "i2")
    for a, b in ((x, y), (x.T, y), (x, np.float32(2)), (y, y[::-1])):
        agree(ck.math.multiply.outer(xp.asarray(a), xp.asarray(b)), np.multiply.outer(a, b))
    agree(ck.math.less.outer(xp.asarray(y), 3), np.less.outer(y, 3))
    agree(ck.math.add.outer(xp.asarray(y), xp.asarray(y), dtype="f8"), np.add.outer(y, y, dtype="f8"))


@in_tiers(
    "dtype",
    ["?", "i1", "u2", "i8", "f2", "f4", "c8", "c16"],
    quick=lambda dtype: dtype in ("?", "f4"),
    strength=None,
)
def test_at(stream: Any, xp: Any, dtype: str) -> None:
    """Indices that come again count again."""
    indices = np.array([0, 2, 2, -1, 2, 0])
    for name in ("add", "multiply") if dtype != "?" else ("logical_or", "add"):
        x, y = drawn(5, dtype), drawn(6, dtype, 1)
        device = xp.array(x)
        assert getattr(ck.math, name).at(device, xp.asarray(indices), xp.asarray(y)) is None
        getattr(np, name).at(x, indices, y)
        agree(device, x)


def test_at_of_several_dimensions(stream: Any, xp: Any) -> None:
    x, rows, columns = drawn((4, 3, 2), "f4"), np.array([[0], [3]]), np.array([1, 1, 2])
    y = drawn((2, 3, 2), "f4", 1)
    for index in ((rows, columns), rows[:, 0], (rows, columns, np.array(1)), 2):
        own = x.copy()
        value = y if isinstance(index, tuple) and len(index) == 2 else 2.0
        device = xp.array(x)
        on_device: Any = index
        if isinstance(index, tuple):
            on_device = tuple(map(xp.asarray, index))
        elif isinstance(index, np.ndarray):
            on_device = xp.asarray(index)
        ck.math.subtract.at(device, on_device, xp.asarray(value) if value is y else value)
        np.subtract.at(own, index, value)
        agree(device, own)
    own, device = x.copy(), xp.array(x)
    ck.math.negative.at(device, xp.asarray(np.array([0, 1, 1])))
    np.negative.at(own, np.array([0, 1, 1]))
    agree(device, own)
    turned = xp.array(x).transpose(2, 0, 1)
    ck.math.maximum.at(turned, [1], 1.0)
    own = x.transpose(2, 0, 1).copy()
    np.maximum.at(own, [1], 1.0)
    agree(turned, own)


def test_at_whatever_numpy_indexes_by(stream: Any, xp: Any) -> None:
    """Slices, masks, new axes and tuples of them, with integers that come again among them."""
    x, y = drawn((4, 5), "f4"), drawn((3, 2), "f4", 1)
    mask, rows = x > 0.3, x[:, 0] > 0
    again = np.array([0, 0, 1])
    for index, value in (
        (slice(1, 3), 2.0),
        ((slice(None), 2), 2.0),
        ((slice(None, None, -2), again), 2.0),
        (mask, 2.0),
        (mask, drawn(int(mask.sum()), "f4", 2)),
        (rows, 2.0),
        ((rows, 1), 2.0),
        ((..., [0, 0]), 2.0),
        ((None, 1), 2.0),
        ((again, slice(2, 4)), y),
        ((np.array([[0], [1]]), slice(None)), 2.0),
        ([True, False, True, False], 2.0),
        (..., 2.0),
        ((), 2.0),
        (slice(0, 0), 2.0),
        (np.zeros((4, 5), bool), 2.0),
        ((slice(1, None), 0), y[:, 0]),
    ):
        parts = index if isinstance(index, tuple) else (index,)
        moved = tuple([xp.asarray(part) if isinstance(part, np.ndarray) else part for part in parts])
        for order in (None, (1, 0)):
            own = x.copy() if order is None else x.T.copy().T
            device = xp.asarray(own.T.copy()).T if order else xp.array(own)
            number = xp.asarray(value) if isinstance(value, np.ndarray) else value
            ck.math.add.at(device, moved if isinstance(index, tuple) else moved[0], number)
            np.add.at(own, index, value)
            agree(device, own)
    one = xp.asarray(1.5)
    ck.math.add.at(one, ..., 2)
    assert float(one) == 3.5
    for wrong, message in (
        ((slice(None), 1.5), "indices do not fit|neither"),
        (xp.asarray(mask[:3]), r"indices do not fit an array of shape \(4, 5\)"),
        ((slice(None), slice(None), 1), "indices do not fit"),
        ((slice(None), xp.ones(2)), "indices are of float64; give integers, slices or a mask"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            ck.math.add.at(xp.asarray(x), wrong, 1)
    with pytest.raises(ck.ArgumentError, match="cannot be broadcast"):
        ck.math.add.at(xp.asarray(x), slice(1, 3), xp.ones(7, "f4"))


def test_bad_calls(stream: Any, xp: Any) -> None:
    x = xp.ones((3, 4))
    for call, message in (
        (lambda: ck.math.sin.reduce(x), "sin.reduce: only functions of two arrays"),
        (lambda: ck.math.divmod.accumulate(x), "divmod.accumulate: only functions"),
        (lambda: ck.math.subtract.reduce(x, None), "the order of its elements matters"),
        (lambda: ck.math.less.reduce(x), "less.reduce"),
        (lambda: ck.math.add.reduce(x, 2), "axis 2"),
        (lambda: ck.math.add.reduce(x, dtype="no"), "add.reduce: dtype must be a dtype, got 'no'"),
        (lambda: ck.math.add.reduce(x, where=x), "where is of float64"),
        (lambda: ck.math.add.reduce(x, initial="x"), "initial takes float64, got 'x'"),
        (lambda: ck.math.add.at(x, x, 1), "indices are of float64"),
        (lambda: ck.math.add.at(x, 1), "give x, indices, y"),
        (lambda: ck.math.add.at(xp.ones(3, "i4"), 1, 1.5), "would lose"),
        (lambda: ck.math.add.at(x, (1, 1, 1), 1), "3 indices for an array of 2"),
        (lambda: ck.math.add.reduceat(x, [0, 3]), None),
        (lambda: ck.math.add.reduceat(x, [0, 4]), "not all from 0 to 2"),
        (lambda: ck.math.add.reduceat(x, [0, -1]), "not all from 0 to 2"),
        (lambda: ck.math.add.reduceat(x, xp.zeros((1, 2), int)), r"indices has shape \(1, 2\); it has one dimension"),
        (lambda: ck.math.sin.outer(x, x), "sin.outer: only functions of two arrays have it"),
        (
            lambda: ck.math.add.reduce(x, where=xp.ones(3, bool)),
            r"where has shape \(3,\), which is not broadcast to x's",
        ),
        (lambda: ck.math.bitwise_and.reduce(x), "bitwise_and.reduce: x is of float64: "),
        (
            lambda: ck.math.true_divide.reduce(x, dtype="i4"),
            "divide.reduce: dtype is int32; of float64 it gives float64",
        ),
        (lambda: ck.math.maximum.reduce(x[:0]), "there may be no elements, for which it has no result; give initial="),
        (lambda: ck.math.add.reduce(x, out=xp.zeros(3)), r"out has shape \(3,\), the result has \(4,\)"),
        (
            lambda: ck.math.add.reduce(x, out=xp.zeros(4, "i4")),
            "out has dtype int32, the result has float64, which casting='same_kind' does not take",
        ),
        (
            lambda: ck.math.add.at(x, (xp.zeros(2, int), xp.zeros(3, int)), 1),
            r"indices of shapes \(2,\), \(3,\) cannot",
        ),
        (lambda: ck.math.add.at(x[:0], xp.zeros(1, int), 1), "there is nothing at any index of an empty axis"),
    ):
        if message is not None:
            with pytest.raises(ck.ArgumentError, match=message):
                call()
