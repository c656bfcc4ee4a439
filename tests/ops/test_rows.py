"""Softmax and its relatives, layer and root-mean-square normalisation, against NumPy in float64."""

from __future__ import annotations

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
from cudakit.arrays.layout import axes_of
from cudakit.ops import rows

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(name) for name in ("f2", "f4", "f8")] + [BFLOAT16]
EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}


def softmax(x: np.ndarray, axis: Any) -> np.ndarray:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def shifted(x: np.ndarray, axis: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x less its maximum where that is finite, the maximum, and the logarithm of the sum, as SciPy has them."""
    most = x.max(axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(most), most, 0)
    return x - shift, shift, np.log(np.exp(x - shift).sum(axis, keepdims=True))


def log_softmax(x: np.ndarray, axis: Any) -> np.ndarray:
    less, _, logarithm = shifted(x, axis)
    return less - logarithm


def logsumexp(x: np.ndarray, axis: Any, keepdims: bool = False) -> np.ndarray:
    _, shift, logarithm = shifted(x, axis)
    result = logarithm + shift
    return result if keepdims else result.squeeze(axis=axes_of("", axis, x.ndim))


def layernorm(x: np.ndarray, axis: Any) -> np.ndarray:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + EPS["layernorm"])


def rmsnorm(x: np.ndarray, axis: Any) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis, keepdims=True) + EPS["rmsnorm"])


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
}
OPS = list(REFERENCES)


def random_values(shape: Any, dtype: Any, seed: int = 0, scale: float = 3) -> np.ndarray:
    generator = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return generator.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    return (generator.normal(size=shape) * scale).astype(dtype)


def check(op: str, result: Any, x: np.ndarray, axis: Any = -1, **more: Any) -> None:
    """Compare with the reference on the same, rounded, elements.

    A result is wrong by its own rounding; by that of x − max x (|x − max| / 2 units, in exp) or of a sum of `length` in
    the type of the arithmetic, which is added up in pairs of threads, so by its logarithm and the 32 of one thread.
    """
    found = to_host(result)
    expected_dtype = x.dtype if x.dtype in FLOATS else np.dtype("f8")
    assert found.dtype == expected_dtype
    exact = x.astype("f8")
    expected = REFERENCES[op](exact, axis, **more)
    assert found.shape == expected.shape
    if not expected.size:
        return
    arithmetic = np.dtype("f8") if expected_dtype == np.float64 else np.dtype("f4")
    length = x.size // max(1, np.prod([n for d, n in enumerate(x.shape) if d not in axes_of("", axis, x.ndim)]))
    terms = 8 + min(32, length) // 4 + np.log2(max(1, length))
    size = np.abs(expected)
    if op == "softmax":
        scale = size * (1 + np.abs(exact - exact.max(axis, keepdims=True)))
    elif op == "layernorm":  # the mean is wrong by some units of the largest element
        scale = (size + 1) * (1 + np.abs(exact).max() / np.sqrt(exact.var(axis, keepdims=True) + EPS[op]))
    else:
        scale = size + (op != "rmsnorm")
    tiny = float(ml_dtypes.finfo(expected_dtype).smallest_subnormal)
    error = np.abs(found.astype("f8") - expected)
    allowed = bound(expected_dtype, 1, np.abs(expected)) / 2 + bound(arithmetic, 1, terms * scale) + tiny
    worst = np.argmax(error - allowed)
    assert (error <= allowed).all(), (op, error.ravel()[worst], np.broadcast_to(allowed, error.shape).ravel()[worst])


def call(op: str, x: Any, axis: Any = -1, **named: Any) -> Any:
    return getattr(rows, op)(x, axis=axis, **named)


# ── lengths: lanes, warps, blocks, clusters, two reads ───────────────────────────────────────────────────────────────


@in_tiers(
    "length, op",
    [1, 2, 3, 8, 31, 32, 33, 100, 128, 1000, 1024, 1025, 2047, 4096, 8192],
    ["softmax", "layernorm"],
    strength=1,
    also=lambda length, op: op == "softmax" or length in (1, 33, 1000, 1025, 8192),
    quick=lambda length, op: length in (1, 33, 1025),
)
def test_rows_of_any_length(stream: Any, xp: Any, length: int, op: str) -> None:
    x = random_values((3, length), "f4", length)
    check(op, call(op, xp.asarray(x)), x)


@in_tiers("length, count", [5, 12, 40], [1, 7, 8, 9, 33], quick=lambda length, count: length == 12 and count != 8)
def test_any_number_of_short_rows(stream: Any, xp: Any, count: int, length: int) -> None:
    x = random_values((count, length), "f4", count)
    check("softmax", call("softmax", xp.asarray(x)), x)
    check("logsumexp", call("logsumexp", xp.asarray(x)), x)


#: Of float32 all lengths by softmax, three by the others; of other dtypes some of each op.
UNALIGNED = [
    *((length, "f4", "softmax") for length in (3, 17, 21, 33, 63, 64)),
    *((length, "f4", op) for length in (3, 17, 63) for op in ("logsumexp", "layernorm")),
    *((21, "f2", "softmax"), (63, "f2", "layernorm"), (33, "f2", "logsumexp")),
    *((17, "f8", "softmax"), (33, "f8", "layernorm"), (63, "f8", "logsumexp")),
    *((63, BFLOAT16, "softmax"), (33, "i1", "softmax"), (21, "i1", "layernorm"), (63, "?", "logsumexp")),
]


@in_tiers(
    "length, dtype, op",
    [3, 17, 21, 33, 63, 64],
    [*FLOATS, np.dtype("i1"), np.dtype("?")],
    ["softmax", "logsumexp", "layernorm"],
    strength=1,
    also=lambda *case: case in UNALIGNED,
    quick=lambda length, dtype, _: length == 17 and dtype == "f4",
)
def test_short_rows_that_lie_unaligned(stream: Any, xp: Any, length: int, dtype: np.dtype, op: str) -> None:
    for count in (1, 17, 130):
        x = random_values((count, length), "f4", count).astype(dtype)
        check(op, call(op, xp.asarray(x)), x)
        if op == "softmax" and dtype.kind not in "ib":
            given = xp.asarray(x.copy())
            check("softmax", call("softmax", given, out=given), x)


@pytest.mark.slow
@in_tiers(
    "shape, op",
    [(2, 40000), (1, 70001), (1, 300000)],
    OPS,
    strength=1,
    # Beyond 100000 log_softmax and rmsnorm have the same kernels as softmax and layernorm.
    where=lambda shape, op: shape[1] <= 100000 or op in ("softmax", "layernorm", "logsumexp"),
    also=lambda shape, op: (
        op in ("softmax", "layernorm") or (shape, op) in [((1, 300000), "logsumexp"), ((1, 70001), "log_softmax")]
    ),
)
def test_long_rows(stream: Any, xp: Any, shape: tuple[int, int], op: str) -> None:
    x = random_values(shape, "f4")
    check(op, call(op, xp.asarray(x)), x)


#: An op of each dtype of which it gives float64.
CONVERTED = list(zip(OPS, map(np.dtype, ("i1", "i4", "u8", "?", "u2")), strict=True))


@in_tiers(
    "op, dtype",
    OPS,
    [*FLOATS, *(dtype for _, dtype in CONVERTED)],
    strength=1,
    where=lambda op, dtype: dtype in FLOATS or (op, dtype) in CONVERTED,
    also=lambda op, dtype: (
        dtype in FLOATS[:2]
        or (op, dtype) in CONVERTED
        or (op, dtype) in [("softmax", "f8"), ("layernorm", "f8"), ("logsumexp", BFLOAT16), ("rmsnorm", BFLOAT16)]
    ),
    quick=lambda op, dtype: dtype == "f4" or (op, dtype) in [("softmax", "f2"), CONVERTED[0], CONVERTED[3]],
)
def test_dtypes(stream: Any, xp: Any, op: str, dtype: np.dtype) -> None:
    x = random_values((3, 96), dtype)
    check(op, call(op, xp.asarray(x)), x)


@pytest.mark.slow
@in_tiers(
    "op, dtype", OPS, ["f4", "f2"], strength=1, also=lambda op, dtype: dtype == "f4" or op in ("softmax", "rmsnorm")
)
def test_columns_of_dtypes(stream: Any, xp: Any, op: str, dtype: str) -> None:
    x = random_values((3, 96), dtype)
    check(op, call(op, xp.asarray(x), 0), x, 0)


# ── axes and strides ─────────────────────────────────────────────────────────────────────────────────────────────────


#: Axes for ops that share the way along lines with softmax, for which there are all of them.
AXES: dict[str, list[Any]] = {
    "log_softmax": [1, (0, 1)],
    "logsumexp": [0, 1, -1, None, (0, 2), (2, 1), ()],
    "layernorm": [0, 1, None, (0, 2)],
    "rmsnorm": [0, (1, 2)],
}


@in_tiers(
    "axis, op",
    [0, 1, 2, -1, None, (0, 2), (1, 2), (0, 1), (0, 1, 2), (2, 1), ()],
    OPS,
    strength=1,
    also=lambda axis, op: axis in AXES.get(op, [axis]),
    quick=lambda axis, op: (axis, op) in [(0, "layernorm"), (1, "softmax"), ((0, 2), "softmax"), (1, "logsumexp")],
)
def test_axes(stream: Any, xp: Any, axis: Any, op: str) -> None:
    x = random_values((3, 40, 7), "f4")
    check(op, call(op, xp.asarray(x), axis), x, axis)
    if op == "logsumexp":
        check(op, rows.logsumexp(xp.asarray(x), axis, True), x, axis, keepdims=True)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_view(stream: Any, xp: Any, data: Any) -> None:
    ndim = data.draw(st.integers(1, 3))
    shape = data.draw(st.lists(st.integers(1, 12), min_size=ndim, max_size=ndim))
    base = random_values([2 * n for n in shape], "f4", data.draw(st.integers(0, 9)))
    steps = data.draw(st.lists(st.sampled_from([1, 1, 2, -1]), min_size=ndim, max_size=ndim))
    starts = data.draw(st.lists(st.integers(0, 1), min_size=ndim, max_size=ndim))
    order = data.draw(st.permutations(range(ndim)))
    view = tuple(slice(a, None, step) for a, step in zip(starts, steps, strict=True))
    axis = data.draw(st.integers(-ndim, ndim - 1))
    op = data.draw(st.sampled_from(OPS))
    x = base[view].transpose(order)
    check(op, call(op, xp.asarray(base)[view].transpose(order), axis), x, axis)


@pytest.mark.parametrize("axis", [*slow(0), 1, *slow((0, 1))], ids=str)
def test_broadcast_and_unaligned(stream: Any, xp: Any, axis: Any) -> None:
    x = random_values(97, "f4")
    spread = np.broadcast_to(x, (5, 97))
    check("softmax", call("softmax", xp.broadcast_to(xp.asarray(x), (5, 97)), axis), spread, axis)
    base = random_values(1 + 4 * 96, "f2")
    check("softmax", call("softmax", xp.asarray(base)[1:].reshape(4, 96), axis), base[1:].reshape(4, 96), axis)


def test_the_result_lies_in_memory_as_x_does(stream: Any, xp: Any) -> None:
    x = random_values((4, 5, 6), "f4")
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        turned = xp.asarray(x).transpose(order)
        result = rows.softmax(turned, 1)
        assert result.strides == turned.strides
        check("softmax", result, x.transpose(order), 1)
    assert rows.softmax(xp.asarray(x)[:, ::2], 1).flags.c_contiguous


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)], ids=str)
def test_empty(stream: Any, xp: Any, shape: tuple[int, ...]) -> None:
    x = xp.zeros(shape, "f4")
    for op in OPS[:2] + OPS[3:]:
        assert call(op, x).shape == shape
    found = to_host(rows.logsumexp(x, axis=-1))
    np.testing.assert_array_equal(found, np.full(shape[:-1], -np.inf, "f4"))
    assert to_host(rows.logsumexp(x)) == -np.inf


def test_no_dimensions(stream: Any, xp: Any) -> None:
    x = xp.asarray(np.float32(3))
    assert to_host(rows.logsumexp(x)) == 3
    assert to_host(rows.softmax(x, None)) == 1
    assert to_host(rows.layernorm(x, axis=())) == 0


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────

INF, NAN = np.inf, np.nan
#: Row, and what scipy.special (1.16) gives for softmax, log_softmax and logsumexp.
SPECIAL = [
    ([0, 0], [0.5, 0.5], [-np.log(2)] * 2, np.log(2)),
    ([INF, 0], [NAN, NAN], [NAN, -INF], INF),
    ([INF, INF], [NAN, NAN], [NAN, NAN], INF),
    ([-INF, 0], [0, 1], [-INF, 0], 0),
    ([-INF, -INF], [NAN, NAN], [NAN, NAN], -INF),
    ([INF, -INF], [NAN, NAN], [NAN, -INF], INF),
    ([NAN, 0], [NAN, NAN], [NAN, NAN], NAN),
    ([NAN, INF], [NAN, NAN], [NAN, NAN], NAN),
    ([NAN, -INF], [NAN, NAN], [NAN, NAN], NAN),
    ([1e38, -1e38], [1, 0], [0, -2e38], 1e38),
    ([-0.0, -800], [1, 0], [0, -800], 0),
]


@in_tiers(
    "length, across, dtype",
    [2, 96, 3000],
    [False, True],
    ["f4", "f8"],
    strength=1,
    where=lambda length, _, dtype: length < 3000 or dtype == "f4",  # the same code
    also=lambda *case: case[2] == "f4" or case in [(2, True, "f8"), (96, False, "f8")],
    quick=lambda *case: case == (96, False, "f4"),
)
def test_infinities_and_nan_as_scipy_gives_them(stream: Any, xp: Any, length: int, across: bool, dtype: str) -> None:
    """The pair at places of a longer row that different threads have, −∞ elsewhere, which adds nothing."""
    x = np.full((len(SPECIAL), length), -np.inf, dtype)
    places = [length // 3, length - 1] if length > 2 else [0, 1]
    for row, (values, *_) in enumerate(SPECIAL):
        x[row, places] = values
    given = xp.asarray(x.T if across else x)
    axis = 0 if across else 1
    for op, column in (("softmax", 1), ("log_softmax", 2)):
        found = to_host(call(op, given, axis))
        found = (found.T if across else found)[:, places]
        np.testing.assert_allclose(found, np.array([case[column] for case in SPECIAL]), rtol=1e-6)
    found = to_host(call("logsumexp", given, axis))
    np.testing.assert_allclose(found, np.array([case[3] for case in SPECIAL]), rtol=1e-6)


@pytest.mark.parametrize("kind", slow("equal", "sorted", "one hot", "large", "offset"))
def test_adversarial_rows(stream: Any, xp: Any, kind: str) -> None:
    x = {
        "equal": np.full((2, 3000), 1.5),
        "sorted": np.sort(random_values((2, 3000), "f4", scale=20)),
        "one hot": np.eye(2, 3000) * 80,
        "large": random_values((2, 3000), "f4", scale=1000),
        "offset": 1e4 + random_values((2, 3000), "f4"),
    }[kind].astype("f4")
    for op in OPS:
        check(op, call(op, xp.asarray(x)), x)
    check("layernorm", call("layernorm", xp.asarray(np.ascontiguousarray(x.T)), 0), np.ascontiguousarray(x.T), 0)


def test_float32_exponentials_stay_within_two_units(stream: Any, xp: Any) -> None:
    """A row of two, of which one is far below: its softmax is exp(difference), times a sum that rounds to 1."""
    far = np.arange(-86, -17, 0.25, dtype="f4")
    x = np.stack([np.zeros_like(far), far], 1)
    found = to_host(rows.softmax(xp.asarray(x)))[:, 1].astype("f8")
    exact = np.exp(far.astype("f8"))
    assert (np.abs(found - exact) <= bound("f4", 3, exact) + bound("f4", 1, 1e-7) * exact).all()


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_tiers(
    "dtypes, axis",
    ["f4 f4 f4", "f2 f4 f2", "f2 f2 f2", "f8 f4 f8"],
    [-1, 0, (1, 2), (0, 2), None, 1],
    strength=1,
    where=lambda dtypes, axis: axis != 1 if dtypes == "f4 f4 f4" else axis in (-1, 1),
    also=lambda *case: case[0] == "f4 f4 f4" or case in [("f2 f4 f2", 1), ("f2 f2 f2", -1), ("f8 f4 f8", 1)],
    quick=lambda *case: case == ("f4 f4 f4", (0, 2)),
)
def test_weight_and_bias(stream: Any, xp: Any, dtypes: str, axis: Any) -> None:
    own, *others = dtypes.split()
    x = random_values((4, 6, 32), own)
    axes = axes_of("", axis, 3)
    weight, bias = (random_values([x.shape[d] for d in axes], dtype, n) for n, dtype in enumerate(others))
    shape = [n if d in axes else 1 for d, n in enumerate(x.shape)]
    exact = x.astype("f8")
    w, b = (array.astype("f8").reshape(shape) for array in (weight, bias))
    limit = 12 * float(np.finfo(own).eps)
    found = to_host(rows.layernorm(xp.asarray(x), xp.asarray(weight), xp.asarray(bias), axis=axis))
    expected = layernorm(exact, axis) * w + b
    assert found.dtype == x.dtype
    assert (np.abs(found - expected) <= limit * (1 + np.abs(layernorm(exact, axis) * w) + np.abs(b))).all()
    found = to_host(rows.rmsnorm(xp.asarray(x), xp.asarray(weight), axis=axis))
    expected = rmsnorm(exact, axis) * w
    assert (np.abs(found - expected) <= limit * np.abs(expected) + limit * 1e-3).all()
    found = to_host(rows.layernorm(xp.asarray(x), bias=xp.asarray(bias), axis=axis))
    expected = layernorm(exact, axis) + b
    assert (np.abs(found - expected) <= limit * (1 + np.abs(expected) + np.abs(b))).all()


def test_weights_of_a_transposed_array_and_of_a_view(stream: Any, xp: Any) -> None:
    x = random_values((6, 8, 5), "f4")
    turned = xp.asarray(x).transpose(2, 1, 0)
    weight = random_values((16, 6), "f4")
    found = to_host(rows.layernorm(turned, xp.asarray(weight)[::2], axis=(1, 2)))
    expected = layernorm(x.transpose(2, 1, 0).astype("f8"), (1, 2)) * weight[::2]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_weight_and_bias_of_a_class_of_their_own(stream: Any, xp: Any) -> None:
    class Own(np.ndarray):
        pass

    x, numbers = xp.asarray(random_values((4, 6), np.float32)), random_values(6, np.float32, seed=1)
    own, plain = (numbers.view(Own) if xp is np else xp.asarray(numbers)), xp.asarray(numbers)
    for parts, want in (((own, None), (plain, None)), ((None, own), (None, plain)), ((own, own), (plain, plain))):
        np.testing.assert_array_equal(
            to_host(rows.layernorm(x, *parts, stream=stream)), to_host(rows.layernorm(x, *want, stream=stream))
        )


def test_eps(stream: Any, xp: Any) -> None:
    x = xp.asarray(np.full((1, 40), 2, "f4"))
    np.testing.assert_allclose(to_host(rows.rmsnorm(x, eps=12)), 0.5, rtol=1e-6)
    assert (to_host(rows.layernorm(x, eps=1)) == 0).all()
    assert np.isnan(to_host(rows.layernorm(x, eps=0))).all()


# ── out, streams, determinism ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("op", ["softmax", "logsumexp", *slow("layernorm", "log_softmax", "rmsnorm")])
def test_out(stream: Any, xp: Any, op: str) -> None:
    x = random_values((4, 64), "f4")
    given = xp.asarray(x)
    for axis in (0, 1):
        shape = (4, 64) if op != "logsumexp" else (64, 4)[axis : axis + 1]
        for out in (
            xp.zeros(shape, "f4"),
            xp.zeros([2 * n for n in shape], "f4")[tuple([slice(None, None, 2)] * len(shape))],
        ):
            assert call(op, given, axis, out=out, stream=stream) is out
            check(op, out, x, axis)
    if op != "logsumexp":
        for axis in (0, 1):
            both = xp.asarray(x.copy())
            assert call(op, both, axis, out=both) is both
            check(op, both, x, axis)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 300), (1, 70001)], ids=str)
def test_the_same_bits_on_each_run_and_stream(stream: Any, xp: Any, shape: tuple[int, int]) -> None:
    x = xp.asarray(random_values(shape, "f4"))
    other = another(stream)
    for op in ("softmax", "layernorm"):
        first = to_host(call(op, x, stream=stream)).tobytes()
        assert to_host(call(op, x, stream=stream)).tobytes() == first
        second = call(op, x, stream=other)
        other.sync()
        assert to_host(second).tobytes() == first


# ── bad input ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bad_input_is_named(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), "f4")
    with pytest.raises(ck.ArgumentError, match="softmax: axis 2"):
        rows.softmax(x, 2)
    rows.softmax(x, 1)
    with pytest.raises(ck.ArgumentError, match=r"softmax: axis 1\.0"):
        rows.softmax(x, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="softmax: x has dtype complex64; expected float16"):
        rows.softmax(xp.zeros(3, "c8"))
    with pytest.raises(ck.ArgumentError, match=r"layernorm: weight has shape \(4,\); x has \(6,\)"):
        rows.layernorm(x, xp.zeros(4, "f4"))
    with pytest.raises(ck.ArgumentError, match=r"layernorm: bias has shape \(6, 1\); x has \(6,\)"):
        rows.layernorm(x, None, xp.zeros((6, 1), "f4"))
    with pytest.raises(ck.ArgumentError, match="rmsnorm: weight has dtype int32"):
        rows.rmsnorm(x, xp.zeros(6, "i4"))
    with pytest.raises(ck.ArgumentError, match="rmsnorm: eps must be a number, got str"):
        rows.rmsnorm(x, eps="small")  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="softmax: out repeats elements"):
        rows.softmax(x, out=xp.lib.stride_tricks.as_strided(xp.zeros(6, "f4"), (4, 6), (0, 4)))
    with pytest.raises(ck.ArgumentError, match="logsumexp: out has dtype int32"):
        rows.logsumexp(x, out=xp.zeros((), "i4"))
    with pytest.raises(ck.ArgumentError, match="x is list, not an array"):
        rows.softmax([1, 2])


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_2_to_the_31_elements(stream: Any, xp: Any) -> None:
    x = xp.zeros((3, (1 << 30) + 8), np.float16)
    x[:, -1] = 20
    found = rows.logsumexp(x, axis=1)
    np.testing.assert_allclose(to_host(found).astype("f8"), np.log(2**30 + 7 + np.exp(20)), rtol=1e-3)
    rows.softmax(x, axis=0, out=x)
    assert float(abs(x[:, :: 1 << 20] - 1 / 3).max()) < 1e-3
    assert float(abs(x[:, -1] - 1 / 3).max()) < 1e-3
