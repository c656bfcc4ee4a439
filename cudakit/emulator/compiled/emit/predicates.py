"""Instructions on predicates of which more is known than each lane's: that all hold, or none (`verdicts`)."""

from __future__ import annotations

from cudakit.emulator.compiled import verdicts
from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit import meanings
from cudakit.emulator.compiled.emit.affine import TRANSFERS
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.ptx.program import Instruction


@emits("and", transfer=TRANSFERS["and"])
@emits("or", "xor", transfer=by_sources)
def logic(given: Instruction, b: Builder) -> None:
    target, first, second = given.operands
    known = None
    if given.modifiers[-1] == "pred" and not b.guarded:
        known = verdicts.joined(b, given.opcode, verdicts.held(b, first), verdicts.held(b, second))
    meanings.emit(given, b)
    verdicts.keep(b, target, known)
