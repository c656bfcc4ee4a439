"""Instructions on predicates of which more is known than each lane's: that all hold, or none (`verdicts`)."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled import verdicts
from cudakit.emulator.compiled.builder import Builder, Value
from cudakit.emulator.compiled.emit import meanings
from cudakit.emulator.compiled.emit.affine import TRANSFERS
from cudakit.emulator.compiled.emit.common import is_integer
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.emit.words import LaneWord
from cudakit.emulator.compiled.shapes import VARYING, Affine
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.isa.meanings.choices import compared
from cudakit.emulator.isa.meanings.table import KINDS
from cudakit.emulator.ptx.program import Instruction, Register


@emits("and", transfer=TRANSFERS["and"])
@emits("or", "xor", transfer=by_sources)
def logic(given: Instruction, b: Builder) -> None:
    target, first, second = given.operands
    known = None
    if given.modifiers[-1] == "pred" and not b.guarded:
        known = verdicts.joined(b, given.opcode, verdicts.held(b, first), verdicts.held(b, second))
    meanings.emit(given, b)
    verdicts.keep(b, target, known)


@emits("setp", transfer=by_sources)
def setp(given: Instruction, b: Builder) -> None:
    target, first, second, *rest = given.operands
    name, kind = given.modifiers[0], given.modifiers[-1]
    rows = any(isinstance(b.shapes.shape(operand), Affine) for operand in (first, second))
    if rows and is_integer(kind) and not rest and not b.guarded and isinstance(target, Register):
        x, y = b.read(first, kind), b.read(second, kind)
        verdict = verdicts.compared(b, name, kind, x, y)
        if verdict is not None:

            def compare() -> X:
                one, other = (LaneWord(b, b.lanes(value), KINDS[kind], b.width) for value in (x, y))
                held = compared(name, one, other)
                assert isinstance(held, LaneWord)
                return held.x

            lazy = target.name not in b.for_branch
            b.write(target, "pred", Value(VARYING, _unless(b, verdict, compare) if lazy else compare()))
            verdicts.keep(b, target, verdict)
            return
    meanings.emit(given, b)


def _unless(b: Builder, verdict: verdicts.Verdict, compare: Callable[[], X]) -> X:
    """A comparison of all lanes, where it is not known for all at once."""
    text, type_ = b.text, b.vector("i1")
    each, other, joined = text.fresh("each"), text.fresh("other"), text.fresh("joined")
    before = text.here
    text.branch(verdict.all, joined, other)
    text.label(other)
    text.branch(verdict.none, joined, each)
    text.label(each)
    found = compare()
    at = text.here
    text.jump(joined)
    text.label(joined)
    return text.phi(type_, (constant(type_, 1), before), (constant(type_, 0), other), (found, at))
