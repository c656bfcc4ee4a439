"""Half precision, one value or two in a register: PTX ISA 9.7.4 and the .f16 and .bf16 forms elsewhere.

Registers hold raw bits. A sum, product or fma is computed in float32 or float64, exactly or with so many bits to spare
that the one rounding at the end is the only one seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from cudakit.emulator.instructions.elementwise import elementwise, in_pieces
from cudakit.emulator.instructions.rounding import from_bf16, odd_sum, saturate, to_bf16, to_f16
from cudakit.emulator.machine.approximate import of_arrays
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step
from cudakit.emulator.ptx.program import Instruction

#: The NaN that tensor copies fill with, whatever the type, and that ``fma.oob`` takes as such with either sign.
OUT_OF_BOUNDS = np.uint16(0x7FF7)
_SIGN, _MAGNITUDE = np.uint16(0x8000), np.uint16(0x7FFF)


def is_half(kind: str) -> bool:
    """Whether `kind` is one of f16, f16x2, bf16, bf16x2."""
    return kind in ("f16", "f16x2", "bf16", "bf16x2")


def split(values: Any) -> Any:
    """Two 16-bit halves of 32-bit values, along a last axis."""
    return np.ascontiguousarray(values)[..., None].view(np.uint16) if np.ndim(values) else np.array([values]).view("u2")


def widen(kind: str, ftz: bool = False) -> Callable[[Any], Any]:
    """A function from register bits of `kind` to float32; packed ones get a last axis of 2."""

    def values(raw: Any) -> Any:
        bits = split(raw) if kind.endswith("x2") else np.asarray(raw)
        if ftz:
            bits = flush_half(bits, kind)
        return from_bf16(bits) if kind[0] == "b" else _floats().take(bits)

    return values


@cache
def _floats() -> np.ndarray:
    """float32 of every pattern of float16: to look it up takes two thirds of the time that NumPy takes to convert."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def flush_half(bits: Any, kind: str) -> Any:
    """Bits of halves with subnormal values made zeros of their sign."""
    exponent = np.uint16(0x7F80 if kind[0] == "b" else 0x7C00)
    return np.where((bits & exponent) == 0, bits & _SIGN, bits)


def narrow(kind: str) -> Callable[[Any], Any]:
    """A function from float32 or float64, as `widen` gives them, to register bits of `kind`, rounding to nearest."""
    rounded = to_bf16 if kind[0] == "b" else to_f16
    return (lambda values: join(rounded(values))) if kind.endswith("x2") else rounded


def join(halves: Any) -> Any:
    """32-bit values of two 16-bit halves along the last axis."""
    return np.ascontiguousarray(halves).view(np.uint32)[..., 0]


def _computed(given: Instruction, context: Context, function: Callable[..., Any]) -> Step:
    """A step of a function of float32, rounded to half precision, with ``.ftz``, ``.sat`` and ``.relu``."""
    kind = given.modifiers[-1]
    ftz, sat, relu = ("ftz" in given.modifiers, "sat" in given.modifiers, "relu" in given.modifiers)
    wide, back = widen(kind, ftz), narrow(kind.removesuffix("x2"))

    def step(*sources: Any) -> Any:
        values = function(*(wide(source) for source in sources))
        if sat:
            values = saturate(values)
        if relu:
            # NaN stays, to become the canonical one; -0 becomes +0.
            values = np.where(values <= 0, values.dtype.type(0), values)
        bits = back(values)
        if ftz:
            bits = flush_half(bits, kind)
        return join(bits) if kind.endswith("x2") else bits

    return elementwise(given, context, kind, in_pieces(step))


def add(given: Instruction, context: Context) -> Step:
    return _computed(given, context, np.add)


def subtract(given: Instruction, context: Context) -> Step:
    return _computed(given, context, np.subtract)


def multiply(given: Instruction, context: Context) -> Step:
    # Exact in float32, but for products of bfloat16 so far below its least subnormal that they are zero either way.
    return _computed(given, context, np.multiply)


def fma(given: Instruction, context: Context) -> Step:
    if "oob" in given.modifiers:
        return _fma_out_of_bounds(given, context)
    return _computed(given, context, _fma(given.modifiers[-1]))


def _fma(kind: str) -> Callable[[Any, Any, Any], Any]:
    if kind[0] == "f":
        # Exact in float64 but for an addend so much larger that the sum is nowhere near halfway between two halves.
        return lambda a, b, c: a.astype(np.float64) * b + c
    return lambda a, b, c: odd_sum(a.astype(np.float64) * b, c.astype(np.float64))


def _fma_out_of_bounds(given: Instruction, context: Context) -> Step:
    """``fma.oob``: zero where a factor is the mark that a tensor copy fills with for an element that is not there."""
    kind = given.modifiers[-1]
    wide, back = widen(kind), narrow(kind.removesuffix("x2"))
    function, relu = _fma(kind), "relu" in given.modifiers

    def step(a: Any, b: Any, c: Any) -> Any:
        values = function(wide(a), wide(b), wide(c))
        bits = back(np.where(values <= 0, 0.0, values) if relu else values)
        x, y = (split(v) if kind.endswith("x2") else np.asarray(v) for v in (a, b))
        bits = np.where(((x & _MAGNITUDE) == OUT_OF_BOUNDS) | ((y & _MAGNITUDE) == OUT_OF_BOUNDS), np.uint16(0), bits)
        return join(bits) if kind.endswith("x2") else bits

    return elementwise(given, context, kind, step)


def on_bits(given: Instruction, context: Context, function: Callable[..., Any]) -> Step:
    """A step of a function of the 16-bit patterns."""
    kind = given.modifiers[-1]
    ftz = "ftz" in given.modifiers

    def step(*sources: Any) -> Any:
        bits = [split(source) if kind.endswith("x2") else np.asarray(source) for source in sources]
        result = function(*(flush_half(b, kind) for b in bits)) if ftz else function(*bits)
        return join(result) if kind.endswith("x2") else result

    return elementwise(given, context, kind, step)


def negate(given: Instruction, context: Context) -> Step:
    return on_bits(given, context, lambda bits: _canonical(bits ^ _SIGN, given.modifiers[-1]))


def absolute(given: Instruction, context: Context) -> Step:
    return on_bits(given, context, lambda bits: _canonical(bits & _MAGNITUDE, given.modifiers[-1]))


def _canonical(bits: Any, kind: str) -> Any:
    infinity = np.uint16(0x7F80 if kind[0] == "b" else 0x7C00)
    return np.where((bits & _MAGNITUDE) > infinity, _MAGNITUDE, bits)


def extremum(given: Instruction, context: Context, least: bool) -> Step:
    """The step of ``min`` or ``max``: -0 is below +0; NaN gives the other operand, or with ``.NaN`` itself."""
    infinity = np.uint16(0x7F80 if given.modifiers[-1][0] == "b" else 0x7C00)
    spreads, by_sign = "NaN" in given.modifiers, "xorsign" in given.modifiers
    choose = np.minimum if least else np.maximum

    def pick(a: Any, b: Any) -> Any:
        sign = (a ^ b) & _SIGN
        if by_sign:
            a, b = a & _MAGNITUDE, b & _MAGNITUDE
        a_nan, b_nan = (a & _MAGNITUDE) > infinity, (b & _MAGNITUDE) > infinity
        result = _bits(choose(_key(a), _key(b)))
        result = np.where(a_nan, b, np.where(b_nan, a, result))
        if by_sign:
            result = result | sign
        return np.where(a_nan | b_nan if spreads else a_nan & b_nan, _MAGNITUDE, result)

    return on_bits(given, context, lambda a, *others: _fold(pick, a, others))


def _fold(function: Callable[[Any, Any], Any], first: Any, others: tuple[Any, ...]) -> Any:
    for other in others:
        first = function(first, other)
    return first


def _key(bits: Any) -> Any:
    """Signed integers in the order of the floats whose bits are given."""
    return np.where(bits & _SIGN, bits ^ _MAGNITUDE, bits).view(np.int16)


def _bits(key: Any) -> Any:
    bits = np.asarray(key).view(np.uint16)
    return np.where(bits & _SIGN, bits ^ _MAGNITUDE, bits)


def exponential(given: Instruction, context: Context) -> Step:
    """The step of ``ex2``: float16 results below the least normal number are cut off, not rounded."""

    def power(values: Any) -> Any:
        found = of_arrays("ex2")(values)
        if given.modifiers[-1][0] == "b":
            return found
        return np.where(found < 2.0**-14, np.floor(found * 2.0**24) * 2.0**-24, found)

    return approximate(given, context, power)


def approximate(given: Instruction, context: Context, function: Callable[[Any], Any]) -> Step:
    """A step of an approximate function, computed in float64."""
    return _computed(given, context, lambda a: function(a.astype(np.float64)))
