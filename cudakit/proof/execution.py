"""Symbolic execution of a kernel: one thread, with symbols for its indices and arguments, stands for all.

Each basic block runs once, under the condition that a thread reaches it. Paths that meet are joined. A loop with a
constant number of rounds runs round by round. Any other loop runs once, for a round with a symbol for its number. A
register that changes by the same amount in each round is the amount times the number. All others are unknown.
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
    LastRound,
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
    """A read or write of `size` bytes at an address, made if the conditions in `path` hold.

    `bits` is the width of the address register, `loops` are the loops around the access, and `position` is its index in
    the execution's events.
    """

    instr: program.Instruction
    path: Path
    address: Polynomial
    size: int
    bits: int
    loops: tuple[Loop, ...]
    position: int

    @property
    def is_write(self) -> bool:
        return facts.facts_of(self.instr).memory[0].use != "loads"

    @property
    def is_atomic(self) -> bool:
        return facts.is_atomic(self.instr)

    @property
    def is_of_block(self) -> bool:
        """True if the access is atomic only for threads of its block or cluster."""
        return not {"cta", "cluster"}.isdisjoint(self.instr.modifiers)

    @property
    def source(self) -> program.Source | None:
        return self.instr.source


@dataclass(frozen=True)
class Barrier:
    """A barrier of the block, which a thread reaches if the conditions in `path` hold.

    `loops` are the loops around it, and `position` is its index in the execution's events.
    """

    instr: program.Instruction
    path: Path
    loops: tuple[Loop, ...]
    position: int


@dataclass(eq=False)
class Loop:
    """A loop that is executed once for all its rounds; the symbol `round` is the number of the round, from 0.

    `first` and `last` are the range of its events in the execution: `last` is behind the end.
    """

    name: str
    round: Symbol
    instr: program.Instruction
    has_barrier: bool
    first: int = 0
    last: int = 0
    #: Conditions under which another round follows.
    again: Path = ()

    @property
    def line(self) -> int:
        """Line of the source, or of the PTX where the source line is not known."""
        return self.instr.source.line if self.instr.source else self.instr.line


class Inexact(Exception):
    """Error of a loop that cannot be run round by round: its number of rounds is not constant, or too large."""


class Execution:
    """A symbolic execution of a kernel.

    Attributes
    ----------
    events : list of Access or Barrier
        Accesses and barriers, in the order of the program.
    one_pass_loops : list of Loop
        Loops that ran once for all their rounds.
    """

    problem: Problem
    numbers: Numbers

    def __init__(self, problem: Problem, numbers: Numbers) -> None:
        self.problem, self.numbers, self.function = problem, numbers, problem.entry
        self.flow: flow.Flow = flow.Flow(self.function)
        self.events: list[Access | Barrier] = []
        self.loops: tuple[Loop, ...] = ()
        self.one_pass_loops: list[Loop] = []
        self.at: program.Instruction | None = None
        self._names = itertools.count()

    def run(self) -> None:
        """Run the kernel from its first instruction.

        Raises
        ------
        Unsupported
            For a kernel that cannot be followed.
        """
        if 0 in self.flow.loops:
            raise Unsupported("a loop that begins where the kernel does")
        self.region(list(self.flow.order), 0, {0: [((), {})]})

    # ── blocks ──

    def region(self, order: list[int], entry: int, ways: dict[int, list[Way]]) -> dict[int, list[Way]]:
        """Run the basic blocks in `order`: those of one round of a loop, or of the kernel, from the block `entry`.

        `ways` has, by block number, the ways into the region: each a condition with the registers. Return the ways out
        of the region, and back to `entry`, by the number of the block to which they go.
        """
        inside, leaving = set(order), dict[int, list[Way]]()
        at = 0
        while at < len(order):
            number = order[at]
            header = self._inner(order, entry, number)
            if header is not None:
                members = [block for block in order if block in self.flow.loops[header]]
                at += len(members)
                if header not in ways:
                    continue
                out = self.loop(members, header, self.join(ways[header]))
            else:
                at += 1
                if number not in ways:
                    continue
                out = self.block(number, self.join(ways[number]))
            for to, exits in out.items():
                place = ways if to in inside and to != entry else leaving
                place.setdefault(to, []).extend(exits)
        return leaving

    def _inner(self, order: list[int], entry: int, number: int) -> int | None:
        """Return the header of the outermost loop in the region around the block `number`, or None.

        The region is the blocks in `order`, entered at `entry`. If it is itself a loop, this loop does not count.
        """
        for header in self.flow.blocks[number].loops:
            if header in order and not (header == entry and set(order) == self.flow.loops[entry]):
                return header
        return None

    def join(self, ways: list[Way]) -> Way:
        """Join ways that lead to the same block into one way: its condition, and its registers.

        Registers that differ become the value of the way that was taken.
        """
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
        """Run the basic block `number`, entered by a way: a condition with the registers.

        Return the ways out of it, by the number of the block to which they go.
        """
        path, values = way
        self.numbers.solver.check_steps()
        block = self.flow.blocks[number]
        for instr in self.function.code[block.first : block.last]:
            self.at = instr
            registers = self._registers(values, path)
            condition: Formula = TRUE
            if instr.guard is not None:
                condition = registers.predicate(instr.guard[0])
                condition = negation(condition) if instr.guard[1] else condition
            if condition == FALSE:
                if flow.ends_block(instr):
                    return {block.successors[-1]: [(path, values)]}
                continue
            there = self._and(path, condition)
            if instr.opcode == "bra":
                out = {block.successors[0]: [(there, values)]}
                if condition != TRUE:
                    out.setdefault(block.successors[1], []).append((self._and(path, negation(condition)), dict(values)))
                return {to: exits for to, exits in out.items() if to != self.flow.end}
            if facts.facts_of(instr).does in ("leaves", "stops"):
                if condition == TRUE:
                    return {}
                path = self._and(path, negation(condition))
                continue
            self.instruction(instr, registers, condition, there)
        return {to: [(path, values)] for to in block.successors[-1:] if to != self.flow.end}

    @staticmethod
    def _and(path: Path, condition: Formula) -> Path:
        return path + tuple(conjunct for conjunct in conjuncts(condition) if conjunct not in path)

    def instruction(self, instr: program.Instruction, registers: Registers, condition: Formula, path: Path) -> None:
        """Run an instruction that does not branch: a barrier, an access to memory, or a computation.

        `condition` is the instruction's guard, and `path` the conditions under which it runs, with the guard. Barriers
        and accesses are added to `events`.
        """
        registers.numbers.path = path
        if flow.is_barrier(instr):
            if {"cluster", "red"} & set(instr.modifiers):
                raise Unsupported(f"the instruction {instr}")
            barrier = getattr(instr.operands[0], "value", None) if instr.operands else 0
            if barrier != 0 or len(instr.operands) > 1:
                raise Unsupported("a barrier of some of the block's threads, or one other than barrier 0")
            self.events.append(Barrier(instr, path, self.loops, len(self.events)))
        elif facts.touches(instr):
            self.memory(instr, registers, condition, path)
        else:
            step(instr, registers, condition)
            if instr.opcode == "add" and isinstance(address := registers.read(instr.operands[0]), Polynomial):
                registers.write(instr.operands[0], self.problem.part(address))

    # ── memory ──

    def memory(self, instr: program.Instruction, registers: Registers, condition: Formula, path: Path) -> None:
        """Run an access to memory: add it to `events`, and set the registers that it loads.

        Reads of kernel parameters set registers only.
        """
        type_name = instr.modifiers[-1]
        if {"async", "bulk"} & set(instr.modifiers):
            raise Unsupported(f"the instruction {instr}")
        parts = next((int(modifier[1:]) for modifier in instr.modifiers if modifier in ("v2", "v4", "v8")), 1)
        size = TYPE_BYTES[type_name] * parts
        operand = next(item for item in instr.operands if isinstance(item, program.Address))
        if instr.opcode == "ld" and "param" in instr.modifiers:
            base = operand.base
            value = self.problem.parameter(
                getattr(base, "name", ""), operand.offset + getattr(base, "offset", 0), type_name
            )
            if isinstance(value, Polynomial) and type_name in INTEGERS and not value.bases().terms:
                # A part of a number may be read, into a register that is wider than the part.
                value = registers.numbers.canonical(value, *INTEGERS[type_name])
            registers.write(instr.operands[0], value if parts == 1 else Opaque("it is a part of a struct"), condition)
            return
        if "param" in instr.modifiers:
            raise Unsupported("a call of a function that is not inlined")
        base = operand.base
        bits = registers.bits_of(base, 64)
        address = registers.number(base) + operand.offset
        self.events.append(Access(instr, path, address, size, bits, self.loops, len(self.events)))
        if facts.result_of(instr) is not None:
            self._loaded(instr, registers, condition, type_name, address)

    def _loaded(
        self, instr: program.Instruction, registers: Registers, condition: Formula, type_name: str, address: Polynomial
    ) -> None:
        line = instr.source.line if instr.source else instr.line
        reason = f"it depends on what is read from memory in line {line}"

        def fill(target: program.Operand) -> None:
            if isinstance(target, program.Group):
                for item in target.items:
                    fill(item)
                return
            if type_name not in INTEGERS or (
                isinstance(target, program.Register) and registers.types.get(target.name, "f")[0] == "f"
            ):
                registers.write(target, Opaque(reason), condition)
                return
            bits, signed = INTEGERS[type_name]
            stated = self.problem.element(address, bits // 8, registers.numbers) if instr.opcode == "ld" else None
            if stated is not None:
                registers.write(target, registers.numbers.canonical(stated, bits, signed), condition)
                return
            registers.write(target, registers.numbers.unknown(reason, *words.bounds(signed, bits)), condition)

        fill(instr.operands[0])

    # ── loops ──

    def loop(self, members: list[int], header: int, way: Way) -> dict[int, list[Way]]:
        """Run a loop round by round, or once for all rounds if their number is not constant.

        `members` are the loop's basic blocks, and `way` leads to its header. Return the ways out of it, by the number
        of the block to which they go.
        """
        event_count = len(self.events)
        try:
            return self._round_by_round(members, header, way)
        except Inexact:
            del self.events[event_count:]
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
            instr
            for number in members
            for instr in self.function.code[self.flow.blocks[number].first : self.flow.blocks[number].last]
        ]
        has_barrier = any(flow.is_barrier(instr) for instr in code)
        name = f"loop {next(self._names)}"
        outer = self.loops
        if has_barrier and any(enclosing.has_barrier for enclosing in outer):
            self.at = code[0]
            raise Unsupported("barriers in a loop in a loop, neither of which has a number of rounds that is known")
        scopes = frozenset({"block", name}) | self.numbers.inside | (frozenset() if has_barrier else {"thread"})
        number = Symbol("round", 0, None, scopes)
        loop = Loop(name, number, code[0], has_barrier)
        written = {name for instr in code for name in facts.targets(instr)}
        carried = [register for register in values if register in written]
        former, compared_outside = self.numbers.inside, self.numbers.compared
        self.numbers.inside = former | {name}
        self.loops = (*outer, loop)
        self.one_pass_loops.append(loop)
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
            if len(out) == 1 and not any(facts.facts_of(instr).does in ("leaves", "stops") for instr in code):
                # All threads that enter the loop leave to one place, whatever the number of rounds.
                to, exits = out.popitem()
                last, left = self.join(exits)
                return {to: [((*path, LastRound(everything(last[len(path) :]))), left)]}
            return out
        finally:
            self.numbers.inside, self.loops, self.numbers.compared = former, outer, compared_outside

    def _round(self, members: list[int], header: int, way: Way) -> Way:
        """Run a loop for one round; return the way back to its header: the condition and the registers.

        The accesses and barriers of the round are dropped from `events`.
        """
        event_count = len(self.events)
        out = self.region(members, header, {header: [way]})
        del self.events[event_count:]
        if header not in out:
            raise Unsupported("a loop whose rounds are not followed")
        return self.join(out[header])

    def _steps(
        self, members: list[int], header: int, way: Way, carried: list[str], scopes: frozenset[str]
    ) -> dict[str, Polynomial | None]:
        """Return how much each register in `carried` changes in one round of the loop.

        `carried` are the registers that the loop writes and that have a value before it. `scopes` are the scopes with
        which their values vary. The change is None if it varies between rounds, or if the register is no integer.
        """
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
        for register in carried:
            begin, end = fresh[register], after.get(register)
            steps[register] = None
            if isinstance(begin, Polynomial) and isinstance(end, Polynomial):
                change = end - begin
                if name not in change.varies:
                    steps[register] = change
        return steps

    def _header(
        self, values: Values, carried: list[str], steps: dict[str, Polynomial | None], number: Symbol
    ) -> Values:
        """Return the registers at the beginning of round `number`: the start value plus the number times the change.

        `values` are the registers before the loop. A register in `carried` whose change is None becomes unknown.
        """
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
        """Return conditions that hold at the beginning of every round of the current loop.

        The candidates: a register stays in its type's range, and of two compared values one was greater in the round
        before. A candidate is returned if it holds in round 0, and in each further round if all returned ones hold
        before. `entered` are the conditions of a round, and `again` those of a further round.
        """
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
        invariants = [
            candidate for candidate in candidates if candidate != TRUE and self.numbers.holds(first.formula(candidate))
        ]
        changed = True
        while changed:
            changed = False
            for candidate in list(invariants):
                self.numbers.path = (*entered, *invariants, *again)
                if not self.numbers.holds(following.formula(candidate)):
                    invariants.remove(candidate)
                    changed = True
        return invariants
