"""What the families of instructions have in common: types, intrinsics, and what becomes of floats."""

from __future__ import annotations

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.machine.decode import DTYPES
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


def quieted(b: Builder, x: X) -> X:
    bits = b.untyped(x)
    return b.text.cast("bitcast", b.text.binary("or", bits, constant(bits.type, 1 << 51)), "double")


def nan_kept(b: Builder, result: X, sources: tuple[X, ...]) -> X:
    """A result of float64 whose NaN are made from those of its sources, the first of them first."""
    kept = constant(result.type, 0xFFF8_0000_0000_0000)
    for source in reversed(sources):
        kept = b.text.select(b.text.compare("uno", source, source), quieted(b, source), kept)
    return b.text.select(b.text.compare("uno", result, result), kept, result)
