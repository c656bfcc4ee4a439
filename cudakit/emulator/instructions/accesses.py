"""How instructions access memory, for whoever watches them: the space, the addresses, and bytes a lane."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.isa.facts import Memory, facts_of
from cudakit.emulator.machine.context import DTYPES, Context, Reader
from cudakit.emulator.ptx.program import Immediate, Instruction
from cudakit.errors import EmulationError


class Access(NamedTuple):
    """How an instruction accesses memory: the space that it names, bytes a lane, and what it does there."""

    space: str
    address: Reader
    size: int
    use: str
    #: Whether lanes name the rows of matrices that the warp moves together.
    by_rows: bool = False


def accesses_of(given: Instruction, context: Context) -> tuple[Access, ...]:
    """How an instruction accesses memory; empty where it does not, or in a way that is not counted."""
    facts = facts_of(given)
    named = space_of(given)
    if named in ("param", "const") or "bulk" in given.modifiers or any(memory.address < 0 for memory in facts.memory):
        return ()
    try:
        return tuple(
            Access(
                memory.space or named,
                context.address(given.operands[memory.address], named),
                _bytes(given, memory),
                memory.use,
                facts.warp == "all",
            )
            for memory in facts.memory
        )
    except EmulationError:
        return ()  # the machine says what is wrong with it


def _bytes(instruction: Instruction, memory: Memory) -> int:
    """Bytes that each lane moves."""
    if memory.value >= 0:
        return DTYPES[type_of(instruction)].itemsize * len(parts(instruction.operands[memory.value]))
    if memory.size < 0:
        return memory.bytes
    match instruction.operands[memory.size :]:
        case (Immediate(value=size), *_):
            return size
    raise EmulationError(f"{instruction} of a number of bytes that is no constant")
