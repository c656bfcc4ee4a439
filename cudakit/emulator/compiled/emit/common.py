"""What the families of instructions have in common: types, intrinsics, and what becomes of floats."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.machine.context import DTYPES
from cudakit.emulator.ptx.program import Instruction


def type_of(given: Instruction) -> str:
    """Element type: the last modifier that is one.

    Raises
    ------
    Refusal
    """
    for modifier in reversed(given.modifiers):
        if modifier in DTYPES:
            return modifier
    raise Refusal(f"instruction {given}")


def only(given: Instruction, *allowed: str) -> None:
    """Refuse an instruction with any modifier that is neither a type nor allowed."""
    for modifier in given.modifiers:
        if modifier not in DTYPES and modifier not in allowed:
            raise Refusal(f"instruction {given}")


def is_integer(kind: str) -> bool:
    return kind[0] in "usb" and kind[1:] in ("16", "32", "64")


def named(name: str, x: X) -> str:
    """The name of an intrinsic for a type."""
    element = {"float": "f32", "double": "f64"}.get(x.element, x.element)
    count = x.type[1 : x.type.index(" ")] if x.is_vector else ""
    return f"{name}.v{count}{element}" if count else f"{name}.{element}"


def intrinsic(b: Builder, name: str, *arguments: X) -> X:
    """An intrinsic whose result is of its first argument's type."""
    return b.text.call(named(f"llvm.{name}", arguments[0]), arguments[0].type, *arguments)


def flushed(b: Builder, x: X) -> X:
    """Zero, with its sign, for subnormal float32."""
    bits = b.untyped(x)
    least = b.text.binary("and", bits, constant(bits.type, 0x7F80_0000))
    subnormal = b.text.compare("eq", least, constant(bits.type, 0))
    zero = b.text.binary("and", bits, constant(bits.type, 0x8000_0000))
    return b.text.cast("bitcast", b.text.select(subnormal, zero, bits), "float")


def flushed_rounded(b: Builder, result: X, exact: X) -> X:
    """A result of float32 that was rounded, zero where it would be below the least normal number had exponents no end.

    `exact` is what was rounded, in float64.
    """
    text = b.text
    found = flushed(b, result)
    scaled = text.binary("fmul", exact, constant(exact.type, (1023 + 32) << 52))
    size = intrinsic(b, "fabs", text.cast("fptrunc", scaled, "float"))
    small = text.compare("olt", size, constant(result.type, (127 - 94) << 23))
    edge = text.compare("oeq", intrinsic(b, "fabs", result), constant(result.type, 0x0080_0000))
    zero = intrinsic(b, "copysign", constant(result.type, 0), result)
    return text.select(text.binary("and", edge, small), zero, found)


def saturated(b: Builder, x: X) -> X:
    """Between 0 and 1, and 0 for NaN."""
    zero, one = constant(x.type, 0), constant(x.type, 0x3F80_0000 if x.element == "float" else 0x3FF0_0000_0000_0000)
    x = b.text.select(b.text.compare("ogt", x, zero), x, zero)
    return b.text.select(b.text.compare("olt", x, one), x, one)


def quieted(b: Builder, x: X) -> X:
    bits = b.untyped(x)
    return b.text.cast("bitcast", b.text.binary("or", bits, constant(bits.type, 1 << 51)), "double")


def nan_kept(b: Builder, result: X, sources: tuple[X, ...], order: tuple[int, ...]) -> X:
    """A result of float64 whose NaN are made from those of its sources, the first in the hardware's order."""
    kept = constant(result.type, 0xFFF8_0000_0000_0000)
    for place in reversed(order):
        source = sources[place]
        kept = b.text.select(b.text.compare("uno", source, source), quieted(b, source), kept)
    return b.text.select(b.text.compare("uno", result, result), kept, result)


#: 1 in float64.
ONE = 0x3FF0_0000_0000_0000


def upper_double(given: Instruction, b: Builder, function: Callable[[X], X]) -> None:
    """A function of float64 that with ``.ftz`` works on the upper 32 bits alone, subnormal values taken for zeros."""
    text, ftz = b.text, "ftz" in given.modifiers

    def upper(x: X) -> X:
        bits = text.cast("bitcast", x, "i64")
        sign = text.binary("and", bits, constant(bits.type, 1 << 63))
        kept = text.binary("and", bits, constant(bits.type, 0xFFFF_FFFF_0000_0000))
        exponent = text.binary("and", bits, constant(bits.type, 0x7FF0_0000_0000_0000))
        small = text.compare("eq", exponent, constant(bits.type, 0))
        return text.cast("bitcast", text.select(small, sign, kept), "double")

    def compute(x: X) -> X:
        x = upper(x) if ftz else x
        found = nan_kept(b, function(x), (x,), (0,))
        return upper(found) if ftz else found

    target, source = given.operands
    b.apply(target, "f64", ((source, "f64"),), compute, raw=True)
