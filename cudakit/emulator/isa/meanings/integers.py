"""Integers, fields of bits, logic, comparison and selection: PTX ISA 9.7.1, 9.7.2, 9.7.6 and 9.7.8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from cudakit.emulator.isa.meanings.floats import INFINITY, ONE, flushed, number, together
from cudakit.emulator.isa.words import Form, Function, Word, low_ones, means

# ── meanings that no modifier changes ──

_PLAIN: Final[dict[str, tuple[str, Callable[..., Word]]]] = {
    "and": ("T T", lambda a, b: a & b), "or": ("T T", lambda a, b: a | b), "xor": ("T T", lambda a, b: a ^ b),
    "not": ("T", lambda a: ~a), "cnot": ("T", lambda a: a.eq(0).to(a.type_name)),
    "shl": ("T u32=", lambda a, by: a << by), "shr": ("T u32=", lambda a, by: a >> by),
    "popc": ("T", lambda a: a.do("popc", "u32")), "clz": ("T", lambda a: a.zeros()),
    "brev": ("T", lambda a: a.do("brev", a.type_name)), "neg": ("T", lambda a: -a), "abs": ("T", abs),
    "sad": ("T T T", lambda a, b, c: c + (a.max(b) - a.min(b))),
}  # fmt: skip


def _of_words(function: Callable[..., Word]) -> Function:
    """Return a meaning that ignores the form and applies a function to the words."""
    return lambda form, *words: function(*words)


for _opcode, (_sources, _function) in _PLAIN.items():
    means(_opcode, sources=_sources)(_of_words(_function))


# ── logic ──


def joined(opcode: str, a: Word, b: Word) -> Word:
    """Combine truths by ``and``, ``or`` or ``xor``."""
    return a & b if opcode == "and" else a | b if opcode == "or" else a ^ b


#: Function of two words by its truth table, with bit 2a + b for (a, b).
_OF_TWO: Final[dict[int, Callable[[Word, Word], Word]]] = {
    0: lambda a, b: a.of(0), 1: lambda a, b: ~(a | b), 2: lambda a, b: ~a & b, 3: lambda a, b: ~a,
    4: lambda a, b: a & ~b, 5: lambda a, b: ~b, 6: lambda a, b: a ^ b, 7: lambda a, b: ~(a & b),
    8: lambda a, b: a & b, 9: lambda a, b: ~(a ^ b), 10: lambda a, b: b, 11: lambda a, b: ~a | b,
    12: lambda a, b: a, 13: lambda a, b: a | ~b, 14: lambda a, b: a | b, 15: lambda a, b: a.of(-1),
}  # fmt: skip


@means("lop3", sources="b32 b32 b32 int pred")
def lop3(form: Form, a: Word, b: Word, c: Word, table: int, other: Word | None = None) -> Any:
    """Apply a truth table (bit 4a + 2b + c); also return whether the result is not 0, combined with a predicate."""
    result = _of_three(table & 255, a, b, c)
    return result if other is None else (result, joined(form.modifiers[0], result.ne(0), other))


def _of_three(table: int, a: Word, b: Word, c: Word) -> Word:
    """Apply an 8-bit truth table of three words with few operations."""
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


@means("shf", sources="b32 b32 u32=")
def shf(form: Form, low: Word, high: Word, by: Word) -> Word:
    """Shift the 64 bits of `high` and `low` as one: left, returning the upper word, or right, returning the lower word.

    With ``.wrap`` the amount `by` counts modulo 32; otherwise it is at most 32.
    """
    moved = high.do(f"fsh{form.modifiers[0]}", high.type_name, low, by)
    return moved if form.has("wrap") else (by > 31).choose(low if form.has("l") else high, moved)


# ── places of bits ──


@means("bfind", sources="T")
def bfind(form: Form, a: Word) -> Word:
    """Return the number of the highest one bit, or of the highest zero bit for a negative number; -1 for none.

    Bits count from 0 at the lowest. With ``.shiftamt`` return how far the bit is below the top bit.
    """
    bits = (a ^ (a >> form.bits - 1)).view(f"u{form.bits}") if form.signed else a
    zeros = bits.zeros()
    return bits.eq(0).choose(-1, zeros) if form.has("shiftamt") else form.bits - 1 - zeros


@means("fns", sources="b32 b32 s32")
def fns(form: Form, mask: Word, base: Word, count: Word) -> Word:
    """Return the number of the n-th one bit of `mask`, counted from the bit `base` on; -1 if there is none.

    `count` is n: above 0 upwards, below 0 downwards. For n = 0 return the base itself, if its bit is one.
    """
    down = count < 0
    left, place, step = down.choose(-count, count), base.to("s64"), down.choose(-1, 1, "s64")
    result = mask.of(-1)
    for turn in range(32):
        at = place.view("u64").min(32).to("u32")
        is_one = (mask >> at & 1).ne(0)
        is_last = left.eq(1) | count.eq(0) if turn == 0 else left.eq(1)
        result = (is_one & is_last).choose(at, result)
        left, place = left - is_one.to("s32"), place + step
    return result


# ── sums and products ──


def _paired(form: Form, *words: Word) -> tuple[Word, ...]:
    """Return the two 16-bit halves of packed operands; other operands as they are."""
    return tuple(word.split(form.name[:3]) for word in words) if form.name.endswith("x2") else words


def _together(form: Form, result: Word) -> Word:
    """Join packed 16-bit results; other results as they are."""
    return result.join("u32") if form.name.endswith("x2") else result


def _saturated(exact: Word) -> Word:
    """Clamp a 64-bit result to the range of 32 bits."""
    return exact.max(-(1 << 31)).min((1 << 31) - 1).to("s32")


@means("add", sources="T T")
def add(form: Form, a: Word, b: Word) -> Word:
    if form.has("sat"):
        return _saturated(a.to("s64") + b.to("s64"))
    x, y = _paired(form, a, b)
    return _together(form, x + y)


@means("sub", sources="T T")
def sub(form: Form, a: Word, b: Word) -> Word:
    return _saturated(a.to("s64") - b.to("s64")) if form.has("sat") else a - b


@means("mul", sources="T T")
def mul(form: Form, a: Word, b: Word) -> Word:
    if form.has("wide"):
        wide = f"{form.name[0]}{2 * form.bits}"
        return a.to(wide) * b.to(wide)
    return a.do("mulhi", a.type_name, b) if form.has("hi") else a * b


@means("mad", sources="T T W")
def mad(form: Form, a: Word, b: Word, c: Word) -> Any:
    if form.has("cc"):
        return madc(form, a, b, c)
    product = mul(form, a, b)
    return _saturated(product.to("s64") + c.to("s64")) if form.has("sat") else product + c


@means("mul24", sources="T T")
def mul24(form: Form, a: Word, b: Word) -> Word:
    """Multiply the low 24 bits; the result is the product's low 32 bits, or its bits 47 … 16."""
    wide = f"{form.name[0]}64"
    x, y = (word.to(wide) << 40 >> 40 for word in (a, b))
    return (x * y >> 16 if form.has("hi") else x * y).to(form.word_type)


@means("mad24", sources="T T T")
def mad24(form: Form, a: Word, b: Word, c: Word) -> Word:
    product = mul24(form, a, b)
    return _saturated(product.to("s64") + c.to("s64")) if form.has("sat") else product + c


# ── quotients ──


@means("div", "rem", sources="T T")
def quotient(form: Form, a: Word, b: Word) -> Word:
    """Divide towards zero; by zero all bits are one, as in the hardware's sequence."""
    return b.eq(0).choose(-1, a.do(form.opcode, a.type_name, b))


# ── extrema ──


@means("min", "max", sources="T T T")
def extremum(form: Form, *words: Word) -> Word:
    first, *others = _paired(form, *words)
    for other in others:
        first = first.min(other) if form.opcode == "min" else first.max(other)
    return _together(form, first.max(0) if form.has("relu") else first)


# ── dot products of bytes ──


@means("dp4a", "dp2a", sources="b32 b32 b32")
def dot(form: Form, a: Word, b: Word, c: Word) -> Word:
    """Add products to `c`: of four bytes each of `a` and `b`, or of both halves of `a` with two bytes of `b`.

    The two bytes are the lower ones of `b`, with ``.hi`` the upper ones.
    """
    first, second = form.types
    count = int(form.opcode[2])
    for place in range(count):
        x = _piece(a, first, 32 // count, place)
        c = c + x * _piece(b, second, 8, place + 2 if form.has("hi") else place)
    return c


def _piece(word: Word, name: str, bits: int, number: int) -> Word:
    """Return piece `number` of a word, from the lowest, extended to 32 bits by the sign of the type `name`.

    A piece has `bits` bits: 8 or 16.
    """
    return ((word << 32 - bits * (number + 1)).view(name) >> 32 - bits).view("u32")


# ── extended precision: a carry for each lane ──


def _carried(a: Word, b: Word, carry: Word | int) -> tuple[Word, Word]:
    """Add two words and a carry, 0 or 1 or a truth for each lane; return the sum and the truth of the carry out."""
    carry_in = carry.to(a.type_name) if isinstance(carry, Word) else a.of(carry)
    first = a + b
    second = first + carry_in
    return second, (first < a) | (second < carry_in)


@means("add.cc", sources="U U")
@means("addc", sources="U U carry")
def addc(form: Form, a: Word, b: Word, carry: Word | int = 0) -> Any:
    return _carried(a, b, carry)


@means("sub.cc", sources="U U")
@means("subc", sources="U U carry")
def subc(form: Form, a: Word, b: Word, carry: Word | int = 1) -> Any:
    """Compute ``a + ~b + carry``; return the difference, and the carry of this sum: true where nothing is borrowed.

    The ISA says only that the flag keeps the borrow. The compiler's own 128-bit division reads it by ``addc`` and needs
    the carry.
    """
    return _carried(a, ~b, carry)


@means("madc", sources="T T T carry")
def madc(form: Form, a: Word, b: Word, c: Word, carry: Word | int = 0) -> Any:
    unsigned = f"u{form.bits}"
    return _carried(mul(form, a, b).view(unsigned), c.view(unsigned), carry)


# ── fields of bits, and bytes picked from words ──


def _numbers(form: Form, *words: Word) -> list[Word]:
    """Return positions and lengths: by the ISA their lowest byte counts, in the hardware's 64-bit forms all bits."""
    return [word & 255 if form.bits == 32 else word for word in words]


@means("bfe", sources="T u32= u32=")
def bfe(form: Form, a: Word, position: Word, length: Word) -> Word:
    position, length = _numbers(form, position, length)
    if not form.signed:
        return a >> position & low_ones(length, form.bits)
    # Shifted to the top, then down: the bits above the field are the sign.
    rest = form.bits - length.min(form.bits)
    return length.eq(0).choose(0, a >> position << rest >> rest)


@means("bfi", sources="U U u32= u32=")
def bfi(form: Form, field: Word, base: Word, position: Word, length: Word) -> Word:
    position, length = _numbers(form, position, length)
    mask = low_ones(length, form.bits) << position
    return (base & ~mask) | (field << position & mask)


@means("bmsk", sources="u32= u32=")
def bmsk(form: Form, start: Word, count: Word) -> Word:
    if form.has("wrap"):
        start, count = start & 31, count & 31
    return low_ones(count, 32) << start


@means("szext", sources="T u32=")
def szext(form: Form, a: Word, count: Word) -> Word:
    """Return the `count` lowest bits, extended with zeros; for a signed type, with the highest of these bits."""
    count = count & 31 if form.has("wrap") else count
    if not form.signed:
        return a & low_ones(count, 32)
    rest = 32 - count.min(32)
    return count.eq(0).choose(0, a << rest >> rest)


#: For each mode the numbers of the bytes that one control gives, from the lowest.
_SELECTED: Final[dict[str, Callable[[int], list[int]]]] = {
    "f4e": lambda c: [c, c + 1, c + 2, c + 3],
    "b4e": lambda c: [c, (c - 1) & 7, (c - 2) & 7, (c - 3) & 7],
    "rc8": lambda c: [c, c, c, c],
    "ecl": lambda c: [max(place, c) for place in range(4)],
    "ecr": lambda c: [min(place, c) for place in range(4)],
    "rc16": lambda c: [0, 1, 0, 1] if c % 2 == 0 else [2, 3, 2, 3],
}


@means("prmt", sources="b32 b32 b32=")
def prmt(form: Form, a: Word, b: Word, control: Word) -> Word:
    """Return a word of four bytes, each picked from the eight of `a` and `b` by four bits of `control`.

    A code above 7 repeats the byte's sign instead. With a mode the two low bits of `control` stand for four codes.
    """
    mode = _SELECTED.get(form.modifiers[-1])
    if mode is not None:
        selectors = [sum(place << 4 * number for number, place in enumerate(mode(c))) for c in range(4)]
        control = control & 3
        chosen = control.of(selectors[0])
        for mode_number in (1, 2, 3):
            chosen = control.eq(mode_number).choose(selectors[mode_number], chosen)
        control = chosen
    result = a.of(0)
    if control.constant_value is not None:
        for number in range(4):
            result = result | _fixed(a, b, control.constant_value >> 4 * number & 15, 8 * number)
        return result
    both = b.to("u64") << 32 | a.to("u64")
    for number in range(4):
        code = control >> 4 * number
        byte = (both >> ((code & 7) << 3)).to("u8")
        if mode is None:
            byte = (code & 8).ne(0).choose((byte.view("s8") >> 7).view("u8"), byte)
        result = result | byte.to("u32") << 8 * number
    return result


def _fixed(a: Word, b: Word, code: int, to: int) -> Word:
    """Return one byte of `a` (`code` 0 to 3) or `b` (4 to 7) at bit `to`, with zeros around it.

    For codes 8 to 15 the byte's sign fills its eight bits.
    """
    word, at = b if code & 4 else a, 8 * (code & 3)
    if code > 7:
        return ((word << 24 - at).view("s32") >> 31).view("u32") & (255 << to)
    return (word >> at - to if at >= to else word << to - at) & (255 << to)


# ── comparison and selection, of floats too ──
_ALL: Final = "integer float half"
#: Comparisons of unsigned integers by their other names.
_UNSIGNED: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
#: Comparisons of floats that are true with a NaN, by the comparison that is then false.
_OPPOSITES: Final = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}


def compared(name: str, a: Word, b: Word) -> Word:
    """Return the truth of a comparison by its PTX name, such as ``hs`` or ``ltu``, in each lane."""
    if a.type_name[0] != "f":
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
    """Compare two sources by the form's comparison."""
    if form.family != "integer":
        a, b = (number(word, form.name, form.has("ftz")) for word in (a, b))
    return compared(form.modifiers[0], a, b)


@means("setp", sources="T T pred", families=_ALL, nans="takes")
def setp(form: Form, a: Word, b: Word, other: Word | None = None) -> Iterator[Word]:
    """Yield a comparison's truth and its opposite; for pairs the truths of both halves.

    The truth `other`, if any, is combined with both by the form's operation.
    """
    truth, is_pair = _answer(form, a, b), form.name.endswith("x2")
    for place in (0, 1):
        answer = truth.part(place, 2) if is_pair else ~truth if place else truth
        yield answer if other is None else joined(form.modifiers[1], answer, other)


@means("set", sources="T T pred", families=_ALL, nans="takes")
def set_(form: Form, a: Word, b: Word, other: Word | None = None) -> Word:
    """Return a number for a comparison's truth, or 0 where it is false: 1.0 for a float result, else all bits one.

    The truth `other`, if any, is combined with it first.
    """
    answer, out, is_pair = _answer(form, a, b), form.types[-2], form.name.endswith("x2")
    if other is not None:
        answer = joined(form.modifiers[1], answer, other.repeat(2) if is_pair else other)
    type_name = f"u{32 if out in ('f32', 's32', 'u32') else 16}"
    return together(answer.choose(ONE.get(out.removesuffix("x2"), -1), 0, type_name), form.name)


@means("selp", sources="U U pred", families="integer float")
def selp(form: Form, a: Word, b: Word, chosen: Word) -> Word:
    return chosen.choose(a, b)


@means("slct", sources="S S T", families="integer float")
def slct(form: Form, a: Word, b: Word, selector: Word) -> Word:
    """Return the first source if the third is at least zero, the second if the third is below zero or NaN."""
    return ((flushed(selector) if form.has("ftz") else selector) >= 0).choose(a, b)


@means("testp", sources="T", families="float", nans="takes")
def testp(form: Form, a: Word) -> Word:
    test, size = form.modifiers[0], abs(a)
    if test in ("number", "notanumber"):
        return a.eq(a) if test == "number" else a.ne(a)
    if test in ("finite", "infinite"):
        return size.test("lt" if test == "finite" else "eq", INFINITY[a.type_name])
    small = (size < (INFINITY[a.type_name] & -INFINITY[a.type_name])) & (size > 0)
    # Zero counts as normal.
    return small if test == "subnormal" else ~small & (size < INFINITY[a.type_name])
