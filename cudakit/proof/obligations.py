"""Proof obligations of a kernel: accesses in bounds and aligned, barriers that all threads reach, no races.

A race is two accesses that two threads may make without order between them. The threads are of one block, where
barriers order them, or of two. A barrier that all threads of a block reach together is an obligation of its own. It
separates earlier accesses from later ones, in each round of a loop. Assumptions are listed with the proof.
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
    """An access, with its array and its offset in the array, in bytes."""

    access: Access
    array: Array
    offset: Polynomial


class Pairs:
    """Races between pairs of accesses.

    Parameters
    ----------
    events : sequence of Access or Barrier
        Events of a thread, in the program's order.
    problem : Problem
    """

    events: Sequence[Access | Barrier]
    problem: Problem

    def __init__(self, events: Sequence[Access | Barrier], problem: Problem) -> None:
        self.events, self.problem = events, problem

    def cases(self, first: Reached, other: Reached) -> tuple[Formula, ...]:
        """Return formulas, each a case in which two accesses race. If none is possible, there is no race."""
        # Atomic operations of different sizes are not atomic for each other.
        both_atomic = first.access.is_atomic and other.access.is_atomic and first.access.size == other.access.size
        of_block = first.access.is_of_block or other.access.is_of_block
        formulas: list[Formula] = []
        if not both_atomic:
            formulas += self._in_block(first, other)
            if first is not other:
                formulas += self._in_block(other, first)
        if first.array.space == "global" and not (both_atomic and not of_block):
            loops = {loop.name for reached in (first, other) for loop in reached.access.loops}
            formulas.append(self._meet(first, other, Renaming({"thread", "block", *loops}), self.problem.blocks, ()))
        return tuple(case for case in formulas if case != FALSE)

    def _meet(
        self,
        first: Reached,
        other: Reached,
        renaming: Renaming,
        indices: tuple[Polynomial, ...],
        between: Sequence[Formula],
    ) -> Formula:
        """Return the condition that two threads access the same bytes: one makes the first access, another the second.

        `renaming` gives the second thread symbols of its own. `indices` are the thread's or block's indices, of which
        one must differ. `between` are further conditions.
        """
        apart = some(negation(equal(value, renaming.polynomial(value))) for value in indices)
        start, sizes = renaming.polynomial(other.offset), (first.access.size, other.access.size)
        difference = first.offset - start
        if sizes[0] == sizes[1] and not first.offset.split(sizes[0])[1].terms and not start.split(sizes[0])[1].terms:
            same = equal(difference.split(sizes[0])[0], 0)
        else:
            same = everything((at_least(sizes[1] - 1, difference), at_least(difference, 1 - sizes[0])))
        there = renaming.formula(everything(other.access.path))
        return everything((*first.access.path, there, apart, same, *between))

    def _in_block(self, first: Reached, second: Reached) -> Iterator[Formula]:
        """Yield formulas, each a case in which two threads of a block race without a barrier between.

        One thread makes the first access, the other the second. The second access may be in a later round of a loop.
        """
        a, b = first.access, second.access
        loop_a, loop_b = _loop_of(a), _loop_of(b)

        def case(rounds: Mapping[Symbol, Polynomial], between: Sequence[Formula]) -> Iterator[Formula]:
            if FALSE in between:
                return
            # Loops without barriers are in different rounds in other threads; loops with barriers are in the same one.
            names = {
                loop.name for access in (a, b) for loop in access.loops if not loop.has_barrier or loop.round in rounds
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
            # Only the first round of the second's loop comes before a barrier.
            rounds[loop_b.round] = polynomial(0)
            between.append(self._none(loop_b.first, b.position, loop_b, rounds))
            stop = loop_b.first
        if loop_a is None:
            yield from case(rounds, [*between, self._none_between(a.position, stop, None)])
            return
        between += [self._none_between(loop_a.last, stop, None), self._none(a.position, loop_a.last)]
        # The first is in the last round of its loop, or in the one before, if the last ended before its barrier.
        yield from case(rounds, between)
        after = {loop_a.round: polynomial(loop_a.round) + 1}
        yield from case({**rounds, **after}, [*between, self._none(loop_a.first, loop_a.last, loop_a, after)])

    def _none(
        self, start: int, stop: int, loop: Loop | None = None, rounds: Mapping[Symbol, Polynomial] | None = None
    ) -> Formula:
        """Return the condition that a thread reaches no barrier among the events from `start` to before `stop`.

        With a loop, the barriers are those of another round of this loop, whose number `rounds` has.
        """
        renaming = Renaming(() if loop is None else {loop.name}, rounds)
        barriers = (event for event in self.events[start:stop] if isinstance(event, Barrier))
        return everything(negation(renaming.formula(everything(barrier.path))) for barrier in barriers)

    def _none_between(self, start: int, stop: int, own: Loop | None) -> Formula:
        """Return the condition that a thread reaches no barrier among the events from `start` to before `stop`.

        Of a loop with barriers other than `own`, the barriers of round 0 count.
        """
        conditions: list[Formula] = []
        for event in self.events[start:stop]:
            if isinstance(event, Barrier):
                loop, path = _loop_of(event), everything(event.path)
                if loop is not None and loop is not own:
                    path = Renaming({loop.name}, {loop.round: polynomial(0)}).formula(path)
                conditions.append(negation(path))
        return everything(conditions)


def _loop_of(event: Access | Barrier) -> Loop | None:
    """Return the loop around an access or barrier that has a barrier in it, or None."""
    return next((loop for loop in event.loops if loop.has_barrier), None)


@dataclass(frozen=True)
class Obligation:
    """A proof obligation: formulas of which none may be possible.

    Attributes
    ----------
    category : str
        ``bounds``, ``alignment``, ``race`` or ``barrier``.
    instr, other : Instruction
        The instruction, and the other one of a race; else the same.
    fault : str
        Fault that a possible case means.
    cases : tuple of Formula
        The formulas.
    offsets : tuple of Polynomial
        Offsets of the accesses.
    """

    category: Literal["bounds", "alignment", "race", "barrier"]
    instr: program.Instruction
    other: program.Instruction
    fault: str
    cases: tuple[Formula, ...]
    offsets: tuple[Polynomial, ...] = ()

    def reasons(self) -> list[str]:
        """Return the reasons that the cases are not exact."""
        return _reasons(self.cases)

    def reasons_of_offsets(self) -> list[str]:
        """Return the reasons that the accessed elements are not known."""
        return _reasons([Atom(offset, True) for offset in self.offsets])


def _reasons(formulas: Iterable[Formula]) -> list[str]:
    return sorted({symbol.reason for symbol in cone(formulas)[0] if symbol.reason})


def obligations(execution: Execution, problem: Problem) -> Iterator[Obligation]:
    """Yield all obligations of a kernel, the simple ones first.

    Raises
    ------
    Unsupported
        For a kernel that cannot be judged.
    """
    numbers, events = execution.numbers, execution.events
    reached = []
    for event in events:
        execution.at = event.instr
        if isinstance(event, Barrier):
            yield from _reached_by_all(event)
        else:
            reached.append(_reach(event, problem, numbers))
            written = reached[-1].array.name if event.is_write else ""
            if written in problem.contents and problem.pointers[written] is reached[-1].array.base:
                raise Unsupported(f"elements of {written}, of which something is stated, are written")
            yield from _inside(reached[-1])
    for loop in {loop: None for event in events for loop in event.loops if loop.has_barrier}:
        execution.at = loop.instr
        _check_loop(loop, events, numbers)
    execution.at = None
    pairs = Pairs(events, problem)
    by_array: dict[Array, list[Reached]] = {}
    for item in reached:
        if item.array.space in ("global", "shared"):
            by_array.setdefault(item.array, []).append(item)
    for array, accesses in by_array.items():
        for first, other in itertools.combinations_with_replacement(accesses, 2):
            numbers.solver.check_steps()
            if (first.access.is_write or other.access.is_write) and (cases := pairs.cases(first, other)):
                verbs = [_verb(member.access) for member in (first, other)]
                fault = (
                    f"{verbs[0]} an element of {array.name} that another thread {verbs[1]}, and nothing orders the two"
                )
                yield Obligation(
                    "race", first.access.instr, other.access.instr, fault, cases, (first.offset, other.offset)
                )


def _reach(access: Access, problem: Problem, numbers: Numbers) -> Reached:
    bases = access.address.bases()
    products = list(bases.terms.items())
    if len(products) != 1 or products[0][1] != 1 or len(products[0][0]) != 1:
        reasons = _reasons([Atom(access.address, True)])
        why = reasons[0] if reasons else "it may be in one array or in another"
        raise Unsupported(f"its address is not known to lie in one array: {why}")
    numbers.path = access.path
    # The address wraps at its register's width, and so does the offset in the array.
    offset = numbers.canonical(access.address - bases, access.bits, True)
    return Reached(access, problem.arrays[products[0][0][0]], offset)


def _inside(reached: Reached) -> Iterator[Obligation]:
    access, array, offset = reached.access, reached.array, reached.offset
    path = everything(access.path)
    outside = some((at_least(-1, offset), at_least(offset + access.size - 1, array.bytes)))
    verb = _verb(access)
    if outside != FALSE:
        fault = f"{verb} {access.size} bytes outside of {array.name}"
        yield Obligation("bounds", access.instr, access.instr, fault, (everything((path, outside)),), (offset,))
    _, rest = offset.split(access.size)
    if array.align % access.size:
        raise Unsupported(f"{array.name} is aligned to {array.align} bytes, and {access.size} are taken at once")
    if rest.terms:
        left = divided(rest, polynomial(access.size))[1]
        fault = f"{verb} {access.size} bytes of {array.name} at an address that is no multiple of {access.size}"
        yield Obligation(
            "alignment", access.instr, access.instr, fault, (everything((path, at_least(left, 1))),), (offset,)
        )


def _reached_by_all(barrier: Barrier) -> Iterator[Obligation]:
    """Yield the obligation that all threads of a block reach a barrier, or none does."""
    here = everything(barrier.path)
    there = Renaming({"thread"}).formula(here)
    apart = everything((here, negation(there)))
    if here != there and apart != FALSE:
        fault = "is a barrier that one thread of a block reaches and another does not"
        yield Obligation("barrier", barrier.instr, barrier.instr, fault, (apart,))


def _check_loop(loop: Loop, events: list[Access | Barrier], numbers: Numbers) -> None:
    """Check that a loop with barriers reaches one in each round that is followed by another.

    Otherwise the kernel cannot be judged, and `Unsupported` is raised.
    """
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
    """Return the assumptions of a proof as sentences, after an execution."""
    return tuple(_assumptions(execution, problem))


def _assumptions(execution: Execution, problem: Problem) -> Iterator[str]:
    accesses = [event for event in execution.events if isinstance(event, Access)]
    arrays = _global(accesses, problem)
    written = _global((access for access in accesses if access.is_write), problem)
    arguments = [array.name for base, array in problem.arrays.items() if base in problem.pointers.values()]
    reached = [name for name in arguments if name in arrays]
    if len(reached) > 1 and not written.keys().isdisjoint(reached):
        yield f"{_listed(reached)} do not overlap"
    for name in reached:
        parameter = next(parameter for parameter in problem.parameters if parameter.name == name)
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
    if has_barrier and (lines := sorted({loop.line for loop in execution.one_pass_loops if loop.line})):
        yield f"the loop{'s' * (len(lines) > 1)} of line {_listed(map(str, lines))} end{'s' * (len(lines) == 1)}"


def _global(accesses: Iterable[Access], problem: Problem) -> dict[str, list[Access]]:
    """Return the accesses to arrays in global memory, as a list for each array's name. Other accesses are left out."""
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
