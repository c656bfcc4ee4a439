"""Retry loops around a compare-and-swap, run for colliding lanes one after the other.

Of the lanes that collide on an address one succeeds in each round, and all others go round again: n rounds over n
lanes. A GPU may instead let each failed lane follow just after the lane before it has succeeded. The lane then reads
the value that this lane stored, goes round once and succeeds. The stored values are computed here lane after lane, with
only the loop's instructions that they depend on. The rest of the round then runs for all lanes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.machine.decode import DTYPES, Context, Step, decode
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand, Register, Symbol, registers_in

#: A round over all lanes takes as long as this many lanes one after the other.
_LANES_A_ROUND = 24


@dataclass(frozen=True, slots=True)
class Retry:
    """A round of a retry loop, from behind the compare-and-swap to before it.

    Attributes
    ----------
    steps : tuple of Step
        All instructions of the round.
    chain : tuple of (int, int, Step or None)
        Instructions that the stored value depends on: a step, or the numbers of two registers, the second copied to the
        first.
    inputs : tuple of int
        Registers that the chain reads and does not write.
    exits : tuple of (int, bool)
        Registers, and the value with which a lane leaves the loop without another try.
    result, value : int
        Registers with the result of the compare-and-swap, and with the value that it stores.
    """

    steps: tuple[Step, ...]
    chain: tuple[tuple[int, int, Step | None], ...]
    inputs: tuple[int, ...]
    exits: tuple[tuple[int, bool], ...]
    result: int
    value: int

    def finish(
        self,
        frame: Frame,
        index: Index,
        machine: Machine,
        view: np.ndarray,
        elements: np.ndarray,
        lanes: Any,
        old: np.ndarray,
        lost: np.ndarray,
    ) -> None:
        """Let failed lanes go round once and succeed, if this is faster than rounds over all lanes.

        Parameters
        ----------
        frame, index, machine
            Arguments of a step.
        view, elements, lanes
            An entry of `Memory.views`.
        old : numpy.ndarray
            Results of the compare-and-swap, one for each of `lanes`; changed for lanes that now succeed.
        lost : numpy.ndarray
            Positions of the failed lanes in `old`.
        """
        where = elements[lost]
        order = np.argsort(where, kind="stable")
        lost, where = lost[order], where[order]
        starts = np.flatnonzero(np.diff(where, prepend=where[0] - 1))
        rounds = int(np.diff(starts, append=where.size).max())
        if lost.size > rounds * _LANES_A_ROUND or rounds < _LANES_A_ROUND:
            return
        positions = lost if isinstance(lanes, slice) else lanes[lost]
        chosen = positions if index is None else index[positions]
        values, tries = np.empty(lost.size, old.dtype), np.empty(lost.size, bool)
        for start, stop in zip(starts, [*starts[1:], where.size], strict=True):
            element = where[start]
            part = slice(start, stop)
            values[part], tries[part], view[element] = self._in_turn(frame, chosen[part], machine, view[element])
        old[lost] = values
        # Lanes that leave do so by themselves, once they have their value. A step takes lanes in ascending order.
        order = np.argsort(chosen[tries])
        chosen, values = chosen[tries][order], values[tries][order]
        if chosen.size == 0:
            return
        result_register = frame.registers[self.result]
        stored = np.full(frame.lanes, result_register[0]) if result_register.size == 1 else result_register.copy()
        stored[chosen] = values.view(stored.dtype)
        frame.registers[self.result] = stored
        for step in self.steps:
            step(frame, chosen, machine)

    def _in_turn(
        self, frame: Frame, lanes: np.ndarray, machine: Machine, memory_value: Any
    ) -> tuple[np.ndarray, list[bool], Any]:
        """Run lanes one after the other from `memory_value`; return each lane's read, and whether it tries again.

        The third result is memory's value after the last lane.
        """
        lane_frame = Frame(1, list(frame.registers), frame.local_base, {}, frame.return_to)
        registers = lane_frame.registers
        varying = [(number, registers[number][lanes]) for number in self.inputs if registers[number].size > 1]
        current = np.array([memory_value]).view(registers[self.result].dtype)
        reads, tries = [], []
        for position in range(lanes.size):
            for number, values in varying:
                registers[number] = values[position : position + 1]
            registers[self.result] = current
            reads.append(current)
            for target, source, step in self.chain:
                if step is None:
                    registers[target] = registers[source]
                else:
                    step(lane_frame, None, machine)
            tries.append(not any(registers[number][0] == leaves for number, leaves in self.exits))
            if tries[-1]:
                current = registers[self.value]
        return np.concatenate(reads).view(memory_value.dtype), tries, current.view(memory_value.dtype)[0]


def retry_of(instr: Instruction, context: Context, type_name: str) -> Retry | None:
    """Return the round of the retry loop around a compare-and-swap; None where the loop has another form.

    The loop's other branches leave it. Every other instruction computes registers of a lane from the same lane's
    registers, or loads the address of the compare-and-swap. Such a load comes just before the compare-and-swap, so its
    value is the result of the former one. The loop ends when the result equals the expected value, and else expects the
    result.
    """
    code, labels = context.function.code, context.function.labels
    place = next(number for number, other in enumerate(code) if other is instr)
    back = next((number for number in range(place, len(code)) if _goes_back(code[number], labels, place)), None)
    result, _, compared, value = (*instr.operands, None, None)[:4]
    if back is None or instr.guard is not None:
        return None
    (target,) = code[back].operands
    guard, start = code[back].guard, labels[target.name] if isinstance(target, Symbol) else back
    if guard is None or any(start < label <= back for label in labels.values()):
        return None
    numbers = [n for operand in (result, compared, value) if (n := _plain(operand, context, type_name)) is not None]
    after, before = code[place + 1 : back], code[start:place]
    if len(numbers) < 3 or not _ends(after, guard, result, compared):
        return None
    exits = []
    for other in (*after, *before):
        if other.opcode == "bra":
            (away,) = other.operands
            if other.guard is None or not isinstance(away, Symbol) or start <= labels[away.name] <= back:
                return None
            exits.append((context.numbers[other.guard[0].name], not other.guard[1]))
    round_ = [_as_copy(other, instr, type_name) for other in (*after, *before) if other.opcode != "bra"]
    decoded_steps = [decode(other, context).step for other in round_]
    steps = [step for step in decoded_steps if step is not None and step in context.elementwise]
    if len(steps) < len(round_) or any(other.guard is not None for other in round_):
        return None
    if not set(registers_in(instr.operands[1])).isdisjoint(other.operands[0] for other in round_):
        return None
    return _record(round_, steps, tuple(exits), context, *numbers)


def _as_copy(instr: Instruction, swap: Instruction, type_name: str) -> Instruction:
    """Return a move from the compare-and-swap's result for a load of its address, others unchanged."""
    if instr.opcode != "ld" or instr.operands[1:] != swap.operands[1:2] or type_of(instr)[1:] != type_name[1:]:
        return instr
    return replace(instr, opcode="mov", modifiers=(type_name,), operands=(instr.operands[0], swap.operands[0]))


def _goes_back(instr: Instruction, labels: dict[str, int], place: int) -> bool:
    """Return whether an instruction is a branch to the instruction with index `place`, or to an earlier one.

    `labels` has the instruction index of each label.
    """
    return instr.opcode == "bra" and any(
        labels.get(o.name, place + 1) <= place for o in instr.operands if isinstance(o, Symbol)
    )


def _plain(operand: Operand | None, context: Context, type_name: str) -> int | None:
    """Return the register number of `operand`, or None if it is no register or has another dtype than the type's."""
    number = context.numbers.get(operand.name) if isinstance(operand, Register) else None
    return number if number is not None and context.storage[number] == DTYPES[type_name] else None


def _ends(after: Sequence[Instruction], guard: tuple[Register, bool], result: Any, compared: Any) -> bool:
    """Return whether the loop repeats exactly while the result of the compare-and-swap differs from the expected value.

    Parameters
    ----------
    after : sequence of Instruction
        Instructions between the compare-and-swap and the branch back.
    guard : (Register, bool)
        Predicate of the branch back, and whether it is negated.
    result, compared : Operand
        Result and expected value of the compare-and-swap.
    """
    changed: set[Operand] = set()
    for instr in after:
        if instr.operands[0] == guard[0]:
            comparison = ("eq" if guard[1] else "ne",)
            compares_result = set(instr.operands[1:]) == {result, compared} and changed.isdisjoint((result, compared))
            return (
                instr.opcode == "setp"
                and instr.modifiers[:1] == comparison
                and instr.modifiers[-1][0] in "bus"
                and compares_result
            )
        changed.add(instr.operands[0])
    return False


def _record(
    round_: Sequence[Instruction],
    steps: Sequence[Step],
    exits: tuple[tuple[int, bool], ...],
    context: Context,
    result: int,
    compared: int,
    value: int,
) -> Retry | None:
    """Return the `Retry` of a round of the loop, or None if an instruction does not only compute registers.

    Also return None if the expected value of the next round is not the former result.

    Parameters
    ----------
    round_, steps : sequence
        Instructions of the round without branches, and the step of each.
    exits : tuple of (int, bool)
        Registers, and the value with which a lane leaves the loop.
    result, compared, value : int
        Registers of the compare-and-swap: its result, expected value and new value.
    """
    rows: list[tuple[int, list[int], Step | None]] = []
    result_copies = {result: result}  # registers that hold the result of the compare-and-swap
    for instr, step in zip(round_, steps, strict=True):
        target, *sources = instr.operands
        if not isinstance(target, Register) or any(_is_odd(operand, context) for operand in sources):
            return None
        number = context.numbers[target.name]
        read = [context.numbers[register.name] for operand in sources for register in registers_in(operand)]
        copies = instr.opcode == "mov" and len(read) == 1 and context.storage[number] == context.storage[read[0]]
        rows.append((number, read, None if copies else step))
        result_copies.pop(number, None)
        if copies and read[0] in result_copies:
            result_copies[number] = result
    if compared not in result_copies or result in [number for number, _, _ in rows]:
        return None
    written = [number for number, _, _ in rows]
    if any(written.count(number) != 1 for number, _ in exits):
        return None
    needed, chain = {value, *(number for number, _ in exits)}, []
    for number, read, run in reversed(rows):
        if number in needed:
            needed.remove(number)
            needed.update(read)
            chain.append((number, read[0] if run is None else -1, run))
    return Retry(tuple(steps), tuple(reversed(chain)), tuple(needed - {result}), exits, result, value)


def _is_odd(operand: Operand, context: Context) -> bool:
    """Return whether an operand is neither a register of the lane's own nor a constant."""
    if not isinstance(operand, Register | Immediate):
        return True
    return any(register.name not in context.numbers for register in registers_in(operand))
