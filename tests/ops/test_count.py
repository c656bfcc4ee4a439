"""Histograms and bincount against NumPy, in both places."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.tolerance import bound

import cudakit as ck
from cudakit.ops.count import bincount, histogram

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def on_gpu(*names: str) -> list[Any]:
    """Dtypes that differ from another in sign or width alone: each is compiled anew, which the emulator is spared."""
    return [pytest.param(np.dtype(name), marks=pytest.mark.gpu) for name in names]


OTHERS = on_gpu("?", "i1", "i2", "u2", "u4", "i8")
DTYPES = [*map(np.dtype, ("i4", "f4")), *slow(*map(np.dtype, ("u1", "u8", "f2", "f8"))), *OTHERS]
BLOCK = 1024  # threads of a block; a pack has 16 bytes


def values_of(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Normal values around 20, many of them on whole numbers; unsigned ones from 0."""
    values = np.random.default_rng(seed).normal(20, 15, shape).round(1)
    if np.dtype(dtype).kind in "bu":
        values = abs(values)
    return values.astype(dtype)


def expected(x: np.ndarray, edges: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Counts by the definition, in float64 or exact integers."""
    edges = edges.astype(np.float64) if edges.dtype.kind not in "iu" else edges
    x = x.astype(np.float64) if x.dtype.kind not in "iu" or edges.dtype.kind == "f" else x
    inside = (x >= edges[0]) & (x <= edges[-1])
    bins = np.minimum(np.searchsorted(edges, x[inside], "right") - 1, edges.size - 2)
    chosen = None if weights is None else weights[inside]
    return np.bincount(bins, chosen, minlength=edges.size - 1)


def check(found: tuple[Any, Any], x: np.ndarray, bins: Any, range: Any) -> None:
    """Counts and edges are NumPy's, bit for bit."""
    counts, edges = map(to_host, found)
    if x.dtype == bool:
        x = x.astype(np.uint8)
    reference, reference_edges = np.histogram(x, bins, range)
    assert counts.dtype == np.int64
    assert edges.dtype == reference_edges.dtype
    assert edges.tolist() == reference_edges.tolist()
    assert counts.tolist() == reference.tolist()
    assert counts.tolist() == expected(x, edges).tolist()


# --- even bins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_even_bins(stream: Any, xp: Any, dtype: np.dtype) -> None:
    x = values_of(dtype, 6007)
    check(histogram(xp.asarray(x), 37, (-1.5, 33.25)), x, 37, (-1.5, 33.25))
    check(histogram(xp.asarray(x), 40, (0, 40)), x, 40, (0, 40))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_range_is_the_values_own(stream: Any, xp: Any, dtype: np.dtype) -> None:
    x = values_of(dtype, 6007)
    check(histogram(xp.asarray(x)), x, 10, (float(x.min()), float(x.max())))


@pytest.mark.slow
def test_bfloat16(stream: Any, xp: Any) -> None:
    x = values_of(BFLOAT16, 3001)
    counts, edges = map(to_host, histogram(xp.asarray(x), 16, (0, 32)))
    assert edges.dtype == BFLOAT16
    assert counts.tolist() == expected(x.astype(np.float32), edges.astype(np.float32)).tolist()


@pytest.mark.parametrize("dtype", ["u1", *slow("i4")])
def test_sizes(stream: Any, xp: Any, dtype: str) -> None:
    packs = 16 // np.dtype(dtype).itemsize
    tile = BLOCK * packs
    for size in (0, 1, 17, BLOCK + 1, tile - 1, tile + 1, 4 * tile + 1):
        x = values_of(dtype, size)
        check(histogram(xp.asarray(x), 10, (0, 40)), x, 10, (0, 40))


@pytest.mark.parametrize("dtype", ["u1", *slow("i2")])
def test_views_that_start_anywhere(stream: Any, xp: Any, dtype: str) -> None:
    x = values_of(dtype, 5000)
    whole = xp.asarray(x)
    for start, end in ((1, 4999), (3, 20), (7, 4990)):
        check(histogram(whole[start:end], 10, (0, 40)), x[start:end], 10, (0, 40))


@pytest.mark.parametrize("bins", [1, 500, 4097, *slow(256, 501, 4096, 16384, 16385, 100_001)])
def test_numbers_of_bins(stream: Any, xp: Any, bins: int) -> None:
    x = values_of("f4", 4001)
    check(histogram(xp.asarray(x), bins, (-20, 60)), x, bins, (-20, 60))


@pytest.mark.parametrize("bins", [900_000, 1_100_000])
def test_more_bins_than_shared_memory_holds(stream: Any, xp: Any, bins: int) -> None:
    x = np.random.default_rng(0).integers(0, bins, 3000).astype(np.int32)
    x[:500] = bins - 1
    x[600::3] = 5  # among others
    x[700::31] = -1  # nowhere
    x[701::31] = bins  # nowhere either
    want = np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)
    assert (to_host(bincount(xp.asarray(x), length=bins)) == want).all()


def test_edges_hold_where_a_guess_by_multiplication_does_not(stream: Any, xp: Any) -> None:
    # Each edge of an uneven range, and its neighbours on both sides.
    for dtype, low, high, bins in (("f4", -0.1, 0.7, 300), ("f8", 1e6, 1e6 + 1e-6, 50), ("f4", 1e6, 1e6 + 8, 100)):
        edges = np.histogram_bin_edges(np.zeros(1, dtype), bins, (low, high))
        x = np.concatenate([edges, np.nextafter(edges, -np.inf, dtype=dtype), np.nextafter(edges, np.inf, dtype=dtype)])
        counts, found = map(to_host, histogram(xp.asarray(x), bins, (low, high)))
        assert found.tolist() == edges.tolist()
        assert counts.tolist() == expected(x, edges).tolist()


@pytest.mark.parametrize("dtype", ["i4", *slow("u8"), *on_gpu("u4", "i8", "i2")])
def test_integers_at_the_ends_of_their_range(stream: Any, xp: Any, dtype: str) -> None:
    ends = np.iinfo(dtype)
    x = np.array([ends.min, ends.min + 1, ends.max - 1, ends.max, 0, 1, 2], dtype)
    for low, high in ((0, 2), (-1e30, 1e30), (float(ends.min), float(ends.max)), (-9.5, -3.5), (1e25, 1e26)):
        counts, edges = map(to_host, histogram(xp.asarray(x), 8, (low, high)))
        assert counts.tolist() == expected(x, edges).tolist()
    assert to_host(histogram(xp.asarray(x), 3)[0]).sum() == 7


@in_tiers(
    "dtype, kind",
    ["u1", "i4"],
    ["equal", "sorted", "one hot", "two banks"],
    quick=lambda dtype, kind: (dtype, kind) == ("u1", "sorted"),
)
def test_adversarial_data(stream: Any, xp: Any, kind: str, dtype: str) -> None:
    x = np.full(20_011, 77, dtype)
    if kind == "sorted":
        x = np.sort(values_of("u1", 20_011)).astype(dtype)
    elif kind == "one hot":
        x[10_007] = 3
    elif kind == "two banks":
        x = (np.arange(20_011) % 2 * 32).astype(dtype)
    check(histogram(xp.asarray(x), 256, (0, 256)), x, 256, (0, 256))


def test_half_counters_carry_over(stream: Any, xp: Any) -> None:
    # 2^15 and more of a bin in one block, by warps that agree and by warps that do not.
    x = np.zeros(120_000, np.int32)
    x[1:40_001:2] = np.arange(20_000) % 3
    kernel = ck.Kernel.from_template("count/values")[
        "const int*", "cudakit::whole_numbers<int>", "cudakit::half_counters", np.int64
    ]
    given, counts, workspace = xp.asarray(x), xp.zeros(600, np.int64), xp.zeros(4096, np.uint8)
    kernel(stream, ck.config(1, BLOCK, 1200), given, counts, counts, counts, workspace, 600, 1200, False, x.size)
    assert (to_host(counts) == np.bincount(x, minlength=600)).all()


@pytest.mark.emulator
@pytest.mark.parametrize("length", [50, 20_000])
def test_a_block_zeroes_its_counters_before_it_counts_and_counts_before_it_adds_up(length: int) -> None:
    x = np.arange(5000, dtype=np.int32) % 50
    counts = bincount(x, length=length, stream=ck.emulator.stream(check="raise"))
    assert counts.tolist() == [100] * 50 + [0] * (length - 50)


@pytest.mark.parametrize("length", [20_000, *slow(900_000)])
def test_warps_that_are_not_full(stream: Any, xp: Any, length: int) -> None:
    for size in (1, 17, 130):
        assert to_host(bincount(xp.full(size, 3, np.int32), length=length))[:5].tolist() == [0, 0, 0, size, 0]


@pytest.mark.parametrize("dtype", ["f4", *on_gpu("f2", "f8")])
def test_values_that_are_not_finite(stream: Any, xp: Any, dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, 0.5, np.nan], dtype)
    assert to_host(histogram(xp.asarray(x), 2, (0, 1))[0]).tolist() == [2, 2]
    counts, edges = histogram(xp.asarray(x), 2)  # NumPy refuses
    assert to_host(counts).tolist() == [2, 2]
    assert to_host(edges).tolist() == [0, 0.5, 1]
    counts, edges = histogram(xp.asarray(x), np.array([-np.inf, 0, 1, np.inf]))
    assert to_host(counts).tolist() == [1, 3, 2]
    nothing = xp.full(5, np.nan, dtype)
    counts, edges = histogram(nothing, 2)
    assert to_host(counts).tolist() == [0, 0]
    assert to_host(edges).tolist() == [0, 0.5, 1]


def test_one_value_and_none(stream: Any, xp: Any) -> None:
    for dtype in ("u1", "f4"):
        for x in (np.full(7, 5, dtype), np.zeros(0, dtype), np.array(3, dtype)):
            check(histogram(xp.asarray(x), 4), x, 4, None)
    check(histogram(xp.zeros((3, 0)), 4, (2, 2)), np.zeros(0), 4, (2, 2))


# --- given edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", *slow("i1", "i4"), *on_gpu("f2", "f8", "u8")])
def test_given_edges(stream: Any, xp: Any, dtype: str) -> None:
    x = values_of(dtype, 6007)
    for edges in ([0, 1, 5, 5, 7.5, 30, 30], np.logspace(-300, 2, 5000), np.arange(0, 41), [12.5, 12.5], [-3.0, 70.0]):
        edges = np.asarray(edges)
        counts, shown = map(to_host, histogram(xp.asarray(x), edges))
        assert shown.dtype == edges.dtype
        assert shown.tolist() == edges.tolist()
        assert counts.tolist() == np.histogram(x.astype(np.float64), edges)[0].tolist()


def test_edges_of_64_bits_are_exact(stream: Any, xp: Any) -> None:
    edges = np.array([2**62, 2**62 + 1, 2**62 + 3, 2**63 - 1])
    x = 2**62 + np.array([-1, 0, 1, 2, 3, 4])
    assert to_host(histogram(xp.asarray(x), edges)[0]).tolist() == [1, 2, 2]


def test_edges_in_device_memory(stream: Any, xp: Any) -> None:
    x, edges = values_of("f4", 1000), np.array([0, 4, 30], np.float32)
    counts, shown = histogram(xp.asarray(x), xp.asarray(edges))
    assert isinstance(shown, xp.ndarray)
    assert to_host(counts).tolist() == np.histogram(x, edges)[0].tolist()


# --- any layout -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_strides(stream: Any, xp: Any, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    index = data.draw(arrays.basic_indices(shape, allow_ellipsis=False, allow_newaxis=False))
    whole = values_of("f4", *shape)
    axes = data.draw(st.permutations(range(np.ndim(whole[index]))))
    x = np.asarray(whole[index]).transpose(axes)
    given = xp.asarray(xp.asarray(whole)[index]).transpose(axes)
    check(histogram(given, 9, (0, 40)), x, 9, (0, 40))
    weights = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    counts, _ = histogram(given, 9, (0, 40), weights=xp.asarray(weights))
    assert to_host(counts).tolist() == np.histogram(x, 9, (0, 40), weights=weights)[0].tolist()


def test_broadcast_and_reversed(stream: Any, xp: Any) -> None:
    for dtype in ("u1", "f4"):
        x = xp.broadcast_to(xp.asarray(values_of(dtype, 1, 300)), (40, 300))[:, ::-1]
        check(histogram(x, 9, (0, 40)), to_host(x), 9, (0, 40))


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i4", "f8", *slow("?", "f2"), *on_gpu("u8", "f4")])
def test_weights(stream: Any, xp: Any, dtype: str) -> None:
    x, weights = values_of("f4", 6007), values_of(dtype, 6007, seed=2)
    counts, edges = map(to_host, histogram(xp.asarray(x), 10, (0, 40), xp.asarray(weights)))
    reference = expected(x, edges, weights.astype(np.float64))
    assert counts.dtype == (np.int64 if dtype == "?" else dtype)
    # Half an eps of the result: nothing else is rounded. The reference's own error is 6007 eps of float64.
    allowed = bound(counts.dtype, 0.5, abs(reference)) + bound(np.float64, 6007, abs(reference).max())
    assert (abs(counts.astype(np.float64) - reference) <= allowed).all()


@pytest.mark.slow
def test_weights_of_bfloat16(stream: Any, xp: Any) -> None:
    weights = values_of(BFLOAT16, 999)
    sums = to_host(bincount(xp.zeros(999, np.int8), xp.asarray(weights)))
    assert sums.dtype == np.float64
    assert sums.tolist() == [weights.astype(np.float64).sum()]


@pytest.mark.parametrize("bins", [256, *slow(8192, 8193)])
def test_sums_do_not_cancel(stream: Any, xp: Any, bins: int) -> None:
    # Great weights of both signs that leave a small sum, of which naive addition has no digit left.
    rng = np.random.default_rng(1)
    small = rng.random(3000)
    great = rng.random(3000) * 1e12
    weights = np.concatenate([great, small, -great])
    x = np.zeros(9000, np.int64)
    found = to_host(bincount(xp.asarray(x), xp.asarray(weights), length=bins))
    assert found[0] == pytest.approx(small.sum(), rel=1e-14)
    assert not found[1:].any()


def test_weights_that_are_not_finite(stream: Any, xp: Any) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([0, 0, 1, 1, 2, 3, 4, 5, 5])
    weights = np.array([inf, 1, -inf, 5, nan, 2, 0, inf, -inf])
    sums = to_host(bincount(xp.asarray(x), xp.asarray(weights)))
    assert sums[:2].tolist() == [inf, -inf]
    assert np.isnan(sums[[2, 5]]).all()
    assert sums[3:5].tolist() == [2, 0]


@pytest.mark.parametrize("scale", [1e308, 1e-300, 5e-324, 0.0])
def test_weights_of_any_size(stream: Any, xp: Any, scale: float) -> None:
    weights = np.array([1.0, 1.0, 0.5, -0.25]) * scale
    sums = to_host(bincount(xp.asarray(np.array([0, 1, 1, 1])), xp.asarray(weights)))
    assert sums.tolist() == pytest.approx(np.bincount([0, 1, 1, 1], weights).tolist(), rel=1e-15, abs=1e-320)


def test_whole_weights_are_exact(stream: Any, xp: Any) -> None:
    x, weights = np.zeros(3, np.int32), np.array([2**62, 2**62 - 1, 2**53 + 1], np.uint64)
    counts, _ = histogram(xp.asarray(x), 1, (0, 1), xp.asarray(weights))
    assert to_host(counts).tolist() == [2**63 + 2**53]


def test_density(stream: Any, xp: Any) -> None:
    x = values_of("f8", 1000)
    for bins in (10, np.array([0, 1, 5, 40])):
        found, _ = histogram(xp.asarray(x), bins, (0, 40), density=True)
        assert to_host(found).tolist() == pytest.approx(
            np.histogram(x, bins, (0, 40), density=True)[0].tolist(), rel=1e-14
        )


# --- bincount ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype("i4"), *slow(*map(np.dtype, ("u1", "u8"))), *OTHERS], ids=str)
def test_bincount(stream: Any, xp: Any, dtype: np.dtype) -> None:
    x = abs(values_of(np.int8, 5003)).astype(dtype)
    reference = np.bincount(x.astype(np.int64))
    assert to_host(bincount(xp.asarray(x))).tolist() == reference.tolist()
    assert to_host(bincount(xp.asarray(x), minlength=300)).tolist() == [*reference, *[0] * (300 - reference.size)]
    assert to_host(bincount(xp.asarray(x), length=2)).tolist() == reference[:2].tolist()


def test_bincount_passes_over_what_lies_outside(stream: Any, xp: Any) -> None:
    x = np.array([-1, 0, 5, 4, 2**40, -(2**40), 2**32 + 1, 1])
    assert to_host(bincount(xp.asarray(x), length=5)).tolist() == [1, 1, 0, 0, 1]
    assert to_host(bincount(xp.asarray(x), length=0)).shape == (0,)
    assert to_host(bincount(xp.zeros(0, int))).shape == (0,)
    assert to_host(bincount(xp.zeros(0, int), minlength=3)).tolist() == [0, 0, 0]


# --- out, streams, determinism ----------------------------------------------------------------------------------------


def test_out(stream: Any, xp: Any) -> None:
    for dtype in ("u1", "i4"):
        x = values_of(dtype, 500)
        out = xp.full(10, 99, np.int64)
        assert histogram(xp.asarray(x), 10, (0, 40), out=out)[0] is out
        assert to_host(out).tolist() == np.histogram(x, 10, (0, 40))[0].tolist()
        scattered = xp.full(20, 99, np.int64)
        histogram(xp.asarray(x), 10, (0, 40), out=scattered[::2])
        assert to_host(scattered)[::2].tolist() == to_host(out).tolist()
        assert (to_host(scattered)[1::2] == 99).all()
    sums = xp.zeros(50)
    weights = xp.asarray(values_of("f8", 500))
    assert bincount(xp.asarray(abs(values_of("i1", 500)) % 50), weights, length=50, out=sums) is sums


def test_the_edges_are_the_callers(stream: Any, xp: Any) -> None:
    x = xp.asarray(values_of("f4", 500))
    first = to_host(histogram(x, 10, (0, 40))[0])
    _, edges = histogram(x, 10, (0, 40))
    edges[...] = 7
    assert to_host(histogram(x, 10, (0, 40))[0]).tolist() == first.tolist()


@pytest.mark.slow
def test_same_bits_on_each_run_and_stream(stream: Any, xp: Any) -> None:
    x, weights = values_of("f4", 20_001), np.random.default_rng(3).lognormal(0, 20, 20_001)
    given, given_weights = xp.asarray(x), xp.asarray(weights)
    first = to_host(histogram(given, 100, weights=given_weights)[0])
    for other in (stream, another(stream)):
        again = histogram(given, 100, weights=given_weights, stream=other)[0]
        other.sync()
        assert to_host(again).tobytes() == first.tobytes()
    shuffled = np.random.default_rng(4).permutation(20_001)
    again = histogram(xp.asarray(x[shuffled]), 100, weights=xp.asarray(weights[shuffled]))[0]
    assert to_host(again).tobytes() == first.tobytes()


@pytest.mark.gpu
@pytest.mark.large
@pytest.mark.parametrize("start", [0, 1])
def test_past_2_to_the_31(stream: Any, xp: Any, start: int) -> None:
    x = xp.zeros(2**31 + 5, np.int8)
    x[-1] = 3
    x[1] = 2
    assert to_host(bincount(x[start:], length=4)).tolist() == [2**31 + 3 - start, 0, 1, 1]
    assert to_host(histogram(x[start:], 2, (-1, 2))[0]).tolist() == [2**31 + 3 - start, 1]
    every = xp.broadcast_to(xp.zeros(1, np.int8), 2**31 + 5)
    assert to_host(bincount(every, length=1)).tolist() == [2**31 + 5]


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_2_to_the_31_in_one_bin(stream: Any, xp: Any) -> None:
    x = xp.zeros(2**31 + 5, np.int16)
    for length in (4, 20_000, 900_000):
        assert int(bincount(x, length=length)[0]) == 2**31 + 5


def test_no_bins(stream: Any, xp: Any) -> None:
    x = xp.asarray(np.arange(3))
    for weights in (None, x):
        counts = bincount(x, weights, length=0)
        assert counts.shape == (0,)
        assert counts.dtype == (np.int64 if weights is None else np.float64)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: histogram(x.astype(np.complex64)), "histogram: x has dtype complex64"),
        (lambda x: histogram(x, 0), "bins is 0"),
        (lambda x: histogram(x, True), "bins is True"),
        (lambda x: histogram(x, 2.5), "bins is 2.5"),
        (lambda x: histogram(x, 2**30), "bins is 1073741824"),
        (lambda x: histogram(x, "auto"), "bins is 'auto'"),
        (lambda x: histogram(x, 4, (1, 0)), r"range is \(1, 0\)"),
        (lambda x: histogram(x, 4, (0, np.inf)), r"range is \(0, inf\)"),
        (lambda x: histogram(x, 4, 3), "range is 3"),
        (lambda x: histogram(x, [0, 2, 1]), "ascend"),
        (lambda x: histogram(x, [0, np.nan]), "ascend"),
        (lambda x: histogram(x, [1]), r"shape \(1,\)"),
        (lambda x: histogram(x, [[0, 1], [2, 3]]), r"shape \(2, 2\)"),
        (lambda x: histogram(x, [0, 1j]), "bins has dtype complex128"),
        (lambda x: histogram(x, [2j, 1]), "bins has dtype complex128"),
        (lambda x: histogram(x, ["b", "a"]), "bins has dtype <U1"),
        (lambda x: histogram(x, [[0, 1], [2]]), "bins are no array: "),
        (lambda x: histogram(x, 4, (1,)), r"range is \(1,\), expected two numbers"),
        (lambda x: histogram(x, 4, weights=x[1:]), r"weights has shape \(5,\)"),
        (lambda x: histogram(x, 4, out=x[:4] > 0), "out has dtype bool"),
        (lambda x: histogram(x, 4, out=x.astype(np.int64)), r"out has shape \(6,\)"),
        (lambda x: histogram(x, 6, (0, 1), density=True, out=x.astype(np.int64)), "density"),
        (lambda x: bincount(x), "bincount: x has dtype float32"),
        (lambda x: bincount(x.astype(np.int32) - 1), "negative value, -1"),
        (lambda x: bincount(x.astype(np.int64) + 2**40), "greatest value"),
        (lambda x: bincount(x.astype(np.int32), minlength=-1), "minlength is -1"),
        (lambda x: bincount(x.astype(np.int32), length=1.5), "length is 1.5"),
        (lambda x: bincount(x.astype(np.int32), length=True), "length is True"),
        (lambda x: bincount(x.astype(np.int32), x.astype(np.complex64), length=2), "weights has dtype complex64"),
        (lambda x: bincount(x.astype(np.int64), length=6, out=x > 0), "out has dtype bool"),
        (lambda x: histogram("x"), "str, not an array"),
    ],
)
def test_bad_input(stream: Any, xp: Any, call: Any, message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        call(xp.zeros(6, np.float32))
