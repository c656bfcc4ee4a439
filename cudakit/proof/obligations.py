"""What has to be shown of a kernel: accesses in bounds and aligned, barriers that all reach, no races."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from cudakit.emulator.ptx.program import Instruction
from cudakit.proof.execution import Access, Barrier, Execution, Loop
from cudakit.proof.instructions import Unsupported
from cudakit.proof.numbers import Numbers
from cudakit.proof.problem import Array, Problem
from cudakit.proof.races import Pairs, Reached
from cudakit.proof.terms import (
    FALSE,
    Atom,
    Formula,
    Polynomial,
    Renaming,
    Symbol,
    at_least,
    cone,
    equal,
    everything,
    negation,
    polynomial,
    some,
)


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
    given: Instruction
    other: Instruction
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
    half = 1 << access.bits - 1
    offset = numbers.in_range(access.address - bases, -half, half - 1)
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
        left = _rest_of(rest, access.size)
        what = f"{verb} {access.size} bytes of {array.name} at an address that is no multiple of {access.size}"
        yield Obligation(
            "alignment", access.given, access.given, what, (everything((path, at_least(left, 1))),), (offset,)
        )


def _rest_of(value: Polynomial, divisor: int) -> Polynomial:
    quotient, rest = Symbol("quotient", varies=value.varies), Symbol("rest", 0, divisor - 1, value.varies)
    laws = (equal(value, polynomial(quotient) * divisor + polynomial(rest)),)
    quotient.definition = rest.definition = laws
    return polynomial(rest)


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
