"""Single operations of Tile IR, without a compiler: each rounding, sign and width beside exact numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.emulator.tile import values
from cudakit.emulator.tile.accesses import COMBINED
from cudakit.emulator.tile.arithmetic import holds
from cudakit.emulator.tile.decode import decode
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Bounded, DivisibleBy, Operation, SameElements, Tile

MODES = ("zero", "negative_inf", "positive_inf")
FLOATS = ("f16", "bf16", "f32", "f64")


def operation_of(name: str, operands: int, to: Tile, attributes: dict[str, Any]) -> Operation:
    return Operation(name, (operands,), (to,), tuple(range(operands)), {}, attributes, (), None)


def computed(name: str, *operands: Any, to: str, shape: tuple[int, ...] | None = None, **attributes: Any) -> Any:
    """What an operation gives; `to` is the type of its result's elements."""
    tiles = [np.asarray(each) for each in operands]
    given = operation_of(name, len(tiles), Tile(tiles[0].shape if shape is None else shape, to), attributes)
    block = SimpleNamespace(values=[*tiles, None])
    with np.errstate(all="ignore"):
        decode([given])[0].step(block)  # type: ignore[arg-type]
    return block.values[-1]


def floats(element: str, seed: int = 0, count: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)
    return numbers.astype(values.element_dtype(element))


def exact(number: Any) -> Fraction:
    return Fraction(float(number))


def is_rounded(got: Any, number: Fraction, mode: str) -> bool:
    """Whether a number is the one next to an exact one, on the side that a mode says."""
    up, down = (np.nextafter(got, got.dtype.type(limit)) for limit in (np.inf, -np.inf))
    below = exact(got) <= number < exact(up)
    above = exact(down) < number <= exact(got)
    return {"negative_inf": below, "positive_inf": above, "zero": below if number >= 0 else above}[mode]


# ── floats ──


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_arithmetic_that_is_rounded_to_one_side(element: str, mode: str) -> None:
    a, b, c = (floats(element, seed) for seed in range(3))
    for name, want in (
        ("addf", [exact(x) + exact(y) for x, y in zip(a, b, strict=True)]),
        ("subf", [exact(x) - exact(y) for x, y in zip(a, b, strict=True)]),
        ("mulf", [exact(x) * exact(y) for x, y in zip(a, b, strict=True)]),
        ("divf", [exact(x) / exact(y) for x, y in zip(a, b, strict=True)]),
    ):
        got = computed(name, a, b, to=element, rounding=mode)
        assert got.dtype == a.dtype
        assert all(is_rounded(x, number, mode) for x, number in zip(got, want, strict=True)), name
    want = [exact(x) * exact(y) + exact(z) for x, y, z in zip(a, b, c, strict=True)]
    got = computed("fma", a, b, c, to=element, rounding=mode)
    assert all(is_rounded(x, number, mode) for x, number in zip(got, want, strict=True))


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_roots_that_are_rounded_to_one_side(element: str, mode: str) -> None:
    x = np.abs(floats(element))
    got = computed("sqrt", x, to=element, rounding=mode)
    up, down = (np.nextafter(got, got.dtype.type(limit)) for limit in (np.inf, 0))
    for root, more, less, number in zip(got, up, down, x, strict=True):
        if mode == "positive_inf":
            assert exact(less) ** 2 < exact(number) <= exact(root) ** 2
        else:
            assert exact(root) ** 2 <= exact(number) < exact(more) ** 2
    assert computed("sqrt", np.array([4.0, 0.25], got.dtype), to=element, rounding=mode).tolist() == [2, 0.5]


@pytest.mark.parametrize(("mode", "is_negative"), [("negative_inf", True), ("positive_inf", False), ("zero", False)])
def test_what_cancels_has_the_sign_of_the_mode(mode: str, is_negative: bool) -> None:
    for element in ("f16", "bf16"):
        one = np.array([1.5, 0.0], values.element_dtype(element))
        assert np.signbit(computed("addf", one[:1], -one[:1], to=element, rounding=mode))[0] == is_negative
        assert not np.signbit(computed("addf", one[1:], one[1:], to=element, rounding=mode))[0]


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_products_with_sums_of_16_bits_are_rounded_once(element: str) -> None:
    a, b, c = (floats(element, seed) for seed in range(3))
    got = computed("fma", a, b, c, to=element)
    for x, y, z, found in zip(a, b, c, got, strict=True):
        number = exact(x) * exact(y) + exact(z)
        near = [np.nextafter(found, found.dtype.type(limit)) for limit in (np.inf, -np.inf)]
        assert all(abs(exact(found) - number) <= abs(exact(other) - number) for other in near)


def test_subnormal_numbers_are_flushed_where_that_is_asked() -> None:
    tiny, one = np.float32(1e-39), np.float32(1)
    x = np.array([tiny, -tiny, one, tiny], np.float32)
    y = np.array([0, 0, tiny, tiny], np.float32)
    assert computed("addf", x, y, to="f32", ftz=True).tolist() == [0, 0, 1, 0]
    assert computed("addf", x, y, to="f32").tolist() == [tiny, -tiny, 1, tiny + tiny]
    small = np.array([2e-38], np.float32)
    assert computed("mulf", small, np.array([0.1], np.float32), to="f32", ftz=True).tolist() == [0]


@pytest.mark.parametrize("mode", ["nearest_even", "approx", "full"])
def test_modes_that_are_to_nearest_here(mode: str) -> None:
    a, b = floats("f32"), floats("f32", 1)
    assert computed("divf", a, b, to="f32", rounding=mode).tolist() == (a / b).tolist()
    assert computed("sqrt", abs(a), to="f32", rounding=mode).tolist() == np.sqrt(abs(a)).tolist()


@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"])
def test_functions_are_those_of_float64_rounded(element: str, name: str) -> None:
    x = np.abs(floats(element, count=20))
    function = (lambda value: 1 / math.sqrt(value)) if name == "rsqrt" else getattr(np, name)
    with np.errstate(over="ignore"):
        want = (
            np.array([function(float(each)) for each in x]).astype("f4" if element != "f64" else "f8").astype(x.dtype)
        )
    np.testing.assert_array_max_ulp(computed(name, x, to=element), want, 1 if element == "f64" else 0)


@pytest.mark.parametrize("element", FLOATS)
def test_other_functions_of_floats(element: str) -> None:
    x = np.array([-2.5, -0.5, 0.5, 2.0], values.element_dtype(element))
    y = np.array([2.0, 1.0, -2.0, 3.0], x.dtype)
    assert computed("floor", x, to=element).tolist() == [-3, -1, 0, 2]
    assert computed("ceil", x, to=element).tolist() == [-2, 0, 1, 2]
    assert computed("absf", x, to=element).tolist() == [2.5, 0.5, 0.5, 2]
    assert computed("negf", x, to=element).tolist() == [2.5, 0.5, -0.5, -2]
    assert computed("remf", x, y, to=element).tolist() == [-0.5, -0.5, 0.5, 2]
    assert computed("fpowf", x, y, to=element).tolist() == [6.25, -0.5, 4, 8]
    assert computed("fpowi", x, np.array([2, 3, -1, 0], "i4"), to=element).tolist() == [6.25, -0.125, 2, 1]
    assert computed("atan2", abs(x), np.zeros(4, x.dtype), to=element)[0] == x.dtype.type(math.pi / 2)


def test_the_larger_of_two_floats() -> None:
    nan = np.float32(np.nan)
    a, b = np.array([1, 2, -0.0, 0.0, nan, 3, nan], "f4"), np.array([2, 1, 0.0, -0.0, 4, nan, nan], "f4")
    most, least = computed("maxf", a, b, to="f32"), computed("minf", a, b, to="f32")
    np.testing.assert_array_equal(most, [2, 2, 0, 0, 4, 3, nan])
    np.testing.assert_array_equal(least, [1, 1, 0, 0, 4, 3, nan])
    assert not np.signbit(most[2:4]).any()
    assert np.signbit(least[2:4]).all()
    np.testing.assert_array_equal(computed("maxf", a, b, to="f32", nan=True)[4:], [nan] * 3)
    np.testing.assert_array_equal(computed("minf", a, b, to="f32", nan=True)[4:], [nan] * 3)


PREDICATES = {
    "equal": (False, True, False),
    "not_equal": (True, False, True),
    "less_than": (True, False, False),
    "less_than_or_equal": (True, True, False),
    "greater_than": (False, False, True),
    "greater_than_or_equal": (False, True, True),
}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_comparisons(predicate: str) -> None:
    want = list(PREDICATES[predicate])
    a, b = np.array([1, 2, 3, np.nan, 1], "f4"), np.array([2, 2, 2, 1, np.nan], "f4")
    for element in ("f32", "bf16"):
        x, y = (each.astype(values.element_dtype(element)) for each in (a, b))
        for ordering, is_unordered in (("ordered", False), ("unordered", True)):
            got = computed("cmpf", x, y, to="i1", predicate=predicate, ordering=ordering)
            assert got.tolist() == [*want, is_unordered, is_unordered]
    whole = a[:3].astype("i4"), b[:3].astype("i4")
    for signedness in ("signed", "unsigned"):
        got = computed("cmpi", *whole, to="i1", predicate=predicate, signedness=signedness)
        assert got.tolist() == want
    minus = np.array([-1], "i4"), np.array([1], "i4")
    for signedness, at in (("signed", 0), ("unsigned", 2)):
        got = computed("cmpi", *minus, to="i1", predicate=predicate, signedness=signedness)
        assert got.tolist() == [want[at]]
    bits = np.array([True]), np.array([False])  # a bit that is set is -1
    for signedness, at in (("signed", 0), ("unsigned", 2)):
        got = computed("cmpi", *bits, to="i1", predicate=predicate, signedness=signedness)
        assert got.tolist() == [want[at]]


# ── integers ──


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("addi", [False, True, True, False]),
        ("subi", [False, True, True, False]),
        ("muli", [False, False, False, True]),
        ("andi", [False, False, False, True]),
        ("ori", [False, True, True, True]),
        ("xori", [False, True, True, False]),
    ],
)
def test_arithmetic_of_single_bits(name: str, want: list[bool]) -> None:
    got = computed(name, [False, False, True, True], [False, True, False, True], to="i1")
    assert (got.dtype, got.tolist()) == (np.bool_, want)


def test_functions_of_single_bits() -> None:
    bits, others = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name in ("negi", "absi"):
        assert computed(name, bits, to="i1").tolist() == bits.tolist()
    # Signed, a bit that is set is -1.
    for name, signedness, want in (
        ("maxi", "signed", [False, False, False, True]),
        ("maxi", "unsigned", [False, True, True, True]),
        ("mini", "signed", [False, True, True, True]),
        ("mini", "unsigned", [False, False, False, True]),
    ):
        got = computed(name, bits, others, to="i1", signedness=signedness)
        assert (got.dtype, got.tolist()) == (np.bool_, want)


def test_functions_of_integers() -> None:
    a, b = np.array([-128, -1, 5], "i1"), np.array([1, 3, -2], "i1")
    assert computed("negi", a, to="i8").tolist() == [-128, 1, -5]
    assert computed("absi", a, to="i8").tolist() == [-128, 1, 5]
    assert computed("maxi", a, b, to="i8", signedness="signed").tolist() == [1, 3, 5]
    assert computed("maxi", a, b, to="i8", signedness="unsigned").tolist() == [-128, -1, -2]
    assert computed("mini", a, b, to="i8", signedness="signed").tolist() == [-128, -1, -2]
    assert computed("mini", a, b, to="i8", signedness="unsigned").tolist() == [1, 3, 5]


def test_division_by_each_rounding() -> None:
    a = np.array([7, -7, 7, -7, 6, -6], "i4")
    b = np.array([2, 2, -2, -2, 3, 3], "i4")
    for mode, want in (
        ("zero", [3, -3, -3, 3, 2, -2]),
        ("negative_inf", [3, -4, -4, 3, 2, -2]),
        ("positive_inf", [4, -3, -3, 4, 2, -2]),
    ):
        assert computed("divi", a, b, to="i32", signedness="signed", rounding=mode).tolist() == want
    assert computed("divi", a, b, to="i32", signedness="signed").tolist() == [3, -3, -3, 3, 2, -2]
    assert computed("remi", a, b, to="i32", signedness="signed").tolist() == [1, -1, 1, -1, 0, 0]
    large = np.array([-7], "i4"), np.array([2], "i4")
    assert computed("divi", *large, to="i32", signedness="unsigned").tolist() == [(2**32 - 7) // 2]
    up = computed("divi", *large, to="i32", signedness="unsigned", rounding="positive_inf")
    assert up.tolist() == [(2**32 - 7) // 2 + 1]
    assert computed("remi", *large, to="i32", signedness="unsigned").tolist() == [1]


@pytest.mark.parametrize("name", ["divi", "remi"])
def test_division_by_zero(name: str) -> None:
    with pytest.raises(EmulationError, match=f"{name}: an integer is divided by 0"):
        computed(name, np.int32(1), np.int32(0), to="i32", signedness="signed")
    with pytest.raises(EmulationError, match=f"{name}: an integer is divided by 0"):
        computed(name, np.ones(2, "i4"), np.zeros(2, "i4"), to="i32", signedness="signed")
    got = computed(name, np.array([5, 6], "i4"), np.array([0, 4], "i4"), to="i32", signedness="signed")
    assert got[1] == {"divi": 1, "remi": 2}[name]


def test_shifts() -> None:
    a = np.array([-128, 1, -1], "i1")
    assert computed("shli", a, np.array([1, 7, 1], "i1"), to="i8").tolist() == [0, -128, -2]
    assert computed("shri", a, np.array([1, 1, 7], "i1"), to="i8", signedness="signed").tolist() == [-64, 0, -1]
    assert computed("shri", a, np.array([1, 1, 7], "i1"), to="i8", signedness="unsigned").tolist() == [64, 0, 1]
    assert computed("shli", np.array([True, False]), np.array([True, True]), to="i1").tolist() == [True, False]
    assert computed("shli", np.int8(1), np.int8(7), to="i8") == -128
    for by in (8, -1):
        with pytest.raises(EmulationError, match=f"shli: 8 bits are shifted by {by}"):
            computed("shli", np.int8(1), np.int8(by), to="i8")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_high_halves_of_products(bits: int) -> None:
    dtype = np.dtype(f"i{bits // 8}")
    edges = np.array([0, 1, -1, np.iinfo(dtype).min, np.iinfo(dtype).max, 0x7B], dtype)
    a, b = np.repeat(edges, edges.size), np.tile(edges, edges.size)
    mask = (1 << bits) - 1
    want = [(int(x) & mask) * (int(y) & mask) >> bits for x, y in zip(a, b, strict=True)]
    got = computed("mulhii", a, b, to=f"i{bits}")
    assert got.dtype == dtype
    assert [int(each) & mask for each in got] == want


@pytest.mark.parametrize(("mode", "want"), [("umax", [1, -1, -2]), ("umin", [1, 1, 1]), ("max", [1, 1, 1])])
def test_what_atomic_operations_combine(mode: str, want: list[int]) -> None:
    got = COMBINED[mode](np.array([1, -1, -2], "i4"), np.array([1, 1, 1], "i4"))
    assert (got.dtype, got.tolist()) == (np.int32, want)


def test_atomic_sums_of_narrow_floats_are_rounded_once() -> None:
    bf16 = np.dtype(ml_dtypes.bfloat16)
    got = COMBINED["addf"](np.array([256], bf16), np.array([1.5], bf16))
    assert (got.dtype, got.tolist()) == (bf16, [258])
    assert COMBINED["xchg"](np.array([1]), np.array([2])).tolist() == [2]


# ── conversions ──


def test_integers_to_single_bits_and_back() -> None:
    assert computed("trunci", np.array([0, 1, 2, 3, -1], "i4"), to="i1").tolist() == [False, True, False, True, True]
    assert computed("trunci", np.array([256 + 3, -1], "i4"), to="i8").tolist() == [3, -1]
    assert computed("exti", np.array([True, False]), to="i8", signedness="signed").tolist() == [-1, 0]
    assert computed("exti", np.array([True, False]), to="i8", signedness="unsigned").tolist() == [1, 0]
    assert computed("exti", np.array([-1], "i1"), to="i32", signedness="signed").tolist() == [-1]
    assert computed("exti", np.array([-1], "i1"), to="i32", signedness="unsigned").tolist() == [255]
    numbers = np.array([0.0, -0.0, 0.25, -3.0], "f4")
    for signedness in ("signed", "unsigned"):
        assert computed("ftoi", numbers, to="i1", signedness=signedness).tolist() == [False, False, True, True]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_floats_to_integers_stay_within_their_range(bits: int) -> None:
    numbers = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 1e30, -1e30, 100.0], "f8")
    dtype, element = np.dtype(f"i{bits // 8}"), f"i{bits}"
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    got = computed("ftoi", numbers, to=element, signedness="signed")
    assert (got.dtype, got.tolist()) == (dtype, [1, -1, 0, high, low, high, low, 100])
    got = computed("ftoi", numbers, to=element, signedness="unsigned")
    assert (got.dtype, got.tolist()) == (dtype, [1, 0, 0, -1, 0, -1, 0, 100])
    edges = np.array([float(high), float(low), float(high) / 2], "f8")
    assert computed("ftoi", edges, to=element, signedness="signed").tolist() == [high, low, int(float(high) / 2)]


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "tf32", "f64"])
def test_integers_to_floats(element: str) -> None:
    numbers = np.array([0, 1, -1, 100], "i1")
    assert computed("itof", numbers, to=element, signedness="signed").tolist() == [0, 1, -1, 100]
    assert computed("itof", numbers, to=element, signedness="unsigned").tolist() == [0, 1, 255, 100]
    with pytest.raises(EmulationError, match="itof with rounding zero is not emulated"):
        computed("itof", numbers, to=element, signedness="signed", rounding="zero")


def test_large_integers_are_rounded_once() -> None:
    halfway = (1 << 62) + (1 << 38)  # between two of float32
    for number, want in ((halfway, 1 << 62), (halfway + 1, (1 << 62) + (1 << 39))):
        assert int(computed("itof", np.array([number], "i8"), to="f32", signedness="signed")[0]) == want
    tie = (1 << 62) + (1 << 54)  # between two of bfloat16
    for number, want in ((tie, 1 << 62), (tie + 1, (1 << 62) + (1 << 55)), (-tie - 1, -(1 << 62) - (1 << 55))):
        assert int(computed("itof", np.array([number], "i8"), to="bf16", signedness="signed")[0]) == want
    whole = np.array([-1], "i8")
    assert float(computed("itof", whole, to="bf16", signedness="unsigned")[0]) == 2.0**64
    assert computed("itof", np.array([(1 << 53) - 1], "i8"), to="f16", signedness="signed")[0] == np.inf


@pytest.mark.parametrize("mode", [*MODES, "nearest_away"])
def test_floats_to_narrower_ones_by_each_rounding(mode: str) -> None:
    numbers = floats("f64")
    for element in ("f16", "bf16", "f32") if mode in MODES else ():
        got = computed("ftof", numbers, to=element, rounding=mode)
        assert all(is_rounded(x, exact(number), mode) for x, number in zip(got, numbers, strict=True))
        same = numbers.astype(got.dtype)
        assert computed("ftof", same.astype("f8"), to=element, rounding=mode).tolist() == same.tolist()
    single = floats("f32")
    if mode in ("zero", "nearest_away"):
        bits = single.view("u4") + (0x1000 if mode == "nearest_away" else 0) & 0xFFFFE000
        got = computed("ftof", single, to="tf32", rounding=mode)
        assert got.view("u4").tolist() == bits.tolist()
        odd = np.array([np.inf, -np.inf, np.nan], "f4")
        np.testing.assert_array_equal(computed("ftof", odd, to="tf32", rounding=mode), odd)
    else:
        with pytest.raises(EmulationError, match=f"a conversion to tf32 with rounding {mode} is not emulated"):
            computed("ftof", single, to="tf32", rounding=mode)


def test_floats_to_powers_of_two() -> None:
    numbers = np.array([1.0, 1.5, 2.0, 0.0, 2.0**-130, 2.0**127, np.inf, np.nan, -3.0], "f4")
    for mode, want in (
        ("zero", [127, 127, 128, 0, 0, 254, 254, 255, 128]),
        ("positive_inf", [127, 128, 128, 0, 0, 254, 254, 255, 129]),
    ):
        assert computed("ftof", numbers, to="f8E8M0FNU", rounding=mode).view("u1").tolist() == want


def test_floats_of_eight_bits_without_a_sign() -> None:
    table = values._E5M3
    bits = np.arange(255, dtype="u1")
    assert values.narrowed(table[:255].astype("f8"), "f8E5M3FNU").tolist() == bits.tolist()
    middle = (table[:254].astype("f8") + table[1:255]) / 2
    assert values.narrowed(middle, "f8E5M3FNU").tolist() == [k + k % 2 for k in range(254)]
    assert values.narrowed(np.nextafter(middle, 0), "f8E5M3FNU").tolist() == list(range(254))
    assert values.narrowed(np.nextafter(middle, 1e9), "f8E5M3FNU").tolist() == list(range(1, 255))
    odd = np.array([-1.0, np.inf, -np.inf, np.nan])
    assert values.narrowed(odd, "f8E5M3FNU").tolist() == [0, 254, 0, 255]
    assert values.wide(bits).tolist() == table[:255].tolist()
    assert [float(each) for each in table[[0, 1, 7, 8, 9, 120, 254]]] == [
        0, 2.0**-17, 7 * 2.0**-17, 2.0**-14, 9 * 2.0**-17, 1.0, 1.75 * 2.0**16
    ]  # fmt: skip


@pytest.mark.parametrize(("element", "most"), [("f8E4M3FN", 448), ("f8E5M2", 57344), ("f4E2M1FN", 6)])
def test_narrow_floats_stay_finite(element: str, most: float) -> None:
    odd = np.array([1e9, -1e9, np.inf, -np.inf, 1.0])
    assert values.narrowed(odd, element).astype("f4").tolist() == [most, -most, most, -most, 1]
    nan = values.narrowed(np.array([np.nan]), element).astype("f4")
    assert nan[0] == 6 if element == "f4E2M1FN" else np.isnan(nan[0])


def test_two_roundings_are_as_one() -> None:
    for element, step in (("bf16", 2.0**-7), ("tf32", 2.0**-10), ("f8E4M3FN", 2.0**-3)):
        tie, more = 1 + step / 2, 1 + step / 2 + 2.0**-40
        got = values.narrowed(np.array([tie, more, -more, tie + step]), element).astype("f8")
        assert got.tolist() == [1, 1 + step, -1 - step, 1 + 2 * step]
    less = np.array([1 + 2.0**-11 - 2.0**-30], "f8")
    assert values.narrowed(less, "tf32").tolist() == [1]
    assert values.narrowed(np.array([np.inf, np.nan]), "tf32").tolist()[0] == np.inf


@pytest.mark.parametrize(
    ("name", "number"),
    [("zero", 0.0), ("neg_zero", -0.0), ("pos_inf", np.inf), ("neg_inf", -np.inf), ("nan", np.nan)],
)
def test_padding(name: str, number: float) -> None:
    for element in ("f16", "bf16", "f32", "f64"):
        got = np.asarray(values.padding(name, values.element_dtype(element)))
        assert got.dtype == values.element_dtype(element)
        np.testing.assert_array_equal(got.astype("f8"), number)
        assert np.isnan(number) or np.signbit(got.astype("f8")) == np.signbit(number)
    assert values.padding(name, np.dtype("u1")) == {"pos_inf": 254, "nan": 255}.get(name, 0)


def test_constants() -> None:
    assert values.constant(np.array([1, 2, 3], "i4").tobytes(), Tile((3,), "i32")).tolist() == [1, 2, 3]
    assert values.constant(np.array([7], "i2").tobytes(), Tile((2, 2), "i16")).tolist() == [[7, 7], [7, 7]]
    assert values.constant(np.arange(4, dtype="f4").tobytes(), Tile((2, 2), "f32")).tolist() == [[0, 1], [2, 3]]
    assert values.constant(b"\0", Tile((3,), "i1")).tolist() == [False] * 3
    assert values.constant(b"\xff", Tile((3,), "i1")).tolist() == [True] * 3
    assert values.constant(b"\1\0\1", Tile((3,), "i1")).tolist() == [True, False, True]
    assert values.constant(b"\x0d\x01", Tile((10,), "i1")).tolist() == [True, False, True, True] + [False] * 4 + [
        True,
        False,
    ]
    numbers = np.array([1.5, -2.0, 1 + 2.0**-10, 3.0], "f4")
    data = b"".join((int(bits) >> 13).to_bytes(3, "little") for bits in numbers.view("u4"))
    assert values.constant(data, Tile((4,), "tf32")).tolist() == numbers.tolist()
    with pytest.raises(EmulationError, match="elements of type f6 are not emulated"):
        values.constant(b"", Tile((1,), "f6"))


def test_two_numbers_of_four_bits_in_a_byte() -> None:
    halves = np.array([1, -2, 7, -8], ml_dtypes.int4)
    packed = computed("pack", halves, to="i8", shape=(2,))
    assert packed.view("u1").tolist() == [0xE1, 0x87]
    assert computed("unpack", packed, to="i4", shape=(4,)).astype("i4").tolist() == [1, -2, 7, -8]
    assert computed("pack", np.array([1, -1], "i2"), to="i8", shape=(4,)).tolist() == [1, 0, -1, -1]
    assert computed("unpack", np.array([1, 0, -1, -1], "i1"), to="i16", shape=(2,)).tolist() == [1, -1]
    assert values.unsigned(halves).tolist() == [1, 14, 7, 8]


# ── promises ──


@pytest.mark.parametrize(
    ("predicate", "value", "words"),
    [
        (DivisibleBy(4), [4, 8, 6], "a multiple of 4, and it is 4, 8, 6"),
        (DivisibleBy(4, 2, 0), [4, 1, 6], "a multiple of 4, and it is 4, 1, 6"),
        (Bounded(2, None), [1, 2, 3, 4, 5], "at least 2, and it is 1, 2, 3, 4 …"),
        (Bounded(None, 3), [1, 2, 3, 4], "at most 3, and it is 1, 2, 3, 4"),
        (Bounded(0, 3), [-1], "at least 0 and at most 3, and it is -1"),
        (SameElements((2,)), [1, 1, 2, 3], "the same elements, and it is 1, 1, 2, 3"),
    ],
)
def test_broken_promises(predicate: Any, value: Sequence[int], words: str) -> None:
    with pytest.raises(EmulationError, match=f"a promise is broken: {words}$"):
        computed("assume", np.array(value, "i4"), to="i32", predicate=predicate)


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        (DivisibleBy(4), [4, -8, 0]),
        (DivisibleBy(4, 2, 0), [4, 1, 8, 3]),
        (DivisibleBy(16), np.array([1 << 63], "u8")),
        (DivisibleBy(4, 2, 0), np.int32(8)),
        (Bounded(2, 3), [2, 3]),
        (Bounded(None, None), [2, 3]),
        (SameElements((2,)), [1, 1, 3, 3]),
        (SameElements((0, 2)), [[1, 1], [2, 2]]),
        (SameElements((2,)), np.int32(3)),
    ],
)
def test_promises_that_hold(predicate: Any, value: Any) -> None:
    assert holds(predicate, np.asarray(value))
    assert computed("assume", np.asarray(value), to="i32", predicate=predicate) is not None


def test_operations_that_are_not_known() -> None:
    with pytest.raises(EmulationError, match="the operation nonsense of Tile IR is not emulated"):
        computed("nonsense", 1, to="i32")
