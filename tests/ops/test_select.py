"""Elements taken by index and by mask, and arrays joined, against NumPy, to the bit, in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.views import SIZES, View, bits, check_bits, few, views

import cudakit as ck
from cudakit.ops import compact, concatenate, take

F4 = np.dtype("f4")
INDICES = [np.dtype(code) for code in ("i1", "i4", "i8", "u2")]
#: Around a thread's 16 elements, a row of 32, and tiles of 16384, 8192, 4096 and 2048.
LENGTHS = [0, 1, 15, 16, 17, 33, 2048, 4095, 8192, 8193, 16_385, 50_001]


@pytest.mark.slow
@few
@given(view=views(), data=st.data())
def test_take_from_any_view(stream: Any, xp: Any, view: View, data: st.DataObject) -> None:
    host = view.host()
    axis = data.draw(st.none() | st.integers(-host.ndim, host.ndim - 1)) if host.ndim else None
    n = host.size if axis is None else host.shape[axis]
    mode: Any = data.draw(st.sampled_from(["wrap", "clip"]))
    shape = data.draw(st.sampled_from([(), (5,), (2, 3)])) if n else (0,)
    dtype = data.draw(st.sampled_from(INDICES))
    low, high = max(-128, -3 * n) * (dtype.kind == "i"), min(127, 3 * n)
    indices = np.random.default_rng(view.seed).integers(low, high + 1, shape).astype(dtype)
    want = np.take(host, indices.astype(np.int64), axis, mode=mode)
    check_bits(take(view.on(xp), xp.asarray(indices), axis, mode, stream=stream), want)


@pytest.mark.parametrize("dtype", [SIZES[0], *slow(*SIZES[1:])], ids=str)
def test_take_rows_that_end_within_a_load(stream: Any, xp: Any, dtype: np.dtype) -> None:
    host, order = bits((2, 7, 41), dtype), np.array([6, 0, 3, 3, 5, 1, 0, 2])
    got = take(xp.asarray(host), xp.asarray(order), 1, stream=stream)
    check_bits(got, host[:, order])
    check_bits(take(xp.asarray(host)[:, :, 4:30], xp.asarray(order), 1, stream=stream), host[:, order, 4:30])
    many = np.resize(order, 1200)  # more than a thread's first 16 bytes, and than a block's
    check_bits(take(xp.asarray(host), xp.asarray(many), 1, stream=stream), host[:, many])


@pytest.mark.slow
@few
@given(view=views(), density=st.sampled_from([0.0, 0.1, 0.9, 1.0]))
def test_compact_of_any_view(stream: Any, xp: Any, view: View, density: float) -> None:
    host = view.host()
    where = np.random.default_rng(view.seed).random(host.shape[::-1]) < density
    got = compact(view.on(xp), xp.asarray(where).T, stream=stream)
    check_bits(got, host[where.T])


@pytest.mark.slow
@few
@given(view=views(least_dims=1), count=st.integers(1, 9), data=st.data())
def test_concatenate_any_views(stream: Any, xp: Any, view: View, count: int, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-view.host().ndim, view.host().ndim - 1))
    steps = [data.draw(st.sampled_from([1, 1, 2, -1])) for _ in range(count)]

    def parts(array: Any) -> list[Any]:
        index = [slice(None)] * array.ndim
        found = []
        for step in steps:
            index[0 if axis is None else axis] = slice(None, None, step)
            found.append(array[tuple(index)])
        return found

    check_bits(concatenate(parts(view.on(xp)), axis, stream=stream), np.concatenate(parts(view.host()), axis))


@in_tiers(
    "length, dtype",
    LENGTHS,
    SIZES,
    strength=1,
    also=lambda length, dtype: dtype == F4 or length in (1, 17, 8193),
    quick=lambda length, dtype: length in (0, 1, 17, 8193) if dtype == F4 else dtype == "i1" and length == 8193,
)
def test_compact_of_sizes(stream: Any, xp: Any, length: int, dtype: np.dtype) -> None:
    host = bits(length, dtype)
    where = np.random.default_rng(length).random(length) < 0.4
    check_bits(compact(xp.asarray(host), xp.asarray(where), stream=stream), host[where])


@pytest.mark.parametrize("chosen", ["none", "all", "first", "last", "every second", "one run"])
def test_compact_of_masks(stream: Any, xp: Any, chosen: str) -> None:
    host, where = bits(20_001, F4), np.zeros(20_001, bool)
    part = {"none": [], "all": slice(None), "first": 0, "last": -1, "every second": slice(None, None, 2)}
    where[part.get(chosen, slice(5000, 13_000))] = True
    check_bits(compact(xp.asarray(host), xp.asarray(where), stream=stream), host[where])


def test_compact_without_waiting(stream: Any, xp: Any) -> None:
    host, where = bits(20_000, F4), np.random.default_rng(1).random(20_000) < 0.3
    x, mask = xp.asarray(host), xp.asarray(where)
    out, count = xp.full(20_000, 7, F4), xp.zeros(1, np.int64)
    for _ in range(3):
        got, counted = compact(x, mask, out=out, count=count, stream=stream)
        assert got is out
        assert counted is count
        kept = int(to_host(count)[0])
        assert kept == where.sum()
        check_bits(out[:kept], host[where])
        assert (to_host(out[kept:]) == 7).all()
    short, counted = compact(x, mask, out=xp.zeros(100, F4), stream=stream)
    check_bits(short, host[where][:100])
    assert int(to_host(counted)) == where.sum()


def test_compact_of_a_mask_and_elements_that_start_anywhere(stream: Any, xp: Any) -> None:
    host, where = bits(9000, np.int8), np.random.default_rng(2).random(9000) < 0.5
    x, mask = xp.asarray(host), xp.asarray(where)
    for start in (1, 3, 15):
        check_bits(compact(x[start:-2], mask[start:-2], stream=stream), host[start:-2][where[start:-2]])


def test_compact_is_the_same_on_each_run_and_stream(stream: Any, xp: Any) -> None:
    host, where = bits(100_000, F4), np.random.default_rng(3).random(100_000) < 0.5
    runs = [to_host(compact(xp.asarray(host), xp.asarray(where), stream=stream)).tobytes() for _ in range(3)]
    with ck.using(another(stream)) as other:
        runs.append(to_host(compact(other.asarray(host), other.asarray(where))).tobytes())
    assert len(set(runs)) == 1


@in_tiers(
    "inner, dtype",
    [1, 2, 3, 16, 50],
    SIZES,
    strength=1,
    also=lambda inner, dtype: dtype in ("i1", F4) or inner == 3,
    quick=lambda inner, dtype: (inner, dtype) in [(1, F4), (3, "i1"), (16, F4), (3, "c16")],
)
def test_take_of_rows(stream: Any, xp: Any, inner: int, dtype: np.dtype) -> None:
    host = bits((3, 40, inner), dtype)
    indices = np.random.default_rng(inner).integers(-40, 40, 77)
    check_bits(take(xp.asarray(host), xp.asarray(indices), 1, stream=stream), host[:, indices])
    check_bits(take(xp.asarray(host), xp.asarray(indices)[::-2], 1, stream=stream), host[:, indices[::-2]])


@in_tiers("inner, start", [4, 6, 16], [0, 1, 2, 4], quick=lambda inner, start: inner == 4 and start < 4)
def test_take_of_rows_of_any_alignment(stream: Any, xp: Any, inner: int, start: int) -> None:
    dtype = np.dtype("u2")
    host = bits((16 + 40 * (inner + 2),), dtype)
    part = slice(start, start + 40 * (inner + 2))
    indices = np.arange(39, -1, -1)
    rows = xp.asarray(host)[part].reshape(40, inner + 2)[:, :inner]
    want = host[part].reshape(40, inner + 2)[::-1, :inner]
    check_bits(take(rows, xp.asarray(indices), 0, stream=stream), want)
    out = xp.zeros(16 + 40 * inner, dtype)
    take(rows, xp.asarray(indices), 0, out=out[start : start + 40 * inner].reshape(40, inner), stream=stream)
    check_bits(out[start : start + 40 * inner].reshape(40, inner), want)


def test_take_raises_for_an_index_out_of_bounds(stream: Any, xp: Any) -> None:
    host = bits((10, 3), F4)
    x = xp.asarray(host)
    check_bits(take(x, xp.asarray([9, -10]), 0, "raise", stream=stream), host[[9, -10]])
    for wrong in (10, -11):
        with pytest.raises(ck.ArgumentError, match="out of bounds"):
            take(x, xp.asarray([0, wrong]), 0, "raise", stream=stream)


@pytest.mark.parametrize("count", [1, 3, 65, *slow(2, 64, 130)])
def test_concatenate_many(stream: Any, xp: Any, count: int) -> None:
    hosts = [bits((3, j % 5), F4, j) for j in range(count)]
    check_bits(concatenate([xp.asarray(host) for host in hosts], 1, stream=stream), np.concatenate(hosts, 1))


def test_concatenate_converts_to_what_numpy_promotes_to(stream: Any, xp: Any) -> None:
    hosts = [np.arange(5).astype(code) for code in ("i2", "f4", "?")]
    got = concatenate([xp.asarray(host) for host in hosts], stream=stream)
    check_bits(got, np.concatenate(hosts))


def test_out_of_any_strides(stream: Any, xp: Any) -> None:
    host = bits((10, 12), F4)
    x, indices = xp.asarray(host), xp.asarray([3, 1, -1])
    out = xp.zeros((12, 3), F4).T
    assert take(x, indices, 0, out=out, stream=stream) is out
    check_bits(xp.ascontiguousarray(out), host[[3, 1, -1]])
    wide = xp.zeros((10, 48), F4)[:, ::2]
    assert concatenate([x, x], 1, out=wide, stream=stream) is wide
    check_bits(xp.ascontiguousarray(wide), np.concatenate([host, host], 1))


def test_views(stream: Any, xp: Any) -> None:
    host = bits((6, 10, 4), F4)
    x, indices, where = xp.asarray(host), xp.asarray([1, -1, 0]), np.random.default_rng(4).random((4, 10, 6)) < 0.5
    for view in (lambda a: a[:, ::2], lambda a: a[::-1], lambda a: a.transpose(2, 1, 0), lambda a: a[1:, 3:9]):
        for axis in (0, 1, None):
            wanted = np.concatenate([view(host), view(host)], axis)
            check_bits(concatenate([view(x), view(x)], axis, stream=stream), wanted)
        check_bits(take(view(x), indices, 1, stream=stream), view(host)[:, [1, -1, 0]])
    check_bits(compact(x.transpose(2, 1, 0), xp.asarray(where), stream=stream), host.transpose(2, 1, 0)[where])


def test_compact_of_a_strided_mask_and_of_one_that_out_overlaps(stream: Any, xp: Any) -> None:
    host = np.arange(24, dtype=F4).reshape(4, 6)
    mask = xp.zeros((4, 12), bool)
    mask[:, ::2] = xp.asarray(host % 3 == 0)
    check_bits(compact(xp.asarray(host), mask[:, ::2], stream=stream), host[host % 3 == 0])
    flags, chosen = np.random.default_rng(0).random((2, 3000)) < 0.5
    where = xp.array(flags)
    result, count = compact(xp.asarray(chosen), where, out=where, stream=stream)
    assert int(to_host(count)[()]) == flags.sum()
    check_bits(result[: flags.sum()], chosen[flags])


def test_indices_that_wrap_around(stream: Any, xp: Any) -> None:
    host, indices = bits((2, 5, 3), F4), np.array([0, -5, 5, -1, 4, -6, 9])
    got = take(xp.asarray(host), xp.asarray(indices), 1, "wrap", stream=stream)
    check_bits(got, np.take(host, indices, 1, mode="wrap"))


def test_nothing_is_taken(stream: Any, xp: Any) -> None:
    x, nowhere = xp.zeros((4, 6), F4), xp.zeros((0, 2), np.int32)
    assert take(x, nowhere, 1, stream=stream).shape == (4, 0, 2)
    assert take(x, nowhere, stream=stream).shape == (0, 2)
    assert take(x[:0], nowhere, 0, stream=stream).shape == (0, 2, 6)
    out = xp.zeros((4, 0, 2), F4)
    assert take(x, nowhere, 1, out=out, stream=stream) is out


def test_bad_input(stream: Any, xp: Any) -> None:
    x, indices = xp.zeros((4, 6), F4), xp.asarray([1, 2])
    mask = xp.zeros((4, 6), bool)
    wrong = [
        ("axis 2", lambda: take(x, indices, 2, stream=stream)),
        ("mode 'first'", lambda: take(x, indices, 0, "first", stream=stream)),  # type: ignore[arg-type]
        ("give integers", lambda: take(x, x[0], 0, stream=stream)),
        ("empty axis", lambda: take(x[:0], indices, 0, stream=stream)),
        ("indices", lambda: take(x, True, 0, stream=stream)),
        ("numbers of shape", lambda: compact(x, mask[:2], stream=stream)),
        ("numbers of shape", lambda: compact(x, mask.astype("c8"), stream=stream)),
        ("one dimension", lambda: compact(x, mask, out=xp.zeros((4, 6), F4), stream=stream)),
        ("one element", lambda: compact(x, mask, count=xp.zeros(2, np.int64), stream=stream)),
        ("out has dtype", lambda: compact(x, mask, count=xp.zeros(1, bool), stream=stream)),
        (r"out has strides \(8,\)", lambda: compact(x, mask, out=xp.zeros(48, F4)[::2], stream=stream)),
        ("one at least", lambda: concatenate([], stream=stream)),
        ("list or tuple", lambda: concatenate(x, stream=stream)),
        ("only axis 0", lambda: concatenate([x, x[:, 1:]], stream=stream)),
        ("axis 2", lambda: concatenate([x, x], 2, stream=stream)),
        ("no dimensions", lambda: concatenate([xp.zeros(())], stream=stream)),
        ("concatenate: The DType.*", lambda: concatenate([np.zeros(3, "M8[s]"), np.zeros(3, F4)])),
        ("only axis 0", lambda: concatenate([x, x[0]], stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    size = 2**31 + 4099
    x = xp.arange(size, dtype=np.int64).astype(np.int8)
    where = x == 3
    kept = compact(x, where, stream=stream)
    assert kept.size == int(where.sum())
    assert (kept == 3).all()
    indices = xp.asarray([0, size - 1, -1, 2**31])
    assert (take(x, indices, stream=stream) == x[indices]).all()
    del where, kept
    joined = concatenate([x[:5], x, x[5:]], stream=stream)
    assert (joined[5 : 5 + size] == x).all()
    assert (joined[5 + size :] == x[5:]).all()
