"""Approximate functions, in float64: far within the errors that the ISA allows, and the same bits everywhere.

Each is a recipe of sums, products and quotients, each rounded, that `Arithmetic` carries out: here on NumPy arrays, in
compiled kernels on vectors. Functions of mathematics libraries differ from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import factorial, log, pi
from typing import Any, Protocol

import numpy as np


class Arithmetic(Protocol):
    """What a recipe is made of: operations on float64 values, each rounded to nearest."""

    def constant(self, like: Any, value: float) -> Any: ...
    def add(self, a: Any, b: Any) -> Any: ...
    def subtract(self, a: Any, b: Any) -> Any: ...
    def multiply(self, a: Any, b: Any) -> Any: ...
    def divide(self, a: Any, b: Any) -> Any: ...
    def whole(self, a: Any) -> Any:
        """The nearest whole number, of two the even one."""

    def size(self, a: Any) -> Any:
        """The absolute value."""

    def signed(self, a: Any, like: Any) -> Any:
        """`a` with the sign of `like`."""

    def less(self, a: Any, b: Any) -> Any: ...
    def choose(self, held: Any, a: Any, b: Any) -> Any: ...
    def scale(self, a: Any, n: Any) -> Any:
        """``a · 2ⁿ`` for a whole n of at most 1,000 either way, the result a normal number."""

    def parts(self, a: Any) -> tuple[Any, Any]:
        """Of a positive normal number m · 2ⁿ with 1 ≤ m < 2: m and n, both float64."""

    def odd(self, n: Any, bit: int) -> Any:
        """Whether a bit of a whole number of at most 2³¹ either way is set."""


#: 2ˣ = Σ (x ln 2)ᵏ / k!, for |x| ≤ ½.
_POWER = [log(2.0) ** k / factorial(k) for k in range(14)]
#: log₂ m = Σ 2 s²ᵏ⁺¹ / ((2k + 1) ln 2), of s = (m − 1) / (m + 1).
_LOG = [2.0 / ((2 * k + 1) * log(2.0)) for k in range(12)]
_SINE = [(-1.0) ** k / factorial(2 * k + 1) for k in range(9)]
_COSINE = [(-1.0) ** k / factorial(2 * k) for k in range(10)]
#: π/2 in parts of 33 bits, so that products with whole numbers to 2²⁰ are exact, and what is left.
_HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


def _polynomial(o: Arithmetic, x: Any, coefficients: list[float]) -> Any:
    found = o.constant(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        found = o.add(o.multiply(found, x), o.constant(x, coefficient))
    return found


def _clamped(o: Arithmetic, x: Any, most: float) -> Any:
    high, low = o.constant(x, most), o.constant(x, -most)
    x = o.choose(o.less(high, x), high, x)
    return o.choose(o.less(x, low), low, x)


def ex2(o: Arithmetic, x: Any) -> Any:
    """2ˣ."""
    near = _clamped(o, x, 1000.0)
    n = o.whole(near)
    return o.scale(_polynomial(o, o.subtract(near, n), _POWER), n)


def lg2(o: Arithmetic, x: Any) -> Any:
    """log₂ x: -∞ of 0, NaN of less, ∞ of ∞."""
    zero, one, endless = (o.constant(x, value) for value in (0.0, 1.0, np.inf))
    m, n = o.parts(x)
    large = o.less(o.constant(x, 2.0**0.5), m)
    m, n = o.choose(large, o.multiply(m, o.constant(x, 0.5)), m), o.choose(large, o.add(n, one), n)
    s = o.divide(o.subtract(m, one), o.add(m, one))
    found = o.add(n, o.multiply(s, _polynomial(o, o.multiply(s, s), _LOG)))
    found = o.choose(o.less(x, endless), found, x)
    rest = o.choose(o.less(x, zero), o.constant(x, np.nan), o.subtract(o.constant(x, -np.inf), x))
    return o.choose(o.less(zero, x), found, rest)


def _turned(o: Arithmetic, x: Any) -> tuple[Any, Any]:
    """Quarter turns n, and what is left of an angle."""
    near = _clamped(o, x, 2.0**30)
    n = o.whole(o.multiply(near, o.constant(x, 2 / pi)))
    left = near
    for part in _HALF_PI:
        left = o.subtract(left, o.multiply(n, o.constant(x, part)))
    return n, left


def _wave(o: Arithmetic, x: Any, quarters: int) -> Any:
    n, r = _turned(o, x)
    n = o.add(n, o.constant(x, float(quarters)))
    square = o.multiply(r, r)
    sine, cosine = o.multiply(r, _polynomial(o, square, _SINE)), _polynomial(o, square, _COSINE)
    found = o.choose(o.odd(n, 0), cosine, sine)
    found = o.choose(o.odd(n, 1), o.subtract(o.constant(x, 0.0), found), found)
    found = o.choose(o.less(o.size(x), o.constant(x, np.inf)), found, o.constant(x, np.nan))
    return found


def sin(o: Arithmetic, x: Any) -> Any:
    """The sine, whose zero keeps its sign."""
    tiny = o.less(o.size(x), o.constant(x, 2.0**-30))
    return o.choose(tiny, x, _wave(o, x, 0))


def cos(o: Arithmetic, x: Any) -> Any:
    """The cosine."""
    return _wave(o, x, 1)


def tanh(o: Arithmetic, x: Any) -> Any:
    """The hyperbolic tangent."""
    size, one, two = o.size(x), o.constant(x, 1.0), o.constant(x, 2.0)
    power = ex2(o, o.multiply(_clamped(o, size, 400.0), o.constant(x, 2.0 / log(2.0))))
    found = o.subtract(one, o.divide(two, o.add(power, one)))
    cube = o.multiply(o.multiply(size, o.multiply(size, size)), o.constant(x, 1.0 / 3.0))
    found = o.choose(o.less(size, o.constant(x, 2.0**-12)), o.subtract(size, cube), found)
    found = o.choose(o.less(size, o.constant(x, np.inf)), found, o.choose(o.less(one, size), one, size))
    return o.signed(found, x)


#: The recipes by their opcodes.
RECIPES: dict[str, Callable[[Arithmetic, Any], Any]] = {"ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos, "tanh": tanh}


class _Arrays:
    """The operations on NumPy arrays of float64."""

    def constant(self, like: Any, value: float) -> Any:
        return np.float64(value)

    add, subtract, multiply, divide = (staticmethod(each) for each in (np.add, np.subtract, np.multiply, np.divide))
    whole, size, signed = (staticmethod(each) for each in (np.rint, np.abs, np.copysign))
    less, choose = (staticmethod(each) for each in (np.less, np.where))

    def scale(self, a: Any, n: Any) -> Any:
        return np.ldexp(a, np.where(np.isfinite(n), n, 0).astype(np.int32)) * np.where(np.isfinite(n), 1.0, n)

    def parts(self, a: Any) -> tuple[Any, Any]:
        bits = np.asarray(a, np.float64).view(np.uint64)
        mantissa = (bits & np.uint64((1 << 52) - 1)) | np.uint64(1023 << 52)
        exponent = (bits >> np.uint64(52)).astype(np.int64) & 2047
        return mantissa.view(np.float64), (exponent - 1023).astype(np.float64)

    def odd(self, n: Any, bit: int) -> Any:
        return (np.where(np.isfinite(n), n, 0).astype(np.int64) >> bit) & 1 != 0


_ARRAYS = _Arrays()


def of_arrays(opcode: str) -> Callable[[Any], Any]:
    """An approximate function of arrays of float64."""
    return np.errstate(all="ignore")(partial(RECIPES[opcode], _ARRAYS))
