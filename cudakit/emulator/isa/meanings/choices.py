"""Comparison and selection: PTX ISA 9.7.6, and the tests of floats in 9.7.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cudakit.emulator.isa.meanings.logic import joined
from cudakit.emulator.isa.meanings.reals import INFINITY, ONE, flushed, number, together
from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word

_ALL: Final = "integer float half"
#: Comparisons of unsigned integers by their other names.
_UNSIGNED: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
#: Of floats those that hold where one is NaN: where the opposite does not.
_OPPOSITES: Final = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def compared(name: str, a: Word, b: Word) -> Word:
    """A comparison by its name in PTX."""
    if a.kind[0] != "f":
        return a.test(_UNSIGNED.get(name, name), b)
    if name in ("ne", "equ"):
        apart = (a < b) | (a > b)
        return apart if name == "ne" else ~apart
    if name in ("num", "nan"):
        are = a.eq(a) & b.eq(b)
        return are if name == "num" else ~are
    if name in _OPPOSITES:
        return ~a.test(_OPPOSITES[name], b)
    return a.test("ne" if name == "neu" else name, b)


def _answer(form: Form, a: Word, b: Word) -> Word:
    if form.family != "integer":
        a, b = (number(word, form.name, form.has("ftz")) for word in (a, b))
    return compared(form.modifiers[0], a, b)


@means("setp 9.7.6.2", sources="T T pred", families=_ALL, nans="takes")
def setp(form: Form, a: Word, b: Word, other: Word | None = None) -> Iterator[Word]:
    """The answer and its opposite, or of pairs the answers for both."""
    held, is_pair = _answer(form, a, b), form.name.endswith("x2")
    for place in (0, 1):
        answer = held.part(place, 2) if is_pair else ~held if place else held
        yield answer if other is None else joined(form.modifiers[1], answer, other)


@means("set 9.7.6.1", sources="T T pred", families=_ALL, nans="takes")
def set_(form: Form, a: Word, b: Word, other: Word | None = None) -> Word:
    """A number that says whether a comparison holds: 1 in floats, all bits in integers."""
    held, out, is_pair = _answer(form, a, b), form.types[-2], form.name.endswith("x2")
    if other is not None:
        held = joined(form.modifiers[1], held, other.repeat(2) if is_pair else other)
    kind = f"u{32 if out in ('f32', 's32', 'u32') else 16}"
    return together(held.choose(ONE.get(out.removesuffix("x2"), -1), 0, kind), form.name)


@means("selp 9.7.6.3", sources="U U pred", families="integer float")
def selp(form: Form, a: Word, b: Word, chosen: Word) -> Word:
    return chosen.choose(a, b)


@means("slct 9.7.6.4", sources="S S T", families="integer float")
def slct(form: Form, a: Word, b: Word, of: Word) -> Word:
    """The first where the third is not below zero, and the second where it is, or is NaN."""
    return ((flushed(of) if form.has("ftz") else of) >= 0).choose(a, b)


@means("testp 9.7.3.1", sources="T", families="float", nans="takes")
def testp(form: Form, a: Word) -> Word:
    test, size = form.modifiers[0], abs(a)
    if test in ("number", "notanumber"):
        return a.eq(a) if test == "number" else a.ne(a)
    if test in ("finite", "infinite"):
        return size.test("lt" if test == "finite" else "eq", INFINITY[a.kind])
    small = (size < (INFINITY[a.kind] & -INFINITY[a.kind])) & (size > 0)
    # Zero counts as normal.
    return small if test == "subnormal" else ~small & (size < INFINITY[a.kind])
