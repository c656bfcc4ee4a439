"""Numbers of threads, and what a kernel makes of them: what a whole vector has in common, and the number of its lane.

A vector begins at a multiple of its width along x, so that a shift by as many bits, or a mask of the bits above, gives
all its lanes the same, as the number of their warp is, and the bits below count them.
"""

from __future__ import annotations

from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.shapes import UNIFORM, Affine, Shape
from cudakit.emulator.compiled.text import constant
from cudakit.emulator.isa.facts import targets
from cudakit.emulator.ptx.program import Function, Immediate, Instruction, Register

_KINDS = frozenset({"u32", "s32", "b32", "u64", "s64", "b64"})
#: Comparisons with a bound, by whether what equals it counts as below.
_BELOW, _UP_TO = frozenset({"lt", "ge", "lo", "hs"}), frozenset({"le", "gt", "ls", "hi"})
_COMPARED = {
    **{"lt": "ult", "lo": "ult", "le": "ule", "ls": "ule"},
    **{"gt": "ugt", "hi": "ugt", "ge": "uge", "hs": "uge"},
}


def numbers(function: Function, layout: Layout) -> frozenset[str]:
    """Registers that hold the threads' x, which is never negative."""
    if not layout.rows:
        return frozenset()
    written = [name for given in function.code for name in targets(given)]
    known = {"%tid.x"}
    before = 0
    while before < len(known):
        before = len(known)
        for given in function.code:
            copies = given.opcode == "mov" or (given.opcode == "cvt" and _KINDS.issuperset(given.modifiers))
            if copies and given.guard is None and isinstance(given.operands[1], Register):
                into = targets(given)
                lone = len(into) == 1 == written.count(into[0]) and bits_of(function.registers[into[0]]) >= 32
                if lone and given.operands[1].name in known:
                    known.add(into[0])
    return frozenset(known)


def shape_of(given: Instruction, known: frozenset[str], width: int) -> Shape:
    """The shape of what an instruction makes of such a number; None where that is nothing of its own."""
    if given.guard is not None or len(given.operands) != 3 or given.modifiers[-1] not in _KINDS:
        return None
    _, source, by = given.operands
    if not isinstance(source, Register) or source.name not in known or not isinstance(by, Immediate):
        return None
    if given.opcode == "shr":
        return UNIFORM if 1 << min(by.value, 32) >= width else None
    if given.opcode == "setp":
        # Whole vectors are below a bound that is a multiple of their width.
        bound = by.value + (given.modifiers[0] in _UP_TO)
        ordered = given.modifiers[0] in _BELOW | _UP_TO and len(given.modifiers) == 2
        return UNIFORM if ordered and 0 <= bound < 1 << 31 and bound % width == 0 else None
    if given.opcode != "and":
        return None
    if not by.value & width - 1:
        return UNIFORM
    return Affine(1) if by.value & width - 1 == width - 1 else None


def emit(given: Instruction, b: Builder, shape: Shape) -> None:
    """What it makes of the first lane's, which the others follow from."""
    kind, text = given.modifiers[-1], b.text
    target, _, by = given.operands
    assert isinstance(by, Immediate)
    first = text.cast("zext", b.special("tid.x").x, f"i{bits_of(kind)}")
    if given.opcode == "setp":
        how = _COMPARED[given.modifiers[0]]
        b.write(target, "pred", Value(shape, text.compare(how, first, constant(first.type, by.value))))
        return
    amount = by.value if given.opcode == "and" else min(by.value, bits_of(kind) - 1)
    opcode = "and" if given.opcode == "and" else "lshr"
    b.write(target, kind, Value(shape, text.binary(opcode, first, constant(first.type, amount))))
