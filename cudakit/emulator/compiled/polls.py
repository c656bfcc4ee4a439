"""Loops that go round until others have written: what a vector that never lets them run would wait for in vain."""

from __future__ import annotations

from cudakit.emulator.compiled.flow import Flow
from cudakit.emulator.isa.facts import facts_of, polls, sources, targets
from cudakit.emulator.ptx.program import Instruction, Register

#: Atomics that come on by themselves, lane after lane.
_OWN = frozenset({"add", "inc", "dec"})


def polling(flow: Flow) -> set[int]:
    """The headers of loops that go round by what an instruction finds, and which others must change."""
    found = set()
    for header, body in flow.loops.items():
        inside = [given for number in body for given in flow.code[flow.blocks[number].first : flow.blocks[number].last]]
        read = _made_of(inside, {name for given in inside if facts_of(given).memory for name in targets(given)})
        for given in inside:
            if _asks_others(given, read) and _leaves_by(flow, body, inside, set(targets(given))):
                found.add(header)
    return found


def _asks_others(given: Instruction, read: set[str]) -> bool:
    """Whether an instruction finds what others have written; `read` are registers with what the loop has found."""
    if not polls(given) or not _OWN.isdisjoint(given.modifiers):
        return False
    if "cas" in given.modifiers:
        # With what it found the last time, it succeeds unless another lane did.
        expected = given.operands[2]
        return not (isinstance(expected, Register) and expected.name in read)
    return True


def _made_of(inside: list[Instruction], known: set[str]) -> set[str]:
    """Registers, and those that instructions make of them."""
    known = set(known)
    changed = True
    while changed:
        changed = False
        for given in inside:
            made = targets(given)
            if made and not known.isdisjoint(sources(given)) and not known.issuperset(made):
                known.update(made)
                changed = True
    return known


def _leaves_by(flow: Flow, body: set[int], inside: list[Instruction], found: set[str]) -> bool:
    """Whether registers, or what is made of them in the loop, decide whether it is left."""
    known = _made_of(inside, found)
    for number in body:
        block = flow.blocks[number]
        last = flow.code[block.last - 1]
        if any(after not in body for after in block.successors) and not known.isdisjoint(sources(last)):
            return True
    return False
