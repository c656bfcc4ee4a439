"""Fused functions of several kernels: arguments written in place, reductions within expressions, parts of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck


def numbers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 10).astype(dtype)


def close(got: Any, want: Any, exact: bool = False) -> None:
    host, want = to_host(got), np.asarray(want)
    assert (host.dtype, host.shape) == (want.dtype, want.shape)
    eps = 1e-3 if want.dtype.itemsize == 2 else 1e-6 if want.dtype in ("f4", "c8") else 1e-13
    if exact or want.dtype.kind in "biu":
        np.testing.assert_array_equal(host, want)
    else:
        np.testing.assert_allclose(host, want, rtol=50 * eps, atol=eps)


def check(function: Callable[..., Any], xp: Any, *args: Any, exact: bool = False, times: int = 2) -> Any:
    """Fused and unfused return the same, and leave the same in the arguments."""
    fused = ck.fuse(function)
    for _ in range(times):
        given = [xp.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        mine = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
        got = fused(*given)
        with np.errstate(all="ignore"):
            want = function(*mine)
        assert (got is None) == (want is None)
        if want is not None:
            several = isinstance(want, tuple)
            for each, wanted in zip(got if several else (got,), want if several else (want,), strict=True):
                close(each, wanted, exact)
        for each, wanted in zip(given, mine, strict=True):
            if isinstance(wanted, np.ndarray):
                close(each, wanted, exact)
    return fused


# ── in place ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _add(x: Any, y: Any) -> Any:
    x += y
    return x


def _nothing_returned(x: Any, y: Any) -> None:
    x[...] = y * 2
    y -= x


def _out(x: Any, y: Any) -> Any:
    return np.add(x, y, out=y), x * 2


def _twice(x: Any, y: Any) -> Any:
    x *= 2
    z = x + 1
    x[:] = z
    return z - y


def _swap(x: Any, y: Any) -> None:
    x[...], y[...] = y.copy(), x.copy()


def _masked(x: Any, y: Any) -> None:
    x[y > 0] = 7
    y[x == 7] = -1


def _sum_into(x: Any, y: Any) -> Any:
    x[...] = x.sum()
    y[...] = 0
    return x


@pytest.mark.parametrize("function", [_add, _nothing_returned, _out, _twice, _swap, _masked, _sum_into])
@pytest.mark.parametrize("shape", [(0,), (7, 33)])
def test_arguments_written_in_place(xp: Any, function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    check(function, xp, numbers("f8", *shape), numbers("f8", *shape, seed=1), exact=function is not _sum_into)


@in_tiers(
    "dtype",
    ["?", "i2", "f2", "f4", "c8", ml_dtypes.bfloat16],
    quick=lambda dtype: dtype in ("?", "i2", "f2"),
    strength=None,
)
def test_dtypes_in_place(xp: Any, dtype: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        x[...] = y
        x += x
        return x

    if xp is np or dtype is not ml_dtypes.bfloat16:
        check(function, xp, numbers(dtype, 5, 9), numbers("f4", 5, 9, seed=1) if dtype != "c8" else numbers("f4", 9))


def test_in_place_with_strides_and_several_shapes(xp: Any) -> None:
    x, y = xp.asarray(numbers("f4", 6, 8)), xp.asarray(numbers("f4", 8, seed=1))
    fused = ck.fuse(_add)
    want = to_host(x).copy()
    want[::2, ::-1] += to_host(y)
    assert fused(x[::2, ::-1], y) is not None
    np.testing.assert_array_equal(to_host(x), want)
    with pytest.raises(ck.ArgumentError, match="out has shape"):
        fused(y, x)
    with pytest.raises(ck.ArgumentError, match="returns its argument x, which it writes; leave out= out"):
        fused(x, y, out=x)

    def both(x: Any, y: Any) -> Any:
        old = x + y
        y += 1
        x += y
        return old

    check(both, xp, numbers("f4", 6, 8), numbers("f4", 8, seed=1))


def test_an_argument_written_from_its_own_part(xp: Any) -> None:
    def function(x: Any) -> None:
        x += x[::-1]

    def turned(x: Any) -> Any:
        x += x.T
        return x

    check(function, xp, numbers("f8", 50), exact=True)
    check(turned, xp, numbers("f8", 40, 40), exact=True)


def test_numbers_are_not_written(xp: Any) -> None:
    def function(x: Any, a: Any) -> Any:
        a += 1
        a *= 2
        return x * a

    for a in (3, 2.5):
        check(function, xp, numbers("f4", 9), a, exact=True)


# ── reductions within ────────────────────────────────────────────────────────────────────────────────────────────────


def _centred(x: Any, y: Any) -> Any:
    centred = x - x.mean(axis=0)
    return centred / (np.abs(x).sum() + 1)


def _sums(x: Any, y: Any) -> Any:
    return x.sum(1, keepdims=True) * y, x.sum(0).sum(0), x, np.sum(x + y), y.sum()


@in_tiers(
    "function, dtype",
    [_centred, _sums],
    ["f4", "f8", "i4", "c16"],
    quick=lambda function, dtype: (function, dtype) == (_sums, "i4"),
    whole=lambda function, dtype: (function, dtype) not in ((_centred, "f8"), (_sums, "c16")),
    strength=None,
)
def test_reductions_within_expressions(xp: Any, function: Callable[..., Any], dtype: str) -> None:
    check(function, xp, numbers(dtype, 7, 40), numbers(dtype, 40, seed=1))


@pytest.mark.slow
def test_softmax_and_variance(xp: Any) -> None:
    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def variance(x: Any, ddof: Any) -> Any:
        squares = ((x - x.mean()) ** 2).sum()
        return np.sqrt(squares / (100.0 - ddof)), x.mean()

    check(softmax, xp, numbers("f4", 10, 33))
    check(variance, xp, numbers("f8", 100), 1)


@in_tiers(
    "way, dtype, shape",
    [0, 1, 2],
    ["f4", "i4", "?", "c8", "f2"],
    [(1,), (3, 50)],
    quick=lambda way, dtype, shape: (way, dtype, shape) == (1, "i4", (3, 50)),
    # To keep dimensions, and to have one element, is not the dtype's.
    whole=lambda way, dtype, shape: dtype == "f4" or (shape == (3, 50) and way < 2),
    strength=None,
)
def test_places_of_extrema(xp: Any, way: int, dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, *shape)
    functions: tuple[Callable[..., Any], ...] = (
        lambda x: x.argmax(),
        lambda x: np.argmin(x, axis=-1),
        lambda x: np.argmax(x, keepdims=True),
    )
    check(functions[way], xp, x)


@pytest.mark.slow
def test_places_of_extrema_among_equals_and_nan(xp: Any) -> None:
    x = numbers("f4", 3, 50)
    x.flat[[2, 4]] = np.nan
    check(lambda x: (x.argmax(), x.argmin()), xp, x)
    check(lambda x: x.argmax(-1), xp, np.zeros((3, 50), "i4"))


def _sum_into_another(x: Any, y: Any, z: Any) -> None:
    np.sum(x, axis=1, out=z)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: np.max(x, axis=0, where=y > 0, initial=-5, keepdims=1),
        _sum_into_another,
        *(
            pytest.param(function, marks=pytest.mark.slow)
            for function in (
                lambda x, y, z: np.sum(x, 1, np.float64),
                lambda x, y, z: np.sum(x, axis=0, initial=5),
                lambda x, y, z: x.sum(None, "f8", None, True),
                lambda x, y, z: np.sum(x, axis=0, where=y > 0),
                lambda x, y, z: (np.prod(x[:2], 0), np.any(x > 25), np.all(x, axis=(0, 1)), np.amin(y, 1)),
                lambda x, y, z: (np.add.reduce(x), np.multiply.reduce(x, axis=None)),
            )
        ),
    ],
)
def test_all_arguments_of_reductions(xp: Any, function: Callable[..., Any]) -> None:
    check(function, xp, numbers("f4", 6, 20), numbers("f4", 6, 20, seed=1), numbers("f4", 6))


@pytest.mark.slow
def test_sums_without_nan(xp: Any) -> None:
    x = numbers("f4", 6, 20)
    x[0, ::3] = np.nan
    check(lambda x: (np.nansum(x, axis=0), np.nansum(x), np.nanprod(x[:, 0])), xp, x)
    check(lambda x: np.nansum(x), xp, numbers("i4", 9))


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@in_tiers(
    "way, dtype",
    [0, 1, 2],
    ["f4", "f2", "i2", "?", "c8"],
    quick=lambda way, dtype: (way, dtype) == (1, "f2"),
    whole=lambda way, dtype: dtype == "f4" or (way, dtype) in ((0, "i2"), (0, "c8"), (1, "f2"), (2, "?")),
    strength=None,
)
def test_means_of_chosen_elements(xp: Any, way: int, dtype: str) -> None:
    x, y = numbers("f4", 6, 20).astype(dtype), numbers("f4", 6, 20, seed=1)
    functions: tuple[Callable[..., Any], ...] = (
        lambda x, y: x - x.mean(where=y > 0),
        lambda x, y: np.mean(x, axis=1, keepdims=True, where=y > 0),
        lambda x, y: np.mean(x, 0, where=y[0] > 0),
    )
    check(functions[way], xp, x, y)


def test_shapes_are_constants(xp: Any) -> None:
    """The function is traced again where arguments have other shapes, and not where they have those of before."""
    traced = []

    def function(x: Any, y: Any) -> Any:
        traced.append(x.shape)
        rows = np.shape(y[None])[-1] + np.ndim(x) + x.sum(0).size + np.size(x + y, 0)
        return x / x.size + rows * x.shape[-1]

    fused = ck.fuse(function)
    x, y = numbers("f4", 6, 20), numbers("f4", 20)
    for given in (x, x[:2], x.T[:, :6].T.copy(), x[::2]) * 3:
        want = function(given, y)
        np.testing.assert_allclose(to_host(fused(xp.asarray(given), xp.asarray(y))), want, rtol=1e-6)
    of_stand_ins = [shape for k, shape in enumerate(traced) if shape not in traced[:k]]
    assert len(of_stand_ins) == 3
    assert len(traced) == 12 + 3


@pytest.mark.slow
def test_other_shapes(xp: Any) -> None:
    x = numbers("f4", 6, 20)
    check(lambda x: (x * 2).reshape(-1, 5) + x.reshape((24, 5)), xp, x)
    check(lambda x: np.reshape(x.T, (3, -1)).sum(axis=0), xp, x)
    check(lambda x: x - x.reshape(x.shape[0], -1, 4).sum(1).reshape(6, 4)[:, :1], xp, x)
    turned = ck.fuse(lambda x: x.reshape(-1))
    np.testing.assert_array_equal(to_host(turned(xp.asarray(x).T[::-1])), x.T[::-1].reshape(-1))
    with pytest.raises(ck.ArgumentError, match="cannot reshape"):
        ck.fuse(lambda x: x.reshape(7, 3))(xp.asarray(x))


def test_numbers_and_outputs_beside_reductions(xp: Any) -> None:
    x = numbers("f8", 30)
    fused = check(lambda x, a: (x.sum() * a, x.sum()), xp, x, 3.0)
    total, mine = xp.zeros(()), xp.zeros(())
    got = fused(xp.asarray(x), 2.0, out=(total, mine))
    assert got[0] is total
    assert got[1] is mine
    close(total, x.sum() * 2)


def test_one_reduction_at_the_end_is_one_kernel(xp: Any) -> None:
    def function(x: Any) -> Any:
        norm = (x * x).sum()
        return np.sqrt(norm), norm / 2

    fused = check(function, xp, numbers("f8", 30))
    assert "ufunc::square(x0)" in fused.source or "ufunc::multiply(x0, x0)" in fused.source
    assert "ufunc::sqrt(fold0)" in fused.source


# ── parts, and functions ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_parts_of_arrays(xp: Any) -> None:
    x, y = numbers("f8", 6, 8), numbers("f8", 6, 8, seed=1)
    for function in (
        lambda x, y: x[:, None],
        lambda x, y: x[0] + y,
        lambda x, y: x[1:, ::2] - x[:-1, 1::2],
        lambda x, y: (x + y)[2:4] * 2,
        lambda x, y: (x.T, x.transpose(1, 0) + y.T, np.transpose(x), x.swapaxes(0, 1)),
        lambda x, y: x[..., 3] * y[:, 0],
        lambda x, y: x[2, 3],
        lambda x, y: x[()] + y[...],
        lambda x, y: x.sum(0)[None, ::2] + x[:, :4],
        lambda x, y: (x.copy(), np.copy(y)),
        lambda x, y: np.expand_dims(x, 1) + np.flip(y, 0),
        lambda x, y: (np.zeros_like(x), np.full_like(x, 3, dtype="i4")),
    ):
        check(function, xp, x, y)
    with pytest.raises(ck.ArgumentError, match=r"(?i)index 9 is out of bounds"):
        ck.fuse(lambda x: x[9])(xp.asarray(x))


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@in_tiers("dtype", ["f4", "f8", "f2", "i4", "c16"], quick=lambda dtype: dtype == "f4", strength=None)
def test_functions(xp: Any, dtype: str) -> None:
    x = np.concatenate([numbers(dtype, 40), np.array([0, 0.5, 1.5, -0.5, 2.5]).astype(dtype)])
    check(lambda x: (np.round(x), x.round(1), np.around(x, 2)), xp, x)
    if dtype != "i4":
        check(lambda x: np.round(x, -1), xp, x)
    check(lambda x: (np.angle(x), np.angle(x, deg=True)), xp, x)
    if dtype != "c16":
        check(lambda x: np.fix(x), xp, x, exact=True)
        check(lambda x: np.sinc(x / 10), xp, x)


@pytest.mark.gpu
def test_cupys_own_reductions_and_functions(xp: Any) -> None:
    x = numbers("f4", 6, 20)
    for function in (
        lambda x: xp.sum(x),
        lambda x: x - xp.mean(x, axis=0, keepdims=True),
        lambda x: (xp.max(x, axis=1), xp.argmax(x), xp.prod(x, 0, dtype=xp.float64)),
        lambda x: (xp.fix(x), xp.sinc(x), np.round(x, 1), xp.transpose(x)),
    ):
        got = ck.fuse(function)(xp.asarray(x))
        want = function(xp.asarray(x))
        for mine, theirs in zip(*(each if isinstance(each, tuple) else (each,) for each in (got, want)), strict=True):
            # Beside its zeros a sinc is as exact as pi times its argument: to an ulp of 1.
            np.testing.assert_allclose(to_host(mine), to_host(theirs), rtol=1e-5, atol=2e-7)
