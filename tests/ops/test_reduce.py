"""Reductions against NumPy in float64, in both places."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.tolerance import bound

import cudakit as ck
from cudakit.ops import reduce
from cudakit.ops.reduce import argmax, argmin, count_nonzero, dot, mean, norm, prod, std, var

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = [np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
FLOATS = [np.dtype(code) for code in ("f2", "f4", "f8")] + [BFLOAT16]
F4 = np.dtype("f4")
#: One dtype of each way that reducers take.
BRANCHES = [np.dtype(code) for code in ("?", "i2", "u8", "f2", "f4")]


def drawn(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    """Numbers from −100 to 100, both parts where complex, whole ones half of the time; the whole range of integers."""
    random, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "biu":
        size = int(np.prod(shape)) * dtype.itemsize
        raw = random.integers(0, 2 if dtype.kind == "b" else 256, size, np.uint8)
        return raw.view(dtype).reshape(shape)
    real = random.random(shape) * 200 - 100
    real = np.where(random.random(shape) < 0.5, np.round(real), real)
    return (real + 1j * real[..., ::-1] if dtype.kind == "c" else real).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """The same numbers in double precision; integers as they are."""
    if x.dtype.kind in "biu":
        return x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def check(got: Any, want: Any, dtype: Any, tolerance: float = 0.0) -> None:
    """The result's dtype and shape, and its values to a tolerance (and to half a unit of its own dtype)."""
    got, want = to_host(got), np.asarray(want)
    assert got.dtype == dtype
    assert got.shape == want.shape
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    tolerance += bound(dtype, 1, float(finite.max()) if finite.size else 0.0)
    np.testing.assert_allclose(wide(got), want, rtol=0, atol=tolerance, equal_nan=True)


def sum_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype({"b": "i8", "i": "i8", "u": "u8"}.get(dtype.kind, dtype))


def accumulated(dtype: np.dtype) -> np.dtype:
    return F4 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def real_dtype(dtype: np.dtype) -> np.dtype:
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return np.dtype("f8") if dtype.kind in "biu" else dtype


# --- every dtype ------------------------------------------------------------------------------------------------------


@in_tiers(
    "op, dtype",
    ["sum", "mean", "var", "max", "argmin"],
    [*INTEGERS, *FLOATS, np.dtype("c8")],
    strength=1,
    also=lambda op, dtype: op == "sum" or dtype in BRANCHES or (op in ("mean", "var") and dtype == "c8"),
    quick=lambda op, dtype: dtype in ("i2", F4) or (op in ("sum", "var") and dtype == "f2"),
)
def test_every_dtype(xp: Any, op: str, dtype: np.dtype) -> None:
    host = drawn((7, 133), dtype)
    x, w = xp.asarray(host), wide(host)
    scale, length = float(np.abs(w.astype(complex)).max()), host.shape[1]
    real, kept = real_dtype(dtype), accumulated(dtype)
    mean_dtype = np.dtype("f8") if dtype.kind in "biu" else dtype
    if op == "sum":
        check(reduce.sum(x, 1), w.sum(1, dtype=w.dtype if w.dtype.kind in "fc" else None), sum_dtype(dtype),
              bound(kept, length, scale))  # fmt: skip
    elif op == "mean":
        check(mean(x, 1), w.mean(1), mean_dtype, bound(accumulated(mean_dtype), length, scale) / length)
    elif op == "var":
        check(var(x, 1), w.var(1), real, bound(accumulated(real), length, scale**2) / length)
    elif op == "max":
        check(reduce.max(x, 1), w.max(1), dtype)
    else:
        check(argmin(x, 1), w.argmin(1), np.int64)


@in_tiers(
    "op, dtype",
    ["min", "argmax", "any", "count", "all", "std", "norm", "norm of one", "greatest norm", "prod"],
    ["u2", "f2"],
    quick=lambda op, dtype: dtype == ("u2" if op in ("any", "count", "norm of one", "greatest norm") else "f2"),
)
def test_the_other_ops(xp: Any, op: str, dtype: str) -> None:
    host = drawn((3, 40), dtype)
    x, w = xp.asarray(host), wide(host)
    scale, real = float(np.abs(w.astype(complex)).max()), real_dtype(host.dtype)
    kept = accumulated(real)
    if op == "min":
        check(reduce.min(x, 1), w.min(1), host.dtype)
    elif op == "argmax":
        check(argmax(x, 1), w.argmax(1), np.int64)
    elif op == "any":
        check(reduce.any(x, 1), w.any(1), np.bool_)
    elif op == "count":
        check(count_nonzero(x, 1), np.count_nonzero(w, 1), np.int64)
    elif op == "all":
        check(reduce.all(x, 1), w.all(1), np.bool_)
    elif op == "std":
        check(std(x, 1), w.std(1), real, bound(kept, 40, scale))
    elif op == "norm":
        check(norm(x, 1), np.linalg.norm(w.astype(complex), axis=1), real, bound(kept, 40, scale))
    elif op == "norm of one":
        check(norm(x, 1, ord=np.int64(1)), np.linalg.norm(w.astype(complex), 1, axis=1), real, bound(kept, 40, scale))
    elif op == "greatest norm":
        check(norm(x, 1, ord=np.inf), np.linalg.norm(w.astype(complex), np.inf, axis=1), real, bound(kept, 4, scale))
    else:
        few = host[:, :4] / 100 if host.dtype.kind in "fc" else host[:, :4]
        check(prod(xp.asarray(few), 1), wide(few).prod(1), sum_dtype(host.dtype), bound(kept, 4, 2.0**4))


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("i1", "i1"),
        ("f4", "f8"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("i1", "f4"), ("f8", "f4"), ("f2", "f4"))),
    ],
)
def test_a_dtype_asked_for(xp: Any, dtype: str, wanted: str) -> None:
    host = drawn((5, 90), dtype)
    w = host.astype(wanted)
    tolerance = bound(wanted, 90, 128)
    check(reduce.sum(xp.asarray(host), 1, dtype=wanted), w.sum(1, dtype=None if wanted == "i1" else wide(w).dtype)
          .astype(wanted), wanted, tolerance)  # fmt: skip
    if wanted != "i1":
        check(mean(xp.asarray(host), 1, dtype=np.dtype(wanted)), wide(w).mean(1), wanted, tolerance / 90)


# --- any shape, strides and axes --------------------------------------------------------------------------------------


@st.composite
def reductions(draw: st.DrawFn) -> tuple[Any, ...]:
    """A shape, what is done to an array of it, the axes, keepdims."""
    ndim = draw(st.integers(0, 4))
    shape = tuple(draw(st.lists(st.integers(0, 9) | st.sampled_from([1, 16, 33]), min_size=ndim, max_size=ndim)))
    steps = tuple(draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape)
    order = tuple(draw(st.permutations(range(ndim))))
    stretched = draw(st.sampled_from([None, None, 3]))
    total = ndim + (stretched is not None)
    axes = draw(st.none() | st.lists(st.integers(0, total - 1), unique=True, max_size=total) if total else st.none())
    return shape, steps, order, stretched, axes if axes is None else tuple(axes), draw(st.booleans())


def seen(xp: Any, base: Any, steps: Any, order: Any, stretched: Any) -> Any:
    view = base[(*(slice(None, None, step) for step in steps), ...)].transpose(order)
    return view if stretched is None else xp.broadcast_to(view, (stretched, *view.shape))


SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.slow
@SETTINGS
@given(drawing=reductions(), dtype=st.sampled_from(["f4", "i2"]), op=st.sampled_from(["sum", "var", "count"]))
def test_any_shape_strides_and_axes(xp: Any, drawing: tuple[Any, ...], dtype: str, op: str) -> None:
    shape, steps, order, stretched, axes, keepdims = drawing
    host = drawn(shape, dtype)
    x, w = seen(xp, xp.asarray(host), steps, order, stretched), seen(np, wide(host), steps, order, stretched)
    kind, length = np.dtype(dtype), max(1, w.size)
    if op == "sum":
        got, want = reduce.sum(x, axes, keepdims=keepdims), w.sum(axes, keepdims=keepdims)
        check(got, want, sum_dtype(kind), bound(kind, length, 100))
    elif op == "count":
        check(count_nonzero(x, axes, keepdims=keepdims), np.sum(w != 0, axes, keepdims=keepdims), np.int64)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of no elements
            want = w.var(axes, keepdims=keepdims)
        scale = float(np.abs(w.astype(float)).max()) ** 2 if w.size else 0.0
        check(var(x, axes, keepdims=keepdims), want, real_dtype(kind), bound(real_dtype(kind), 16, scale))


@pytest.mark.slow
@SETTINGS
@given(drawing=reductions(), op=st.sampled_from(["max", "argmax"]), data=st.data())
def test_extrema_of_any_shape_strides_and_axes(xp: Any, drawing: tuple[Any, ...], op: str, data: Any) -> None:
    shape, steps, order, stretched, axes, keepdims = drawing
    # Few different values: the first of equal ones must be found.
    host = np.round(drawn(shape, F4) / 40)
    x, w = seen(xp, xp.asarray(host), steps, order, stretched), seen(np, host, steps, order, stretched)
    if op == "argmax" and axes is not None:
        axes = data.draw(st.integers(-w.ndim, w.ndim - 1)) if w.ndim else None
    try:
        want = getattr(np, op)(w, axes, keepdims=keepdims)
    except ValueError:
        with pytest.raises(ck.ArgumentError, match=f"{op} of nothing"):
            getattr(reduce, op)(x, axes, keepdims=keepdims)
    else:
        check(getattr(reduce, op)(x, axes, keepdims=keepdims), want, np.int64 if op == "argmax" else F4)


@in_tiers(
    "start, size",
    [0, 1],
    [0, 1, 3, 511, 512, 513, 2048, 16384, 16385, 100_003],
    quick=lambda start, size: size in (0, 1, 513, 16_385) and start == (size > 1),
)
def test_sizes_and_unaligned_starts(xp: Any, size: int, start: int) -> None:
    host = drawn(size + start, F4)
    x, w = xp.asarray(host)[start:], wide(host[start:])
    check(reduce.sum(x), w.sum(), F4, bound(F4, size, 100))
    if size:
        check(argmax(x), w.argmax(), np.int64)


@pytest.mark.parametrize("length", [1, 33, *slow(2, 3, 5, 8, 13, 31, 32, 128, 257, 1023, 1025, 5000)])
def test_rows_of_every_width(xp: Any, length: int) -> None:
    host = drawn((19, length), F4)
    check(reduce.sum(xp.asarray(host), 1), wide(host).sum(1), F4, bound(F4, length, 100))


@pytest.mark.parametrize("shape", [*slow((3, 30_000)), (2, 3, 9000)], ids=str)
def test_long_rows_are_shared_by_blocks(xp: Any, shape: tuple[int, ...]) -> None:
    host = drawn(shape, F4)
    x, w = xp.asarray(host), wide(host)
    for _ in range(2):  # The second finds the counters that the first left.
        check(reduce.sum(x, -1), w.sum(-1), F4, bound(F4, shape[-1], 100))
        check(argmax(x, -1), w.argmax(-1), np.int64)
        check(var(x, -1), w.var(-1), F4, bound(F4, 16, 100.0**2))


@in_tiers(
    "op, shape",
    ["sum", "argmax", "max"],
    [(20_000, 4), (20_000, 3), (9000, 1, 6), (2, 9000, 2), (2, 40, 130), (3, 5, 200), (6, 7, 5)],
    strength=1,
    also=lambda op, shape: (
        op == "sum" or shape in [(20_000, 4), (2, 40, 130), (6, 7, 5)] or (op == "max" and shape[0] < 20_000)
    ),
    quick=lambda op, shape: shape == (6, 7, 5) or (op, shape) in [("sum", (2, 9000, 2)), ("max", (3, 5, 200))],
)
def test_columns(xp: Any, op: str, shape: tuple[int, ...]) -> None:
    host = drawn(shape, F4)
    axis = 0 if len(shape) == 2 or shape[1] == 1 else 1
    x, w = xp.asarray(host), wide(host)
    if op == "sum":
        for _ in range(2):
            check(reduce.sum(x, axis), w.sum(axis), F4, bound(F4, shape[axis], 100))
    elif op == "argmax":
        check(argmax(x, axis), w.argmax(axis), np.int64)
    else:
        unaligned = xp.asarray(np.concatenate([np.zeros(1, F4), host.ravel()]))[1:].reshape(shape)
        check(reduce.max(unaligned, axis), w.max(axis), F4)


def test_axes_of_a_view(xp: Any) -> None:
    host = drawn((4, 6, 10), F4)
    x, w = (array[::-1, :, ::2].transpose(2, 0, 1) for array in (xp.asarray(host), wide(host)))
    for axis in (None, -1, (0, 2)):
        check(reduce.sum(x, axis, keepdims=axis == -1), w.sum(axis, keepdims=axis == -1), F4, bound(F4, 120, 100))
    check(argmin(x, 1, keepdims=True), w.argmin(1, keepdims=True), np.int64)
    # Of equal ones the first in row-major order of the view, whose memory has another one.
    for values in (host, np.round(host / 40)):
        seen, wanted = (array[::-1, :, ::2].transpose(2, 0, 1) for array in (xp.asarray(values), values))
        check(argmax(seen), wanted.argmax(), np.int64)


# --- values that go wrong easily --------------------------------------------------------------------------------------


NAN, INF = np.nan, np.inf
SPECIAL = {
    "nan first": [NAN, 1, 2, NAN],
    "nan within": [3, -INF, NAN, INF, NAN, 7],
    "nan last": [1, 2, NAN],
    "infinities": [INF, -INF, 0, INF, -INF],
    "all minus infinity": [-INF] * 5,
    "all infinity": [INF] * 5,
    "zeros": [0.0, -0.0, 0.0],
    "equal": [4.0] * 300,
    "ascending": list(range(300)),
    "descending": list(range(300, 0, -1)),
    "one hot": [0.0] * 177 + [1.0] + [0.0] * 122,
}
QUICK = ["nan within", "infinities", "all minus infinity", "one hot"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SPECIAL]
)
def test_special_values(xp: Any, name: str) -> None:
    dtype, values = F4, SPECIAL[name]
    for host in (np.array(values, dtype), np.array(values * 2, dtype)[1:]):
        x, w = xp.asarray(host), wide(host)
        for op, reference in ((reduce.min, np.min), (reduce.max, np.max)):
            check(op(x), reference(w), dtype)
        for op, reference in ((argmin, np.argmin), (argmax, np.argmax)):
            check(op(x), reference(w), np.int64)
        with np.errstate(all="ignore"):
            want = w.sum().astype(dtype)
        check(reduce.sum(x), want, dtype, bound(F4, host.size, 300))


@pytest.mark.parametrize("dtype", ["f4", *slow("f8", "f2")])
def test_nan_is_found_wherever_it_is(xp: Any, dtype: str) -> None:
    host = drawn((64, 64), dtype)
    np.fill_diagonal(host, NAN)
    x = xp.asarray(host)
    for axis in (0, 1):
        check(argmin(x, axis), np.arange(64), np.int64)
        assert np.isnan(to_host(reduce.min(x, axis))).all()
    assert to_host(reduce.all(x[:, :1])) == bool(host[:, 0].all())


@pytest.mark.parametrize("op", ["argmax", *slow("argmin", "max")])
def test_complex_extrema(xp: Any, op: str) -> None:
    host = np.array([[1 + 2j, 1 + 3j, 1 - 5j], [2, complex(0, NAN), 5], [-1j, 0, 1j]], np.complex64)
    x = xp.asarray(host)
    if op == "argmax":
        check(argmax(x, 1), host.argmax(1), np.int64)
    elif op == "argmin":
        check(argmin(x, 1), host.argmin(1), np.int64)
    else:
        check(reduce.max(x[::2], 1), host[::2].max(1), np.complex64)
        assert np.isnan(to_host(reduce.max(x, 1))[1])


@pytest.mark.parametrize("op", ["norm", *slow("prod", "norm of one")])
def test_complex_products_and_norms(xp: Any, op: str) -> None:
    host = drawn((3, 4), "c8") / 100
    x = xp.asarray(host)
    if op == "norm":
        check(norm(x, 1), np.linalg.norm(wide(host), axis=1), F4, bound(F4, 8, 4))
    elif op == "prod":
        check(prod(x, 1), wide(host).prod(1), np.complex64, bound(F4, 8, 2.0**4))
    else:
        check(norm(x, 1, ord=1), np.linalg.norm(wide(host), 1, axis=1), F4, bound(F4, 8, 4))


@in_tiers(
    "dtype, size",
    ["f4", "f2", "u2", "i4"],
    [5001, 20_001],  # by one block, by several
    strength=None,
    quick=lambda dtype, size: (dtype, size) == ("f4", 20_001),
    whole=lambda dtype, size: (size == 20_001) == (dtype == "f4"),
)
def test_variance_far_from_zero(xp: Any, dtype: str, size: int) -> None:
    """Σx² − (Σx)²/n would lose everything here; what is lost is the spacing of the numbers themselves, no more."""
    host = (1000 + np.random.default_rng(0).integers(0, 2, size)).astype(dtype)
    check(var(xp.asarray(host)), wide(host).var(), real_dtype(host.dtype), bound(F4, 16, 1000))


@pytest.mark.parametrize("dtype", ["i1", *slow("u1")])
def test_position_among_bytes(xp: Any, dtype: str) -> None:
    info = np.iinfo(dtype)
    for k in range(16):
        host = np.random.default_rng(k).integers(info.min + 1, info.max, 6000).astype(dtype)
        for op, value in ((argmax, info.max), (argmin, info.min)):
            host[[3200 + k, 5000]] = value
            assert int(op(xp.asarray(host))) == 3200 + k


@in_tiers(
    "shape, dtype",
    [(7, 5), (33, 64), (100, 130), (700, 40)],
    ["i1", "u1", "?", "i2", "u2", "f2", BFLOAT16],
    strength=1,
    also=lambda shape, dtype: dtype in ("i1", "f2"),
    quick=lambda shape, dtype: shape == (33, 64) and dtype == "i1",
)
def test_position_in_columns_of_small_numbers(xp: Any, shape: tuple[int, int], dtype: Any) -> None:
    """The first of equal ones, of zeros and NaN of both signs; what is the least or greatest itself."""
    rng = np.random.default_rng(shape[0])
    kind = np.dtype(dtype)
    hosts = [rng.integers(0, 256, shape).astype("i2").astype(kind), np.zeros(shape, kind), np.ones(shape, kind)]
    if kind.kind in "iu":
        hosts += [np.full(shape, end, kind) for end in (np.iinfo(kind).min, np.iinfo(kind).max)]
    elif kind.kind != "b":
        zeros = np.where(rng.random(shape) < 0.5, 0.0, -0.0).astype(kind)
        hosts += [zeros, np.full(shape, -np.inf, kind), np.full(shape, np.inf, kind)]
        for nan in (np.nan, -np.nan):
            host = hosts[0].copy()
            host[rng.integers(0, shape[0], 2), ::3] = nan
            hosts.append(host)
    for host in hosts:
        x, w = xp.asarray(host), host.astype("f4") if kind == BFLOAT16 else host
        check(argmax(x, 0), w.argmax(0), np.int64)
        check(argmin(x, 0), w.argmin(0), np.int64)


@in_tiers(
    "dtype, size",
    ["i1", "u1", "?"],
    [5001, 30_001],  # by one block, by several
    strength=None,
    quick=lambda dtype, size: (dtype, size) == ("i1", 5001),
    whole=lambda dtype, size: (size == 30_001) == (dtype == "u1"),
)
def test_variance_of_bytes_is_rounded_at_its_end_alone(xp: Any, dtype: str, size: int) -> None:
    host = np.random.default_rng(0).integers(0, 256, size).astype(dtype)
    exact = host.astype(object) * 1
    apart = len(host) * int((exact * exact).sum()) - int(exact.sum()) ** 2
    assert float(var(xp.asarray(host), ddof=1)) == pytest.approx(apart / (len(host) * (len(host) - 1)), rel=1e-15)
    assert float(std(xp.asarray(np.full(size, -128).astype(dtype)))) == 0
    assert float(norm(xp.asarray(host))) == pytest.approx(int((exact * exact).sum()) ** 0.5, rel=1e-15)


def test_float_sum_of_many_equal_numbers(xp: Any) -> None:
    """A single running sum in float would stop at 2^24 · 0.1."""
    host = np.full(200_000, 0.1, F4)
    check(reduce.sum(xp.asarray(host)), wide(host).sum(), F4, bound(F4, 16, 20_000))


@pytest.mark.slow
def test_integers_wrap_and_float16_does_not_overflow(xp: Any) -> None:
    big = np.full(4, 2**63 - 1, np.int64)
    check(reduce.sum(xp.asarray(big)), big.sum(), np.int64)
    check(reduce.sum(xp.asarray(np.full(70_000, -128, np.int8))), -128 * 70_000, np.int64)
    check(reduce.sum(xp.asarray(np.full(70_000, 65_535, np.uint16))), 65_535 * 70_000, np.uint64)
    check(mean(xp.asarray(np.full(1000, 60_000, np.float16))), 60_000.0, np.float16)
    check(norm(xp.asarray(np.full(4, 300, np.float16))), 600.0, np.float16)


@pytest.mark.slow
def test_the_same_bits_on_every_run_and_stream(stream: Any, xp: Any) -> None:
    x = xp.asarray(drawn((40, 3001), F4))
    other = another(stream)
    for op in (reduce.sum, var):
        for axis in (None, 0, 1):
            first = to_host(op(x, axis)).tobytes()
            assert to_host(op(x, axis)).tobytes() == first
            result = op(x, axis, stream=other)
            other.sync()
            assert to_host(result).tobytes() == first


# --- dot --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("f4", "f4"),
        ("i1", "i1"),
        *(
            pytest.param(*each.split(), marks=pytest.mark.slow)
            for each in ("? ?", "i1 f4", "u2 i2", "i4 i4", "u8 u8", "f2 f2", "f4 f8")
        ),
    ],
)
def test_dot_of_every_dtype(xp: Any, first: str, second: str) -> None:
    x, y = drawn(301, first, 1), drawn(301, second, 2)
    dtype = np.promote_types(first, second)
    want = np.dot(x.astype(dtype), y.astype(dtype)) if dtype.kind in "biu" else np.dot(wide(x), wide(y))
    check(dot(xp.asarray(x), xp.asarray(y)), want, dtype, bound(accumulated(dtype), 301, 2 * 128.0**2))


@in_tiers(
    "starts, size",
    [(0, 0), (1, 1), (0, 1), (3, 2)],
    [0, 1, 5, 4096, 40_003],
    strength=1,
    also=lambda starts, size: size < 40_003 or starts == (3, 2),
    quick=lambda starts, size: size in (0, 5, 4096) and starts in ((1, 1), (3, 2)),
)
def test_dot_of_vectors_that_lie_differently(xp: Any, size: int, starts: tuple[int, int]) -> None:
    hosts = [drawn(size + start, F4, start) for start in starts]
    x, y = (xp.asarray(host)[start:] for host, start in zip(hosts, starts, strict=True))
    check(dot(x, y), np.dot(wide(hosts[0][starts[0] :]), wide(hosts[1][starts[1] :])), F4, bound(F4, size, 100.0**2))
    check(dot(x[::-1], y), np.dot(wide(hosts[0][starts[0] :])[::-1], wide(hosts[1][starts[1] :])), F4,
          bound(F4, size, 100.0**2))  # fmt: skip


@pytest.mark.slow
def test_dot_does_not_conjugate(xp: Any) -> None:
    x, y = (xp.asarray(np.array(values, dtype)) for values, dtype in (([1j, 2], "c8"), ([3, 4], "f4")))
    assert to_host(dot(x, x)) == 3
    assert to_host(dot(x, y)) == 8 + 3j


# --- out, stream, nothing, misuse -------------------------------------------------------------------------------------


def test_out_and_stream(stream: Any, xp: Any) -> None:
    host = drawn((6, 70), F4)
    x, out = xp.asarray(host), xp.empty(6, F4)
    assert reduce.sum(x, 1, out=out, stream=stream) is out
    check(out, wide(host).sum(1), F4, bound(F4, 70, 100))
    column = xp.empty((6, 1), np.int64)
    assert argmin(x, -1, keepdims=True, out=column) is column
    check(column, host.argmin(1)[:, None], np.int64)
    single = xp.empty((), F4)
    assert dot(x[0], x[1], out=single) is single


@pytest.mark.parametrize("shape", [(0,), *slow((0, 3), (3, 0), (0, 0))], ids=str)
def test_nothing(xp: Any, shape: tuple[int, ...]) -> None:
    assert reduce.sum(xp.zeros((3, 0), F4), 0).shape == (0,)
    host = np.zeros(shape, F4)
    x = xp.asarray(host)
    for axis in (None, *range(len(shape))):
        check(reduce.sum(x, axis), host.sum(axis), F4)
        check(prod(x, axis), host.prod(axis), F4)
        check(reduce.all(x, axis), host.all(axis), np.bool_)
        check(norm(x, axis), np.zeros_like(host.sum(axis)), F4)
        rest = host.sum(axis)
        check(mean(x, axis), np.full_like(rest, NAN if host.size == 0 else 0), F4)
        check(var(x, axis, ddof=1), np.full_like(rest, NAN), F4)


def test_var_with_ddof(xp: Any) -> None:
    host = drawn((3, 5), F4)
    x = xp.asarray(host)
    check(var(x, 1, ddof=1), wide(host).var(1, ddof=1), F4, bound(F4, 5, 1e4))
    check(std(x, 1, ddof=1.5), wide(host).std(1, ddof=1.5), F4, bound(F4, 5, 1e2))
    assert np.isinf(to_host(var(x, 1, ddof=5))).all()
    assert np.isinf(to_host(var(x, 1, ddof=9))).all()


def odd_strides(x: Any) -> Any:
    """Elements 6 bytes apart, as a field of a packed struct is."""
    module = np if isinstance(x, np.ndarray) else __import__("cupy")
    return module.lib.stride_tricks.as_strided(x, (2,), (6,))


@pytest.mark.slow
def test_arguments_of_numpys_types(stream: Any, xp: Any) -> None:
    host = np.arange(12, dtype=F4).reshape(3, 4)
    x = xp.asarray(host)
    np.testing.assert_allclose(to_host(norm(x, ord=np.float32(1), stream=stream)), np.linalg.norm(host, 1), rtol=1e-6)
    assert norm(x, 0, keepdims=np.bool_(True), stream=stream).shape == (1, 4)
    out = xp.zeros(8, F4)
    reduce.sum(x, 0, out=out[::2], stream=stream)
    assert to_host(out).tolist() == [12, 0, 15, 0, 18, 0, 21, 0]


@pytest.mark.slow
def test_truths(stream: Any, xp: Any) -> None:
    x, y = xp.asarray(np.array([True, False, True])), xp.asarray(np.array([False, True, False]))
    for each in (x, y, y[:1], y[1:2]):
        assert bool(reduce.sum(each, dtype=bool, stream=stream)) == bool(to_host(each).any())
        assert bool(prod(each, dtype=bool, stream=stream)) == bool(to_host(each).all())
    assert not bool(dot(x, y, stream=stream))
    assert bool(dot(x, x, stream=stream))
    assert dot(x, x, stream=stream).dtype == bool


BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "axis": (lambda x: reduce.sum(x, 2), "sum: axis 2 of an array of 2 dimensions"),
    "axis twice": (lambda x: reduce.any(x, (0, -2)), "any: axis .*repeated"),
    "no axis": (lambda x: mean(x, 1.0), "mean: axis must be an int, several, or None, got 1.0"),
    "axis text": (lambda x: reduce.max(x, "0"), "max: axis must be"),
    "dtype": (lambda x: reduce.sum(x.astype("M8[s]") if isinstance(x, np.ndarray) else np.array("x")), "sum: x"),
    "dtype bool": (lambda x: mean(x, dtype=bool), "mean: dtype bool cannot hold a mean"),
    "dtype index": (lambda x: argmin(x, dtype="f4"), "argmin: dtype is float32; indices are integers"),
    "dtype var": (lambda x: var(x, dtype="i4"), "var: dtype int32 cannot hold a var"),
    "where numbers": (lambda x: reduce.sum(x, where=x), "sum: where is of float32; it must be of bool"),
    "where shape": (lambda x: reduce.sum(x, where=x[:, :2] > 0), r"sum: where has shape \(2, 2\)"),
    "where alone": (lambda x: reduce.max(x, where=x > 0), "max: where may leave no elements.*give initial="),
    "initial": (lambda x: reduce.sum(x, initial="x"), "sum: initial takes float32, got 'x'"),
    "dtype unknown": (lambda x: reduce.sum(x, dtype="no such"), "sum: dtype must be a dtype, got 'no such'"),
    "out shape": (lambda x: reduce.sum(x, 0, out=x[0, :1].copy()), r"sum: out has shape \(1,\), the result has \(3,\)"),
    "out dtype": (lambda x: argmin(x, 0, out=x[0] > 0), "argmin: out has dtype bool, the result has int64"),
    "ord": (
        lambda x: norm(x.astype("f2"), ord=2),
        "norm: x has dtype float16, which has no singular values",
    ),
    "ord nuclear": (lambda x: norm(x, 0, ord="nuc"), "norm: ord='nuc' is of matrices"),
    "ord of nothing": (lambda x: norm(x[:, :0], ord=-2), r"norm: x has shape \(2, 0\): a matrix of no elements"),
    "ord text": (lambda x: norm(x, ord="one"), "norm: ord must be a number, inf, -inf, 'fro' or None, got 'one'"),
    "ord of an axis twice": (lambda x: norm(x, (0, -2), ord=1), r"norm: axis \(0, -2\) names one axis twice"),
    "ord nan": (lambda x: norm(x, ord=float("nan")), "norm: ord must be a number, inf, .*got nan"),
    "ord of vectors": (lambda x: norm(x, 1, ord="fro"), "norm: ord='fro' is of matrices"),
    "ddof": (lambda x: var(x, ddof="1"), "var: ddof must be a number, got '1'"),  # type: ignore[arg-type]
    "ddof nan": (lambda x: var(x, ddof=float("nan")), "var: ddof must be a number, got nan"),
    "dtype of complex": (
        lambda x: std(x.astype("c8"), dtype="f4"),
        "std: dtype float32 cannot hold a std of complex64",
    ),
    "dot dtypes": (
        lambda _: dot(np.ones(3, BFLOAT16), np.ones(3, "i4")),
        "dot: bfloat16 and int32 have no dtype in common",
    ),
    "nothing along an axis": (
        lambda x: reduce.max(x[:, :0], 1),
        r"max: x has shape \(2, 0\): no elements along axis 1",
    ),
    "dot matrices": (lambda x: dot(x, x), r"dot: x has shape \(2, 3\) and y \(2, 3\)"),
    "dot lengths": (lambda x: dot(x[0], x[0, :2]), r"dot: x has shape \(3,\) and y \(2,\)"),
    "strides": (lambda x: reduce.sum(odd_strides(x)), "sum: x has strides .* not whole elements of float32"),
    "no array": (lambda x: reduce.sum([1, 2]), "sum: x is list, not an array"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(xp: Any, name: str) -> None:
    call, message = BAD[name]
    x = xp.ones((2, 3), F4)
    with pytest.raises(ck.ArgumentError, match=message):
        call(x)


@pytest.mark.gpu
def test_variance_of_bytes_whose_sums_have_more_than_64_bits(xp: Any) -> None:
    host = np.random.default_rng(0).integers(100, 256, 1 << 27, np.uint8)
    values, counts = np.unique(host, return_counts=True)
    known = [(int(value), int(count)) for value, count in zip(values, counts, strict=True)]
    total = sum(value * count for value, count in known)
    apart = host.size * sum(value**2 * count for value, count in known) - total**2
    assert float(var(xp.asarray(host))) == pytest.approx(apart / host.size**2, rel=1e-15)


@pytest.mark.gpu
@pytest.mark.large
@pytest.mark.parametrize("start", [0, 1])
def test_past_two_to_the_31_elements(xp: Any, start: int) -> None:
    size = 2**31 + 12_345
    x = xp.zeros(size + start, np.int8)[start:]
    x[-1], x[2**31 + 1] = 1, 1
    assert int(reduce.sum(x)) == int(count_nonzero(x)) == 2
    assert int(argmax(x)) == 2**31 + 1
    assert int(reduce.max(x)) == 1
    assert float(var(x)) == pytest.approx(2 / size)
    rows = x[: 2**31].reshape(-1, 1 << 20)
    assert int(reduce.sum(rows, 1).sum()) == int(reduce.sum(rows, 0).sum()) == 0
    assert int(reduce.sum(x[::-1], keepdims=True)[0]) == 2
    assert int(argmax(x[::-1])) == 0
    tall = x[: 2**31].reshape(-1, 1)
    assert reduce.sum(tall, 1).shape == (2**31,)


# --- dtype, initial, where --------------------------------------------------------------------------------------------

_DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8"]
_MASKED = ["sum", "prod", "mean", "any", "all", "min", "max", "var", "std"]
_SHAPES, _AXES, _MASKS = [(70,), (6, 40), (3, 5, 17), (4, 0, 3)], [None, 0, -1], ["all", "row", "none", "some"]


#: One op of elements of each other dtype.
_MASKED_OTHERS = [
    *zip(["sum", "max", "var", "mean", "any", "std", "prod"], ["i1", "u2", "i4", "u8", "?", "f2", "f8"], strict=True),
    ("sum", "c8"),
]


@pytest.mark.exhaustive
@given(
    st.sampled_from(_MASKED),
    st.sampled_from(_DTYPES),
    st.sampled_from(_SHAPES),
    st.sampled_from(_AXES),
    st.sampled_from(_MASKS),
    st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_where_and_initial(
    stream: Any, xp: Any, name: str, dtype: str, shape: tuple[int, ...], axis: int | None, how: str, starts: bool
) -> None:
    check_masked(xp, name, dtype, shape, axis, how, starts)


@in_tiers(
    "name, dtype",
    _MASKED,
    _DTYPES,
    strength=1,
    also=lambda name, dtype: dtype == "f4" or (name, dtype) in _MASKED_OTHERS,
    quick=lambda name, dtype: (name, dtype) in (("sum", "f4"), ("max", "u2")),
)
def test_where_and_initial(xp: Any, name: str, dtype: str) -> None:
    for starts, how in ((True, "some"), (False, "row"), (True, "none")):
        check_masked(xp, name, dtype, (6, 40), -1, how, starts)


@pytest.mark.parametrize("dtype", ["i1", *slow("b1", "u1", "i2", "u2", "i4")])
@pytest.mark.parametrize("name", ["max", *slow("min")])
def test_of_nothing_is_initial(xp: Any, name: str, dtype: str) -> None:
    """It is what `initial` says: the end of the range of what is compared is no value of the dtype."""
    numbers = [False, True] if dtype == "b1" else [0, 5] if dtype[0] == "u" else [-5, 0, 5]
    op, of_numpy = getattr(ck.ops, name), getattr(np, name)
    for initial in numbers:
        for shape in ((0,), (3, 0)):
            x = np.zeros(shape, dtype)
            result = op(xp.asarray(x), axis=-1, initial=initial)
            np.testing.assert_array_equal(to_host(result), of_numpy(x, axis=-1, initial=initial), strict=True)
    if dtype in ("i1", "b1"):
        x, mask = np.ones((4, 7), dtype), np.zeros((4, 7), bool)
        result = op(xp.asarray(x), axis=0, where=xp.asarray(mask), initial=numbers[0])
        np.testing.assert_array_equal(to_host(result), np.full(7, numbers[0], dtype), strict=True)


@in_tiers(
    "shape, axis, how, starts", _SHAPES, _AXES, _MASKS, [True, False], quick=lambda shape, axis, *_: shape == (6, 40)
)
def test_where_of_shapes(xp: Any, shape: tuple[int, ...], axis: int | None, how: str, starts: bool) -> None:
    check_masked(xp, "sum", "f4", shape, axis, how, starts)


def check_masked(
    xp: Any, name: str, dtype: str, shape: tuple[int, ...], axis: int | None, how: str, starts: bool
) -> None:
    """What a mask leaves out counts nowhere, in the number of elements neither."""
    x = (drawn(shape, dtype) % 5).astype(dtype) if np.dtype(dtype).kind not in "fc" else drawn(shape, dtype) / 64
    x = x.astype(dtype)
    random = np.random.default_rng(1)
    mask = {
        "all": np.ones(shape, bool),
        "row": random.random(shape[-1]) < 0.5,
        "none": np.zeros(shape, bool),
        "some": random.random(shape) < 0.6,
    }[how]
    named: dict[str, Any] = {"axis": axis, "where": mask}
    if name in ("min", "max") or (starts and name in ("sum", "prod")):
        named["initial"] = 1
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = getattr(np, name)(wide(x) if name not in ("min", "max") and x.dtype.kind in "fc" else x, **named)
    named["where"] = xp.asarray(mask)
    got = to_host(getattr(ck.ops, name)(xp.asarray(x), **named))
    assert got.shape == np.shape(want)
    scale = max(1.0, float(np.max(np.abs(np.where(np.isfinite(want), want, 0)), initial=0)))
    tolerance = 200 * scale * {"f2": 1e-3, "f4": 1e-7, "c8": 1e-7}.get(dtype, 1e-15)
    np.testing.assert_allclose(wide(got), want, rtol=0, atol=tolerance, equal_nan=True)


@pytest.mark.slow
def test_initial_of_no_elements(xp: Any) -> None:
    x = xp.zeros((3, 0), "i4")
    check(reduce.max(x, 1, initial=-7), np.full(3, -7), "i4")
    check(reduce.sum(x, 1, initial=5), np.full(3, 5), "i8")
    check(reduce.min(xp.asarray(np.array([4, 9], "f4")), initial=2.5), 2.5, F4)
    check(reduce.sum(xp.asarray(np.array([4, 9], "u1")), initial=300), 313, "u8")


def has_result(op: str, code: str, wanted: str) -> bool:
    """Whether there is a result of dtype `wanted` of elements of dtype `code`."""
    return {
        "sum": True,
        "prod": True,
        "cumsum": (code, wanted) != ("c8", "?"),
        "mean": wanted != "?",
        "var": wanted in ("f4", "c16") and code != "c8",
    }[op]


@in_tiers(
    "op, code, wanted",
    ["sum", "prod", "cumsum", "mean", "var"],
    ["?", "i4", "c8"],
    ["?", "i2", "f4", "c16"],
    where=has_result,
    quick=lambda op, code, wanted: code == "i4" and wanted in ("i2", "f4"),
)
def test_dtype_of_the_result(xp: Any, op: str, code: str, wanted: str) -> None:
    """As NumPy's, bool and real parts of complex elements too."""
    x = (np.arange(12).reshape(3, 4) % 3).astype(code)
    own = ck.ops.cumsum if op == "cumsum" else {"sum": reduce.sum, "prod": prod, "mean": mean, "var": var}[op]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, want = own(xp.asarray(x), 0, dtype=wanted), getattr(np, op)(x, 0, dtype=wanted)
    if op == "var":
        check(got, want, real_dtype(np.dtype(wanted)), 1e-6)
    else:
        check(got, want, wanted, 1e-6 if op == "mean" else 0.0)


@pytest.mark.slow
def test_integers_of_a_dtype_as_results(xp: Any) -> None:
    x = np.array([[1.5, -2.5], [-9.5, 4.0]])
    check(mean(xp.asarray(x), 0, dtype="i4"), np.mean(x, 0, dtype="i4"), "i4")
    check(argmin(xp.asarray(x), 0, dtype="i2"), [1, 0], "i2")


def some_vectors(code: str) -> np.ndarray:
    return drawn((5, 6, 7), code) if code != "i4" else np.random.default_rng(2).integers(-9, 9, (5, 6, 7)).astype("i4")


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # NumPy's, of a 0 to a negative order
@in_tiers(
    "order, code",
    [0, 0.5, 1, 2, 3, -1, -2, np.inf, -np.inf],
    ["i4", "f4", "c8"],
    strength=1,
    also=lambda order, code: code == "f4" or order in ((1, 2, np.inf) if code == "i4" else (0, 3)),
    quick=lambda order, code: order in (0, 0.5, -np.inf) if code == "f4" else (code, order) == ("i4", 2),
)
def test_norms_of_vectors(xp: Any, order: float, code: str) -> None:
    x = some_vectors(code)
    result, want = real_dtype(np.dtype(code)), np.linalg.norm(wide(x), order, axis=1)
    check(norm(xp.asarray(x), 1, ord=order), want, result, bound(result, 60, float(want.max())))


@in_tiers(
    "order, axis, code",
    [1, -1, np.inf, -np.inf, "fro", 2, -2, "nuc"],
    [(0, 1), (2, 0), (-1, 1)],
    ["i4", "f4", "c8"],
    strength=1,
    also=lambda order, axis, code: code == "f4" or (axis == (0, 1) and order in (1, "fro", 2)),
    quick=lambda order, axis, code: code == "f4" and axis == (0, 1) and order in (1, -np.inf, -2, "nuc"),
)
def test_norms_of_matrices(xp: Any, order: Any, axis: tuple[int, int], code: str) -> None:
    x = some_vectors(code)
    result = real_dtype(np.dtype(code))
    for keepdims in (False, True):
        want = np.linalg.norm(wide(x), order, axis=axis, keepdims=keepdims)
        got = norm(xp.asarray(x), axis, ord=order, keepdims=keepdims)
        check(got, want, result, bound(result, 60, float(want.max())))


@pytest.mark.parametrize("code", ["f4", *slow("i4", "c8")])
def test_norms_of_all_elements(xp: Any, code: str) -> None:
    x = some_vectors(code)
    host, result = wide(x), real_dtype(np.dtype(code))
    check(norm(xp.asarray(x[0]), ord=1), np.linalg.norm(host[0], 1), result, bound(result, 60, 1000))
    check(norm(xp.asarray(x)), np.linalg.norm(host.reshape(-1)), result, bound(result, 60, 1000))


def test_norms_of_singular_values(xp: Any, stream: Any) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4, 2)).astype("f4")
    x[1, 2, 0] = np.nan
    with np.errstate(all="ignore"):
        want = np.array([np.linalg.norm(x[0], 2), np.nan, np.linalg.norm(x[2], 2)], "f4")
    for _ in range(4):
        np.testing.assert_allclose(to_host(norm(xp.asarray(x), (1, 2), ord=2)), want, rtol=1e-5)
    out = xp.zeros((3, 2), "f8")[:, 0]
    assert norm(xp.asarray(x), (2, 1), ord=2, out=out, stream=stream) is out
    np.testing.assert_allclose(to_host(out), want, rtol=1e-5)
    for shape in ((0, 3), (3, 0), (2, 0, 3), (0, 2, 3)):
        for order in (2, "nuc"):
            got = norm(xp.zeros(shape, "i4"), (-2, -1), ord=order)
            np.testing.assert_array_equal(to_host(got), np.zeros(shape[:-2]))
            assert got.dtype == np.float64
    with pytest.raises(ck.ArgumentError, match="out has dtype int32"):
        norm(xp.ones((2, 2)), ord="nuc", out=xp.zeros((), "i4"))
