"""float32 and float64 arithmetic: PTX ISA 9.7.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.instructions import rounding
from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.instructions.elementwise import elementwise, in_pieces
from cudakit.emulator.instructions.rounding import MODES, canonical, flush, quieted, saturate
from cudakit.emulator.machine.approximate import of_arrays
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step
from cudakit.emulator.ptx.program import Instruction


def mode_of(given: Instruction) -> str:
    """Rounding of an instruction, to nearest where it names none."""
    return next((modifier for modifier in given.modifiers if modifier in MODES), "rn")


def _wide(values: Any) -> Any:
    return np.asarray(values, np.float64)


#: float32 results in float64, exactly or rounded to odd; the results of other opcodes are never inexact and subnormal.
_EXACT: dict[str, Callable[..., Any]] = {
    "mul": lambda a, b: _wide(a) * _wide(b),
    "fma": lambda a, b, c: rounding.odd_sum(_wide(a) * _wide(b), _wide(c)),
    "mad": lambda a, b, c: rounding.odd_sum(_wide(a) * _wide(b), _wide(c)),
    "div": lambda a, b: _wide(a) / _wide(b),
    "rcp": lambda a: 1.0 / _wide(a),
}


#: Of several sources that are NaN, the one that float64 results take after: the hardware's order of looking.
_NAN_ORDER = {"add": (1, 0), "sub": (1, 0), "mul": (1, 0), "fma": (1, 2, 0), "mad": (1, 2, 0), "div": (0, 1)}
#: What the hardware gives for ∞ - ∞, 0 · ∞ and the like.
_INVALID = np.array(0xFFF8_0000_0000_0000, np.uint64).view(np.float64)[()]


def quiet(values: Any) -> Any:
    """float64 NaN with the bit set that makes them quiet, sign and payload kept."""
    return (np.asarray(values).view(np.uint64) | np.uint64(1 << 51)).view(np.float64)


def _keep_nan(function: Callable[..., Any], order: tuple[int, ...]) -> Callable[..., Any]:
    """`function` of float64 whose NaN are made from those that it takes."""

    def keeping(*sources: Any) -> Any:
        result = np.asarray(function(*sources))
        largest = result.max()
        if largest == largest:
            return result
        kept = _INVALID
        for place in reversed(order):
            kept = np.where(np.isnan(sources[place]), quiet(sources[place]), kept)
        return np.where(np.isnan(result), kept, result)

    return keeping


def _step(given: Instruction, context: Context, function: Callable[..., Any]) -> Step:
    """A step of `function`, with ``.ftz``, ``.sat`` and the right NaN around it."""
    kind = type_of(given)
    ftz, sat = "ftz" in given.modifiers, "sat" in given.modifiers
    if kind == "f64":
        return elementwise(given, context, kind, _keep_nan(function, _NAN_ORDER.get(given.opcode, (0,))))
    if not ftz and not sat:
        return elementwise(given, context, kind, lambda *sources: canonical(function(*sources)))

    exact, mode = _EXACT.get(given.opcode), mode_of(given)

    def step(*sources: Any) -> Any:
        if ftz:
            sources = tuple(flush(source) for source in sources)
        result = function(*sources)
        if ftz and exact is not None:
            result = rounding.flush_rounded(result, lambda: exact(*sources), mode)
        elif ftz:
            result = flush(result)
        return saturate(np.asarray(result)) if sat else canonical(result)

    return elementwise(given, context, kind, step)


def _rounded(given: Instruction, context: Context, single: Callable[..., Any], double: Callable[..., Any]) -> Step:
    mode = mode_of(given)
    function = double if type_of(given) == "f64" else single
    return _step(given, context, in_pieces(lambda *sources: function(*sources, mode)))


def add(given: Instruction, context: Context) -> Step:
    if mode_of(given) == "rn":
        return _step(given, context, np.add)
    return _rounded(given, context, rounding.add_f32, rounding.add_f64)


def subtract(given: Instruction, context: Context) -> Step:
    if mode_of(given) == "rn":
        return _step(given, context, np.subtract)
    mode = mode_of(given)
    function = rounding.add_f64 if type_of(given) == "f64" else rounding.add_f32
    return _step(given, context, in_pieces(lambda a, b: function(a, np.negative(b), mode)))


def multiply(given: Instruction, context: Context) -> Step:
    if mode_of(given) == "rn":
        return _step(given, context, np.multiply)
    return _rounded(given, context, rounding.multiply_f32, rounding.multiply_f64)


def fma(given: Instruction, context: Context) -> Step:
    return _rounded(given, context, rounding.fma_f32, rounding.fma_f64)


def divide(given: Instruction, context: Context) -> Step:
    if "approx" in given.modifiers:
        return _step(given, context, _divide_approximately)
    # .full allows 2 ulp; to nearest is within them.
    if mode_of(given) == "rn":
        return _step(given, context, np.divide)
    return _rounded(given, context, rounding.divide_f32, rounding.divide_f64)


def _divide_approximately(a: Any, b: Any) -> Any:
    """``a / b``, but zero for divisors above 2¹²⁶, whose reciprocal is subnormal."""
    huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return np.where(huge, a * np.copysign(np.float32(0), b), a / b)


def reciprocal(given: Instruction, context: Context) -> Step:
    mode = mode_of(given)
    if type_of(given) == "f64":
        one = np.float64(1)
        if "approx" in given.modifiers:
            return elementwise(given, context, "f64", lambda a: _upper(one / _upper(a)))
        return elementwise(given, context, "f64", in_pieces(lambda a: rounding.divide_f64(one, a, mode)))
    return _step(given, context, lambda a: rounding.divide_f32(np.float32(1), a, mode))


def square_root(given: Instruction, context: Context) -> Step:
    if mode_of(given) == "rn":
        return _step(given, context, np.sqrt)
    return _rounded(given, context, rounding.sqrt_f32, rounding.sqrt_f64)


def reciprocal_root(given: Instruction, context: Context) -> Step:
    if type_of(given) == "f64":
        ready = _upper if "ftz" in given.modifiers else (lambda values: values)
        return elementwise(given, context, "f64", lambda a: ready(1.0 / np.sqrt(ready(a))))
    return _approximate(given, context, lambda a: 1.0 / np.sqrt(a))


def _upper(values: Any) -> Any:
    """``.approx.ftz.f64`` works on the upper 32 bits alone, and takes subnormal values for zeros."""
    bits = np.asarray(values).view(np.uint64)
    exponent = bits & np.uint64(0x7FF0_0000_0000_0000)
    kept = np.uint64(0xFFFF_FFFF_0000_0000)
    return np.where(exponent == 0, bits & np.uint64(1 << 63), bits & kept).view(np.float64)


def _approximate(given: Instruction, context: Context, function: Callable[[Any], Any]) -> Step:
    """A step computed in float64: far within the error that the ISA allows."""
    return _step(given, context, in_pieces(lambda a: function(np.asarray(a, np.float64)).astype(np.float32)))


def approximate(given: Instruction, context: Context) -> Step:
    return _approximate(given, context, of_arrays(given.opcode))


def negate(given: Instruction, context: Context) -> Step:
    return _signed(given, context, np.negative)


def absolute(given: Instruction, context: Context) -> Step:
    return _signed(given, context, np.abs)


def _signed(given: Instruction, context: Context, function: Callable[[Any], Any]) -> Step:
    # A NaN of float64 keeps its sign.
    return _step(given, context, function)


def copysign(given: Instruction, context: Context) -> Step:
    # The sign is the first source's.
    return elementwise(given, context, type_of(given), lambda a, b: np.copysign(b, a))


def extremum(given: Instruction, context: Context, least: bool) -> Step:
    """The step of ``min`` or ``max``: -0 is below +0; NaN gives the other operand, or with ``.NaN`` itself."""
    kind = type_of(given)
    choose = np.fmin if least else np.fmax
    ftz, spreads, by_sign = ("ftz" in given.modifiers, "NaN" in given.modifiers, "xorsign" in given.modifiers)
    raw = np.dtype(f"u{4 if kind == 'f32' else 8}")
    float_type = np.dtype(f"f{raw.itemsize}")

    def pick(a: Any, b: Any) -> Any:
        if by_sign:
            sign = np.signbit(a) != np.signbit(b)
            a, b = np.abs(a), np.abs(b)
        result = choose(quieted(a), quieted(b))
        if not np.all(result):
            # NumPy takes either zero.
            x, y = np.asarray(a).view(raw), np.asarray(b).view(raw)
            result = np.where(a == b, (x | y if least else x & y).view(float_type), result)
        if spreads:
            result = np.where(np.isnan(a) | np.isnan(b), float_type.type(np.nan), result)
        if by_sign:
            result = np.where(sign, -result, result)
        if kind == "f32":
            return canonical(result)
        return np.where(np.isnan(a) & np.isnan(b), quiet(b), result)

    def step(a: Any, *others: Any) -> Any:
        a = flush(a) if ftz else a
        for other in others:
            a = pick(a, flush(other) if ftz else other)
        return a

    return elementwise(given, context, kind, step)
