"""Results that go to an `out`: of another dtype of the same kind, or where an input lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers, slow, thinned

import cudakit as ck
from cudakit import ops

_CALLS: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], Any]]] = {
    "sum": (lambda x, out: ops.sum(x, 0, out=out), lambda x: x.sum(0)),
    "mean": (lambda x, out: ops.mean(x, 1, out=out), lambda x: x.mean(1)),
    "max": (lambda x, out: ops.max(x, 0, out=out), lambda x: x.max(0)),
    "var": (lambda x, out: ops.var(x, 0, out=out), lambda x: x.var(0)),
    "argmin": (lambda x, out: ops.argmin(x, 0, out=out), lambda x: x.argmin(0)),
    "cumsum": (lambda x, out: ops.cumsum(x, 1, out=out), lambda x: x.cumsum(1)),
    "cummax": (lambda x, out: ops.cummax(x, 0, out=out), lambda x: np.maximum.accumulate(x, 0)),
    "copy": (lambda x, out: ops.copy(x, out=out), lambda x: x),
    "transpose": (lambda x, out: ops.transpose(x, out=out), lambda x: x.T),
    "flip": (lambda x, out: ops.flip(x, 0, out=out), lambda x: x[::-1]),
    "roll": (lambda x, out: ops.roll(x, 3, out=out), lambda x: np.roll(x, 3)),
    "cast": (lambda x, out: ops.cast(x, np.float64, out=out), lambda x: x),
    "take": (
        lambda x, out: ops.take(x, (np if isinstance(x, np.ndarray) else __import__("cupy")).array([3, 0]), 0, out=out),
        lambda x: x[[3, 0]],
    ),
    "concatenate": (
        lambda x, out: ops.concatenate([x[:2], x[1:3]], out=out),
        lambda x: np.concatenate([x[:2], x[1:3]]),
    ),
    "add": (lambda x, out: ops.add(x, x.T, out=out), lambda x: x + x.T),
    "softmax": (lambda x, out: ops.softmax(x / 8, out=out), lambda x: np.exp(x / 8) / np.exp(x / 8).sum(1)[:, None]),
    "sort": (lambda x, out: ops.sort(x, 0, out=out), lambda x: np.sort(x, 0)),
    "argsort": (lambda x, out: ops.argsort(x, out=out), lambda x: np.argsort(x)),
    "topk": (lambda x, out: ops.topk(x, 4, out=(out, None))[0], lambda x: -np.sort(-x)),
    "searchsorted": (lambda x, out: ops.searchsorted(x[0], x, out=out), lambda x: np.searchsorted(x[0], x)),
    "histogram": (lambda x, out: ops.histogram(x, 4, (0, 16), out=out)[0], lambda x: np.histogram(x, 4, (0, 16))[0]),
}


def wide(xp: Any) -> Any:
    return xp.asarray(np.random.default_rng(3).permutation(16).reshape(4, 4).astype("f8"))


@pytest.mark.parametrize("name", thinned(list(_CALLS), 2))
def test_out_of_another_dtype(stream: Any, xp: Any, name: str) -> None:
    """Cast as NumPy does it, contiguous or not."""
    call, wanted = _CALLS[name]
    x = wide(xp)
    want = wanted(to_host(x))
    for out in (xp.zeros(want.shape, "f4"), xp.zeros(want.shape[::-1], "f4").T):
        result = call(x, out)
        assert result is out
        np.testing.assert_allclose(to_host(out), want, rtol=1e-6)


@pytest.mark.parametrize("name", _CALLS)
@pytest.mark.parametrize("turned", [False, True])
def test_out_that_overlaps_an_input(stream: Any, xp: Any, name: str, turned: bool) -> None:
    """The input is read as it was."""
    call, wanted = _CALLS[name]
    x = wide(xp)
    want = wanted(to_host(x).copy())
    out = x.T if turned else x
    out = out[tuple(slice(n) for n in want.shape)] if want.ndim == 2 else out[1, : want.shape[0]]
    result = call(x, out)
    assert result is out
    np.testing.assert_allclose(to_host(out), want, rtol=1e-12)


@pytest.mark.slow
def test_sums_and_scans_of_integers_go_to_what_they_are_of(stream: Any, xp: Any) -> None:
    host = np.arange(200, dtype="i1")
    x, out = xp.asarray(host), xp.zeros((), "i1")
    assert int(ops.sum(x, out=out)) == np.sum(host, out=np.zeros((), "i1"))
    out = xp.zeros(200, "i2")
    np.testing.assert_array_equal(to_host(ops.cumsum(x, out=out)), np.cumsum(host, out=np.zeros(200, "i2")))


def test_out_of_another_kind_is_refused(stream: Any, xp: Any) -> None:
    x = wide(xp)
    for call in (
        lambda out: ops.sum(x, out=out),
        lambda out: ops.cumsum(x, 1, out=out),
        lambda out: ops.copy(x, out=out),
        lambda out: ops.concatenate([x], out=out),
        lambda out: ops.argmax(x, 1, out=out),
    ):
        with pytest.raises(ck.ArgumentError, match=r"out has dtype bool, the result has .*same_kind|out has shape"):
            call(xp.zeros((4, 4), bool))


def test_elements_that_are_left_stay(stream: Any, xp: Any) -> None:
    """`compact` writes as many as there are, also where it reads from."""
    x = wide(xp).reshape(-1)
    host = to_host(x).copy()
    result, count = ops.compact(x, x > 9, out=x)
    chosen = host[host > 9]
    assert result is x
    assert int(to_host(count)) == chosen.size
    np.testing.assert_array_equal(to_host(x), [*chosen, *host[chosen.size :]])


@pytest.mark.slow
def test_generated_functions_copy_what_an_output_overlaps(stream: Any, xp: Any) -> None:
    axpy = ck.elementwise("T a, T x, T y", "T z", "z = a * x + y", name="axpy")
    x = wide(xp)
    host = to_host(x).copy()
    axpy(2.0, x.T, x, out=x)
    np.testing.assert_array_equal(to_host(x), 2 * host.T + host)
    axpy(2.0, x[:1], x[1:], out=x[:-1], where=x[:-1] > 20)
    first = 2 * host.T + host
    np.testing.assert_array_equal(to_host(x)[:-1], np.where(first[:-1] > 20, 2 * first[:1] + first[1:], first[:-1]))
    least = ck.reduction("T x", "T y", map="x", reduce="min(a, b)", name="least")
    x = xp.array(host)
    least(x, axis=0, out=x[:, 2])
    np.testing.assert_array_equal(to_host(x)[:, 2], host.min(0))
    running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", name="running")
    x = xp.array(host)
    running(x, axis=1, out=x.T)
    np.testing.assert_array_equal(to_host(x).T, host.cumsum(1))


# --- keywords that NumPy's functions have -----------------------------------------------------------------------------

_PADS: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("symmetric", ((3, 9), (1, 0)), {}, {}),
    ("symmetric", 20, {}, {}),
    ("constant", 2, {"value": [3, 4]}, {"constant_values": [3, 4]}),
    ("constant", ((1, 2), (2, 0)), {"value": [[1, 2], [3, 4]]}, {"constant_values": [[1, 2], [3, 4]]}),
    ("linear_ramp", ((3, 2), (0, 4)), {"end_values": (5, -4)}, {"end_values": (5, -4)}),
    ("maximum", ((3, 2), (1, 1)), {}, {}),
    ("minimum", 2, {"stat_length": 2}, {"stat_length": 2}),
    ("mean", ((3, 2), (1, 1)), {"stat_length": ((1, 2), (3, 9))}, {"stat_length": ((1, 2), (3, 9))}),
]


@in_tiers(
    "case, dtype",
    range(len(_PADS)),
    ["i4", "f8"],
    strength=1,
    # Of both where elements are reckoned with.
    also=lambda case, dtype: dtype == ("i4", "f8")[case % 2] or _PADS[case][0] in ("linear_ramp", "mean"),
    quick=lambda case, dtype: case in (0, 3, 4, 7) and dtype == ("i4", "f8")[case % 2],
)
def test_pad_modes(stream: Any, xp: Any, case: int, dtype: str) -> None:
    mode, width, own, numpys = _PADS[case]
    host = np.random.default_rng(case).integers(-9, 9, (4, 5)).astype(dtype)
    want = np.pad(host, width, mode, **numpys)  # type: ignore[call-overload]
    x = xp.asarray(host)
    got = ops.pad(x, width, mode, **own)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(to_host(got), want, rtol=1e-13)
    out = xp.zeros(want.shape[::-1], "f4").T if dtype == "f8" else xp.zeros(want.shape, "i8")
    assert ops.pad(x.T[::-1].T[:, ::-1], width, mode, out=out, **own) is out
    np.testing.assert_allclose(to_host(out), want, rtol=1e-6)


def test_pad_of_nothing_in_particular(stream: Any, xp: Any) -> None:
    x = wide(xp)
    got = ops.pad(x, ((1, 0), (0, 2)), "empty")
    assert got.shape == (5, 6)
    np.testing.assert_array_equal(to_host(got)[1:, :4], to_host(x))
    for call, message in (
        (lambda: ops.pad(x, 1, "median", stat_length=0), "stat_length 0 leaves no elements"),
        (lambda: ops.pad(x[:, :0], 1, "median"), "dimension 1 is empty"),
        (lambda: ops.pad(x, 1, "maximum", stat_length=0), "stat_length 0 leaves no elements"),
        (lambda: ops.pad(x, 1, value=[1, 2, 3]), "value .* does not fit"),
        (lambda: ops.pad(x[:0], 1, "mean"), "dimension 0 is empty"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            call()


_MEDIANS: list[tuple[Any, Any]] = [(2, None), (((2, 3), (0, 4)), 2), ((1, 2), ((1, 4), (3, 9))), (1, 100)]


def elements_of(dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2 if dtype == "?" else 100, (5, 6)).astype(dtype)


@in_tiers(
    "dtype, case",
    ["f4", "f2", "i4", "u1", "?", "c8"],
    range(len(_MEDIANS)),
    strength=1,
    also=lambda dtype, case: dtype == "f4" or (dtype, case) in [("i4", 0), ("f2", 1), ("u1", 2), ("?", 1), ("c8", 3)],
    quick=lambda dtype, case: (dtype, case) == ("i4", 0),
)
def test_pad_by_medians(stream: Any, xp: Any, dtype: str, case: int) -> None:
    """Of an even number the mean of two, rounded for integers."""
    x, (width, length) = elements_of(dtype), _MEDIANS[case]
    got = to_host(ops.pad(xp.asarray(x), width, "median", stat_length=length))
    want = np.pad(x, width, "median", stat_length=length)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["f4", *slow("f2")])
def test_the_median_of_nan_is_nan(stream: Any, xp: Any, dtype: str) -> None:
    x = elements_of(dtype)
    x[1, 2] = np.nan
    want = np.pad(x, 1, "median")
    for _ in range(4):
        np.testing.assert_allclose(to_host(ops.pad(xp.asarray(x), 1, "median")), want, rtol=1e-3)


def test_concatenate_to_a_dtype(stream: Any, xp: Any) -> None:
    x, y = wide(xp), xp.ones((1, 4), "i2")
    for dtype, casting in (("f4", "same_kind"), ("i4", "unsafe"), ("c16", "safe")):
        want = np.concatenate([to_host(x), to_host(y)], dtype=dtype, casting=casting)  # type: ignore[call-overload]
        got = ops.concatenate([x, y], dtype=dtype, casting=casting)  # type: ignore[arg-type]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(to_host(got), want)
    with pytest.raises(ck.ArgumentError, match=r"arrays\[0\] is of float64"):
        ops.concatenate([x, y], dtype="i4")
    with pytest.raises(ck.ArgumentError, match="give one of the two"):
        ops.concatenate([x, y], dtype="f4", out=x)


def test_what_is_taken_and_chosen(stream: Any, xp: Any) -> None:
    x = wide(xp)
    host = to_host(x)
    np.testing.assert_array_equal(to_host(ops.take(x, 1, 0)), host[1])
    np.testing.assert_array_equal(to_host(ops.take(x, [2, -1], 1)), host[:, [2, -1]])
    assert float(to_host(ops.take(x, 5))) == host.reshape(-1)[5]
    flags = xp.asarray(np.array([0, 2, -1, 0]))
    np.testing.assert_array_equal(to_host(ops.compact(x[0], flags)), host[0, 1:3])
    np.testing.assert_array_equal(to_host(ops.compact(x[0], x[1] % 2)), host[0][host[1] % 2 != 0])


def test_complex_weights(stream: Any, xp: Any) -> None:
    x = wide(xp)
    weights = x * (1 + 2j)
    want, edges = np.histogram(to_host(x), 5, weights=to_host(weights))
    got, own = ops.histogram(x, 5, weights=weights)
    assert got.dtype == np.complex128
    np.testing.assert_allclose(to_host(got), want)
    np.testing.assert_allclose(to_host(own), edges)
