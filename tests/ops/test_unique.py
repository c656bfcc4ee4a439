"""What there is, runs, and where elements belong, against NumPy, in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import another, to_host
from support.sorting import BFLOAT16, check, some
from support.tiers import in_tiers, slow

import cudakit as ck
from cudakit.ops import argsort, run_length, searchsorted, unique

F4, I4 = np.dtype("f4"), np.dtype("i4")
#: Around a warp's elements, a block's tile, and several tiles.
LENGTHS = [0, 1, 2, 33, 256, 257, 2048, 2049, 10_001]


def same(got: Any, want: np.ndarray) -> None:
    host = to_host(got)
    assert host.dtype == want.dtype
    np.testing.assert_array_equal(host, want)


@in_tiers(
    "code, length",
    ["?", "i2", "f2", "f4", "i8"],
    LENGTHS,
    strength=1,
    also=lambda code, length: code == "f4" or length == 257,
    quick=lambda code, length: length in (0, 33, 2049) if code == "f4" else code == "i2",
)
def test_unique(stream: Any, xp: Any, code: str, length: int) -> None:
    host = some(length, np.dtype(code), length)
    if code == "i8":
        host %= 100
    for equal_nan in (True, False):
        want = np.unique(host, True, True, True, equal_nan=equal_nan)
        got = unique(xp.asarray(host), True, True, True, equal_nan=equal_nan, stream=stream)
        for each, wanted in zip(got, want, strict=True):
            same(each, wanted)
    same(unique(xp.asarray(host), stream=stream), np.unique(host))


def test_unique_of_two_dimensions(stream: Any, xp: Any) -> None:
    host = np.random.default_rng(0).integers(0, 9, (40, 70)).astype(I4)
    values, inverse = unique(xp.asarray(host).T, return_inverse=True, stream=stream)
    same(values, np.unique(host))
    same(inverse, np.unique(host.T, return_inverse=True)[1])
    values, counts = unique(xp.asarray(host)[::2], return_counts=True, stream=stream)
    same(counts, np.unique(host[::2], return_counts=True)[1])


@in_tiers(
    "code, axis",
    ["?", "i4", "f4"],
    [0, 1, -1],
    strength=1,
    also=lambda code, axis: code == "f4" or (code, axis) in [("?", -1), ("i4", 0)],
    quick=lambda code, axis: (code, axis) == ("f4", 1),
)
def test_unique_slices(stream: Any, xp: Any, code: str, axis: int) -> None:
    host = np.random.default_rng(0).integers(0, 2, (6, 40, 3)).astype(code)
    if axis != 1:
        host = host[:, :12]  # slices are sorted by each of their elements in turn
    if code == "f4":
        host[host == 0] = np.resize([0.0, -0.0, np.nan, 2, -0.0, 0.0, 0.0], np.count_nonzero(host == 0))
    if axis != 1:
        host[4:], host[..., 2] = host[:2], host[..., 0]
    x = xp.asarray(host)
    want = np.unique(host, True, True, True, axis)
    for got, wanted in zip(unique(x, True, True, True, axis, stream=stream), want, strict=True):
        same(got, wanted)
    same(unique(x, axis=axis, stream=stream), want[0])
    same(unique(x[:, ::-2], return_inverse=True, axis=axis)[1], np.unique(host[:, ::-2], False, True, axis=axis)[1])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5,)])
def test_unique_slices_where_there_are_few(stream: Any, xp: Any, shape: tuple[int, ...]) -> None:
    host = np.zeros(shape, I4)
    for axis in range(len(shape)):
        got, want = unique(xp.asarray(host), True, True, True, axis), np.unique(host, True, True, True, axis)
        for each, wanted in zip(got, want, strict=True):
            same(each, wanted)
    with pytest.raises(ck.ArgumentError, match="unique"):
        unique(xp.asarray(host), axis=len(shape), stream=stream)


@pytest.mark.parametrize("length", [0, 1, 33, 257, 2049, *slow(2, 256, 2048, 10_001)])
def test_run_length(stream: Any, xp: Any, length: int) -> None:
    generator = np.random.default_rng(length)
    host = np.repeat(generator.integers(0, 3, length), generator.integers(1, 40, length))[:length].astype(I4)
    starts = np.flatnonzero(np.diff(host, prepend=-1)) if length else np.zeros(0, np.int64)
    for _ in range(2):
        got = run_length(xp.asarray(host), return_starts=True, stream=stream)
        check(got[0], host[starts])
        check(got[1], np.diff(starts, append=length) if length else starts)
        check(got[2], starts)


def test_runs_of_nan_and_zeros(stream: Any, xp: Any) -> None:
    host = np.array([-0.0, 0.0, np.nan, -np.nan, 1, 1], F4)
    values, counts = run_length(xp.asarray(host), stream=stream)
    check(values, host[[0, 2, 4]])
    check(counts, np.array([2, 2, 2]))


@in_tiers(
    "codes, side",
    ["f4 f4", "i2 i2", "? ?", "i4 f4", "u8 f2", "f8 u1"],
    ["left", "right"],
    strength=1,
    also=lambda codes, side: codes in ("f4 f4", "i4 f4") or (codes, side) in [("i2 i2", "left"), ("u8 f2", "right")],
    quick=lambda codes, side: codes == "f4 f4",
)
def test_searchsorted(stream: Any, xp: Any, codes: str, side: Any) -> None:
    first, second = map(np.dtype, codes.split())
    for length in (0, 1, 2, 500):
        host, needles = some(length, first), some((7, 50), second, 1)
        ordered, order = np.sort(host), np.argsort(host, kind="stable")
        with np.errstate(invalid="ignore"):  # NumPy's conversion of signalling NaN
            want = np.searchsorted(ordered, needles, side)
        same(searchsorted(xp.asarray(ordered), xp.asarray(needles), side, stream=stream), want)
        same(searchsorted(xp.asarray(ordered), xp.asarray(needles).T, side, stream=stream), want.T)
        same(searchsorted(xp.asarray(host), xp.asarray(needles), side, xp.asarray(order), stream=stream), want)


def test_searchsorted_beside(stream: Any, xp: Any) -> None:
    a = xp.arange(10, dtype=F4)
    assert int(searchsorted(a, 2.5, stream=stream)) == 3
    assert int(searchsorted(a, np.float32(3), "right", stream=stream)) == 4
    out = xp.zeros((4, 2), I4)[:, 1]
    assert searchsorted(a, a[:4], out=out, stream=stream) is out
    same(out, np.arange(4, dtype=I4))
    if xp is np:
        same(searchsorted(np.arange(5).astype(BFLOAT16), a, stream=stream), np.minimum(np.arange(10), 5))


@pytest.mark.slow
def test_unique_is_the_same_on_each_stream(stream: Any, xp: Any) -> None:
    host = some(9000, F4)
    runs = [to_host(unique(xp.asarray(host), stream=stream)).tobytes() for _ in range(4)]
    with ck.using(another(stream)) as other:
        runs.append(to_host(unique(other.asarray(host))).tobytes())
    assert len(set(runs)) == 1


def test_searchsorted_to_strided_memory(stream: Any, xp: Any) -> None:
    out = xp.zeros(12, np.int64)
    result = searchsorted(xp.arange(5.0), xp.arange(6.0), out=out[::2], stream=stream)
    assert to_host(result).tolist() == [0, 1, 2, 3, 4, 5]
    assert to_host(out).tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros(6, F4)
    wrong = [
        ("unique: x has dtype complex64", lambda: unique(x.astype("c8"), stream=stream)),
        ("return_index", lambda: unique(x, 2, stream=stream)),  # type: ignore[arg-type]
        ("run_length: x has dtype", lambda: run_length(x.astype("c8"), stream=stream)),
        ("a has shape", lambda: searchsorted(x.reshape(2, 3), x, stream=stream)),
        ("side 'middle'", lambda: searchsorted(x, x, "middle", stream=stream)),  # type: ignore[arg-type]
        ("v has dtype complex64", lambda: searchsorted(x, x.astype("c8"), stream=stream)),
        ("bfloat16 and v is int32, which have no common", lambda: searchsorted(np.ones(3, BFLOAT16), np.ones(3, "i4"))),
        ("a has dtype complex64", lambda: searchsorted(x.astype("c8"), x, stream=stream)),
        ("sorter is float32", lambda: searchsorted(x, x, sorter=x, stream=stream)),
        ("sorter is int64 of shape", lambda: searchsorted(x, x, sorter=argsort(x[1:]), stream=stream)),
        ("out has shape", lambda: searchsorted(x, x, out=xp.zeros(5, np.int64), stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()
