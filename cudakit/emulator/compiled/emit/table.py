"""Table of compiled instructions: opcode → function that writes its IR, and shape of its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import Builder, X, constant
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.machine.decode import DTYPES
from cudakit.emulator.ptx.program import Instruction

Emit: TypeAlias = Callable[[Instruction, Builder], None]
#: transfer(instruction, shape of an operand read as a number of bits): the shape of the result.
Transfer: TypeAlias = Callable[[Instruction, Callable[..., Shape]], Shape]


class Entry(NamedTuple):
    """Compilation of an instruction: function that writes its IR, and function for the shape of its result."""

    emit: Emit
    transfer: Transfer
    #: Whether its NaN may be made canonical later: it makes only one NaN, or passes on its sources' values.
    makes_nan: bool = False


EMITTERS: dict[str, Entry] = {}


def by_sources(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the uniform shape if all sources are uniform, else the varying shape."""
    return UNIFORM if all(shape(operand) in (UNIFORM, None) for operand in instr.operands[1:]) else VARYING


def varies(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the varying shape: any values."""
    return VARYING


def uniform(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the uniform shape: the same in all active lanes."""
    return UNIFORM


def emits(*opcodes: str, transfer: Transfer = by_sources, makes_nan: bool = False) -> Callable[[Emit], Emit]:
    """Return a decorator that enters a function into the table as the one that writes the IR of opcodes.

    An opcode may have modifiers. `transfer` returns the shape of the result. With `makes_nan`, NaN of the result may be
    made canonical later.
    """

    def enter(emit: Emit) -> Emit:
        for opcode in opcodes:
            EMITTERS[opcode] = Entry(emit, transfer, makes_nan)
        return emit

    return enter


def entry_of(instr: Instruction) -> Entry | None:
    """Return the entry of the longest opcode that fits an instruction, or None."""
    return _entry((instr.opcode, *instr.modifiers[:3]))


@lru_cache(4096)
def _entry(parts: tuple[str, ...]) -> Entry | None:
    """Return the entry of the longest opcode among the first `parts` of an instruction's name, or None."""
    for end in range(len(parts), 0, -1):
        entry = EMITTERS.get(".".join(parts[:end]))
        if entry is not None:
            return entry
    return None


# ── shared by families: types, intrinsics, and rules for floats ──


def only(instr: Instruction, *allowed: str) -> None:
    """Raise `Refusal` if an instruction has a modifier that is neither a type nor in `allowed`."""
    for modifier in instr.modifiers:
        if modifier not in DTYPES and modifier not in allowed:
            raise Refusal(f"instruction {instr}")


def is_integer(type_name: str) -> bool:
    """Return whether a PTX type is an integer of 16, 32 or 64 bits."""
    return type_name[0] in "usb" and type_name[1:] in ("16", "32", "64")


def named(name: str, x: X) -> str:
    """Return the name of an intrinsic for the type of `x`: ``<name>.v8f32``."""
    element = {"float": "f32", "double": "f64"}.get(x.element, x.element)
    count = x.type[1 : x.type.index(" ")] if x.is_vector else ""
    return f"{name}.v{count}{element}" if count else f"{name}.{element}"


def intrinsic(b: Builder, name: str, *arguments: X) -> X:
    """Write the call of the intrinsic ``llvm.<name>`` for the first argument's type; return a value of this type."""
    return b.text.call(named(f"llvm.{name}", arguments[0]), arguments[0].type, *arguments)


def flushed(b: Builder, x: X) -> X:
    """Replace subnormal float32 by zeros of their sign."""
    bits = b.untyped(x)
    least = b.text.binary("and", bits, 0x7F80_0000)
    subnormal = b.text.compare("eq", least, 0)
    zero = b.text.binary("and", bits, 0x8000_0000)
    return b.text.cast("bitcast", b.text.select(subnormal, zero, bits), "float")


def nan_kept(b: Builder, result: X, *sources: X, quiet: bool = True) -> X:
    """Replace a float64 result's NaN by the first NaN among its sources, made quiet with `quiet`.

    If no source is NaN, the result is the NaN of an invalid operation. The NaN of the host's processor is never seen.
    """
    nan = constant(result.type, 0xFFF8_0000_0000_0000)
    for source in reversed(sources):
        own = b.text.cast("bitcast", b.text.binary("or", b.untyped(source), quiet << 51), "double")
        nan = b.text.select(b.text.compare("uno", source, source), own, nan)
    return b.text.select(b.text.compare("uno", result, result), nan, result)
