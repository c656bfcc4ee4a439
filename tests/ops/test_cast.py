"""Conversions and sums of elements against NumPy, in both places."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.views import View, bits, check_bits, few, views

import cudakit as ck
from cudakit.ops import add, cast

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [np.dtype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
FLOATS = [np.dtype("f2"), BFLOAT16, np.dtype("f4"), np.dtype("f8")]
NUMBERS = [np.dtype("?"), *INTEGERS, *FLOATS, np.dtype("c8"), np.dtype("c16")]
#: The emulator's run takes these pairs; the GPU's takes all.
FEW = [np.dtype(code) for code in ("?", "u1", "i4", "i8", "f2", "f4", "c8")] + [BFLOAT16]
F4 = np.dtype("f4")


def quickly(*codes: str) -> list[Any]:
    """All dtypes, of which the quick tier takes these."""
    return [pytest.param(each, marks=() if each.str[1:] in codes else pytest.mark.slow) for each in NUMBERS]


def numbers(dtype: np.dtype, size: int, greatest: int) -> np.ndarray:
    """Numbers of either sign up to `greatest` that all dtypes have room for or wrap around; −0, ∞ and NaN are apart."""
    random = np.random.default_rng(size)
    if dtype.kind in "?biu":
        return random.integers(-greatest, greatest, size).astype(dtype)
    real = random.standard_normal(size) * 100
    return (real + 1j * real[::-1] if dtype.kind == "c" else real).astype(dtype)


def by_numpy(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(dtype)


def equal(got: Any, want: np.ndarray) -> None:
    host = to_host(got)
    assert host.dtype == want.dtype
    np.testing.assert_array_equal(host, want)


@pytest.mark.parametrize("source", quickly("i8", "f4"), ids=str)
def test_cast_of_every_pair(stream: Any, xp: Any, source: np.dtype, request: pytest.FixtureRequest) -> None:
    everywhere = request.config.getoption("--gpu")
    host = numbers(source, 1003, 2**40)
    for target in NUMBERS:
        if everywhere or (source in FEW and target in FEW):
            equal(cast(xp.asarray(host), target, stream=stream), by_numpy(host, target))


@pytest.mark.slow
@few
@given(view=views([np.dtype("i2"), np.dtype("i4")]), target=st.sampled_from([np.dtype("i1"), F4, np.dtype("f8")]))
def test_cast_of_any_view(stream: Any, xp: Any, view: View, target: np.dtype) -> None:
    equal(cast(view.on(xp), target, stream=stream), view.host().astype(target))


@in_tiers(
    "source, dtype",
    [F4, np.dtype("f8"), np.dtype("f2")],
    INTEGERS,
    quick=lambda source, dtype: source == F4 and dtype in ("i1", "u4", "i8"),
)
def test_saturating_cast_from_floating_point(stream: Any, xp: Any, source: np.dtype, dtype: np.dtype) -> None:
    ends = np.iinfo(dtype)
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.9, -0.9, 1e4, -1e4, float(ends.max), float(ends.min)]
    with np.errstate(over="ignore"):
        bounds = np.array([ends.max, ends.min, 0]).astype(source)
        host = np.concatenate(
            [np.array(edges).astype(source), *[np.nextafter(bounds, source.type(t)) for t in (np.inf, -np.inf)]]
        )
    want = [
        0 if np.isnan(v) else max(ends.min, min(ends.max, int(np.clip(v, -1e30, 1e30))))
        for v in host.astype(np.float64)
    ]
    assert to_host(cast(xp.asarray(host), dtype, saturate=True, stream=stream)).tolist() == want


@in_tiers(
    "source, dtype",
    [np.dtype("i8"), np.dtype("u8"), np.dtype("i2")],
    INTEGERS,
    quick=lambda source, dtype: (source, dtype) in [("i8", "i1"), ("i8", "u8"), ("u8", "i4"), ("i2", "u2")],
)
def test_saturating_cast_from_integers(stream: Any, xp: Any, source: np.dtype, dtype: np.dtype) -> None:
    own, ends = np.iinfo(source), np.iinfo(dtype)
    values = [
        own.min,
        own.max,
        0,
        1,
        100,
        *(v for e in (ends.min, ends.max) for v in (e - 1, e, e + 1) if own.min <= v <= own.max),
    ]
    got = cast(xp.asarray(np.array(values, source)), dtype, saturate=True, stream=stream)
    assert to_host(got).tolist() == [max(ends.min, min(ends.max, v)) for v in values]


def test_cast_without_saturation_is_what_the_device_converts(stream: Any, xp: Any) -> None:
    host = np.array([300.7, -300.7, 2.0**31, -(2.0**40), np.inf, -np.inf], np.float32)
    x = xp.asarray(host)
    assert to_host(cast(x, np.int8, stream=stream)).tolist() == [44, -44, -1, 0, -1, 0]
    assert to_host(cast(x, np.int32, stream=stream)).tolist() == [300, -300, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31)]
    assert to_host(cast(x, np.uint32, stream=stream)).tolist() == [300, 2**32 - 300, 2**31, 0, 2**32 - 1, 0]
    assert to_host(cast(x, np.uint64, stream=stream)).tolist() == [
        300,
        2**64 - 300,
        2**31,
        2**64 - 2**40,
        2**64 - 1,
        2**63,
    ]


def test_cast_to_floating_point_rounds_to_the_nearest_even(stream: Any, xp: Any) -> None:
    host = np.array(
        [1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.99, 65520.0, 1 + 2.0**-11 + 2.0**-40, 2.0**-25, np.nan, -0.0]
    )
    for target in (np.dtype("f2"), BFLOAT16, F4):
        want = by_numpy(host, target)
        got = to_host(cast(xp.asarray(host), target, stream=stream))
        assert np.isnan(got[6])
        got[6] = want[6]
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("x", quickly("f4"), ids=str)
def test_add_of_dtypes(stream: Any, xp: Any, x: np.dtype, request: pytest.FixtureRequest) -> None:
    everywhere = request.config.getoption("--gpu")
    for y in NUMBERS:
        if not everywhere and (x not in FEW or y not in FEW or NUMBERS.index(y) < NUMBERS.index(x)):
            continue
        a, b = numbers(x, 333, 100), numbers(y, 333, 100)
        try:
            np.result_type(x, y)
        except TypeError:
            with pytest.raises(ck.ArgumentError, match=str(y)):
                add(xp.asarray(a), xp.asarray(b), stream=stream)
            continue
        equal(add(xp.asarray(a), xp.asarray(b), stream=stream), a + b)


@pytest.mark.parametrize("size", [0, 1, 513, *slow(3, 4, 511, 512, 50_001)])
def test_add_of_sizes_and_starts(stream: Any, xp: Any, size: int) -> None:
    a, b = numbers(F4, size + 3, 0), numbers(F4, size + 7, 0)
    x, y = xp.asarray(a), xp.asarray(b)
    for i, j in ((0, 0), (1, 1), (3, 2)):
        equal(add(x[i : i + size], y[j : j + size], stream=stream), a[i : i + size] + b[j : j + size])


@pytest.mark.slow
@few
@given(view=views([F4]), ones=st.integers(0, 15), fewer=st.integers(0, 3))
def test_add_broadcasts_any_views(stream: Any, xp: Any, view: View, ones: int, fewer: int) -> None:
    a = np.asarray(np.nan_to_num(view.host(), nan=1.5))
    index = tuple(slice(0, 1) if ones >> d & 1 else slice(None) for d in range(a.ndim))
    b = a[index][(0,) * min(fewer, a.ndim)] if 0 not in a.shape else a
    with np.errstate(all="ignore"):
        equal(add(xp.asarray(a), xp.asarray(b), stream=stream), np.asarray(a + b))
        equal(
            add(xp.asarray(a).T, xp.asarray(a[::-1] if a.ndim else a).T, stream=stream),
            np.asarray(a.T + (a[::-1] if a.ndim else a).T),
        )


def test_add_of_special_numbers(stream: Any, xp: Any) -> None:
    host = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, 1e-45], np.float32)
    a, b = np.meshgrid(host, host)
    with np.errstate(all="ignore"):
        want = a + b
    got = to_host(add(xp.asarray(a), xp.asarray(b), stream=stream))
    assert (np.isnan(got) == np.isnan(want)).all()
    assert got[~np.isnan(want)].tobytes() == want[~np.isnan(want)].tobytes()


def test_out(stream: Any, xp: Any) -> None:
    a = numbers(F4, 1200, 0).reshape(30, 40)
    x = xp.array(a)
    assert add(x, x, out=x, stream=stream) is x
    check_bits(x, a + a)
    turned = xp.zeros((40, 30), F4).T
    add(x, x[0], out=turned, stream=stream)
    check_bits(xp.ascontiguousarray(turned), 2 * a + 2 * a[0])
    cast(x, np.float32, out=turned, stream=stream)
    check_bits(xp.ascontiguousarray(turned), 2 * a)
    doubles = xp.zeros((30, 80))[:, ::2]
    cast(x, np.float64, out=doubles, stream=stream)
    check_bits(xp.ascontiguousarray(doubles), 2 * a.astype(np.float64))


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
def test_a_sum_of_the_same_arrays_again_sees_what_changed(stream: Any, xp: Any) -> None:
    x, y, out = xp.arange(1200, dtype=F4), xp.ones(1200, F4), xp.zeros(1200, F4)
    for _ in range(3):
        assert add(x, y, out=out) is out
        equal(out, to_host(x) + 1)
        x += 1
    x.shape = (30, 40)
    with pytest.raises(ck.ArgumentError, match="cannot be broadcast"):
        add(x, y, out=out)
    with ck.using(another(stream)) as other:
        a = other.arange(1200, dtype=F4)
        equal(add(a, a, out=a), 2 * np.arange(1200, dtype=F4))
        equal(add(a, a, out=a), 4 * np.arange(1200, dtype=F4))


def test_cast_to_its_own_dtype_copies_bits(stream: Any, xp: Any) -> None:
    host = bits(1001, F4)
    x = xp.asarray(host)
    got = cast(x, F4, stream=stream)
    check_bits(got, host)
    assert not xp.shares_memory(got, x)


def test_views(stream: Any, xp: Any) -> None:
    host = numbers(np.dtype("i4"), 240, 1000).reshape(4, 6, 10)
    x = xp.asarray(host)
    for view in (lambda a: a[:, ::2, ::-1], lambda a: a.transpose(2, 0, 1), lambda a: a[1:, :, 3:]):
        equal(cast(view(x), F4, stream=stream), view(host).astype(F4))
        equal(add(view(x), view(x)[:1], stream=stream), view(host) + view(host)[:1])


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), F4)
    wrong = [
        ("cannot be broadcast", lambda: add(x, x[:, 1:], stream=stream)),
        ("not an array", lambda: add(x, 2, stream=stream)),
        ("x is of datetime64.*and y of float32: ", lambda: add(np.zeros(3, "M8[s]"), np.zeros(3, F4))),
        ("add: x has dtype datetime64|add: datetime64.* is not supported", lambda: add(*[np.zeros(3, "M8[s]")] * 2)),
        ("out has shape", lambda: add(x, x, out=xp.zeros((4, 5), F4), stream=stream)),
        ("out has dtype int32, the result has float32", lambda: add(x, x, out=xp.zeros((4, 6), "i4"), stream=stream)),
        ("cast: dtype must be a dtype, got 'floaty'", lambda: cast(x, "floaty", stream=stream)),
        ("datetime64.* is not supported", lambda: cast(x, np.dtype("M8[s]"), stream=stream)),
        ("other order", lambda: cast(x, np.dtype(">f4"), stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    size = 2**31 + 4099
    x = xp.arange(size, dtype=np.int64).astype(np.int8)
    assert (cast(x, np.uint8, stream=stream)[-9:] == x[-9:].view(np.uint8)).all()
    added = add(x, x, stream=stream)
    assert (added[-9:] == x[-9:] + x[-9:]).all()
    assert (added[::4099] == x[::4099] + x[::4099]).all()
