"""What has to be shown of a kernel: accesses in bounds and aligned, barriers that all reach, no races.

A race is two accesses that two threads may make with nothing between that orders them. The threads are of one block,
where barriers order them, or of two. A barrier that all threads of a block reach together (which is shown beside this)
parts what comes before it from what comes behind, in each round of a loop. What is not looked at is assumed, and said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cudakit.emulator.face import program
from cudakit.proof.execution import Access, Barrier, Execution, Loop
from cudakit.proof.instructions import Numbers, Unsupported
from cudakit.proof.problem import Array, Problem, element_bytes
from cudakit.proof.terms import (
    FALSE,
    Atom,
    Formula,
    Polynomial,
    Renaming,
    Symbol,
    at_least,
    cone,
    divided,
    equal,
    everything,
    negation,
    polynomial,
    some,
)


@dataclass(frozen=True)
class Reached:
    """An access, with the array and the offset in it, in bytes."""

    access: Access
    array: Array
    offset: Polynomial


class Pairs:
    """Finds how two accesses can race.

    Parameters
    ----------
    events : sequence of Access or Barrier
        Of a thread, in the program's order.
    problem : Problem
    """

    events: Sequence[Access | Barrier]
    problem: Problem

    def __init__(self, events: Sequence[Access | Barrier], problem: Problem) -> None:
        self.events, self.problem = events, problem

    def cases(self, one: Reached, other: Reached) -> tuple[Formula, ...]:
        """Formulas of which one is possible where the two race."""
        # Atomic operations of other sizes, on parts of the same bytes, are not atomic for each other.
        both_atomic = one.access.is_atomic and other.access.is_atomic and one.access.size == other.access.size
        of_block = one.access.is_of_block or other.access.is_of_block
        found: list[Formula] = []
        if not both_atomic:
            found += self._in_block(one, other)
            if one is not other:
                found += self._in_block(other, one)
        if one.array.space == "global" and not (both_atomic and not of_block):
            loops = {loop.name for each in (one, other) for loop in each.access.loops}
            found.append(self._meet(one, other, Renaming({"thread", "block", *loops}), self.problem.blocks, ()))
        return tuple(each for each in found if each != FALSE)

    def _meet(
        self,
        one: Reached,
        other: Reached,
        renaming: Renaming,
        indices: tuple[Polynomial, ...],
        between: Sequence[Formula],
    ) -> Formula:
        """One thread's access, and another's, of the same bytes; the other is renamed, and is one of other indices."""
        apart = some(negation(equal(value, renaming.polynomial(value))) for value in indices)
        start, sizes = renaming.polynomial(other.offset), (one.access.size, other.access.size)
        difference = one.offset - start
        if sizes[0] == sizes[1] and not one.offset.split(sizes[0])[1].terms and not start.split(sizes[0])[1].terms:
            same = equal(difference.split(sizes[0])[0], 0)
        else:
            same = everything((at_least(sizes[1] - 1, difference), at_least(difference, 1 - sizes[0])))
        there = renaming.formula(everything(other.access.path))
        return everything((*one.access.path, there, apart, same, *between))

    def _in_block(self, first: Reached, second: Reached) -> Iterator[Formula]:
        """Two threads of a block, the second not before the first in the program, and no barrier between."""
        a, b = first.access, second.access
        loop_a, loop_b = _loop_of(a), _loop_of(b)

        def case(rounds: Mapping[Symbol, Polynomial], between: Sequence[Formula]) -> Iterator[Formula]:
            if FALSE in between:
                return
            # Loops without barriers have other rounds in other threads; of those with barriers, both are in one round.
            names = {
                loop.name for each in (a, b) for loop in each.loops if not loop.has_barrier or loop.round in rounds
            }
            renaming = Renaming({"thread", *names}, rounds)
            yield self._meet(first, second, renaming, self.problem.threads, between)

        if loop_a is loop_b:
            if a.position <= b.position:
                yield from case({}, [self._none_between(a.position, b.position, loop_a)])
            if loop_a is not None:
                after = {loop_a.round: polynomial(loop_a.round) + 1}
                rest = self._none(a.position, loop_a.last)
                yield from case(after, [rest, self._none(loop_a.first, b.position, loop_a, after)])
            return
        if a.position > b.position:
            return
        rounds: dict[Symbol, Polynomial] = {}
        between, stop = [], b.position
        if loop_b is not None:
            # Of the second's loop only the first round comes before a barrier.
            rounds[loop_b.round] = polynomial(0)
            between.append(self._none(loop_b.first, b.position, loop_b, rounds))
            stop = loop_b.first
        if loop_a is None:
            yield from case(rounds, [*between, self._none_between(a.position, stop, None)])
            return
        between += [self._none_between(loop_a.last, stop, None), self._none(a.position, loop_a.last)]
        # Of the first's loop the last round, or the one before, where the last was left before its barrier.
        yield from case(rounds, between)
        after = {loop_a.round: polynomial(loop_a.round) + 1}
        yield from case({**rounds, **after}, [*between, self._none(loop_a.first, loop_a.last, loop_a, after)])

    def _none(
        self, start: int, stop: int, loop: Loop | None = None, rounds: Mapping[Symbol, Polynomial] | None = None
    ) -> Formula:
        """That no barrier from one event to another is reached, in another round of a loop."""
        renaming = Renaming(() if loop is None else {loop.name}, rounds)
        barriers = (each for each in self.events[start:stop] if isinstance(each, Barrier))
        return everything(negation(renaming.formula(everything(each.path))) for each in barriers)

    def _none_between(self, start: int, stop: int, own: Loop | None) -> Formula:
        """The same, where loops lie between that are passed for a round at least, or not at all."""
        found: list[Formula] = []
        for each in self.events[start:stop]:
            if isinstance(each, Barrier):
                loop, path = _loop_of(each), everything(each.path)
                if loop is not None and loop is not own:
                    path = Renaming({loop.name}, {loop.round: polynomial(0)}).formula(path)
                found.append(negation(path))
        return everything(found)


def _loop_of(event: Access | Barrier) -> Loop | None:
    """The loop with barriers that an event is in."""
    return next((each for each in event.loops if each.has_barrier), None)


@dataclass(frozen=True)
class Obligation:
    """Formulas of which none may be possible.

    Attributes
    ----------
    kind : str
        ``bounds``, ``alignment``, ``race`` or ``barrier``.
    given, other : Instruction
        Where; the other of a race, else the same.
    what : str
        What is wrong where one is possible.
    cases : tuple of Formula
    offsets : tuple of Polynomial
        Of the accesses.
    """

    kind: Literal["bounds", "alignment", "race", "barrier"]
    given: program.Instruction
    other: program.Instruction
    what: str
    cases: tuple[Formula, ...]
    offsets: tuple[Polynomial, ...] = ()

    def reasons(self) -> list[str]:
        """Why what is asked is not exact."""
        return _reasons(self.cases)

    def reasons_of_offsets(self) -> list[str]:
        """Why it is not known which elements are meant."""
        return _reasons([Atom(offset, True) for offset in self.offsets])


def _reasons(formulas: Iterable[Formula]) -> list[str]:
    return sorted({symbol.reason for symbol in cone(formulas)[0] if symbol.reason})


def obligations(execution: Execution, problem: Problem) -> Iterator[Obligation]:
    """All of a kernel's, the simple ones first.

    Raises
    ------
    Unsupported
    """
    numbers, events = execution.numbers, execution.events
    reached = []
    for event in events:
        execution.at = event.given
        if isinstance(event, Barrier):
            yield from _reached_by_all(event)
        else:
            reached.append(_reach(event, problem, numbers))
            written = reached[-1].array.name if event.is_write else ""
            if written in problem.contents and problem.pointers[written] is reached[-1].array.base:
                raise Unsupported(f"elements of {written}, of which something is stated, are written")
            yield from _inside(reached[-1])
    for loop in {each: None for event in events for each in event.loops if each.has_barrier}:
        execution.at = loop.given
        _check_loop(loop, events, numbers)
    execution.at = None
    pairs = Pairs(events, problem)
    by_array: dict[Array, list[Reached]] = {}
    for each in reached:
        if each.array.space in ("global", "shared"):
            by_array.setdefault(each.array, []).append(each)
    for array, accesses in by_array.items():
        for one, other in itertools.combinations_with_replacement(accesses, 2):
            numbers.solver.check_steps()
            if (one.access.is_write or other.access.is_write) and (cases := pairs.cases(one, other)):
                verbs = [_verb(each.access) for each in (one, other)]
                what = (
                    f"{verbs[0]} an element of {array.name} that another thread {verbs[1]}, and nothing orders the two"
                )
                yield Obligation("race", one.access.given, other.access.given, what, cases, (one.offset, other.offset))


def _reach(access: Access, problem: Problem, numbers: Numbers) -> Reached:
    bases = access.address.bases()
    products = list(bases.terms.items())
    if len(products) != 1 or products[0][1] != 1 or len(products[0][0]) != 1:
        reasons = _reasons([Atom(access.address, True)])
        why = reasons[0] if reasons else "it may be in one array or in another"
        raise Unsupported(f"its address is not known to lie in one array: {why}")
    numbers.path = access.path
    # The address wraps around where its register does, and so does what is added to the array's beginning.
    offset = numbers.canonical(access.address - bases, access.bits, True)
    return Reached(access, problem.arrays[products[0][0][0]], offset)


def _inside(reached: Reached) -> Iterator[Obligation]:
    access, array, offset = reached.access, reached.array, reached.offset
    path = everything(access.path)
    outside = some((at_least(-1, offset), at_least(offset + access.size - 1, array.bytes)))
    verb = _verb(access)
    if outside != FALSE:
        what = f"{verb} {access.size} bytes outside of {array.name}"
        yield Obligation("bounds", access.given, access.given, what, (everything((path, outside)),), (offset,))
    _, rest = offset.split(access.size)
    if array.align % access.size:
        raise Unsupported(f"{array.name} is aligned to {array.align} bytes, and {access.size} are taken at once")
    if rest.terms:
        left = divided(rest, polynomial(access.size))[1]
        what = f"{verb} {access.size} bytes of {array.name} at an address that is no multiple of {access.size}"
        yield Obligation(
            "alignment", access.given, access.given, what, (everything((path, at_least(left, 1))),), (offset,)
        )


def _reached_by_all(barrier: Barrier) -> Iterator[Obligation]:
    """Of a block either all threads reach a barrier, or none."""
    here = everything(barrier.path)
    there = Renaming({"thread"}).formula(here)
    apart = everything((here, negation(there)))
    if here != there and apart != FALSE:
        what = "is a barrier that one thread of a block reaches and another does not"
        yield Obligation("barrier", barrier.given, barrier.given, what, (apart,))


def _check_loop(loop: Loop, events: list[Access | Barrier], numbers: Numbers) -> None:
    """A loop with barriers has one in each round."""
    if FALSE in loop.again:
        return
    numbers.path = loop.again
    for event in events[loop.first : loop.last]:
        if isinstance(event, Barrier) and numbers.holds(everything(event.path)):
            return
    raise Unsupported("a loop of which not every round has a barrier, while some have")


def _verb(access: Access) -> str:
    return "changes atomically" if access.is_atomic else "writes" if access.is_write else "reads"


# ── what a proof takes for granted ──


def assumptions(execution: Execution, problem: Problem) -> tuple[str, ...]:
    """Sentences about what is not looked at, after an execution."""
    return tuple(_assumptions(execution, problem))


def _assumptions(execution: Execution, problem: Problem) -> Iterator[str]:
    accesses = [event for event in execution.events if isinstance(event, Access)]
    arrays = _global(accesses, problem)
    written = _global((each for each in accesses if each.is_write), problem)
    arguments = [array.name for base, array in problem.arrays.items() if base in problem.pointers.values()]
    reached = [name for name in arguments if name in arrays]
    if len(reached) > 1 and not written.keys().isdisjoint(reached):
        yield f"{_listed(reached)} do not overlap"
    for name in reached:
        parameter = next(each for each in problem.parameters if each.name == name)
        own = parameter.alignment if parameter.alignment > 1 else element_bytes(parameter) // parameter.count
        most = max(access.size for access in arrays[name])
        if most > own:
            yield f"{name} begins at a multiple of {most} bytes"
    if problem.axes_of_1:
        axes = _listed(f"gridDim.{axis} == 1" for axis in problem.axes_of_1)
        yield f"{axes}: the kernel never reads {'these axes' if len(problem.axes_of_1) > 1 else 'this axis'}"
    if arrays:
        uses = f", or reads {_listed(written, 'or')}," if written else ""
        yield f"nothing else writes {_listed(arrays, 'or')}{uses} while the kernel runs"
    has_barrier = any(isinstance(event, Barrier) for event in execution.events)
    if has_barrier and (lines := sorted({loop.line for loop in execution.passed if loop.line})):
        yield f"the loop{'s' * (len(lines) > 1)} of line {_listed(map(str, lines))} end{'s' * (len(lines) == 1)}"


def _global(accesses: Iterable[Access], problem: Problem) -> dict[str, list[Access]]:
    """Accesses of global memory, by the array's name."""
    result: dict[str, list[Access]] = {}
    for access in accesses:
        for base in access.address.bases().symbols:
            array: Array = problem.arrays[base]
            if array.space == "global":
                result.setdefault(array.name, []).append(access)
    return result


def _listed(names: Iterable[str], word: str = "and") -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last
