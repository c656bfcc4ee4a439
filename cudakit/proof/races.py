"""Pairs of accesses that two threads may make with nothing between that orders them.

The threads are of one block, where barriers order them, or of two. A barrier that all threads of a block reach together
(which is shown beside this) parts what comes before it from what comes behind, in each round of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudakit.proof.execution import Access, Barrier, Loop
from cudakit.proof.problem import Array, Problem
from cudakit.proof.terms import (
    FALSE,
    Formula,
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
                loop = _loop_of(each)
                foreign = loop is not None and loop is not own
                first = (
                    Renaming({loop.name}, {loop.round: polynomial(0)}) if loop is not None and foreign else Renaming(())
                )
                found.append(negation(first.formula(everything(each.path))))
        return everything(found)


def _loop_of(event: Access | Barrier) -> Loop | None:
    """The loop with barriers that an event is in."""
    return next((each for each in event.loops if each.has_barrier), None)
