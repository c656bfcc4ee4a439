"""Correctly rounded arithmetic from NumPy's, which only rounds to nearest: PTX ISA 9.7.3 (floating point).

float32 is computed in float64 and rounded once more. Where rounding twice is not rounding once, the first rounding is
to odd (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
2008). For float64 there are Dekker's and Knuth's error-free transforms, whose error says how the other modes round.
Exact fractions are used where the transforms overflow or underflow, and for quotients that are not rounded to nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import copysign, inf, nextafter
from operator import add, mul, truediv
from typing import Any

import numpy as np

#: Rounding modifiers of a float result; ``rn`` is the mode where an instruction names none.
MODES = ("rn", "rz", "rm", "rp")
CANONICAL_NAN: dict[str, Any] = {
    "f32": np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()],
    "f16": np.uint16(0x7FFF),
    "bf16": np.uint16(0x7FFF),
}
#: The hardware's float64 NaN for ∞ - ∞, 0 · ∞ and the like.
_INVALID = np.array(0xFFF8_0000_0000_0000, np.uint64).view(np.float64)[()]
_LEAST_NORMAL = np.float32(2.0**-126)
#: Beyond it error-free transforms of float64 may overflow.
_FAR = 2.0**1015


def canonical(values: Any) -> Any:
    """Replace every float32 NaN by the hardware's, 0x7fffffff."""
    largest = np.asarray(values).max()
    if largest == largest:
        return values
    return np.where(np.isnan(values), CANONICAL_NAN["f32"], values)


def quieted(values: Any) -> Any:
    """Replace every NaN by NumPy's default quiet NaN; return other values unchanged.

    Signaling NaN must not reach NumPy's fmin and fmax, which then give NaN at the end of an array.
    """
    values = np.asarray(values)
    largest = values.max(initial=0)
    return values if largest == largest else np.where(np.isnan(values), values.dtype.type(np.nan), values)


def nan_from(result: Any, *sources: Any, quiet: bool = True) -> Any:
    """Replace each NaN in a float64 result by the first NaN among its sources, made quiet with `quiet`.

    If no source is NaN, the result is the NaN of an invalid operation. The NaN of the host's processor is never seen.
    """
    result = np.asarray(result)
    largest = result.max()
    if largest == largest:
        return result
    nan = _INVALID
    for source in reversed(sources):
        own = (np.asarray(source).view(np.uint64) | np.uint64(quiet << 51)).view(np.float64)
        nan = np.where(np.isnan(source), own, nan)
    return np.where(np.isnan(result), nan, result)


def flush(values: Any) -> Any:
    """Replace subnormal float32 by zeros of their sign (``.ftz``)."""
    return values * ~(np.abs(values) < _LEAST_NORMAL)


def direct(raw: Any, too_high: Any, too_low: Any, mode: str) -> Any:
    """Return bits of floats rounded to nearest, moved to the neighbouring float if `mode` asks for it.

    Parameters
    ----------
    raw : numpy.ndarray
        Bits, unsigned, of any IEEE format; an infinity here is an overflow.
    too_high, too_low : numpy.ndarray of bool
        Whether the rounded value is above, or below, the exact one.
    mode : str
        One of `MODES`.
    """
    if mode == "rn":
        return raw
    unit = raw.dtype.type(1)
    negative = (raw >> raw.dtype.type(8 * raw.dtype.itemsize - 1)) == unit
    if mode == "rz":
        return raw - np.where(negative, too_low, too_high).astype(raw.dtype)
    wrong, outward = (too_high, negative) if mode == "rm" else (too_low, ~negative)
    return np.where(wrong, np.where(outward, raw + unit, raw - unit), raw)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return (s, e): the sum s = a + b rounded to nearest, and the exact error e = a + b − s (Knuth)."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return (p, e): the product p = a · b rounded to nearest, and the exact error e = a · b − p (Dekker, Veltkamp)."""
    p = a * b
    a1, a2 = _split(a)
    b1, b2 = _split(b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _split(a: Any) -> tuple[Any, Any]:
    """Return (high, low): the upper and lower half of a float64's significant bits, with the sum `a` (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def odd_sum(a: Any, b: Any) -> Any:
    """``a + b`` in float64, rounded to odd: an inexact sum has an odd last bit, so that rounding it again is safe."""
    s, e = two_sum(a, b)
    raw = np.asarray(s).view(np.uint64)
    fix = (e != 0) & ((raw & np.uint64(1)) == 0) & np.isfinite(s)
    if not fix.any():
        return s
    unit = np.uint64(1)
    return np.where(fix, np.where((e > 0) == (s > 0), raw + unit, raw - unit), raw).view(np.float64)


def to_f32(values: Any, mode: str = "rn") -> Any:
    """Round float64 to float32 in `mode`."""
    rounded = np.asarray(values).astype(np.float32)
    if mode == "rn":
        return rounded
    values = np.asarray(values)
    finite = np.isfinite(values)
    back = rounded.astype(np.float64)
    return direct(rounded.view(np.uint32), finite & (back > values), finite & (back < values), mode).view(np.float32)


def to_f16(values: Any, mode: str = "rn") -> Any:
    """Round float32 or float64 to bits of float16 in `mode`, NaN canonical."""
    values = np.asarray(values)
    half = values.astype(np.float16)
    raw = half.view(np.uint16)
    if mode != "rn":
        back, finite = half.astype(values.dtype), np.isfinite(values)
        raw = direct(raw, finite & (back > values), finite & (back < values), mode)
    nan = np.isnan(values)
    return np.where(nan, CANONICAL_NAN["f16"], raw) if nan.any() else raw


def to_tf32(raw: np.ndarray) -> np.ndarray:
    """Round bits of float32 to those of tf32, to nearest, ties to even, NaN canonical."""
    rounded = raw + np.uint32(0xFFF) + (raw >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(raw.view(np.float32)), np.uint32(0x7FFFE000), rounded)


def _zero_down(total: Any, mode: str, *terms: Any) -> Any:
    """Return `total`, the sum of `terms`, with the sign of a zero for rounding down (mode ``rm``).

    A zero becomes -0, unless every term is +0. In other modes `total` is returned unchanged.
    """
    if mode != "rm":
        return total
    positive = np.logical_and.reduce([(term == 0) & ~np.signbit(term) for term in np.broadcast_arrays(*terms)])
    return np.where((total == 0) & ~positive, np.copysign(total, -1.0), total)


# ── float32 ──


def add_f32(a: Any, b: Any, mode: str) -> Any:
    """``a + b``, float32, rounded once in `mode`."""
    if mode == "rn":
        return a + b
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return to_f32(_zero_down(odd_sum(a, b), mode, a, b), mode)


def multiply_f32(a: Any, b: Any, mode: str) -> Any:
    """``a · b``, float32, rounded once in `mode`."""
    return a * b if mode == "rn" else to_f32(np.asarray(a, np.float64) * np.asarray(b, np.float64), mode)


def divide_f32(a: Any, b: Any, mode: str) -> Any:
    """``a / b``, float32, rounded once in `mode`: a float64 quotient is a float32 only if exact."""
    return np.divide(a, b) if mode == "rn" else to_f32(np.asarray(a, np.float64) / np.asarray(b, np.float64), mode)


def sqrt_f32(a: Any, mode: str) -> Any:
    """√a, float32, rounded once in `mode`."""
    return np.sqrt(a) if mode == "rn" else to_f32(np.sqrt(np.asarray(a, np.float64)), mode)


def fma_f32(a: Any, b: Any, c: Any, mode: str) -> Any:
    """``a · b + c``, float32, rounded once in `mode`."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    if mode != "rn":
        return to_f32(_zero_down(odd_sum(product, addend), mode, product, addend), mode)
    total = np.asarray(product + addend)
    # Rounding twice differs from once only where the first lands halfway between two float32; subnormal results, which
    # have their halfway points elsewhere, raise the underflow flag.
    halfway = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    if not halfway.any():
        try:
            with np.errstate(under="raise"):
                return total.astype(np.float32)
        except FloatingPointError:
            pass
    return odd_sum(product, addend).astype(np.float32)


# ── float64 ──


def add_f64(a: Any, b: Any, mode: str) -> Any:
    """``a + b``, float64, rounded once in `mode`."""
    if mode == "rn":
        return a + b
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b))
    total, error = two_sum(a, b)
    finite = np.isfinite(a) & np.isfinite(b)
    total = _zero_down(_moved(total, finite, error, mode), mode, a, b)
    return _repair(total, finite & ((np.abs(a) > _FAR) | (np.abs(b) > _FAR)), mode, add, a, b)


def fma_f64(a: Any, b: Any, c: Any, mode: str) -> Any:
    """``a · b + c``, float64, rounded once in `mode`."""
    a, b, c = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b, c))
    product, low = two_product(a, b)
    middle, last = two_sum(c, low)
    first, second = two_sum(product, middle)
    rest = odd_sum(last, second)
    result = first + rest
    # Products with a zero, an infinity or a NaN have nothing to round; adding c is all there is. A finite product may
    # overflow here and still be nothing beside an infinite c.
    factors = np.isfinite(a) & np.isfinite(b)
    plain = (a == 0) | (b == 0) | ~factors | ~np.isfinite(c)
    result = np.where(plain, np.where(factors & ~np.isfinite(c), c, a * b + c), result)
    hard = _out_of_range(a, b, c) & ~plain
    if mode != "rn":
        # A rest that rounding to odd moved has bits far below the sum's last: its error is not zero, and has the sign.
        result = _zero_down(_moved(result, ~plain, two_sum(first, rest)[1], mode), mode, product, c)
    return _repair(result, hard, mode, lambda x, y, z: x * y + z, a, b, c)


def multiply_f64(a: Any, b: Any, mode: str) -> Any:
    """``a · b``, float64, rounded once in `mode`."""
    if mode == "rn":
        return a * b
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b))
    product, error = two_product(a, b)
    factors = _plain_factors(a, b)
    hard = _out_of_range(a, b, 0.0) & factors
    return _repair(_moved(product, factors, error, mode), hard, mode, mul, a, b)


def divide_f64(a: Any, b: Any, mode: str) -> Any:
    """``a / b``, float64, rounded once in `mode`."""
    if mode == "rn":
        return np.divide(a, b)
    return _repair(np.divide(a, b), _plain_factors(a, b), mode, truediv, *np.broadcast_arrays(a, b))


def sqrt_f64(a: Any, mode: str) -> Any:
    """√a, float64, rounded once in `mode`."""
    root = np.asarray(np.sqrt(a))
    if mode == "rn":
        return root
    # Scaled by a power of four the root's square neither over- nor underflows, and the root only moves its exponent.
    exponent = np.frexp(a)[1] // 2
    scaled = np.ldexp(a, -2 * exponent)
    mantissa = np.sqrt(scaled)
    product, low = two_product(mantissa, mantissa)
    error = (scaled - product) - low
    inexact = (np.asarray(a) > 0) & np.isfinite(a)
    return direct(root.view(np.uint64), inexact & (error < 0), inexact & (error > 0), mode).view(np.float64)


def _moved(nearest: Any, lanes: Any, error: Any, mode: str) -> Any:
    """Return float64 rounded to nearest as `mode` rounds in the mask `lanes`; `error` is the exact value minus them."""
    return direct(nearest.view(np.uint64), lanes & (error < 0), lanes & (error > 0), mode).view(np.float64)


def _plain_factors(a: Any, b: Any) -> Any:
    """Return whether both factors are finite and not zero, elementwise; other products need no rounding."""
    return np.asarray(np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0))


def _out_of_range(a: Any, b: Any, c: Any) -> Any:
    """Return whether an intermediate result of ``a · b + c`` in error-free transforms may overflow or underflow."""
    exponent = np.frexp(a)[1] + np.frexp(b)[1]
    factor = (np.abs(a) > 2.0**990) | (np.abs(b) > 2.0**990)
    return (exponent < -950) | (exponent > 1015) | factor | (np.abs(c) > _FAR)


def _repair(result: Any, hard: Any, mode: str, exactly: Callable[..., Fraction], *sources: Any) -> Any:
    """Return a copy of `result` in which the lanes of the mask `hard` are computed again and rounded once in `mode`.

    `exactly` computes the exact value from fractions of the lane's `sources`, which must be finite.
    """
    result = np.array(result)
    for lane in np.flatnonzero(hard):
        result.flat[lane] = _rounded(exactly(*(Fraction(float(source.flat[lane])) for source in sources)), mode)
    return result


def _rounded(exact: Fraction, mode: str) -> float:
    """Round an exact value to float64 in `mode`."""
    if exact == 0:
        # A sum that cancels: a product or quotient only underflows.
        return -0.0 if mode == "rm" else 0.0
    try:
        nearest = copysign(float(exact), -1 if exact < 0 else 1)
    except OverflowError:
        nearest = -inf if exact < 0 else inf
    beyond = {"rn": False, "rz": abs(nearest) > abs(exact), "rm": nearest > exact, "rp": nearest < exact}[mode]
    return nextafter(nearest, {"rm": -inf, "rp": inf}.get(mode, 0.0)) if beyond else nearest
