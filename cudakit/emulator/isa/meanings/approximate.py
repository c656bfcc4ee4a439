"""Approximate functions, of float64: far within the errors that the ISA allows, and the same bits on every machine.

Each function is made of sums, products and quotients, each rounded. Mathematics libraries would differ: one library's
result is not another's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, log, nan, pi
from typing import Final

from cudakit.emulator.isa.words import Word

#: 2ˣ = Σ (x ln 2)ᵏ / k!, for |x| ≤ ½.
_POWER: Final = [log(2.0) ** k / factorial(k) for k in range(14)]
#: log₂ m = Σ 2 s²ᵏ⁺¹ / ((2k + 1) ln 2), of s = (m − 1) / (m + 1).
_LOG: Final = [2.0 / ((2 * k + 1) * log(2.0)) for k in range(12)]
_SINE: Final = [(-1.0) ** k / factorial(2 * k + 1) for k in range(9)]
_COSINE: Final = [(-1.0) ** k / factorial(2 * k) for k in range(10)]
#: π/2 in parts of 33 bits, whose products with integers to 2²⁰ are exact, and the remainder.
_HALF_PI: Final = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)

_ONE: Final = 1023 << 52
_SIGN: Final = 1 << 63
_FRACTION: Final = (1 << 52) - 1


def _polynomial(x: Word, coefficients: list[float]) -> Word:
    """Evaluate Σ coefficients[k] · xᵏ by Horner's rule."""
    total = x.constant_of(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + x.constant_of(coefficient)
    return total


def _clamped(x: Word, most: float) -> Word:
    """Clamp x to [-most, most]."""
    high, low = x.constant_of(most), x.constant_of(-most)
    x = (high < x).choose(high, x)
    return (x < low).choose(low, x)


def ex2(x: Word) -> Word:
    """2ˣ."""
    near = _clamped(x, 1000.0)
    n = near.do("rint", "f64")
    power = (n.to("s32").to("s64") + 1023 << 52).view("f64")
    return n.eq(n).choose(_polynomial(near - n, _POWER) * power, n)


def lg2(x: Word) -> Word:
    """log₂ x: -∞ of 0, NaN of less, ∞ of ∞."""
    unit, endless, bits = x.constant_of(1.0), x.constant_of(inf), x.view("u64")
    m = (bits & _FRACTION | _ONE).view("f64")
    n = ((bits >> 52 & 2047).view("s64") - 1023).to("f64")
    large = x.constant_of(2.0**0.5) < m
    m, n = large.choose(m * x.constant_of(0.5), m), large.choose(n + unit, n)
    s = (m - unit).do("div", "f64", m + unit)
    result = n + s * _polynomial(s * s, _LOG)
    result = (x < endless).choose(result, x)
    rest = (x < 0).choose(x.constant_of(nan), x.constant_of(-inf) - x)
    return (x > 0).choose(result, rest)


def _wave(x: Word, quarters: int) -> Word:
    """Return the sine of an angle plus `quarters` quarter turns.

    The angle is split into whole quarter turns and the remainder.
    """
    left = _clamped(x, 2.0**30)
    n = (left * x.constant_of(2 / pi)).do("rint", "f64")
    for part in _HALF_PI:
        left = left - n * x.constant_of(part)
    turns, square = n.to("s32") + quarters, left * left
    sine, cosine = left * _polynomial(square, _SINE), _polynomial(square, _COSINE)
    result = (turns & 1).ne(0).choose(cosine, sine)
    result = (turns & 2).ne(0).choose(0 - result, result)
    return (abs(x) < x.constant_of(inf)).choose(result, x.constant_of(nan))


def sin(x: Word) -> Word:
    """Compute sin x; a zero keeps its sign."""
    return (abs(x) < x.constant_of(2.0**-30)).choose(x, _wave(x, 0))


def cos(x: Word) -> Word:
    """Compute cos x."""
    return _wave(x, 1)


def tanh(x: Word) -> Word:
    """Compute tanh x."""
    size, unit = abs(x), x.constant_of(1.0)
    power = ex2(_clamped(size, 400.0) * x.constant_of(2.0 / log(2.0)))
    result = unit - x.constant_of(2.0).do("div", "f64", power + unit)
    cube = size * (size * size) * x.constant_of(1.0 / 3.0)
    result = (size < x.constant_of(2.0**-12)).choose(size - cube, result)
    result = (size < x.constant_of(inf)).choose(result, (unit < size).choose(unit, size))
    return (result.view("u64") & _SIGN - 1 | x.view("u64") & _SIGN).view("f64")


#: The functions by their opcodes.
FUNCTIONS: Final[dict[str, Callable[[Word], Word]]] = {"ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos, "tanh": tanh}
