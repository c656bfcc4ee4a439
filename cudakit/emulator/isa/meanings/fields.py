"""Fields of bits, and bytes picked from words: PTX ISA 9.7.1 and 9.7.9.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word, low_ones


def _numbers(form: Form, *words: Word) -> list[Word]:
    """Positions and lengths: their lowest byte counts by the ISA, but the hardware's 64-bit forms take all."""
    return [word & 255 if form.bits == 32 else word for word in words]


@means("bfe 9.7.1.19", sources="T u32= u32=")
def bfe(form: Form, a: Word, position: Word, length: Word) -> Word:
    position, length = _numbers(form, position, length)
    if not form.signed:
        return a >> position & low_ones(length, form.bits)
    # Moved to the top, then down: what lies above the highest bit is the sign.
    rest = form.bits - length.min(form.bits)
    return length.eq(0).choose(0, a >> position << rest >> rest)


@means("bfi 9.7.1.20", sources="U U u32= u32=")
def bfi(form: Form, field: Word, base: Word, position: Word, length: Word) -> Word:
    position, length = _numbers(form, position, length)
    mask = low_ones(length, form.bits) << position
    return (base & ~mask) | (field << position & mask)


@means("bmsk 9.7.1.22", sources="u32= u32=")
def bmsk(form: Form, start: Word, count: Word) -> Word:
    if form.has("wrap"):
        start, count = start & 31, count & 31
    return low_ones(count, 32) << start


@means("szext 9.7.1.21", sources="T u32=")
def szext(form: Form, a: Word, count: Word) -> Word:
    """The lowest bits, and above them zero or the highest of them."""
    count = count & 31 if form.has("wrap") else count
    if not form.signed:
        return a & low_ones(count, 32)
    rest = 32 - count.min(32)
    return count.eq(0).choose(0, a << rest >> rest)


#: For each mode the numbers of the bytes that one control gives, from the lowest.
SELECTED: Final[dict[str, Callable[[int], list[int]]]] = {
    "f4e": lambda c: [c, c + 1, c + 2, c + 3],
    "b4e": lambda c: [c, (c - 1) & 7, (c - 2) & 7, (c - 3) & 7],
    "rc8": lambda c: [c, c, c, c],
    "ecl": lambda c: [max(place, c) for place in range(4)],
    "ecr": lambda c: [min(place, c) for place in range(4)],
    "rc16": lambda c: [0, 1, 0, 1] if c % 2 == 0 else [2, 3, 2, 3],
}


@means("prmt 9.7.9.7", sources="b32 b32 b32=")
def prmt(form: Form, a: Word, b: Word, control: Word) -> Word:
    """Bytes of two words, or their signs, picked by four numbers."""
    mode = SELECTED.get(form.modifiers[-1])
    if mode is not None:
        ways = [sum(place << 4 * number for number, place in enumerate(mode(c))) for c in range(4)]
        control = control & 3
        chosen = control.of(ways[0])
        for way in (1, 2, 3):
            chosen = control.eq(way).choose(ways[way], chosen)
        control = chosen
    result = a.of(0)
    if control.known is not None:
        for number in range(4):
            result = result | _fixed(a, b, control.known >> 4 * number & 15, 8 * number)
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
    """One byte by its number, at its place."""
    word, at = b if code & 4 else a, 8 * (code & 3)
    if code > 7:
        return (word << 24 - at).view("s32").__rshift__(31).view("u32") & (255 << to)
    return (word >> at - to if at >= to else word << to - at) & (255 << to)
