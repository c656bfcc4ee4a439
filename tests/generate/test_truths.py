"""Bool arrays whose bytes are not 0 or 1, as masks from image files are: any byte but 0 holds, wherever one is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck

ops = ck.ops
added = ck.elementwise("bool b, T x", "T z", "z = x + b", name="added")
counted = ck.reduction("bool b", "int64 s", map="b + 0ll", reduce="a + b", identity="0", name="counted")
numbered = ck.scan("bool b", "int64 s", map="b + 0ll", reduce="a + b", identity="0", name="numbered")


def laid(xp: Any, shape: tuple[int, ...], order: str = "C", step: int = 1) -> tuple[Any, np.ndarray]:
    """A bool array with bytes of all values, and which of them hold."""
    size = int(np.prod(shape)) * step
    found = np.random.default_rng(size).choice(np.array([0, 0, 1, 2, 4, 127, 128, 254, 255], np.uint8), size)
    given = xp.asarray(found)[::step].reshape(shape, order=order).view(bool)
    return given, found[::step].reshape(shape, order=order) != 0


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4097])
@pytest.mark.parametrize("step", [1, 2])
def test_elements(xp: Any, size: int, step: int) -> None:
    b, h = laid(xp, (size,), step=step)
    if step == 1 and size > 20:
        b, h = b[3:], h[3:]  # not at a word
    x = np.arange(h.size, dtype=np.float32)
    got = added(b, xp.asarray(x))
    np.testing.assert_array_equal(to_host(got), x + h)
    np.testing.assert_array_equal(to_host(ck.math.logical_not(b)), ~h)
    same = to_host(ck.math.bitwise_xor(b, b[::-1]))
    np.testing.assert_array_equal(same, h ^ h[::-1])
    assert set(same.view(np.uint8).tolist()) <= {0, 1}
    np.testing.assert_array_equal(to_host(added(xp.asarray(h), xp.asarray(x), where=b)), np.where(h, x + h, 0))


@in_tiers(
    "dtype",
    ["?", "u1", "i4", "f2", "f8", "c8", ml_dtypes.bfloat16],
    quick=lambda dtype: dtype in ("?", "u1", "f2"),
    strength=None,
)
def test_conversions(xp: Any, dtype: Any) -> None:
    b, h = laid(xp, (7, 33))
    if xp is np or dtype is not ml_dtypes.bfloat16:
        np.testing.assert_array_equal(to_host(ops.cast(b, dtype)), h.astype(dtype))
        np.testing.assert_array_equal(to_host(ops.cast(b.T, dtype)), h.T.astype(dtype))
        like = xp.asarray(np.ones(h.shape, dtype))
        np.testing.assert_array_equal(to_host(ck.math.multiply(b, like)), h.astype(dtype))


@pytest.mark.slow
def test_tiles_and_broadcasts(xp: Any) -> None:
    b, h = laid(xp, (70, 90))
    x = np.arange(6300, dtype=np.float32).reshape(90, 70)
    np.testing.assert_array_equal(to_host(added(b.T, xp.asarray(x))), x + h.T)
    np.testing.assert_array_equal(to_host(added(b[:1].T, xp.asarray(x))), x + h[:1].T)
    np.testing.assert_array_equal(to_host(added(b[1, 1:2], xp.asarray(x))), x + h[1, 1:2])
    fused = ck.fuse(lambda b, x: np.where(b, x, -x) + b)
    np.testing.assert_array_equal(to_host(fused(b.T, xp.asarray(x))), np.where(h.T, x, -x) + h.T)


@in_tiers("raw", ["raw bool b", "raw T b"], quick=lambda raw: "T" in raw, strength=None)
def test_raw(xp: Any, raw: str) -> None:
    b, h = laid(xp, (40,))
    k = xp.arange(40)
    for body in ("z = b[k] + 1", "z = *(b + k) + 1"):
        of = ck.elementwise(f"{raw}, int64 k", "int32 z", body, name="of")
        np.testing.assert_array_equal(to_host(of(b, k)), h + 1)
    turned = ck.elementwise(f"{raw}, int64 k", "int32 z", "z = b[k] + 1", name="turned")
    np.testing.assert_array_equal(to_host(turned(b[::-1], k)), h[::-1] + 1)
    sums = ck.reduction(f"{raw}, int64 k", "int32 s", "b[k]", "a + b", "0", name="sums")
    assert int(sums(b, k)) == h.sum()
    runs = ck.scan(f"{raw}, int64 k", "int32 s", "b[k]", "a + b", "0", "s = item + b[i]", name="runs")
    np.testing.assert_array_equal(to_host(runs(b, k)), np.cumsum(h) + h)


@in_tiers(
    "order, shape",
    ["C", "F"],
    [(0,), (1,), (1000,), (5, 700), (3, 40, 33)],
    quick=lambda order, shape: shape == (0,),
    # One dimension has no order, and the lines of three in the one order are those of two in the other, and more.
    whole=lambda order, shape: (order == "F") == (shape == (5, 700)),
    strength=None,
)
def test_reductions_and_scans(xp: Any, order: str, shape: tuple[int, ...]) -> None:
    b, h = laid(xp, shape, order)
    for axis in (None, *range(len(shape))):
        named: list[tuple[Callable[..., Any], Any]] = [
            (ops.sum, h.sum(axis)), (ops.count_nonzero, np.count_nonzero(h, axis)), (counted, h.sum(axis)),
            (ops.any, h.any(axis)), (ops.cumsum, h.cumsum(axis)), (numbered, h.cumsum(axis)),
        ]  # fmt: skip
        if h.size:
            named += [(ops.max, h.max(axis)), (ops.argmax, h.argmax(axis)), (ops.mean, h.mean(axis))]
        for call, wanted in named:
            got = to_host(call(b, axis=axis))
            np.testing.assert_allclose(got, wanted, rtol=1e-12, err_msg=str((call, axis)))


@pytest.mark.slow
def test_others(xp: Any) -> None:
    b, h = laid(xp, (1001,))
    x = np.arange(1001, dtype=np.float64)
    assert float(ops.dot(xp.asarray(x), b)) == x[h].sum()
    np.testing.assert_array_equal(to_host(ops.compact(xp.asarray(x), b)), x[h])
    np.testing.assert_array_equal(to_host(ops.bincount(b)), np.bincount(h))
    np.testing.assert_array_equal(to_host(ops.bincount(b, b)), np.bincount(h, h))
    np.testing.assert_array_equal(to_host(ops.histogram(b, 2, (0, 1))[0]), np.histogram(h.view("u1"), 2, (0, 1))[0])
    np.testing.assert_allclose(to_host(ops.softmax(b)), np.exp(h * 1.0) / np.exp(h * 1.0).sum(), rtol=1e-12)
