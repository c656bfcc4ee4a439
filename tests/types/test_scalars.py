"""Python numbers to a scalar's bits: NumPy's, ml_dtypes' and C's own casts of them, and what is refused."""

from __future__ import annotations

import fractions
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.errors import ArgumentError, RangeError, shortened
from cudakit.types.scalars import converter, integer_range, is_masked, to_bytes

pytestmark = pytest.mark.emulator

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def bits(value: Any, dtype: Any) -> bytes:
    """The bytes that a kernel reads of a parameter of `dtype`."""
    dtype = np.dtype(dtype)
    return to_bytes(converter(dtype, "f, parameter x,")(value), dtype)


@pytest.mark.parametrize("code", INTEGERS)
def test_integers_are_passed_whole_up_to_their_limits(code: str) -> None:
    dtype = np.dtype(code)
    size, signed = dtype.itemsize, dtype.kind == "i"
    least, most = (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1) if signed else (0, 2 ** (8 * size) - 1)
    assert integer_range(dtype) == (least, most)
    for value in {least, least + 1, 0, 1, 100, most - 1, most}:
        assert bits(value, code) == value.to_bytes(size, "little", signed=signed)
        assert bits(dtype.type(value), code) == dtype.type(value).tobytes()
        # cuda.core takes an int as a signed 64-bit number.
        assert -(2**63) <= converter(dtype, "x")(value) < 2**63  # type: ignore[operator]
    for value in (least - 1, most + 1):
        with pytest.raises(
            RangeError, match=rf"^f, parameter x, takes {dtype}, got {value} \(int\): outside {least} … "
        ):
            bits(value, code)
    assert bits(True, code) == bits(np.True_, code) == (1).to_bytes(size, "little")


def test_bools_are_passed_as_integers_of_0_and_1() -> None:
    assert integer_range(np.dtype("?")) == (0, 1)
    assert [bits(value, "?") for value in (True, False, 1, np.int8(0))] == [b"\1", b"\0", b"\1", b"\0"]
    with pytest.raises(RangeError, match="outside 0 … 1"):
        bits(2, "?")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "not an integer; convert it with int"),
        (math.inf, "not a finite number, let alone an integer"),
        (math.nan, "not a finite number, let alone an integer"),
        ("1", "not an integer"),
        (1j, "not an integer"),
        (None, "not an integer"),
        (np.timedelta64(1, "s"), "not an integer"),
    ],
)
def test_what_is_no_integer(value: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        bits(value, "i4")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_floats_are_rounded_to_the_nearest(dtype: Any) -> None:
    random = np.random.default_rng(0)
    for value in [0.0, -0.0, 1.0, 0.1, -1 / 3, 1e-8, math.inf, -math.inf, *random.standard_normal(50).tolist()]:
        assert bits(value, dtype) == np.array(value, "f8").astype(dtype).tobytes()
        assert bits(np.float64(value), dtype) == np.array(value, "f8").astype(dtype).tobytes()
    assert np.isnan(np.frombuffer(bits(math.nan, dtype), dtype).astype("f8")).all()
    assert bits(3, dtype) == np.array(3).astype(dtype).tobytes()
    assert bits(True, dtype) == np.array(1).astype(dtype).tobytes()


def test_a_nan_keeps_its_own_bits() -> None:
    for code, pattern in (("f4", 0x7FC12345), ("f2", 0x7E12), ("f4", 0xFFC00001)):
        value = np.array(pattern, f"u{np.dtype(code).itemsize}").view(code)[()]
        assert bits(value, code) == pattern.to_bytes(np.dtype(code).itemsize, "little")


def nearest(value: fractions.Fraction, dtype: Any) -> bytes:
    """What `value` is rounded to once, to the nearest and of two the even one, found by search."""
    dtype = np.dtype(dtype)
    middle = np.array(float(value), dtype)
    around = [middle[()], np.nextafter(middle, dtype.type(-np.inf)), np.nextafter(middle, dtype.type(np.inf))]

    def badness(candidate: Any) -> tuple[fractions.Fraction, int]:
        return abs(fractions.Fraction(float(candidate)) - value), int(candidate.view(f"u{dtype.itemsize}")) & 1

    return bytes(min((np.asarray(each, dtype)[()] for each in around), key=badness).tobytes())


@pytest.mark.parametrize("dtype", ["f2", "f4", ml_dtypes.bfloat16])
def test_numbers_that_no_float_holds_are_rounded_once(dtype: Any) -> None:
    """By way of a float64 (and ml_dtypes by way of a float32) they would be rounded twice."""
    steps = np.finfo("f4") if dtype == "f4" else ml_dtypes.finfo(dtype)
    half = fractions.Fraction(float(steps.eps)) / 2
    for odd in (0, 1):
        for beyond in (fractions.Fraction(1, 2**80), fractions.Fraction(-1, 2**80), fractions.Fraction(0)):
            exact = 1 + odd * 2 * half + half + beyond
            assert bits(exact, dtype) == nearest(exact, dtype)
            assert bits(-exact, dtype) == nearest(-exact, dtype)


def test_integers_that_a_float64_does_not_hold() -> None:
    for value in (2**53 + 1, 2**24 + 1, 2**60 + 2**36 + 1, 2**60 + 2**36 - 1, 2**60 + 2**36, 2**60 + 3 * 2**36):
        assert bits(value, "f4") == nearest(fractions.Fraction(value), "f4")
        assert bits(-value, "f4") == nearest(fractions.Fraction(-value), "f4")
    assert bits(2**53 + 1, "f8") == struct.pack("<d", 2.0**53)


@pytest.mark.parametrize(
    ("value", "dtype", "kind", "words"),
    [
        (1e39, "f4", RangeError, "beyond the largest float32"),
        (-70000.0, "f2", RangeError, "beyond the largest float16"),
        (10**400, "f8", RangeError, "too large"),
        (1j, "f4", ArgumentError, "a complex number; take its .real"),
        (np.complex64(1), "f8", ArgumentError, "a complex number; take its .real"),
        ("1", "f4", ArgumentError, "not a number"),
        (b"1", "f8", ArgumentError, "not a number"),
        (None, "f4", ArgumentError, "not a number"),
        (np.timedelta64(1, "s"), "f8", ArgumentError, "not a number"),
        (np.ma.masked, "f8", ArgumentError, "not a number"),
        (np.str_("1"), "f4", ArgumentError, "not a number"),
        (600.0, ml_dtypes.float8_e4m3fn, RangeError, "beyond the largest float8_e4m3fn"),
        ("1", "c8", ArgumentError, "not a complex number"),
        ([1], "c16", ArgumentError, "not a complex number"),
        (np.ma.masked, "c8", ArgumentError, "not a complex number"),
        (1e39, "c8", RangeError, "beyond the largest complex64"),
        (10**400, "c16", ArgumentError, "not a complex number"),
    ],
)
def test_what_a_float_or_complex_number_cannot_be(value: Any, dtype: Any, kind: type, words: str) -> None:
    with pytest.raises(kind) as caught:
        bits(value, dtype)
    shown = f"{shortened(value)} ({type(value).__name__})"
    assert str(caught.value) == f"f, parameter x, takes {np.dtype(dtype)}, got {shown}: {words}"


def test_complex_numbers() -> None:
    for value in (1 + 2j, -0.1j, 3, 2.5, complex(math.inf, -0.0), np.complex64(1 - 1j), np.float32(0.1), True):
        for code in ("c8", "c16"):
            assert bits(value, code) == np.array(value, code).tobytes()
    assert bits(2**60 + 2**36 + 1, "c8")[:4] == bits(2**60 + 2**36 + 1, "f4")
    nan = np.array([0x7FC12345, 0x3F800000], "u4").view("c8")[0]
    assert bits(nan, "c8") == nan.tobytes()


def test_masked_arrays_are_known() -> None:
    assert is_masked(np.ma.array([1]))
    assert is_masked(np.ma.masked)
    assert not is_masked(np.zeros(1))
    assert not is_masked(1)
