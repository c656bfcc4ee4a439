"""The table of instructions that are compiled: opcode → how it is written as IR, and what shape its result has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.ptx.program import Instruction

Emit: TypeAlias = Callable[[Instruction, Builder], None]
#: transfer(instruction, shape of an operand read as a number of bits): the shape of the result.
Transfer: TypeAlias = Callable[[Instruction, Callable[..., Shape]], Shape]


class Entry(NamedTuple):
    """How an instruction is compiled."""

    emit: Emit
    transfer: Transfer
    #: Whether it gives NaN in one form only, or passes on what its sources hold, so that this may be made later.
    makes_nan: bool = False


EMITTERS: dict[str, Entry] = {}


def by_sources(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """The same in all lanes where all sources are."""
    return UNIFORM if all(shape(operand) in (UNIFORM, None) for operand in given.operands[1:]) else VARYING


def varies(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Any values."""
    return VARYING


def uniform(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """The same in all lanes that it runs for."""
    return UNIFORM


def emits(*opcodes: str, transfer: Transfer = by_sources, makes_nan: bool = False) -> Callable[[Emit], Emit]:
    """Enter how instructions are compiled into the table; an opcode may go on with modifiers."""

    def enter(emit: Emit) -> Emit:
        for opcode in opcodes:
            EMITTERS[opcode] = Entry(emit, transfer, makes_nan)
        return emit

    return enter


def entry_of(given: Instruction) -> Entry | None:
    """The entry of the longest name that fits an instruction."""
    parts = (given.opcode, *given.modifiers[:3])
    for end in range(len(parts), 0, -1):
        found = EMITTERS.get(".".join(parts[:end]))
        if found is not None:
            return found
    return None
