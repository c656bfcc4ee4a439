"""Conversion of Python values to the exact bits of C++ scalars, structs and arrays. Others are refused."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, RangeError, shortened

#: Values that cuda.core's launch takes: an int is passed as 8 bytes (a narrower parameter reads the low bytes), a float
#: as a double, a complex as two doubles.
Passed: TypeAlias = int | float | complex
_COMPLEX = (complex, np.complexfloating)
#: Classes that `float` and `complex` accept although they are no numbers: text, bytes, times.
_NO_NUMBERS = (str, bytes, np.flexible, np.timedelta64)
Converter: TypeAlias = Callable[[Any], Passed]


def is_masked(value: Any) -> bool:
    """Return whether a value is NumPy's masked array, without importing ``numpy.ma``, which is slow."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def integer_range(dtype: np.dtype) -> tuple[int, int]:
    """Return the least and greatest value of an integer or bool dtype."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def converter(dtype: np.dtype, where: str) -> Converter:
    """Return a function that converts a Python or NumPy number for a scalar parameter of `dtype`.

    Parameters
    ----------
    dtype : numpy.dtype
        Dtype of the parameter.
    where : str
        Kernel and parameter, for the error.

    Returns
    -------
    callable
        Function that raises ArgumentError for a number that `dtype` cannot hold, or of an incompatible type.
    """
    if dtype.kind in "biu":
        return _integer(dtype, where)
    if dtype.kind == "c":
        return _complex(dtype, where)
    return _real(dtype, where)


def _refuse(
    where: str, dtype: np.dtype, value: Any, why: str, error_class: type[ArgumentError] = ArgumentError
) -> ArgumentError:
    return error_class(f"{where} takes {dtype}, got {shortened(value)} ({type(value).__name__}): {why}")


def _integer(dtype: np.dtype, where: str) -> Converter:
    least, greatest = integer_range(dtype)

    def convert(value: Any) -> Passed:
        if not isinstance(value, int | np.integer | np.bool_) or isinstance(value, np.timedelta64):
            hint = "not an integer; convert it with int(…) if that is meant"
            if isinstance(value, float) and not math.isfinite(value):
                hint = "not a finite number, let alone an integer"
            raise _refuse(where, dtype, value, hint)
        number = int(value)
        if not least <= number <= greatest:
            raise _refuse(where, dtype, value, f"outside {least} … {greatest}", RangeError)
        # cuda.core reads an int as a signed 64-bit number; the bits are the same.
        return number - 2**64 if number >= 2**63 else number

    return convert


def _real(dtype: np.dtype, where: str) -> Converter:
    bits = f"u{dtype.itemsize}"
    is_small = dtype.type.__module__ == "ml_dtypes"  # ml_dtypes rounds to float first

    def convert(value: Any) -> Passed:
        if type(value) is dtype.type and dtype != np.float64:
            return int(value.view(bits))  # keeps the bits of a NaN
        if isinstance(value, _COMPLEX):
            raise _refuse(where, dtype, value, "a complex number; take its .real")
        if isinstance(value, _NO_NUMBERS) or is_masked(value):
            raise _refuse(where, dtype, value, "not a number")
        try:
            # The same as float(), for numbers only.
            number = math.ldexp(value, 0)
        except OverflowError:
            raise _refuse(where, dtype, value, "too large", RangeError) from None
        except (TypeError, ValueError):
            raise _refuse(where, dtype, value, "not a number") from None
        if dtype == np.float64:
            return number
        if type(value) is not float or is_small:
            number = _odd(number, value, is_small)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = np.array(number, dtype)
        if math.isfinite(number) > math.isfinite(rounded) or math.isnan(number) < math.isnan(rounded):
            raise _refuse(where, dtype, value, f"beyond the largest {dtype}", RangeError)
        return int(rounded.view(bits))

    return convert


def _odd(number: float, value: Any, is_small: bool) -> float:
    """Adjust `number`, a rounded `value`, so that rounding it once more gives the correctly rounded `value`.

    `is_small`: `value` was rounded to float first. If rounding lost bits, the result is the neighbour of `value` whose
    last bit is odd. Such a neighbour is never in the middle of two narrower numbers.
    """
    if not math.isfinite(number):
        return number
    try:
        is_above, is_below = bool(number > value), bool(number < value)
    except TypeError:
        return number  # a value that only `float` reads is not more exact
    if is_small:
        with np.errstate(over="ignore"):
            real = np.float32(number)
        rounded = float(real)
        if not math.isfinite(rounded):
            return number
        if rounded != number:
            is_above, is_below = rounded > number, rounded < number
        elif not (is_above or is_below):
            return number
        towards = np.float32(math.inf if is_below else -math.inf)
        return rounded if int(real.view("u4")) & 1 else float(np.nextafter(real, towards))
    if not (is_above or is_below) or struct.unpack("<q", struct.pack("<d", number))[0] & 1:
        return number
    return math.nextafter(number, math.inf if is_below else -math.inf)


def _complex(dtype: np.dtype, where: str) -> Converter:
    def convert(value: Any) -> Passed:
        if type(value) is np.complex64 and dtype == np.complex64:
            return int(value.view("i8"))
        if isinstance(value, _NO_NUMBERS) or is_masked(value):
            raise _refuse(where, dtype, value, "not a complex number")
        try:
            number = complex(value)
        except (TypeError, ValueError, OverflowError):
            raise _refuse(where, dtype, value, "not a complex number") from None
        if dtype == np.complex128:
            return number
        if not isinstance(value, _COMPLEX):
            number = complex(_odd(number.real, value, False))
        try:
            return int(struct.unpack("<q", struct.pack("<2f", number.real, number.imag))[0])
        except OverflowError:
            raise _refuse(where, dtype, value, f"beyond the largest {dtype}", RangeError) from None

    return convert


def to_bytes(number: Passed, dtype: np.dtype) -> bytes:
    """Return the little-endian bytes of a number that `converter` has converted to `dtype`."""
    if isinstance(number, int):
        return (number & (2**64 - 1)).to_bytes(8, "little")[: dtype.itemsize]
    return np.array(number, dtype).tobytes()
