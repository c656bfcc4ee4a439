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
