"""One thread for all: a kernel run with symbols for its indices and its arguments.

Every block of the kernel's flow is passed once, under the condition that a thread comes there; ways that meet are
joined. A loop whose number of rounds is a number is run round by round. Any other is passed once, for a round with a
symbol for its number: what changes by the same amount in each round is that amount times the number, all else is
unknown.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, TypeAlias

from cudakit.emulator.face import TYPE_BYTES, facts, flow, program, words
from cudakit.proof.instructions import INTEGERS, Numbers, Opaque, Registers, Unsupported, Value, conjuncts, merged, step
from cudakit.proof.problem import Problem
from cudakit.proof.terms import (
    FALSE,
    TRUE,
    Formula,
    Known,
    Polynomial,
    Renaming,
    Symbol,
    at_least,
    equal,
    everything,
    negation,
    polynomial,
    some,
)

_MOST_ROUNDS: Final = 512

Path: TypeAlias = tuple[Formula, ...]
Values: TypeAlias = dict[str, Value]
#: A way from one block to another: its condition, and the registers.
Way: TypeAlias = tuple[Path, Values]


@dataclass(frozen=True)
class Access:
    """A thread reads or writes `size` bytes from an address on, where `path` holds."""

    given: program.Instruction
    path: Path
    address: Polynomial
    size: int
    bits: int
    loops: tuple[Loop, ...]
    position: int

    @property
    def is_write(self) -> bool:
        return facts.facts_of(self.given).memory[0].use != "loads"

    @property
    def is_atomic(self) -> bool:
        return facts.is_atomic(self.given)

    @property
    def is_of_block(self) -> bool:
        """Whether it is atomic for threads of its block or cluster alone."""
        return not {"cta", "cluster"}.isdisjoint(self.given.modifiers)

    @property
    def source(self) -> program.Source | None:
        return self.given.source


@dataclass(frozen=True)
class Barrier:
    """A thread waits for its block, where `path` holds."""

    given: program.Instruction
    path: Path
    loops: tuple[Loop, ...]
    position: int


@dataclass(eq=False)
class Loop:
    """A loop that is passed once for all its rounds."""

    name: str
    round: Symbol
    given: program.Instruction
    has_barrier: bool
    first: int = 0
    last: int = 0
    #: The conditions under which another round follows.
    again: Path = ()

    @property
    def line(self) -> int:
        """Of the source, or of the PTX where that is not known."""
        return self.given.source.line if self.given.source else self.given.line


class Inexact(Exception):
    """A loop's number of rounds is not a number."""


class Execution:
    """Runs a kernel.

    Attributes
    ----------
    events : list of Access or Barrier
        In the order of the program.
    passed : list of Loop
        Loops that were passed once for all their rounds.
    """

    problem: Problem
    numbers: Numbers

    def __init__(self, problem: Problem, numbers: Numbers) -> None:
        self.problem, self.numbers, self.function = problem, numbers, problem.entry
        self.flow: flow.Flow = flow.Flow(self.function)
        self.events: list[Access | Barrier] = []
        self.loops: tuple[Loop, ...] = ()
        self.passed: list[Loop] = []
        self.at: program.Instruction | None = None
        self._names = itertools.count()

    def run(self) -> None:
        """Run it from its first instruction on.

        Raises
        ------
        Unsupported
        """
        if 0 in self.flow.loops:
            raise Unsupported("a loop that begins where the kernel does")
        self.region(list(self.flow.order), 0, {0: [((), {})]})

    # ── blocks ──

    def region(self, order: list[int], entry: int, ways: dict[int, list[Way]]) -> dict[int, list[Way]]:
        """Pass the blocks of a loop, or all; return the ways out of it, and back to `entry`."""
        inside, leaving = set(order), dict[int, list[Way]]()
        at = 0
        while at < len(order):
            number = order[at]
            header = self._inner(order, entry, number)
            if header is not None:
                members = [each for each in order if each in self.flow.loops[header]]
                at += len(members)
                if header not in ways:
                    continue
                out = self.loop(members, header, self.join(ways[header]))
            else:
                at += 1
                if number not in ways:
                    continue
                out = self.block(number, self.join(ways[number]))
            for to, found in out.items():
                place = ways if to in inside and to != entry else leaving
                place.setdefault(to, []).extend(found)
        return leaving

    def _inner(self, order: list[int], entry: int, number: int) -> int | None:
        """The outermost loop around a block that is not the region itself."""
        for header in self.flow.blocks[number].loops:
            if header in order and not (header == entry and set(order) == self.flow.loops[entry]):
                return header
        return None

    def join(self, ways: list[Way]) -> Way:
        """Several ways that meet."""
        if len(ways) == 1:
            return ways[0][0], dict(ways[0][1])
        path, rests = merged([path for path, _ in ways])
        names = dict.fromkeys(name for _, values in ways for name in values)
        registers = self._registers({}, path)
        joined: Values = {}
        for name in names:
            values = [values.get(name, Opaque("not every way writes it")) for _, values in ways]
            joined[name] = registers.either(tuple(zip(rests, values, strict=True)))
        return path, joined

    def _registers(self, values: Values, path: Path) -> Registers:
        self.numbers.path = path
        return Registers(values, self.function.registers, self.numbers, self.problem.special, self.problem.base_of)

    def block(self, number: int, way: Way) -> dict[int, list[Way]]:
        """Pass a block; return the ways out of it."""
        path, values = way
        self.numbers.solver.check_steps()
        block = self.flow.blocks[number]
        for given in self.function.code[block.first : block.last]:
            self.at = given
            registers = self._registers(values, path)
            condition: Formula = TRUE
            if given.guard is not None:
                condition = registers.predicate(given.guard[0])
                condition = negation(condition) if given.guard[1] else condition
            if condition == FALSE:
                if flow.ends_block(given):
                    return {block.successors[-1]: [(path, values)]}
                continue
            there = self._and(path, condition)
            if given.opcode == "bra":
                out = {block.successors[0]: [(there, values)]}
                if condition != TRUE:
                    out.setdefault(block.successors[1], []).append((self._and(path, negation(condition)), dict(values)))
                return {to: found for to, found in out.items() if to != self.flow.end}
            if facts.facts_of(given).does in ("leaves", "stops"):
                if condition == TRUE:
                    return {}
                path = self._and(path, negation(condition))
                continue
            self.instruction(given, registers, condition, there)
        return {to: [(path, values)] for to in block.successors[-1:] if to != self.flow.end}

    @staticmethod
    def _and(path: Path, condition: Formula) -> Path:
        return path + tuple(each for each in conjuncts(condition) if each not in path)

    def instruction(self, given: program.Instruction, registers: Registers, condition: Formula, path: Path) -> None:
        """Do an instruction that does not branch."""
        registers.numbers.path = path
        if flow.is_barrier(given):
            if {"cluster", "red"} & set(given.modifiers):
                raise Unsupported(f"the instruction {given}")
            named = getattr(given.operands[0], "value", None) if given.operands else 0
            if named != 0 or len(given.operands) > 1:
                raise Unsupported("a barrier of some of the block's threads, or one other than barrier 0")
            self.events.append(Barrier(given, path, self.loops, len(self.events)))
        elif facts.touches(given):
            self.memory(given, registers, condition, path)
        else:
            step(given, registers, condition)
            if given.opcode == "add" and isinstance(address := registers.read(given.operands[0]), Polynomial):
                registers.write(given.operands[0], self.problem.part(address))

    # ── memory ──

    def memory(self, given: program.Instruction, registers: Registers, condition: Formula, path: Path) -> None:
        """Do an access."""
        kind = given.modifiers[-1]
        if {"async", "bulk"} & set(given.modifiers):
            raise Unsupported(f"the instruction {given}")
        parts = next((int(each[1:]) for each in given.modifiers if each in ("v2", "v4", "v8")), 1)
        size = TYPE_BYTES[kind] * parts
        operand = next(each for each in given.operands if isinstance(each, program.Address))
        if given.opcode == "ld" and "param" in given.modifiers:
            base = operand.base
            found = self.problem.parameter(getattr(base, "name", ""), operand.offset + getattr(base, "offset", 0), kind)
            if isinstance(found, Polynomial) and kind in INTEGERS and not found.bases().terms:
                # A part of a number may be read, into a register that is wider than the part.
                found = registers.numbers.canonical(found, *INTEGERS[kind])
            registers.write(given.operands[0], found if parts == 1 else Opaque("it is a part of a struct"), condition)
            return
        if "param" in given.modifiers:
            raise Unsupported("a call of a function that is not inlined")
        base = operand.base
        bits = registers.bits_of(base, 64)
        address = registers.number(base) + operand.offset
        self.events.append(Access(given, path, address, size, bits, self.loops, len(self.events)))
        if facts.result_of(given) is not None:
            self._loaded(given, registers, condition, kind, address)

    def _loaded(
        self, given: program.Instruction, registers: Registers, condition: Formula, kind: str, address: Polynomial
    ) -> None:
        line = given.source.line if given.source else given.line
        reason = f"it depends on what is read from memory in line {line}"

        def fill(target: program.Operand) -> None:
            if isinstance(target, program.Group):
                for item in target.items:
                    fill(item)
                return
            if kind not in INTEGERS or (
                isinstance(target, program.Register) and registers.types.get(target.name, "f")[0] == "f"
            ):
                registers.write(target, Opaque(reason), condition)
                return
            bits, signed = INTEGERS[kind]
            stated = self.problem.element(address, bits // 8, registers.numbers) if given.opcode == "ld" else None
            if stated is not None:
                registers.write(target, registers.numbers.canonical(stated, bits, signed), condition)
                return
            registers.write(target, registers.numbers.unknown(reason, *words.bounds(signed, bits)), condition)

        fill(given.operands[0])

    # ── loops ──

    def loop(self, members: list[int], header: int, way: Way) -> dict[int, list[Way]]:
        """Pass a loop; return the ways out of it."""
        kept = len(self.events)
        try:
            return self._round_by_round(members, header, way)
        except Inexact:
            del self.events[kept:]
        return self._at_once(members, header, way)

    def _round_by_round(self, members: list[int], header: int, way: Way) -> dict[int, list[Way]]:
        for _ in range(_MOST_ROUNDS):
            out = self.region(members, header, {header: [way]})
            back = out.pop(header, [])
            if not back:
                return out
            joined = self.join(back)
            if out or joined[0] != way[0]:
                raise Inexact
            way = joined
        raise Inexact

    def _at_once(self, members: list[int], header: int, way: Way) -> dict[int, list[Way]]:
        path, values = way
        code = [
            given
            for number in members
            for given in self.function.code[self.flow.blocks[number].first : self.flow.blocks[number].last]
        ]
        has_barrier = any(flow.is_barrier(given) for given in code)
        name = f"loop {next(self._names)}"
        outer = self.loops
        if has_barrier and any(each.has_barrier for each in outer):
            self.at = code[0]
            raise Unsupported("barriers in a loop in a loop, neither of which has a number of rounds that is known")
        scopes = frozenset({"block", name}) | self.numbers.inside | (frozenset() if has_barrier else {"thread"})
        number = Symbol("round", 0, None, scopes)
        loop = Loop(name, number, code[0], has_barrier)
        written = {name for given in code for name in facts.targets(given)}
        carried = [each for each in values if each in written]
        former, compared_outside = self.numbers.inside, self.numbers.compared
        self.numbers.inside = former | {name}
        self.loops = (*outer, loop)
        self.passed.append(loop)
        try:
            steps = self._steps(members, header, way, carried, scopes)
            start = self._header(values, carried, steps, number)
            compared = self.numbers.compared = []
            again = self._round(members, header, (path, dict(start)))[0][len(path) :]
            before = Renaming({name}, {number: polynomial(number) - 1})
            followed = some((equal(number, 0), everything((at_least(number, 1), *map(before.formula, again)))))
            entered = (*path, *conjuncts(followed))
            invariants = self._invariants(entered, again, start, steps, number, list(compared))
            inner = (*entered, *invariants)
            loop.first = len(self.events)
            out = self.region(members, header, {header: [(inner, dict(start))]})
            loop.last = len(self.events)
            loop.again = self.join(out.pop(header))[0] if header in out else (FALSE,)
            if len(out) == 1 and not any(facts.facts_of(given).does in ("leaves", "stops") for given in code):
                # All threads that enter leave to one place: that they come there does not depend on the rounds.
                to, found = out.popitem()
                last, left = self.join(found)
                return {to: [((*path, Known(everything(last[len(path) :]))), left)]}
            return out
        finally:
            self.numbers.inside, self.loops, self.numbers.compared = former, outer, compared_outside

    def _round(self, members: list[int], header: int, way: Way) -> Way:
        """The way back to a loop's header after a round, whose events are not kept."""
        kept = len(self.events)
        out = self.region(members, header, {header: [way]})
        del self.events[kept:]
        if header not in out:
            raise Unsupported("a loop whose rounds are not followed")
        return self.join(out[header])

    def _steps(
        self, members: list[int], header: int, way: Way, carried: list[str], scopes: frozenset[str]
    ) -> dict[str, Polynomial | None]:
        """By what each register changes in a round; None where that is not the same in each, or it is no number."""
        path, values = way
        fresh: Values = {}
        symbols: dict[str, Symbol] = {}
        for name in carried:
            value = values[name]
            if isinstance(value, Polynomial):
                symbols[name] = Symbol(name, None, None, scopes | value.varies | {"thread"})
                fresh[name] = polynomial(symbols[name]) + value.bases()
            else:
                fresh[name] = Opaque("it changes in a loop")
        _, after = self._round(members, header, (path, {**values, **fresh}))
        steps: dict[str, Polynomial | None] = {}
        name = self.loops[-1].name
        for each in carried:
            begin, end = fresh[each], after.get(each)
            steps[each] = None
            if isinstance(begin, Polynomial) and isinstance(end, Polynomial):
                change = end - begin
                if name not in change.varies:
                    steps[each] = change
        return steps

    def _header(
        self, values: Values, carried: list[str], steps: dict[str, Polynomial | None], number: Symbol
    ) -> Values:
        """The registers at the head of a round."""
        start = dict(values)
        for name in carried:
            value, change = values[name], steps[name]
            if isinstance(value, Polynomial) and change is not None:
                start[name] = value + polynomial(number) * change
            else:
                start[name] = Opaque("it does not change by the same amount in each round of a loop")
        return start

    def _invariants(
        self,
        entered: Path,
        again: Path,
        start: Values,
        steps: dict[str, Polynomial | None],
        number: Symbol,
        compared: list[Polynomial],
    ) -> list[Formula]:
        """What holds at the head of every round: of what may, the most that one round leaves as it is."""
        candidates: dict[Formula, None] = {}
        for register, change in steps.items():
            value = start[register]
            if not isinstance(value, Polynomial) or change is None or not change.terms or value.bases().terms:
                continue
            bits = int("".join(filter(str.isdigit, self.function.registers[register])) or 32)
            for low, high in (words.bounds(True, bits), words.bounds(False, bits)):
                candidates[everything((at_least(value, low), at_least(high, value)))] = None
        name = self.loops[-1].name
        earlier = Renaming({name}, {number: polynomial(number) - 1})
        for difference in dict.fromkeys(compared):
            if number in difference.symbols:
                last = earlier.polynomial(difference)
                candidates[at_least(last, 1)] = candidates[at_least(-1, last)] = None
        first = Renaming({name}, {number: polynomial(0)})
        following = Renaming({name}, {number: polynomial(number) + 1})
        self.numbers.path = entered
        known = [each for each in candidates if each != TRUE and self.numbers.holds(first.formula(each))]
        changed = True
        while changed:
            changed = False
            for each in list(known):
                self.numbers.path = (*entered, *known, *again)
                if not self.numbers.holds(following.formula(each)):
                    known.remove(each)
                    changed = True
        return known
