"""Floats and halves as other meanings take them: from their bits, to their bits, without subnormal numbers."""

from __future__ import annotations

from typing import Final

from cudakit.emulator.isa.words import Word

#: Bits of the exponent of each type: those of infinity.
INFINITY: Final = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}
SIGN: Final = {"f16": 0x8000, "bf16": 0x8000, "f32": 0x8000_0000, "f64": 1 << 63}
ONE: Final = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F80_0000, "f64": 0x3FF0_0000_0000_0000}


def halves(word: Word, name: str) -> Word:
    """The bits of a half, or of both in a pair."""
    return word.split("u16") if name.endswith("x2") else word


def together(bits: Word, name: str) -> Word:
    """Bits of halves as a register holds them."""
    return bits.join("u32") if name.endswith("x2") else bits


def widened(bits: Word, name: str) -> Word:
    """Bits of halves as float32."""
    return (bits.to("u32") << 16).view("f32") if name[0] == "b" else bits.view("f16").to("f32")


def flushed_bits(bits: Word, name: str) -> Word:
    """Bits of floats of which subnormal ones are made zeros of their sign."""
    name = name.removesuffix("x2")
    return (bits & INFINITY[name]).eq(0).choose(bits & SIGN[name], bits)


def flushed(value: Word) -> Word:
    """float32 of which subnormal ones are made zeros of their sign (``.ftz``)."""
    return value.do("flush", value.kind)


def number(word: Word, name: str, ftz: bool = False) -> Word:
    """What an operand of a type is as a number that floats compute with; of a pair both."""
    if name in ("f32", "f64"):
        return flushed(word) if ftz else word
    bits = halves(word, name)
    return widened(flushed_bits(bits, name) if ftz else bits, name)


def canonical(value: Word) -> Word:
    """float32 with every NaN made the one that the hardware gives, 0x7fffffff."""
    return value.do("canonical", value.kind)


def quieted(value: Word) -> Word:
    """float64 NaN with the bit set that makes them quiet, sign and payload kept."""
    return (value.view("u64") | 1 << 51).view("f64")


def clamped(value: Word) -> Word:
    """Values clamped to [0, 1], NaN to +0 (``.sat``)."""
    # Comparisons, so that -0 and NaN both become +0.
    value = (value > 0).choose(value, 0)
    one = ONE[value.kind]
    return (value < one).choose(value, one)


# ── rounding ──


def round_to(value: Word, too_high: Word, too_low: Word, mode: str) -> Word:
    """A value rounded to nearest, moved by one place where a mode asks for its other neighbour.

    Parameters
    ----------
    value : Word
        A float; an infinity here is an overflow.
    too_high, too_low : Word
        Whether it is above, or below, the exact value.
    mode : str
        ``rn``, ``rz``, ``rm``, ``rp``, or ``odd``: the last bit of what is inexact is odd, to be rounded again.
    """
    if mode == "rn":
        return value
    bits = value.view(f"u{value.bits}")
    negative = bits.view(f"s{value.bits}") < 0
    if mode in ("rz", "odd"):
        moved = bits - negative.choose(too_low, too_high).to(bits.kind)
        moved = moved | (too_high | too_low).to(bits.kind) if mode == "odd" else moved
    else:
        wrong, out = (too_high, negative) if mode == "rm" else (too_low, ~negative)
        moved = wrong.choose(out.choose(bits + 1, bits - 1), bits)
    return moved.view(value.kind)


def rounded(value: Word, mode: str) -> Word:
    """float64 as float32, in a mode."""
    near = value.to("f32")
    if mode == "rn":
        return near
    back = near.to("f64")
    return round_to(near, back > value, back < value, mode)


def narrowed(value: Word, name: str, mode: str) -> Word:
    """Bits of halves from float32 or float64, in a mode, NaN canonical."""
    if name[0] == "f":
        near = value.to("f16")
        back = near.to(value.kind)
        bits = round_to(near, back > value, back < value, mode).view("u16")
    else:
        whole = (rounded(value, "odd") if value.kind == "f64" else value).view("u32")
        if mode == "rn":
            up = (whole >> 16 & 1) + 0x7FFF
        else:
            # Cut off, then one place outward where something was cut and the mode rounds outward for this sign.
            negative = whole > 0x7FFF_FFFF
            outward = negative if mode == "rm" else ~negative
            cut = (whole & 0xFFFF).ne(0)
            up = (cut & outward).to("u32") << 16 if mode != "rz" else whole.of(0)
        bits = (whole + up >> 16).to("u16")
    return value.eq(value).choose(bits, 0x7FFF)


def two_sum(a: Word, b: Word) -> tuple[Word, Word]:
    """``s, e`` with s = a + b rounded to nearest and s + e = a + b exactly (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def odd_sum(a: Word, b: Word) -> Word:
    """``a + b`` in float64, rounded to odd (Boldo and Melquiond, 2008), so that rounding it again is safe."""
    total, lost = two_sum(a, b)
    bits = total.view("u64")
    even_inexact = (bits & 1).eq(0) & ((lost < 0) | (lost > 0))
    moved = ((lost > 0) ^ (total > 0)).choose(bits - 1, bits + 1)
    return even_inexact.choose(moved, bits).view("f64")


def flush_rounded(result: Word, exact: Word, mode: str) -> Word:
    """float32 results with those made zeros that would be below the least normal number had exponents no end.

    `exact` has them in float64. The hardware flushes a result that was rounded up to the least normal number itself by
    how it rounds with all 24 bits.
    """
    if mode == "rz":
        return flushed(result)
    size = abs(exact)
    below = (
        size < size.constant_of(2.0**-126 - 2.0**-151)
        if mode == "rn"
        else size <= size.constant_of(2.0**-126 - 2.0**-150)
    )
    zero = (result.view("u32") & SIGN["f32"]).view("f32")
    return (abs(result).eq(0x0080_0000) & below).choose(zero, flushed(result))
