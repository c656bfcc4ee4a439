"""Predicates that few numbers decide for all lanes: what is compared lies in a row, and is held against one number.

That all lanes hold, or none does, is then known from the first lane and the last. A branch that asks for these first
goes on without masks, as nearly all do at the bounds of an array.
"""

from __future__ import annotations

from typing import NamedTuple

from cudakit.emulator.compiled.builder import Builder, Value
from cudakit.emulator.compiled.shapes import UNIFORM, Affine
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Operand, Register

#: What holds for the lower of the two, where it does for the higher: less, or not greater.
_BELOW = {"lt": "lt", "lo": "lt", "le": "le", "ls": "le", "gt": "gt", "hi": "gt", "ge": "ge", "hs": "ge"}


class Verdict(NamedTuple):
    """Whether all lanes are known to hold, and whether none is; neither where that takes a look at each."""

    all: X
    none: X


def compared(b: Builder, how: str, kind: str, x: Value, y: Value) -> Verdict | None:
    """What is known of a comparison of integers; None where one of them does not lie in a row.

    None too where blocks have a single body: then there is none that goes on without masks.
    """
    if b.single:
        return None
    if isinstance(y.shape, Affine) and x.shape == UNIFORM:
        turned = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls"}
        x, y, how = y, x, turned.get(how, how)
    if not isinstance(x.shape, Affine) or y.shape != UNIFORM:
        return None
    text, sign = b.text, "s" if kind[0] == "s" else "u"
    first = x.x
    last = text.binary("add", first, constant(first.type, x.shape.stride * (b.width - 1)))
    low, high = (first, last) if x.shape.stride > 0 else (last, first)
    straight = text.compare(f"{sign}le", low, high)
    valid = b.valid(x)
    if valid is not None:
        straight = text.binary("and", straight, valid)
    if how in ("eq", "ne"):
        away = text.binary("or", text.compare(f"{sign}lt", y.x, low), text.compare(f"{sign}gt", y.x, high))
        away, never = text.binary("and", straight, away), X("i1", "false")
        return Verdict(never, away) if how == "eq" else Verdict(away, never)
    test = _BELOW[how]
    opposite = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[test]
    hardest, easiest = (high, low) if test[0] == "l" else (low, high)
    every = text.binary("and", straight, text.compare(f"{sign}{test}", hardest, y.x))
    none = text.binary("and", straight, text.compare(f"{sign}{opposite}", easiest, y.x))
    return Verdict(every, none)


def keep(b: Builder, target: Operand, verdict: Verdict | None) -> None:
    """Note what is known of a predicate, to the end of its block, or for as long as it holds."""
    if not isinstance(target, Register) or verdict is None:
        return
    if target.name not in b.verdicts:
        b.verdicts[target.name] = (b.alloca("i1", "all"), b.alloca("i1", "none"))
    for x, place in zip(verdict, b.verdicts[target.name], strict=True):
        b.text.store(x, place)
    b.known_here.add(target.name)


def held(b: Builder, operand: Operand) -> Verdict | None:
    """What is known of a predicate."""
    if not isinstance(operand, Register):
        return None
    if operand.name in b.known_here or (operand.name in b.lasting and operand.name in b.verdicts):
        return Verdict(*(b.text.load("i1", place) for place in b.verdicts[operand.name]))
    if operand.name in b.function.registers and b.shapes.shape(operand) in (UNIFORM, None):
        x = b.read(operand, "pred").x
        return Verdict(x, turned(b, x))
    return None


def turned(b: Builder, x: X) -> X:
    return b.text.binary("xor", x, X("i1", "true"))


def joined(b: Builder, opcode: str, one: Verdict | None, other: Verdict | None) -> Verdict | None:
    """What is known of two predicates under ``and`` or ``or``."""
    if one is None or other is None or opcode not in ("and", "or"):
        return None
    opposite = "or" if opcode == "and" else "and"
    return Verdict(b.text.binary(opcode, one.all, other.all), b.text.binary(opposite, one.none, other.none))
