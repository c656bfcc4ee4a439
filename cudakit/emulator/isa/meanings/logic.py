"""Logic, shifts and counts of bits: PTX ISA 9.7.8 and 9.7.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word


def joined(opcode: str, a: Word, b: Word) -> Word:
    """``and``, ``or`` or ``xor``."""
    return a & b if opcode == "and" else a | b if opcode == "or" else a ^ b


@means("and 9.7.8.1", "or 9.7.8.2", "xor 9.7.8.3", sources="T T")
def logic(form: Form, a: Word, b: Word) -> Word:
    return joined(form.opcode, a, b)


@means("not 9.7.8.4", sources="T")
def invert(form: Form, a: Word) -> Word:
    return ~a


@means("cnot 9.7.8.5", sources="T")
def cnot(form: Form, a: Word) -> Word:
    return a.eq(0).to(a.kind)


#: Function of two words by its truth table, with bit 2a + b for (a, b).
_OF_TWO: Final[dict[int, Callable[[Word, Word], Word]]] = {
    0: lambda a, b: a.of(0), 1: lambda a, b: ~(a | b), 2: lambda a, b: ~a & b, 3: lambda a, b: ~a,
    4: lambda a, b: a & ~b, 5: lambda a, b: ~b, 6: lambda a, b: a ^ b, 7: lambda a, b: ~(a & b),
    8: lambda a, b: a & b, 9: lambda a, b: ~(a ^ b), 10: lambda a, b: b, 11: lambda a, b: ~a | b,
    12: lambda a, b: a, 13: lambda a, b: a | ~b, 14: lambda a, b: a | b, 15: lambda a, b: a.of(-1),
}  # fmt: skip


@means("lop3 9.7.8.6", sources="b32 b32 b32 int pred")
def lop3(form: Form, a: Word, b: Word, c: Word, table: int, other: Word | None = None) -> Any:
    """The function of a truth table (bit 4a + 2b + c); and whether that is not 0, joined with a predicate."""
    result = _of_three(table & 255, a, b, c)
    return result if other is None else (result, joined(form.modifiers[0], result.ne(0), other))


def _of_three(table: int, a: Word, b: Word, c: Word) -> Word:
    without = sum(((table >> 2 * place) & 1) << place for place in range(4))
    with_ = sum(((table >> 2 * place + 1) & 1) << place for place in range(4))
    low, high = _OF_TWO[without], _OF_TWO[with_]
    if without == with_:
        return low(a, b)
    if without ^ with_ == 15:
        return low(a, b) ^ c
    if without == 0:
        return high(a, b) & c
    if with_ == 15:
        return low(a, b) | c
    if with_ == 0:
        return low(a, b) & ~c
    if without == 15:
        return high(a, b) | ~c
    return low(a, b) ^ (_OF_TWO[without ^ with_](a, b) & c)


# ── shifts ──


@means("shl 9.7.8.8", sources="T u32=")
def shl(form: Form, a: Word, by: Word) -> Word:
    return a << by


@means("shr 9.7.8.9", sources="T u32=")
def shr(form: Form, a: Word, by: Word) -> Word:
    return a >> by


@means("shf 9.7.8.7", sources="b32 b32 u32=")
def shf(form: Form, low: Word, high: Word, by: Word) -> Word:
    """A word of two that move together, by an amount that wraps or is held to 32."""
    moved = high.funnel(form.modifiers[0], low, by)
    return moved if form.has("wrap") else (by > 31).choose(low if form.has("l") else high, moved)


# ── counts ──


@means("popc 9.7.1.14", sources="T")
def popc(form: Form, a: Word) -> Word:
    return a.ones()


@means("clz 9.7.1.15", sources="T")
def clz(form: Form, a: Word) -> Word:
    return a.zeros()


@means("bfind 9.7.1.16", sources="T")
def bfind(form: Form, a: Word) -> Word:
    """The place of the highest bit that is one, of a negative number of the highest that is no sign; -1 of none."""
    bits = (a ^ (a >> form.bits - 1)).view(f"u{form.bits}") if form.signed else a
    zeros = bits.zeros()
    return bits.eq(0).choose(-1, zeros) if form.has("shiftamt") else form.bits - 1 - zeros


@means("brev 9.7.1.18", sources="T")
def brev(form: Form, a: Word) -> Word:
    return a.reversed()


@means("fns 9.7.1.17", sources="b32 b32 s32")
def fns(form: Form, mask: Word, base: Word, count: Word) -> Word:
    """The place of the n-th bit that is one from a base on, upwards or down; of n = 0 the base itself, if it is one."""
    down = count < 0
    left, place, step = down.choose(-count, count), base.to("s64"), down.choose(-1, 1, "s64")
    result = mask.of(-1)
    for way in range(32):
        at = place.view("u64").min(32).to("u32")
        is_one = (mask >> at & 1).ne(0)
        wanted = left.eq(1) | count.eq(0) if way == 0 else left.eq(1)
        result = (is_one & wanted).choose(at, result)
        left, place = left - is_one.to("s32"), place + step
    return result
