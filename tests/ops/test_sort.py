"""Sorts against NumPy's stable ones, to the bit, in both places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import another, to_host
from support.sorting import BFLOAT16, check, order_of, some, taken
from support.tiers import in_tiers, slow
from support.views import View, bits, few, views

import cudakit as ck
from cudakit.ops import argpartition, argsort, partition, sort, sort_by_key
from cudakit.ops.sort import index_dtype

F4 = np.dtype("f4")
DTYPES = [np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]
#: Around a warp's rows, the steps of a block's, and tiles of a sort by many blocks: one, two, and several.
LENGTHS = [0, 1, 2, 31, 32, 33, 128, 129, 513, 1025, 4096, 4097, 8064, 8065, 30_001]


@in_tiers(
    "dtype, length",
    [*DTYPES, BFLOAT16],
    LENGTHS,
    strength=1,
    # A digit at a time: one dtype of each size and each order.
    also=lambda dtype, length: (
        dtype == F4
        or length in (32, 33)
        or (length == 8065 and dtype in [np.dtype(c) for c in ("?", "i1", "f2", "u8")])
    ),
    quick=lambda dtype, length: (
        (dtype in (F4, np.dtype("i8"), np.dtype("u1")) and length == 33) or (dtype == F4 and length in (0, 1, 32))
    ),
)
def test_sizes(stream: Any, xp: Any, dtype: np.dtype, length: int) -> None:
    if dtype == BFLOAT16 and xp is not np:
        pytest.skip("CuPy has no such arrays")
    host = some(length, dtype, length)
    x, order = xp.asarray(host), order_of(host)
    check(sort(x, stream=stream), host[order])
    check(argsort(x, stream=stream), order)


@in_tiers("code, length", ["f4", "i8"], [100, 10_000], quick=lambda code, length: (code, length) == ("f4", 100))
def test_descending(stream: Any, xp: Any, code: str, length: int) -> None:
    host = some((3, length), np.dtype(code))
    order = order_of(host, is_descending=True)
    check(sort(xp.asarray(host), descending=True, stream=stream), taken(host, order))
    check(argsort(xp.asarray(host), descending=True, stream=stream), order)


def test_zeros_of_both_signs_and_nan_stay_in_their_order(stream: Any, xp: Any) -> None:
    patterns = np.array([0x80000000, 0, 0x7FC00001, 0xFFC00002, 0x7F800000, 0xFF800000], np.uint32)
    for length in (60, 9000):
        host = np.resize(patterns, length).view("f4")
        got = to_host(sort(xp.asarray(host), stream=stream)).view(np.uint32)
        part = length // 6
        assert (got[:part] == 0xFF800000).all()
        assert (got[part : 3 * part] == np.resize(patterns[:2], 2 * part)).all()
        assert (got[3 * part : 4 * part] == 0x7F800000).all()
        assert (got[4 * part :] == np.resize(patterns[2:4], 2 * part)).all()


@pytest.mark.parametrize("name", slow("two values", "in order", "backward", "equal", "one digit"))
def test_kinds_of_data(stream: Any, xp: Any, name: str) -> None:
    length = 17_000
    host = {
        "in order": np.arange(length),
        "backward": np.arange(length)[::-1],
        "equal": np.full(length, 7),
        "one digit": np.random.default_rng(0).integers(0, 200, length) << 16,
        "two values": np.where(np.random.default_rng(0).random(length) < 0.01, -1, 5),
    }[name].astype("i4")
    order = np.argsort(host, kind="stable")
    check(sort(xp.asarray(host), stream=stream), host[order])
    check(argsort(xp.asarray(host), stream=stream), order)
    # Rows with and without digits that all keys share; and more of them than are looked at.
    for rows in (
        np.stack([host, host]),
        np.stack([host, np.arange(length, dtype="i4")]),
        np.resize(host[:5000], (9, 5000)),
    ):
        for got, want in zip(
            sort_by_key(xp.asarray(rows), xp.asarray(rows), stream=stream), [np.sort(rows)] * 2, strict=True
        ):
            check(got, want.astype(rows.dtype))


@pytest.mark.parametrize("shape", [(3, 40, 2), (0, 3), (3, 0), (1,), *slow((5, 7), (2, 5000), (5000, 2))])
def test_axes(stream: Any, xp: Any, shape: tuple[int, ...]) -> None:
    host = some(shape, F4)
    for axis in (*range(-len(shape), len(shape)), None):
        order = order_of(host, axis)
        check(sort(xp.asarray(host), axis, stream=stream), taken(host, order, axis))
        check(argsort(xp.asarray(host), axis, stream=stream), order)


@pytest.mark.slow
@few
@given(view=views([np.dtype("i1"), np.dtype("f4")], least_dims=1), data=st.data())
def test_any_view(stream: Any, xp: Any, view: View, data: st.DataObject) -> None:
    host = view.host()
    axis = data.draw(st.none() | st.integers(-host.ndim, host.ndim - 1))
    order = order_of(host, axis)
    check(sort(view.on(xp), axis, stream=stream), taken(host, order, axis))


@in_tiers(
    "shape, code, dtype",
    [(70,), (20_000,), (3, 4500)],
    ["i1", "f2", "f4", "f8", "c16"],
    [np.dtype("u1"), F4, np.dtype("i8")],
    quick=lambda shape, code, dtype: shape == (70,) or (dtype == np.dtype("u1") and code == "c16"),
)
def test_values_go_with_keys(stream: Any, xp: Any, shape: tuple[int, ...], code: str, dtype: np.dtype) -> None:
    values, keys = bits(shape, np.dtype(code)), some(shape, dtype)
    order = order_of(keys)
    got = sort_by_key(xp.asarray(keys), xp.asarray(values), stream=stream)
    check(got[0], taken(keys, order))
    check(got[1], taken(values, order))


@pytest.mark.slow
def test_outputs(stream: Any, xp: Any) -> None:
    for shape in ((6, 50), (2, 5000)):
        host = some(shape, F4)
        x, order = xp.asarray(host.copy()), order_of(host)
        wide = xp.zeros((*shape, 2), F4)
        assert sort(x, out=wide[..., 0], stream=stream) is not None
        check(xp.ascontiguousarray(wide[..., 0]), taken(host, order))
        index = xp.zeros(shape, np.int32)
        assert argsort(x, dtype=np.int32, out=index, stream=stream) is index
        check(index, order.astype("i4"))
        down = xp.zeros(shape, F4)
        keys, values = sort_by_key(x, index, 0, out=(down, None), stream=stream)
        assert keys is down
        check(values, taken(order.astype("i4"), order_of(host, 0), 0))
        assert sort(x, out=x, stream=stream) is x
        check(x, taken(host, order))
        x = xp.asarray(host.copy())
        if shape[0] == 6:
            sort(x[1:], out=x[:-1], stream=stream)
            check(x[:-1], taken(host[1:], order[1:]))


def test_views(stream: Any, xp: Any) -> None:
    host = some((6, 60), F4)
    for view in (lambda a: a[:, ::-2], lambda a: a[::2], lambda a: a.T[:30]):
        want = np.take_along_axis(view(host), order_of(view(host)), -1)
        check(sort(view(xp.asarray(host)), stream=stream), want)


def test_partition(stream: Any, xp: Any) -> None:
    host = some((3, 200), F4)
    for kth in (0, -1, 100, [3, 7]):
        got = to_host(partition(xp.asarray(host), kth, stream=stream))
        np.testing.assert_array_equal(got[:, kth], np.partition(host, kth)[:, kth])
        order = to_host(argpartition(xp.asarray(host), kth, stream=stream))
        np.testing.assert_array_equal(np.take_along_axis(host, order, -1), got)


@pytest.mark.slow
def test_sort_is_the_same_on_each_stream(stream: Any, xp: Any) -> None:
    host = some(20_000, F4)
    runs = [to_host(sort(xp.asarray(host), stream=stream)).tobytes() for _ in range(3)]
    with ck.using(another(stream)) as other:
        runs.append(to_host(sort(other.asarray(host))).tobytes())
    assert len(set(runs)) == 1


def test_values_go_along_any_axis(stream: Any, xp: Any) -> None:
    keys = np.random.default_rng(0).permutation(60).reshape(5, 12).astype(F4)
    values = np.arange(60, dtype=F4).reshape(5, 12)
    got = sort_by_key(xp.asarray(keys), xp.asarray(values), 0, stream=stream)
    order = np.argsort(keys, 0)
    for each, want in zip(got, (keys, values), strict=True):
        np.testing.assert_array_equal(to_host(each), np.take_along_axis(want, order, 0))


def test_indices_of_a_dtype(stream: Any, xp: Any) -> None:
    for dtype in ("i4", "u4", "i8", "u8"):
        assert index_dtype("argsort", dtype, 5) == np.dtype(dtype)
    assert index_dtype("argsort", None, 5) == np.int64
    assert index_dtype("argsort", "i4", 2**31) == np.int32
    for dtype, size in (("i4", 2**31 + 1), ("u4", 2**32 + 1), (">i4", 5), ("i2", 5), ("f4", 5)):
        with pytest.raises(ck.ArgumentError, match=f"those of {size} are int32"):
            index_dtype("argsort", dtype, size)
    assert argsort(xp.zeros(5, F4), dtype="u4", stream=stream).dtype == np.uint32


def test_bad_input(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), F4)
    wrong = [
        ("axis 2", lambda: sort(x, 2, stream=stream)),
        ("axis -1", lambda: sort(xp.zeros((), F4), stream=stream)),
        ("x has dtype complex64", lambda: sort(x.astype("c8"), stream=stream)),
        ("descending", lambda: sort(x, descending=2, stream=stream)),
        ("out has shape", lambda: sort(x, out=xp.zeros(24, F4), stream=stream)),
        ("out has dtype", lambda: sort(x, out=xp.zeros((4, 6), np.int32), stream=stream)),
        ("dtype is float32", lambda: argsort(x, dtype="f4", stream=stream)),
        ("dtype is int8", lambda: argsort(x, dtype="i1", stream=stream)),
        ("values have shape", lambda: sort_by_key(x, x[0], stream=stream)),
        ("keys has dtype complex64", lambda: sort_by_key(x.astype("c8"), x, stream=stream)),
        ("out must be two", lambda: sort_by_key(x, x, out=x, stream=stream)),
        ("one array is given for two", lambda: sort_by_key(x, x, out=(x, x), stream=stream)),
        ("kth 6 is out of range", lambda: partition(x, 6, stream=stream)),
        ("kth -5", lambda: argpartition(x, [0, -5], 0, stream=stream)),
        ("kth is None", lambda: partition(x, None, stream=stream)),
    ]
    for words, call in wrong:
        with pytest.raises(ck.ArgumentError, match=words):
            call()


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    size = 2**31 + 4099
    x = (xp.arange(size, dtype=np.int64) * 7 % 251).astype(np.uint8)
    got = sort(x, stream=stream)
    assert int(got[0]) == 0
    assert int(got[-1]) == 250
    counts = xp.bincount(got)
    assert (xp.repeat(xp.arange(251, dtype=np.uint8), counts.tolist()) == got).all()
    assert (counts == xp.bincount(x)).all()


@pytest.mark.parametrize(("copies", "block"), [(8, 512), (32, 1024)])
def test_counts_of_digits(stream: Any, xp: Any, copies: int, block: int) -> None:
    """As few and as many keys are counted: each digit of two rows, by three blocks each."""
    size, order = 3 * 4 * block + 77, "cudakit::unsigned_order<unsigned int>"
    keys = np.random.default_rng(0).integers(0, 2**32, (2, size)).astype(np.uint32) & 0xFF0FFF
    state = xp.zeros(64 + 2 * 1024, np.uint32)
    counts = ck.Kernel.from_template("sort/counts")[order, np.uint32, copies, 4, block]
    counts(stream, ck.config(6, block, 4 * copies * 1024), xp.asarray(keys), state, size, 2, 3)
    want = [np.bincount(row >> 8 * k & 255, minlength=256) for row in keys for k in range(4)]
    np.testing.assert_array_equal(to_host(state)[64:], np.concatenate(want))
    assert to_host(state)[32:36].tolist() == [0, 0, 0, 1]  # all rows have the last one throughout


LOOK_BACK = """
#include <cudakit/sort/digit_words.cuh>
template <typename Word>
__global__ void looked(const Word* words, Word* sums, long long tiles) {
    using Words = cudakit::digit_words<Word>;
    for (long long tile = 1; tile < tiles; ++tile)
        sums[tile * 256 + threadIdx.x] = Words::before(words + tile * 256 + threadIdx.x, tile);
}
"""


@pytest.mark.parametrize("code", ["u4", "u8"])
def test_look_back_over_tiles_that_are_not_done(stream: Any, xp: Any, code: str) -> None:
    """Blocks that run in turn find their predecessor done: here it is the first tile alone, or any."""
    dtype, tiles = np.dtype(code), 23
    generator = np.random.default_rng(0)
    parts = generator.integers(0, 1000, (tiles, 256))
    whole = generator.random((tiles, 256)) < 0.15
    whole[0] = True
    sums = parts.cumsum(0)
    flag = 8 * dtype.itemsize - 2
    words = np.where(whole, sums, parts).astype(dtype)
    words |= np.where(whole, np.array(2 << flag, dtype), np.array(1 << flag, dtype))
    got = xp.zeros((tiles, 256), dtype)
    ck.Kernel(LOOK_BACK, "looked")(stream, ck.config(1, 256), xp.asarray(words), got, tiles)
    np.testing.assert_array_equal(to_host(got)[1:], sums[:-1])
