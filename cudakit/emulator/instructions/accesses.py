"""How instructions access memory, for whoever watches them: the space, the addresses, and bytes a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.machine.context import DTYPES, Context, Reader
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand
from cudakit.errors import EmulationError


class Access(NamedTuple):
    """How an instruction accesses memory: the space that it names, bytes a lane, and what it does there."""

    space: str
    address: Reader
    size: int
    use: str


def accesses_of(given: Instruction, context: Context) -> tuple[Access, ...]:
    """How an instruction accesses memory; empty where it does not, or in a way that is not counted."""
    maker = _ACCESSES.get(given.opcode)
    if maker is None:
        return ()
    try:
        return maker(given, context)
    except EmulationError:
        return ()  # the machine says what is wrong with it


def _width(given: Instruction, operand: Operand) -> int:
    return DTYPES[type_of(given)].itemsize * len(parts(operand))


def _load(given: Instruction, context: Context) -> tuple[Access, ...]:
    space = space_of(given)
    if space in ("param", "const"):
        return ()
    target, source = given.operands[:2]
    return (Access(space, context.address(source, space), _width(given, target), "loads"),)


def _store(given: Instruction, context: Context) -> tuple[Access, ...]:
    space = space_of(given)
    if space == "param" or "async" in given.modifiers or "bulk" in given.modifiers:
        return ()
    target, source = given.operands[:2]
    return (Access(space, context.address(target, space), _width(given, source), "stores"),)


def _atomic(given: Instruction, context: Context) -> tuple[Access, ...]:
    if "async" in given.modifiers:
        return ()
    space, at = space_of(given), 1 if given.opcode == "atom" else 0
    return (
        Access(space, context.address(given.operands[at], space), _width(given, given.operands[at + 1]), "atomics"),
    )


def _copy(given: Instruction, context: Context) -> tuple[Access, ...]:
    if given.modifiers[0] != "async" or len(given.operands) < 3 or not isinstance(given.operands[2], Immediate):
        return ()
    if not {"bulk", "mbarrier", "reduce"}.isdisjoint(given.modifiers):
        return ()
    target, source, size = given.operands[:3]
    assert isinstance(size, Immediate)
    return (
        Access("global", context.address(source, "global"), size.value, "copies"),
        Access("shared", context.address(target, "shared"), size.value, "copies"),
    )


def _matrix_load(given: Instruction, context: Context) -> tuple[Access, ...]:
    return (Access("shared", context.address(given.operands[1], space_of(given)), 16, "loads"),)


def _matrix_store(given: Instruction, context: Context) -> tuple[Access, ...]:
    return (Access("shared", context.address(given.operands[0], space_of(given)), 16, "stores"),)


_ACCESSES: dict[str, Callable[[Instruction, Context], tuple[Access, ...]]] = {
    "ld": _load, "ldu": _load, "st": _store, "atom": _atomic, "red": _atomic, "cp": _copy,
    "ldmatrix": _matrix_load, "stmatrix": _matrix_store,
}  # fmt: skip
