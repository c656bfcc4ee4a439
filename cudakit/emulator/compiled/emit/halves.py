"""Half precision, one value or two in a register: computed in float32, and rounded once."""

from __future__ import annotations

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.text import X, constant, like

HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_INFINITY = {"f": 0x7C00, "b": 0x7F80}


def widened(b: Builder, bits: X, kind: str) -> X:
    """Bits of halves as float32."""
    text = b.text
    if kind[0] == "b":
        wide = text.binary("shl", text.cast("zext", bits, "i32"), constant(like(bits, "i32"), 16))
        return text.cast("bitcast", wide, "float")
    return text.cast("fpext", text.cast("bitcast", bits, "half"), "float")


def narrowed(b: Builder, x: X, kind: str) -> X:
    """float32 to bits of halves, to nearest, NaN canonical."""
    text = b.text
    nan = text.compare("uno", x, x)
    if kind[0] == "b":
        bits = text.cast("bitcast", x, "i32")
        tie = text.binary("and", text.binary("lshr", bits, constant(bits.type, 16)), constant(bits.type, 1))
        up = text.binary("add", text.binary("add", bits, constant(bits.type, 0x7FFF)), tie)
        found = text.cast("trunc", text.binary("lshr", up, constant(bits.type, 16)), "i16")
    else:
        found = text.cast("bitcast", text.cast("fptrunc", x, "half"), "i16")
    return text.select(nan, constant(found.type, 0x7FFF), found)


def odd_float(b: Builder, x: X) -> X:
    """float64 to float32, rounded to odd where it is normal there, so that to round it once more is to round once."""
    text = b.text
    bits = text.cast("bitcast", x, "i64")
    low = (1 << 29) - 1
    rest = text.compare("ne", text.binary("and", bits, constant(bits.type, low)), constant(bits.type, 0))
    cut = text.binary("and", bits, constant(bits.type, ~low))
    odd = text.select(rest, text.binary("or", cut, constant(bits.type, low + 1)), cut)
    odd = text.select(text.compare("uno", x, x), bits, odd)
    return text.cast("fptrunc", text.cast("bitcast", odd, "double"), "float")
