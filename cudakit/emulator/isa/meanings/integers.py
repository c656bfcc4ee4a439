"""Arithmetic of integers: PTX ISA 9.7.1, and 9.7.2 with a carry for each lane."""

from __future__ import annotations

from typing import Any

from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word

# ── sums and products ──


def _paired(form: Form, *words: Word) -> tuple[Word, ...]:
    """The two 16-bit halves of packed operands; others as they are."""
    return tuple(word.split(form.name[:3]) for word in words) if form.name.endswith("x2") else words


def _together(form: Form, result: Word) -> Word:
    return result.join("u32") if form.name.endswith("x2") else result


def _held(exact: Word) -> Word:
    """A result of 64 bits, held to the range of 32."""
    return exact.max(-(1 << 31)).min((1 << 31) - 1).to("s32")


@means("add 9.7.1.1", sources="T T")
def add(form: Form, a: Word, b: Word) -> Word:
    if form.has("sat"):
        return _held(a.to("s64") + b.to("s64"))
    x, y = _paired(form, a, b)
    return _together(form, x + y)


@means("sub 9.7.1.2", sources="T T")
def sub(form: Form, a: Word, b: Word) -> Word:
    return _held(a.to("s64") - b.to("s64")) if form.has("sat") else a - b


@means("mul 9.7.1.3", sources="T T")
def mul(form: Form, a: Word, b: Word) -> Word:
    if form.has("wide"):
        wide = f"{form.name[0]}{2 * form.bits}"
        return a.to(wide) * b.to(wide)
    return a.high_product(b) if form.has("hi") else a * b


@means("mad 9.7.1.4", sources="T T W")
def mad(form: Form, a: Word, b: Word, c: Word) -> Any:
    if form.has("cc"):
        return madc(form, a, b, c)
    product = mul(form, a, b)
    return _held(product.to("s64") + c.to("s64")) if form.has("sat") else product + c


@means("mul24 9.7.1.5", sources="T T")
def mul24(form: Form, a: Word, b: Word) -> Word:
    """The product of the low 24 bits: its low 32 bits, or bits 47 … 16."""
    wide = f"{form.name[0]}64"
    x, y = (word.to(wide) << 40 >> 40 for word in (a, b))
    return (x * y >> 16 if form.has("hi") else x * y).to(form.kind)


@means("mad24 9.7.1.6", sources="T T T")
def mad24(form: Form, a: Word, b: Word, c: Word) -> Word:
    product = mul24(form, a, b)
    return _held(product.to("s64") + c.to("s64")) if form.has("sat") else product + c


@means("sad 9.7.1.7", sources="T T T")
def sad(form: Form, a: Word, b: Word, c: Word) -> Word:
    return c + (a.max(b) - a.min(b))


# ── quotients ──


@means("div 9.7.1.8", "rem 9.7.1.9", sources="T T")
def quotient(form: Form, a: Word, b: Word) -> Word:
    """Towards zero; by zero all bits are one, as the hardware's sequence leaves them."""
    return b.eq(0).choose(-1, a.do(form.opcode, a.kind, b))


# ── signs and extrema ──


@means("neg 9.7.1.11", sources="T")
def neg(form: Form, a: Word) -> Word:
    return -a


@means("abs 9.7.1.10", sources="T")
def absolute(form: Form, a: Word) -> Word:
    return abs(a)


@means("min 9.7.1.12", "max 9.7.1.13", sources="T T T")
def extremum(form: Form, *words: Word) -> Word:
    first, *others = _paired(form, *words)
    for other in others:
        first = first.min(other) if form.opcode == "min" else first.max(other)
    return _together(form, first.max(0) if form.has("relu") else first)


# ── dot products of bytes ──


@means("dp4a 9.7.1.23", "dp2a 9.7.1.24", sources="b32 b32 b32")
def dot(form: Form, a: Word, b: Word, c: Word) -> Word:
    """The sum with the products of four bytes, or of two halves with the lower or upper bytes."""
    first, second = form.types
    halves = form.opcode == "dp2a"
    for number in range(2 if halves else 4):
        x = _piece(a, first, 16 if halves else 8, number)
        c = c + x * _piece(b, second, 8, number + 2 if form.has("hi") else number)
    return c


def _piece(word: Word, name: str, bits: int, number: int) -> Word:
    """A byte or half of a word by its number, extended by the sign of a type."""
    return ((word << 32 - bits * (number + 1)).view(name) >> 32 - bits).view("u32")


# ── extended precision: a carry for each lane ──


def _carried(a: Word, b: Word, carry: Word | int) -> tuple[Word, Word]:
    one = carry.to(a.kind) if isinstance(carry, Word) else a.of(carry)
    first = a + b
    second = first + one
    return second, (first < a) | (second < one)


@means("add.cc 9.7.2.1", sources="U U")
@means("addc 9.7.2.2", sources="U U carry")
def addc(form: Form, a: Word, b: Word, carry: Word | int = 0) -> Any:
    return _carried(a, b, carry)


@means("sub.cc 9.7.2.3", sources="U U")
@means("subc 9.7.2.4", sources="U U carry")
def subc(form: Form, a: Word, b: Word, carry: Word | int = 1) -> Any:
    """``a + ~b + 1``, of which the flag is the carry: set where nothing is borrowed.

    The ISA says only that it keeps the borrow; the compiler's own division of 128 bits reads it by ``addc``, and counts
    on the carry.
    """
    return _carried(a, ~b, carry)


@means("madc 9.7.2.6", sources="T T T carry")
def madc(form: Form, a: Word, b: Word, c: Word, carry: Word | int = 0) -> Any:
    unsigned = f"u{form.bits}"
    return _carried(mul(form, a, b).view(unsigned), c.view(unsigned), carry)
