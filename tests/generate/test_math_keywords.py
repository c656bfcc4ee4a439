"""Keywords of universal functions, and Python numbers that a dtype cannot hold: against NumPy."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck

_INTEGERS = ("i1", "u1", "i2", "u4", "i8", "u8")
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


def same(got: Any, want: Any) -> None:
    got, want = to_host(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@in_tiers(
    "dtype, names",
    ["?", "i1", "u1", "i8", "u8"],
    [_COMPARISONS[::2], _COMPARISONS[1::2]],
    quick=lambda dtype, names: (dtype, names[0]) == ("u1", "less"),
    # Each comparison of small and of large, of signed and of unsigned integers.
    whole=lambda dtype, names: dtype in ("u1", "i8") or (dtype == "i1") == (names[0] == "less"),
    strength=None,
)
def test_comparisons_with_python_ints(stream: Any, xp: Any, dtype: str, names: tuple[str, ...]) -> None:
    """Whatever the int: the answer is the mathematical one."""
    limits = np.iinfo("i1" if dtype == "?" else dtype)
    host = np.array([0, 1, limits.max, limits.min], dtype) if dtype != "?" else np.array([False, True])
    for number in (-1, 0, 127, 128, 255, 256, -129, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30):
        for name in names:
            want = [getattr(operator, name.replace("less_equal", "le").replace("greater_equal", "ge")
                    .replace("not_equal", "ne").replace("less", "lt").replace("greater", "gt").replace("equal", "eq"))
                    (int(value), number) for value in host]  # fmt: skip
            same(getattr(ck.math, name)(xp.asarray(host), number), want)
    same(ck.math.less(2**70, xp.asarray(host)), [False] * host.size)


@in_tiers("dtype", ["f2", "f4", "f8", "c8"], quick=lambda dtype: dtype == "f2", strength=None)
def test_python_numbers_beyond_floating_point_are_infinite(stream: Any, xp: Any, dtype: str) -> None:
    kind = np.dtype(dtype)
    host = np.array([1, -2, 3]).astype(kind)
    with np.errstate(all="ignore"):
        for number in (1e5, -1e39, 70000, 65519.0, 65520.0, float("inf"), 10**300):
            for name in ("add", "less") if kind.kind != "c" else ("add",):
                same(getattr(ck.math, name)(xp.asarray(host), number), getattr(np, name)(host, number))


def test_numbers_out_of_range_stay_errors_elsewhere(stream: Any, xp: Any) -> None:
    x = xp.asarray(np.array([1, 2], "u1"))
    for number in (-1, 300, 2**70):
        with pytest.raises(ck.ArgumentError, match="outside 0 … 255"):
            ck.math.add(x, number)


def test_fused_comparisons(stream: Any, xp: Any) -> None:
    host, half = np.array([0, 1, 255], "u1"), np.array([1, 2], "f2")
    same(ck.fuse(lambda x: x < 256)(xp.asarray(host)), host < 256)
    same(ck.fuse(lambda x: -1 == x)(xp.asarray(host)), host == -1)  # noqa: SIM300  # the int first
    same(ck.fuse(lambda x: x < 1e5)(xp.asarray(half)), [True, True])


def test_comparisons_within_range_are_repeated_after_others(stream: Any, xp: Any) -> None:
    host = np.array([0, 1, 255], "u1")
    x = xp.asarray(host)
    for number in (256, 1, 1, 1, 1, 256, -1, 255, 255, 256, 1):
        same(ck.math.less(x, number), host < number)


@pytest.mark.parametrize(
    "examples",
    [5, pytest.param(25, marks=pytest.mark.slow), pytest.param(100, marks=(pytest.mark.slow, pytest.mark.exhaustive))],
)
def test_dtype_and_casting(stream: Any, xp: Any, examples: int) -> None:
    """The same loop as NumPy's, or an error where it has one."""
    kinds = st.sampled_from([*_INTEGERS, "f2", "f4", "f8", "c8"])
    names = st.sampled_from(["add", "multiply", "less", "maximum", "divide"])
    dtypes = st.sampled_from([None, "?", "i4", "f4", "f8", "c16"])
    castings = st.sampled_from(["no", "safe", "same_kind", "unsafe"])

    @given(kinds, kinds, names, dtypes, castings)
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def agrees(a: str, b: str, name: str, dtype: str | None, casting: str) -> None:
        as_numpy(xp, a, b, name, dtype, casting)

    agrees()


def as_numpy(xp: Any, a: str, b: str, name: str, dtype: str | None, casting: Any) -> None:
    x, y = np.array([1, 2, 3, 100]).astype(a), np.array([2, 2, 7, 5]).astype(b)
    function = getattr(np, name)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = function(x, y, dtype=dtype, casting=casting)
    except TypeError:
        with pytest.raises(ck.ArgumentError):
            getattr(ck.math, name)(xp.asarray(x), xp.asarray(y), dtype=dtype, casting=casting)
        return
    got = to_host(getattr(ck.math, name)(xp.asarray(x), xp.asarray(y), dtype=dtype, casting=casting))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_out_by_the_rule_of_casting(stream: Any, xp: Any) -> None:
    x, out = xp.asarray(np.array([1.5, -2.5])), xp.zeros(2, "i4")
    with pytest.raises(ck.ArgumentError, match="out has dtype int32, the result has float"):
        ck.math.add(x, x, out=out)
    assert ck.math.multiply(x, x, out=out, casting="unsafe") is out
    same(out, np.array([2, 6], "i4"))
    with pytest.raises(ck.ArgumentError, match="casting is 'some'"):
        ck.math.add(x, x, casting="some")
    with pytest.raises(ck.ArgumentError, match="dtype must be a dtype, got 'floaty'"):
        ck.math.add(x, x, dtype="floaty")
    quotient, rest = ck.math.divmod(xp.asarray(np.array([7, -7])), 2, dtype="f4")
    same(quotient, np.array([3, -4], "f4"))
    same(rest, np.array([1, 1], "f4"))
    half = xp.zeros(2, "f2")
    ck.math.add(x, x, out=half, where=xp.asarray(np.array([True, False])))
    same(half, np.array([3, 0], "f2"))
