"""Conversions of `printf` are those of the host's C library, and need none."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from typing import Any

import pytest

from cudakit.emulator.instructions.formats import formatted

RNG = random.Random(5)
FLOATS = [0.0, -0.0, 0.5, 1.5, -2.5, 1e22, 5e-324, math.inf, -math.inf, math.nan, math.copysign(math.nan, -1)]


def value_of(conversion: str) -> tuple[Any, Any]:
    """A value to print, in Python and as an argument of C."""
    if conversion in "eEfFgGaA":
        bits = struct.pack("Q", RNG.getrandbits(64))
        value = RNG.choice([*FLOATS, RNG.uniform(-9, 9), RNG.randrange(10**6) / 8, *struct.unpack("d", bits)])
        return value, ctypes.c_double(value)
    if conversion == "s":
        value = RNG.choice([b"", b"text", "größer".encode()])
        return value, ctypes.c_char_p(value)
    number = RNG.choice([0, 1, -1, RNG.getrandbits(RNG.randrange(1, 64)), -RNG.getrandbits(40)])
    if conversion == "c":
        return number, ctypes.c_int(number & 0xFF)
    return (number if conversion in "di" else number % 2**64), ctypes.c_longlong(number)


@pytest.mark.parametrize("conversion", "diouxXeEfFgGaAcsp")
def test_conversions_are_c_s(conversion: str) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        pytest.skip("the reference is glibc")
    out = ctypes.create_string_buffer(1000)
    defined = "-" if conversion in "csp" else "-+ 0" if conversion in "diu" else "-+ #0"
    for _ in range(400):
        flags = "".join(flag for flag in defined if RNG.random() < 0.3)
        width, precision = RNG.choice([None, RNG.randrange(1, 25)]), RNG.choice([None, 0, RNG.randrange(20)])
        if conversion in "cp":
            precision = None
        value, argument = value_of(conversion)
        size = "ll" if conversion in "diouxX" else ""
        text = f"%{flags}{width or ''}{'' if precision is None else f'.{precision}'}{size}{conversion}"
        count = library.snprintf(out, ctypes.c_size_t(1000), text.encode(), argument)
        assert formatted(conversion, flags, width or 0, precision, value) == out.raw[:count], (text, value)


def test_widths_and_precisions_that_are_arguments_may_be_negative() -> None:
    assert formatted("d", "", -4, -1, 7) == b"7   "
    assert formatted("s", "", 4, -1, b"ab") == b"  ab"
