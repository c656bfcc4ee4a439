"""Video instructions, on bytes and halves of 32 bits: PTX ISA 9.7.18 (scalar and SIMD).

Scalar instructions follow the H200's instruction sequences where these depart from the ISA's pseudo-code. A comment
marks each place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final, TypeAlias

from cudakit.emulator.isa.words import Form, Word, bounds, means
from cudakit.errors import EmulationError

Function: TypeAlias = Callable[[Word, Word], Word]


def _averaged(a: Word, b: Word) -> Word:
    """Average two integers, halves rounded away from zero."""
    total = a + b
    return (total + (total >= 0).to(total.type_name)) >> 1


_FUNCTIONS: Final[dict[str, Function]] = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b), "vavrg": _averaged,
    "vmin": lambda a, b: a.min(b), "vmax": lambda a, b: a.max(b),
}  # fmt: skip
_SECOND: Final[dict[str, Function]] = {
    "add": lambda a, b: a + b, "min": lambda a, b: a.min(b), "max": lambda a, b: a.max(b)
}  # fmt: skip
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
#: Functions whose results may take more than 32 bits.
_SUMS: Final = ("vadd", "vsub", "vabsdiff")


def _of(form: Form) -> tuple[tuple[str, ...], Function]:
    """Return the types of the result, first and second source of a video instruction, and its function of two words."""
    if not form.opcode.startswith("vset"):
        return form.types, _FUNCTIONS[form.opcode.rstrip("24")]
    compare = next(modifier for modifier in form.modifiers if modifier in _COMPARISONS)
    return ("u32", *form.types), lambda a, b: a.test(compare, b).to(a.type_name)


# ── scalar ──


def _extracted(word: Word, name: str, part: str) -> Word:
    """Return the byte or half of a word that `part` selects, such as ``b0`` or ``h1``; the whole word if it is empty.

    The result is extended to s64 by the sign of the type `name`.
    """
    size = {"b": 8, "h": 16}.get(part[:1])
    if size is None:
        return word.view(name).to("s64")
    return word.split(f"{name[0]}{size}").part(int(part[1]), 32 // size).to("s64")


def _scalar(form: Form, types: tuple[str, ...], function: Function, a: Word, b: Word, c: Word | None) -> Word:
    """Compute a function of the selected parts of `a` and `b` in 64 bits, clamp it with ``.sat``, and return u32.

    The result is combined with `c` by a second operation, or replaces a byte or half of `c`. `types` has the types of
    the result and both sources.
    """
    out, first, second = types
    part, a_part, b_part = form.parts[:3]
    signed, size = out == "s32", {"b": 8, "h": 16}.get(part[:1], 32)
    low, high = bounds(signed, size)
    saturates = form.has("sat")
    result = function(_extracted(a, first, a_part), _extracted(b, second, b_part))
    if saturates:
        result = result.max(low)
        # The hardware keeps a sum from falling below 0, and lets one past 32 bits wrap.
        if signed or size < 32 or form.opcode not in _SUMS:
            result = result.min(high)
    third = (c or a.of(0)).view(out).to("s64")
    name = next((modifier for modifier in form.modifiers if modifier in _SECOND), "")
    if name:
        # The hardware's second operation sees 32 bits of a sum or difference, and takes one that was to be clamped to
        # unsigned for the greater of any two if its top bit is set.
        if form.opcode in ("vadd", "vsub"):
            result = result.to(out).to("s64")
            if saturates and not signed and name != "add":
                result = result | (result & 1 << 31) << 1
        result = _SECOND[name](result, third)
    if size < 32:
        mask, shift = (1 << size) - 1, int(part[1]) * size
        # The upper half of the destination takes the result's own upper half, if the result is not clamped to 16 bits.
        down = 16 if part == "h1" and not saturates else 0
        result = (result >> down & mask) << shift | third & ~(mask << shift)
    return result.to("u32")


@means("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", sources="b32 b32 b32")
def scalar(form: Form, a: Word, b: Word, c: Word | None = None) -> Word:
    return _scalar(form, *_of(form), a, b, c)


@means("vshl", "vshr", sources="b32 b32 b32")
def shift(form: Form, a: Word, b: Word, c: Word | None = None) -> Word:
    def shifted(x: Word, by: Word) -> Word:
        by = by & 31 if form.has("wrap") else by.min(32)
        # The hardware keeps 34 bits of the left shift, the last as the sign, and saturates them.
        return x << by << 30 >> 30 if form.opcode == "vshl" else x >> by

    return _scalar(form, form.types, shifted, a, b, c)


@means("vmad", sources="b32 b32 b32")
def vmad(form: Form, a: Word, b: Word, c: Word) -> Word:
    _, first, second = form.types
    a_minus, b_minus, c_minus = (part.startswith("negative") for part in form.parts[1:])
    a_part, b_part = (part.removeprefix("negative") for part in form.parts[1:3])
    signed = "s32" in (first, second) or a_minus != b_minus or c_minus
    last = "s32" if signed else "u32"
    if not a_part and not b_part:
        # The hardware multiplies and adds whole words as signed ones, whatever their types; 64 bits hold the sum.
        first = second = last = "s32"
    product, third = _extracted(a, first, a_part) * _extracted(b, second, b_part), c.view(last).to("s64")
    total = (-product if a_minus != b_minus else product) + (-third if c_minus else third)
    total = total + 1 if form.has("po") else total
    scale = 7 if form.has("shr7") else 15 if form.has("shr15") else 0
    # An unsigned result is shifted as unsigned, even where the sum is below 0.
    result = (total if signed else total.view("u64")) >> scale if scale else total
    if form.has("sat"):
        low, high = bounds(signed, 32)
        result = result.view("s64").max(low).min(high)
    return result.to("u32")


# ── SIMD ──


def _places(part: str) -> tuple[int, ...]:
    """Return numbers of the pieces in a selector such as ``h10``, lowest first."""
    return tuple(int(digit) for digit in reversed(part[1:]))


@means(*(f"{opcode}{count}" for opcode in (*_FUNCTIONS, "vset") for count in (2, 4)), sources="b32 b32 b32")
def simd(form: Form, a: Word, b: Word, c: Word | None = None) -> Word:
    """Compute a SIMD video instruction on 2 halves or 4 bytes of a 32-bit word, for all lanes.

    The selectors choose pieces from `a` and `b` together. Pieces of the result outside the mask come from `c`. With
    ``.add``, the result is the sum of `c` and the results of the pieces in the mask.
    """
    if c is None:
        raise EmulationError("SIMD video instructions take three sources")
    (out, first, second), function = _of(form)
    count = int(form.opcode[-1])
    size, letter = 32 // count, "h" if count == 2 else "b"
    every = "".join(str(place) for place in reversed(range(2 * count)))
    usual = (letter + every[count:], letter + every[count:], letter + every[:count])
    mask, *chosen = (_places(part or other) for part, other in zip(form.parts, usual, strict=False))
    if any(len(places) != count for places in chosen):
        raise EmulationError(f"a selector names {count} pieces")
    pieces = [
        a.split(f"{name[0]}{size}").pick(b.split(f"{name[0]}{size}"), places).to("s32")
        for name, places in zip((first, second), chosen, strict=True)
    ]
    result = function(*pieces)
    if form.has("add"):
        chosen_pieces = [result.part(place, count).view("u32") for place in sorted(set(mask))]
        return reduce(lambda x, y: x + y, chosen_pieces, c)
    if form.has("sat"):
        low, high = bounds(out == "s32", size)
        result = result.max(low).min(high)
    bits = sum(((1 << size) - 1) << size * place for place in set(mask))
    merged = result.to(f"u{size}").join("u32")
    return merged if bits == 0xFFFF_FFFF else merged & bits | c & ~bits
