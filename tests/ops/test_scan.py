"""Scans against NumPy's accumulate, on every path: one line, few, many, beside each other, and by segments."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.tolerance import bound

from cudakit import ArgumentError, Kernel, config
from cudakit.ops import scan as ops

UFUNCS = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}
TILE = 8192  # of float32, where one line is scanned

drawn_often = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def identity(op: str, dtype: np.dtype) -> Any:
    if op in ("cumsum", "cumprod"):
        return op == "cumprod"
    if dtype.kind == "f":
        return np.inf if op == "cummin" else -np.inf
    if dtype.kind == "b":
        return op == "cummin"
    limits = np.iinfo(dtype)
    return limits.max if op == "cummin" else limits.min


def of_line(op: str, x: np.ndarray, keys: np.ndarray, exclusive: bool, dtype: np.dtype) -> np.ndarray:
    """A line's scan, segment by segment."""
    result = np.empty(x.shape, dtype)
    heads = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1), x.size]
    for start, end in itertools.pairwise(heads):
        scanned = UFUNCS[op].accumulate(x[start:end], dtype=dtype)
        result[start:end] = np.concatenate([[identity(op, dtype)], scanned])[:-1] if exclusive else scanned
    return result


def reference(
    op: str, x: np.ndarray, axis: int | None = None, exclusive: bool = False, reverse: bool = False, keys: Any = None
) -> np.ndarray:
    """What the op of this name should give, from NumPy's accumulate of each segment."""
    dtype = UFUNCS[op].accumulate(np.zeros(1, x.dtype)).dtype
    if axis is None:
        x, axis = x.reshape(-1), 0
    keys = np.zeros(x.shape[axis]) if keys is None else keys.reshape(-1) if x.ndim == 1 else keys
    if keys.ndim == 1:
        keys = np.broadcast_to(keys.reshape((-1,) + (1,) * (x.ndim - 1 - axis % x.ndim)), x.shape)
    result = np.empty(x.shape, dtype)
    lines, of_keys, target = (np.moveaxis(a, axis, -1) for a in (x, keys, result))
    for index in np.ndindex(lines.shape[:-1]):
        step = -1 if reverse else 1
        if lines.shape[-1]:
            target[index][::step] = of_line(op, lines[index][::step], of_keys[index][::step], exclusive, dtype)
    return result


def check(xp: Any, op: str, x: np.ndarray, axis: int | None = None, **options: Any) -> None:
    """The op equals the reference: exactly, for elements whose scans are exact."""
    given = {name: xp.asarray(value) if name == "keys" else value for name, value in options.items()}
    found = to_host(getattr(ops, op)(xp.asarray(x), axis, **given))
    wanted = reference(op, x, axis, **options)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def small(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    """Integers that stay exact in any dtype's sums of a few thousand."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("size", [0, 1, 33, 513, TILE + 1, *slow(511, TILE - 1, TILE, 5 * TILE + 7)])
def test_one_line_of_any_length(stream: Any, xp: Any, size: int) -> None:
    x = small(size, np.float32)
    check(xp, "cumsum", x)
    check(xp, "cumsum", x, 0, exclusive=True)


@pytest.mark.parametrize("dtype", [np.int8, *slow(np.float16, np.bool_, np.uint16, np.int64, np.float64)])
def test_dtypes_of_sums(stream: Any, xp: Any, dtype: Any) -> None:
    check(xp, "cumsum", np.random.default_rng(1).integers(0, 3, 700).astype(dtype))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        ("cumprod", np.float32),
        pytest.param("cummin", np.uint64, marks=pytest.mark.slow),
        pytest.param("cummax", np.int16, marks=pytest.mark.slow),
        pytest.param("cumprod", np.int8, marks=pytest.mark.slow),
        pytest.param("cummin", np.bool_, marks=pytest.mark.slow),
    ],
)
def test_other_ops(stream: Any, xp: Any, op: str, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 100, 700).astype(dtype)
    if op == "cumprod":
        x = (1 + (x > 98)).astype(dtype)
    check(xp, op, x)
    check(xp, op, x[:60], exclusive=True)


@pytest.mark.slow
def test_integers_wrap(stream: Any, xp: Any) -> None:
    x = np.random.default_rng(1).integers(-(2**62), 2**62, 1000)
    check(xp, "cumsum", x)
    check(xp, "cumprod", x)
    found = ops.cumsum(xp.asarray(x.astype(np.int32)), dtype=np.int32)
    np.testing.assert_array_equal(to_host(found), np.cumsum(x.astype(np.int32), dtype=np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(stream: Any, xp: Any, dtype: Any) -> None:
    x = (small(3000, np.float32) + 1j * small(3000, np.float32, 1)).astype(dtype)
    check(xp, "cumsum", x)


def test_bfloat16_accumulates_in_float(stream: Any, xp: Any) -> None:
    x = np.ones(600, ml_dtypes.bfloat16)
    found = to_host(ops.cumsum(xp.asarray(x)))
    np.testing.assert_array_equal(found, np.cumsum(x.astype(np.float32)).astype(ml_dtypes.bfloat16))


AXES: list[tuple[tuple[int, ...], int]] = [
    ((9, 100), 1),
    ((2, 5000), 1),
    ((700, 5), 0),
    ((2, 3, 2, 5), 2),
    ((50, 3), 1),
    ((3, 700), -1),
    ((2, 5 * TILE), 1),
    ((600, 40), 0),
    ((3000, 9), 0),
    ((3, 300, 33), 1),
    ((5 * TILE, 2), 0),
]


@pytest.mark.parametrize("case", [*AXES[:2], *slow(*AXES[2:])], ids=str)
def test_axes(stream: Any, xp: Any, case: tuple[tuple[int, ...], int]) -> None:
    shape, axis = case
    check(xp, "cumsum", small(shape, np.float32), axis)
    check(xp, "cumsum", small(shape, np.float32), axis, exclusive=True, reverse=True)


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...], int | None]:
    """A shape, slices of it, a permutation, and an axis."""
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=3)))
    steps = tuple(slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 1, 2, -1, -2]))) for _ in shape)
    order = tuple(draw(st.permutations(range(len(shape)))))
    return shape, steps, order, draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))


@pytest.mark.slow
@drawn_often
@given(drawn=views(), op=st.sampled_from(["cumsum", "cummax"]))
def test_views(stream: Any, xp: Any, drawn: Any, op: str) -> None:
    shape, steps, order, axis = drawn
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) * 7 % 11
    found = getattr(ops, op)(xp.asarray(whole)[steps].transpose(order), axis)
    np.testing.assert_array_equal(to_host(found), reference(op, whole[steps].transpose(order), axis))


def test_some_views(stream: Any, xp: Any) -> None:
    whole = small((5, 6, 7), np.int32)
    for view in (lambda a: a[::-1, ::2], lambda a: a.transpose(2, 0, 1), lambda a: a[:, 1:, 2]):
        for axis in (None, 1 if view(whole).ndim > 2 else 0):
            found = ops.cumsum(view(xp.asarray(whole)), axis)
            np.testing.assert_array_equal(to_host(found), reference("cumsum", view(whole), axis))


@pytest.mark.slow
@drawn_often
@given(lengths=st.lists(st.integers(1, TILE // 4), min_size=1, max_size=8), exclusive=st.booleans())
def test_segments(stream: Any, xp: Any, lengths: list[int], exclusive: bool) -> None:
    keys = np.repeat(np.arange(len(lengths)) % 3, lengths).astype(np.int16)
    check(xp, "cumsum", small(keys.size, np.float32), keys=keys, exclusive=exclusive)


@pytest.mark.slow
def test_segments_backward(stream: Any, xp: Any) -> None:
    keys = np.repeat([3, 1, 1, 2], [600, 1, 300, 9])
    check(xp, "cummin", small(keys.size, np.float32), keys=keys, reverse=True)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((40, 300), 1),
        pytest.param((300, 40), 0, marks=pytest.mark.slow),
        pytest.param((700, 9), None, marks=pytest.mark.slow),
    ],
)
def test_segments_along_axes(stream: Any, xp: Any, shape: tuple[int, int], axis: int | None) -> None:
    x = small(shape, np.float32)
    whole = np.random.default_rng(2).integers(0, 2, shape)
    check(xp, "cumsum", x, axis, keys=whole)
    check(xp, "cumsum", x, axis, keys=whole, exclusive=True)
    if axis is not None:
        check(xp, "cumsum", x, axis, keys=np.sort(np.random.default_rng(2).integers(0, 9, shape[axis])))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [np.zeros(5 * TILE), np.arange(5 * TILE), np.arange(5 * TILE) // TILE])
def test_segments_longer_and_shorter_than_tiles(stream: Any, xp: Any, keys: np.ndarray) -> None:
    check(xp, "cumsum", small(keys.size, np.float32), keys=keys.astype(np.int32))


@pytest.mark.slow
def test_keys_that_are_the_same_or_start_anywhere(stream: Any, xp: Any) -> None:
    n = 5 * TILE + 1
    x = small(n, np.float32)
    found = ops.cumsum(xp.asarray(x), keys=xp.broadcast_to(xp.asarray(np.int32(7)), (n,)))
    np.testing.assert_array_equal(to_host(found), np.cumsum(x))
    for offset in (0, 1, 3):
        keys = np.arange(n + offset, dtype=np.int32) // 100
        found = ops.cumsum(xp.asarray(x), keys=xp.asarray(keys)[offset:])
        np.testing.assert_array_equal(to_host(found), reference("cumsum", x, keys=keys[offset:]))


@pytest.mark.parametrize("offset", [1, *slow(2, 3)])
def test_views_that_start_anywhere(stream: Any, xp: Any, offset: int) -> None:
    whole = small(3 * TILE, np.float32)
    x = xp.asarray(whole)[offset:]
    out = xp.empty(3 * TILE, np.float32)[1 : 1 + x.size]
    assert ops.cumsum(x, out=out) is out
    np.testing.assert_array_equal(to_host(out), np.cumsum(whole[offset:]))


@in_tiers(
    "dtype, op",
    [np.float32, np.float16],
    ["cummin", "cummax"],
    quick=lambda dtype, op: dtype == np.float32 and op == "cummin",
)
def test_nan_stays_from_the_first_on(stream: Any, xp: Any, op: str, dtype: Any) -> None:
    x = small(900, dtype)
    x[[0, 5]] = np.inf, -np.inf
    check(xp, op, x)
    x[500] = np.nan
    check(xp, op, x)


def test_special_sums(stream: Any, xp: Any) -> None:
    for x in ([-0.0] * 40, [np.inf, 1, -np.inf, 2], [0.0, np.nan, 1]):
        found = to_host(ops.cumsum(xp.asarray(np.array(x, np.float32))))
        with np.errstate(invalid="ignore"):
            wanted = np.cumsum(np.array(x, np.float32))
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3 * TILE + 5,), (3, 3000), (3000, 40)])
def test_rounding_stays_within_its_bound_and_is_the_same_each_time(stream: Any, xp: Any, shape: Any) -> None:
    x = np.random.default_rng(3).random(shape, np.float32)
    given = xp.asarray(x)
    found = ops.cumsum(given, 0)
    wanted = np.cumsum(x.astype(np.float64), 0)
    assert np.all(np.abs(to_host(found) - wanted) <= bound(np.float32, shape[0], np.abs(wanted).max()))
    for place in (stream, another(stream)):
        again = ops.cumsum(given, 0, stream=place)
        place.sync()
        np.testing.assert_array_equal(to_host(again).view(np.uint32), to_host(found).view(np.uint32))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2 * TILE + 3,), 0),
        pytest.param((30, 300), 1, marks=pytest.mark.slow),
        pytest.param((300, 30), 0, marks=pytest.mark.slow),
    ],
)
def test_in_place(stream: Any, xp: Any, shape: tuple[int, ...], axis: int) -> None:
    x = small(shape, np.float32)
    given = xp.asarray(x.copy())
    assert ops.cumsum(given, axis, out=given) is given
    np.testing.assert_array_equal(to_host(given), np.cumsum(x, axis))


def test_out_of_any_strides(stream: Any, xp: Any) -> None:
    x = small((30, 50), np.float32)
    out = xp.zeros((50, 60), np.float32)[:, ::2].T
    ops.cumsum(xp.asarray(x), 1, out=out)
    np.testing.assert_array_equal(to_host(out), np.cumsum(x, 1))


def test_empty_arrays_and_no_dimensions(stream: Any, xp: Any) -> None:
    for shape, axis in (((0,), 0), ((3, 0), 1), ((3, 0), 0), ((0, 3), None)):
        found = ops.cumsum(xp.zeros(shape, np.int8), axis)
        assert found.shape == np.cumsum(np.zeros(shape), axis).shape
        assert found.dtype == np.int64
    assert to_host(ops.cumsum(xp.asarray(np.float32(3)))).tolist() == [3]


@pytest.mark.slow
def test_one_line_is_scanned_again_and_again(stream: Any, xp: Any) -> None:
    """The look-back's memory serves launches of all sizes, one after the other."""
    for size in (5 * TILE, 3 * TILE, 100, 4 * TILE + 1, 5 * TILE):
        check(xp, "cumsum", small(size, np.float32, size))
        check(xp, "cumsum", small((size, 2), np.float32, size), 0)


AFFINE = """
#include <cudakit/lookback.cuh>

struct affine { unsigned long long scale, shift; };  // y = scale · x + shift, modulo 2^64: composing does not commute
struct then {
    template <typename A> static __device__ A identity() { return {1, 0}; }
    __device__ affine operator()(affine a, affine b) const { return {a.scale * b.scale, b.scale * a.shift + b.shift}; }
};

/// A warp a block, an element a tile.
__global__ void prefixes(
    const unsigned long long* scale, unsigned long long* before, unsigned char* status, int tiles) {
    cudakit::lookback<affine, then> look(status);
    while (true) {
        long long tile = threadIdx.x == 0 ? look.draw() : 0;
        tile = cudakit::shuffle(tile, 0);
        if (tile >= tiles) break;
        for (int k = 0; k < 4 * (blockIdx.x % 3); ++k) __nanosleep(100);  // others must wait
        if (threadIdx.x == 0) look.publish(tile, affine{scale[tile], static_cast<unsigned long long>(tile)});
        const affine found = look.prefix(tile);
        if (threadIdx.x == 0) before[2 * tile] = found.scale, before[2 * tile + 1] = found.shift;
    }
    if (threadIdx.x == 0) look.finish();
}
"""


@pytest.mark.slow
def test_lookback_of_many_tiles_in_their_order(stream: Any, xp: Any) -> None:
    kernel = Kernel(AFFINE)
    status = xp.zeros(256 + 32 * 300, np.uint8)  # of all launches: nothing is reset between them
    for tiles, blocks in ((300, 9), (1, 3), (130, 1), (129, 30)):
        scale = np.random.default_rng(tiles).integers(0, 2**63, tiles, dtype=np.uint64)
        before = xp.zeros((tiles, 2), np.uint64)
        kernel(stream, config(blocks, 32), xp.asarray(scale), before, status, tiles)
        wanted, running = [], (1, 0)
        for tile, factor in enumerate(scale.tolist()):
            wanted.append(running)
            running = running[0] * factor % 2**64, (running[1] * factor + tile) % 2**64
        np.testing.assert_array_equal(to_host(before), np.array(wanted, np.uint64))


def test_out_that_overlaps_the_keys(stream: Any, xp: Any) -> None:
    host = np.arange(6.0)
    keys = xp.asarray(np.array([0.0, 0, 1, 1, 1, 2]))
    assert ops.cumsum(xp.asarray(host), 0, keys=keys, out=keys, stream=stream) is keys
    assert to_host(keys).tolist() == [0, 1, 2, 5, 9, 5]


def test_elements_are_converted_to_the_results_dtype_first(stream: Any, xp: Any) -> None:
    host = np.full(40, 0.1, "f4")
    got = to_host(ops.cumsum(xp.asarray(host), dtype="f2", stream=stream))
    want = np.cumsum(host.astype("f2").astype("f4")).astype("f2")
    assert got.dtype == np.float16
    assert got.tolist() == want.tolist()


def test_dtypes_of_results() -> None:
    for op, dtype, wanted, want in (
        (ops.cumsum, "u1", None, "u8"),
        (ops.cumsum, "i4", None, "i8"),
        (ops.cumsum, "?", None, "i8"),
        (ops.cumsum, "u8", None, "u8"),
        (ops.cumsum, "f2", None, "f2"),
        (ops.cumsum, "f4", "f8", "f8"),
        (ops.cumprod, "f4", "i2", "i2"),
        (ops.cummax, "i4", None, "i4"),
        (ops.cummin, "?", None, "?"),
    ):
        given = {} if wanted is None else {"dtype": wanted}
        assert op(np.zeros((0, 3), dtype), 0, **given).dtype == np.dtype(want)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda xp, x: ops.cumsum(x, 2), "axis 2"),
        (lambda xp, x: ops.cumsum(x, (0, 1)), "axis must be an int"),
        (lambda xp, x: ops.cumsum(x, 0, keys=xp.zeros(5)), r"keys have shape \(5,\)"),
        (lambda xp, x: ops.cumsum(x, 0, dtype="no"), "dtype must be a dtype"),
        (lambda xp, x: ops.cumsum(x, 0, out=xp.zeros((6, 4), np.int32)), "out has dtype int32"),
        (lambda xp, x: ops.cumsum(x, out=xp.zeros((6, 4), np.float32)), "out has shape"),
        pytest.param(
            lambda xp, x: ops.cumsum(x, 0, keys=np.zeros(6, "M8[s]")),
            "keys has dtype datetime64",
            marks=pytest.mark.emulator,
        ),
        (lambda xp, x: ops.cumprod(x.astype("c8"), 0, dtype=bool), "dtype bool cannot hold a cumprod of complex64"),
        (lambda xp, x: ops.cumsum(x, 0, dtype="M8[s]"), "dtype"),
        (lambda xp, x: ops.cummax("x"), "x is str, not an array"),
        (lambda xp, x: ops.cummax(np.zeros(3, "M8[s]")), "dtype datetime64"),
    ],
)
def test_bad_input_is_named(stream: Any, xp: Any, call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(xp, xp.zeros((6, 4), np.float32))


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(stream: Any, xp: Any) -> None:
    size = 2**31 + 12345
    x = xp.zeros(size, np.int8)
    x[[5, 2**31 + 7]] = 1, 2
    found = ops.cummax(x)
    assert found[[0, 5, 2**31 + 6, 2**31 + 7, size - 1]].tolist() == [0, 1, 1, 2, 2]
    wide = x[: size // 3 * 3].reshape(-1, 3)
    assert int(ops.cummax(wide, 0, out=found[: wide.size].reshape(-1, 3))[-1].max()) == 2


@pytest.mark.parametrize(
    ("op", "dtype", "initial"),
    [
        pytest.param("cumsum", "i4", 3, marks=pytest.mark.slow),
        pytest.param("cumprod", "f2", 0.5, marks=pytest.mark.slow),
        pytest.param("cummin", "u1", 2, marks=pytest.mark.slow),
        pytest.param("cummax", "f8", -1, marks=pytest.mark.slow),
    ],
)
def test_an_initial_value(stream: Any, xp: Any, op: str, dtype: str, initial: float) -> None:
    """As if it came before the elements of each line, and of each run of keys."""
    x, keys = small(70, dtype), np.arange(70) // 7
    for exclusive, reverse, by_keys in ((0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)):
        want = []
        for line in np.split(x, 10) if by_keys else [x]:
            first = np.array([initial], reference(op, x).dtype)
            line = np.concatenate([first, line[::-1] if reverse else line])
            found = UFUNCS[op].accumulate(line, dtype=first.dtype)
            want.append((found[:-1] if exclusive else found[1:])[:: -1 if reverse else 1])
        given = {"keys": xp.asarray(keys)} if by_keys else {}
        got = getattr(ops, op)(xp.asarray(x), exclusive=exclusive, reverse=reverse, initial=initial, **given)
        np.testing.assert_array_equal(to_host(got), np.concatenate(want))


@pytest.mark.slow
def test_initial_values_of_calls(stream: Any, xp: Any) -> None:
    x = small((5, 300), "f4")
    device = xp.asarray(x)
    for axis in (0, 1, 0, 1) * 3:
        for initial in (None, 1, 2.5, None, np.int8(-3)):
            got = ops.cumsum(device, axis, initial=initial)
            np.testing.assert_array_equal(to_host(got), np.cumsum(x, axis) + (initial or 0))
    out = xp.zeros((300, 5), "f8").T
    assert ops.cumsum(device, 1, initial=7, out=out) is out
    np.testing.assert_array_equal(to_host(out), np.cumsum(x, 1) + 7)
    assert np.isnan(to_host(ops.cumsum(device, initial=float("nan")))).all()
    assert np.signbit(to_host(ops.cumsum(xp.zeros(3, "f4"), initial=-0.0, exclusive=True))[0])
    assert ops.cumsum(device[:0], 0, initial=3).shape == (0, 300)
    np.testing.assert_array_equal(to_host(ops.cumsum(xp.ones(3, "c8"), initial=1j)), np.arange(1, 4) + 1j)
    for wrong in ("3", [1], xp.ones(1), np.ones(5), 2j, {}):
        with pytest.raises(ArgumentError, match="cumsum: initial takes float32, got "):
            ops.cumsum(device, initial=wrong)
