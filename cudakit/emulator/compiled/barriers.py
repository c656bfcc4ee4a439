"""Barriers of a part of a block: those that say how many threads they are for.

How many have come to each, and how often it was met, is kept with the block: a vector that waits goes on once its
barrier has been met once more.
"""

from __future__ import annotations

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand

#: Barriers of a block.
_BARRIERS = 16


def barrier_of(given: Instruction) -> int | None:
    """The number of the barrier that an instruction comes to; None where it is in a register."""
    operands = _operands(given)
    if not operands:
        return 0
    return operands[0].value if isinstance(operands[0], Immediate) else None


def is_counted(given: Instruction) -> bool:
    """Whether an instruction says for how many threads its barrier is."""
    return len(_operands(given)) > 1


def _operands(given: Instruction) -> tuple[Operand, ...]:
    return given.operands[1:-1] if "red" in given.modifiers else given.operands


def begin(b: Builder) -> None:
    """Nobody has come to any."""
    size = constant("i64", 16 * _BARRIERS)
    b.text.run("llvm.memset.p0.i64", X("ptr", b.slot(Slot.BARRIERS)), X("i8", "0"), size, X("i1", "false"))


def turn(b: Builder, given: Instruction) -> str:
    """Where it is kept how often the barrier of an instruction was met."""
    number = barrier_of(given)
    assert number is not None
    return b.slot(Slot.BARRIERS + 2 * number + 1)


def come(b: Builder, given: Instruction) -> tuple[X, X]:
    """A vector comes to a barrier: how often that was met before, and whether it is now."""
    count = b.known(_operands(given)[1])
    number = barrier_of(given)
    if "red" in given.modifiers or number is None or number >= _BARRIERS or count is None or count % 32:
        raise Refusal(f"instruction {given} with its operands")
    if b.width != 32 and not b.layout.full:
        raise Refusal(f"instruction {given} in a block of no whole vectors")
    text, at = b.text, turn(b, given)
    before = text.load("i64", at)
    arrived = b.slot(Slot.BARRIERS + 2 * number)
    now = text.binary("add", text.load("i64", arrived), constant("i64", b.width))
    met = text.compare("uge", now, constant("i64", count))
    text.store(text.select(met, constant("i64", 0), now), arrived)
    text.store(text.binary("add", before, text.cast("zext", met, "i64")), at)
    return before, met
