"""What becomes of the value that a load reads: the instructions by which it leaves the registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cudakit.emulator.isa.facts import facts_of, is_atomic, sources, targets, touches
from cudakit.emulator.machine.decode import CARRY
from cudakit.emulator.ptx.program import Function, Instruction, registers_in


class Uses(NamedTuple):
    """Where a value goes.

    Attributes
    ----------
    writes : frozenset of int
        The stores and atomic operations that take it, by the numbers that Python has for them.
    is_conditional : bool
        Whether nothing else takes it, and each of these has a guard that does not depend on it: a thread may load it
        and use nothing of it.
    crosses : bool
        Whether other lanes of the warp are given it.
    is_data : bool
        Whether it goes anywhere else than into comparisons.
    """

    writes: frozenset[int]
    is_conditional: bool
    crosses: bool
    is_data: bool


class Values:
    """Where the values of a launch's loads go; looked for once an instruction.

    Attributes
    ----------
    watched : set of int
        The stores and atomic operations that take a value under a condition, by the numbers that Python has for them.
    are_conditional : bool
        Whether there is a load whose value may go unused.
    """

    watched: set[int]
    are_conditional: bool

    def __init__(self) -> None:
        self.watched, self.are_conditional = set(), False
        self._readers: dict[int, tuple[dict[str, list[Instruction]], bool]] = {}
        self._uses: dict[int, Uses] = {}

    def watch(self, load: Instruction, function: Function) -> None:
        """A load is about to run for the first time."""
        if self._of(function)[1] and (uses := self.of(load, function)).is_conditional:
            self.watched |= uses.writes
            self.are_conditional = True

    def of(self, load: Instruction, function: Function) -> Uses:
        """Where the value goes that an instruction loads."""
        uses = self._uses.get(id(load))
        if uses is None:
            readers = self._of(function)[0]
            sinks, names = _reached(load, readers, "")
            is_conditional = all(
                _stores(sink) and sink.guard is not None and sink.guard[0].name not in names for sink in sinks.values()
            )
            crosses = any(_crosses(reader) for name in names for reader in readers.get(name, ()))
            is_data = bool(_reached(load, readers, "setp")[0])
            uses = self._uses[id(load)] = Uses(frozenset(sinks), is_conditional, crosses, is_data)
        return uses

    def _of(self, function: Function) -> tuple[dict[str, list[Instruction]], bool]:
        """The instructions of a function that read a register, by its name, and whether some stores have guards."""
        known = self._readers.get(id(function))
        if known is None:
            readers: dict[str, list[Instruction]] = {}
            for instruction in function.code:
                for name in _read(instruction):
                    readers.setdefault(name, []).append(instruction)
            has_guards = any(_stores(each) and each.guard is not None for each in function.code)
            known = self._readers[id(function)] = readers, has_guards
        return known


def _reached(
    load: Instruction, readers: Mapping[str, list[Instruction]], end: str
) -> tuple[dict[int, Instruction], set[str]]:
    """Instructions other than those that only compute, and the registers that hold the value or depend on it."""
    rest = [each.name for each in registers_in(load.operands[0])]
    names, sinks = set(rest), dict[int, Instruction]()
    while rest:
        for instruction in readers.get(rest.pop(), ()):
            if instruction.opcode == end:
                continue
            is_result = facts_of(instruction).does == "computes"
            if not is_result:
                sinks[id(instruction)] = instruction
            if is_result or is_atomic(instruction):
                new = _written(instruction) - names
                names |= new
                rest += new
    return sinks, names


def _stores(instruction: Instruction) -> bool:
    facts = facts_of(instruction)
    return facts.does == "sends" or (touches(instruction) and facts.memory[0].use != "loads")


def _crosses(instruction: Instruction) -> bool:
    """Whether other lanes of the warp are given what an instruction reads."""
    facts = facts_of(instruction)
    return facts.does == "computes" and facts.warp in ("named", "all")


def _written(instruction: Instruction) -> set[str]:
    return {*targets(instruction), CARRY.name} if "cc" in instruction.modifiers else set(targets(instruction))


def _read(instruction: Instruction) -> set[str]:
    return {*sources(instruction), CARRY.name} if facts_of(instruction).carry else set(sources(instruction))
