"""Instructions made ready to run: one function a table entry.

`INSTRUCTIONS` is the table: opcode → maker, filled by the family modules (`arithmetic`, `conversion`, `access`, `warp`,
`barrier`, `atomic`, `control`, …). A maker takes an instruction and its `Context` and returns a `Step` (run for the
lanes of an index), or a `Control` (which may move lanes to other places or make them wait).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

Step: TypeAlias = Callable[[Frame, Index, Machine], None]
#: control(machine, frame, lanes that stand here, those of them whose guard holds, (depth, function, instruction));
#: true where all that stand here go on to the next instruction at once.
Control: TypeAlias = Callable[[Machine, Frame, Index, Index, tuple[int, int, int]], bool | None]
Maker: TypeAlias = Callable[[Instruction, Context], Step]

#: opcode → (maker, section of the PTX ISA that defines it)
INSTRUCTIONS: dict[str, tuple[Maker, str]] = {}
CONTROLS: dict[str, tuple[Callable[[Instruction, Context], Control], str]] = {}
#: Modifiers that may belong to a name in the table.
_MOST_PARTS = 4


def instruction(opcode: str, section: str) -> Callable[[Maker], Maker]:
    """Enter a maker into the table, with the section of the PTX ISA that defines the instruction.

    `opcode` may go on with modifiers: ``cp.async.bulk`` is another entry than ``cp.async``.
    """

    def enter(maker: Maker) -> Maker:
        INSTRUCTIONS[opcode] = (maker, section)
        return maker

    return enter


def control(opcode: str, section: str) -> Callable[[Any], Any]:
    """Enter the maker of an instruction that moves lanes or makes them wait."""

    def enter(maker: Any) -> Any:
        CONTROLS[opcode] = (maker, section)
        return maker

    return enter


@dataclass(slots=True)
class Decoded:
    """An instruction ready to run."""

    instruction: Instruction
    step: Step | None
    control: Control | None
    guard: Callable[[Frame, Index], Index] | None
    #: Why it cannot run; empty where it can.
    missing: str = ""

    @property
    def is_branch(self) -> bool:
        return self.control is not None


def _maker(given: Instruction) -> Maker | None:
    """The maker of the table's longest name that begins the instruction's own."""
    parts = (given.opcode, *given.modifiers[:_MOST_PARTS])
    for end in range(len(parts), 0, -1):
        found = INSTRUCTIONS.get(".".join(parts[:end]))
        if found is not None:
            return found[0]
    return None


#: No lane at all.
_NOBODY = np.zeros(0, np.int64)


def failure(error: Exception) -> str:
    """What went wrong where an instruction's operands are not what its maker took them for."""
    return f"{error} is not known here" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"


def decode(given: Instruction, context: Context) -> Decoded:
    """`given` bound to its function; an unknown instruction raises when it is run, not before."""
    guard = None
    if given.guard is not None:
        register, negated = given.guard
        number = context.numbers[register.name]

        def guard(frame: Frame, index: Index) -> Index:
            held = frame.registers[number]
            if held.size == 1:
                return index if held[0] != negated else _NOBODY
            if index is not None:
                held = held[index]
            if negated:
                held = ~held
            if held.all():
                return index
            return np.flatnonzero(held) if index is None else index[held]

    try:
        if given.opcode in CONTROLS:
            return Decoded(given, None, CONTROLS[given.opcode][0](given, context), guard)
        maker = _maker(given)
        if maker is not None:
            return Decoded(given, maker(given, context), None, guard)
        reason = "this instruction is not emulated"
    except EmulationError as error:
        reason = f"this form of the instruction is not emulated ({error})"
    except Exception as error:
        # The makers take their operands for what the instruction must have.
        reason = f"its operands or modifiers are none that are emulated ({failure(error)})"

    def missing(frame: Frame, index: Index, machine: Machine) -> None:
        raise EmulationError(reason)

    return Decoded(given, missing, None, guard, reason)
