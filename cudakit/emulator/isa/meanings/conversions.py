"""Conversions between number types: PTX ISA 9.7.9.21 (cvt) and 9.7.9.22 (cvt.pack)."""

from __future__ import annotations

from typing import Final

from cudakit.emulator.isa.meanings.floats import (
    INFINITY,
    ONE,
    SIGN,
    canonical,
    clamped,
    flush_rounded,
    narrowed,
    number,
    quieted,
    round_to,
    rounded,
    together,
)
from cudakit.emulator.isa.words import INTEGERS, WORD_TYPES, Form, Word, bounds, means
from cudakit.errors import EmulationError

_WHOLE: Final = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
#: Bits of the fraction, least exponent of a normal value, largest byte and largest value, in each 8-bit format.
_EIGHTHS: Final = {"e4m3x2": (3, -6, 0x7E, 0x43E0_0000), "e5m2x2": (2, -14, 0x7B, 0x4760_0000)}
_FLOATS: Final = ("f16", "bf16", "f32", "f64")


@means("cvt", sources="T T", families="integer float half")
def cvt(form: Form, a: Word, b: Word | None = None) -> Word:
    """Convert between types, by the last two modifiers."""
    out, source_type = form.modifiers[-2:]
    if form.has("rs") or not {out, source_type} <= WORD_TYPES.keys() or (source_type in _EIGHTHS and out != "f16x2"):
        raise EmulationError(f"a conversion of {source_type} to {out}, .{'.'.join(form.modifiers)}")
    if source_type in _EIGHTHS:
        return _from_eighths(form, source_type, a)
    if out in _EIGHTHS:
        return _to_eighths(form, out, source_type, a, b)
    if out == "tf32":
        return _to_tf32(form, a)
    if out.endswith("x2") and b is not None:
        # The first source goes to the upper half.
        high, low = (_to_float(form, out[:-2], source_type, word).to("u32") for word in (a, b))
        return high << 16 | low
    if source_type in _FLOATS:
        return _to_float(form, out, source_type, a) if out in _FLOATS else _to_integer(form, out, source_type, a)
    return _from_integer(form, out, a) if out in _FLOATS else _between_integers(form, out, a)


def _range(name: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a PTX type."""
    return bounds(name[0] == "s", INTEGERS[WORD_TYPES[name]])


# ── integers ──


def _between_integers(form: Form, out: str, a: Word) -> Word:
    """Convert an integer to another integer type, saturated with ``.sat``."""
    if form.has("sat"):
        (low, high), (least, most) = _range(out), _range(a.type_name)
        a = a.max(low) if low > least else a
        a = a.min(high) if high < most else a
    return a.to(WORD_TYPES[out])


def _from_integer(form: Form, out: str, a: Word) -> Word:
    """Convert an integer to a float in the form's rounding mode."""
    mode = form.mode
    exact = "f64" if out[-2:] == "16" or form.has("sat") else out
    value = a.to(exact)
    if (mode != "rn" or exact != out) and a.bits > (24 if exact == "f32" else 53):
        value = _directed(value, a, mode if exact == out else "odd")
    if form.has("sat"):
        value = clamped(value)
    return value if exact == out else narrowed(value, out, mode) if out[-2:] == "16" else rounded(value, mode)


def _directed(value: Word, a: Word, mode: str) -> Word:
    """Move `value`, a float that is the integer `a` rounded to nearest, as the rounding mode `mode` asks."""
    back = value.to(a.type_name)
    # Past the largest integer the way back is held to that.
    beyond = value >= value.constant_of(float(1 << a.bits - a.signed))
    return round_to(value, (back > a) | beyond, (back < a) & ~beyond, mode)


def _to_integer(form: Form, out: str, source_type: str, a: Word) -> Word:
    """Convert a float to an integer in the form's rounding mode, saturated."""
    # With a float16 result the hardware takes subnormal float32 as they are.
    value = number(a, source_type, source_type == "f32" and form.has("ftz"))
    whole = next(_WHOLE[modifier] for modifier in form.modifiers if modifier in _WHOLE)
    # A conversion cuts by itself.
    result = (value if whole == "trunc" else value.do(whole, value.type_name)).to(out)
    if 64 not in (result.bits, a.bits):
        return result
    # ISA: NaN is zero, but the highest bit alone where either side has 64 bits.
    return value.eq(value).choose(result, 1 << result.bits - 1)


# ── floats ──


def _to_float(form: Form, out: str, source_type: str, a: Word) -> Word:
    """Convert a float to another float type."""
    ftz, mode = form.has("ftz"), form.mode
    # With a float16 result the hardware takes subnormal float32 as they are.
    value = number(a, source_type, ftz and source_type == "f32" and out != "f16")
    whole = next((_WHOLE[modifier] for modifier in form.modifiers if modifier in _WHOLE), "")
    if whole:
        result = value.do(whole, value.type_name)
        value = value.eq(value).choose(result, quieted(value)) if source_type == "f64" else result
    if out == "f64":
        # Flushing canonicalises; without it the NaN keeps its payload.
        wide = (canonical(value) if ftz and source_type == "f32" else value).to("f64")
        return clamped(wide) if form.has("sat") else wide
    if out == "f32":
        result = rounded(value, mode) if source_type == "f64" else value
        if ftz and source_type == "f64":
            result = flush_rounded(result, value, mode)
        if form.has("sat"):
            return clamped(result)
        # What the hardware gives of the NaN of float64 and bfloat16 keeps the payload.
        keeps = source_type in ("f64", "bf16") or form.modifiers == ("f32", "f32")
        return result if keeps else canonical(result)
    bits = narrowed(value, out, mode)
    if source_type == "f64":
        bits = value.eq(value).choose(bits, _nan_of(value, out))
    return _finished(form, bits, out)


def _nan_of(value: Word, out: str) -> Word:
    """Return the bits of a NaN of type `out`, with sign and upper payload of a float64 NaN, as the hardware does."""
    fraction = 7 if out[0] == "b" else 10
    bits = value.view("u64")
    payload = bits >> 52 - fraction & (1 << fraction) - 1
    return (bits >> 48 & 0x8000 | (payload | INFINITY[out] | 1 << fraction - 1)).to("u16")


def _finished(form: Form, bits: Word, name: str) -> Word:
    """Apply the form's ``.satfinite``, ``.relu`` and ``.sat`` to bits of the half-precision type `name`."""
    infinity, unit, sign = INFINITY[name], ONE[name], SIGN[name]
    if form.has("satfinite"):
        bits = (bits & 0x7FFF).eq(infinity).choose(bits - 1, bits)
    if form.has("relu"):
        bits = (bits & sign).ne(0).choose(0, bits)
    if form.has("sat"):
        bits = ((bits & sign).ne(0) | (bits > infinity)).choose(0, bits.min(unit))
    return bits


def _to_tf32(form: Form, a: Word) -> Word:
    """Round float32 to tf32."""
    mode = next((modifier for modifier in form.modifiers if modifier in ("rna", "rz")), "rn")
    bits, finite = a.view("u32"), form.has("satfinite")
    up = bits.of(0x1000) if mode == "rna" else (bits >> 13 & 1) + 0xFFF if mode == "rn" else bits.of(0)
    result = bits + up & 0xFFFF_E000
    if finite:
        result = (result << 1).eq(0xFF00_0000).choose(result - 0x2000, result)
    if form.has("relu"):
        result = (bits > 0x7FFF_FFFF).choose(0, result)
    # .rna does not know NaN from a number, so that .satfinite takes a step from it, too.
    cut = (bits & 0xFFFF_E000) - (0x2000 if finite else 0)
    return a.eq(a).choose(result, cut if mode == "rna" else 0x7FFF_E000)


# ── eighths: fp8 ──


def _to_eighths(form: Form, out: str, source_type: str, a: Word, b: Word | None) -> Word:
    """Convert a pair of floats, or two sources, to two 8-bit floats; the first source becomes the upper byte."""
    if b is None:
        return _encoded(form, number(a, source_type), out).to("u8").join("u16")
    high, low = (_encoded(form, word, out) for word in (a, b))
    return (high << 8 | low).to("u16")


def _encoded(form: Form, value: Word, out: str) -> Word:
    """Return float32 values as 8-bit floats of the format `out`, each in 32 bits.

    They are rounded to nearest; larger values become the largest, NaN becomes 0x7f.
    """
    fraction, least, top, largest = _EIGHTHS[out]
    if form.has("relu"):
        value = (value > 0).choose(value, (value <= 0).choose(0, value))
    size = abs(value)
    bits = size.view("u32").min(largest)
    # One step of the format is one of the integers that are its bytes, so that a carry goes to the exponent by itself.
    dropped = 23 - fraction
    normal = (bits + ((1 << dropped - 1) - 1) + (bits >> dropped & 1) >> dropped) - (126 + least << fraction)
    small = (size * size.constant_of(2.0 ** (fraction - least))).do("rint", "f32").to("u32")
    code = (bits < (127 + least << 23)).choose(small, normal).min(top)
    return value.eq(value).choose(code | (value.view("u32") >> 24 & 0x80), 0x7F)


def _from_eighths(form: Form, source_type: str, a: Word) -> Word:
    """Convert two 8-bit floats to a pair of float16."""
    byte = a.split("u8").to("u16")
    size, sign = byte & 0x7F, (byte & 0x80) << 8
    if source_type == "e5m2x2":
        bits = (size > 0x7C).choose(0x7FFF, byte << 8)
    else:
        # Its exponent is 8 less than that of float16.
        value = (size << 7).view("f16").to("f32") * a.to("f32").constant_of(256.0)
        bits = size.eq(0x7F).choose(0x7FFF, value.to("f16").view("u16") | sign)
    return together(_finished(form, bits, "f16"), "f16x2")


# ── packing ──


@means("cvt.pack", sources="s32 s32 b32")
def pack(form: Form, a: Word, b: Word, rest: Word | None = None) -> Word:
    """Pack two integers, saturated to the form's type: `b` in the lowest bits, `a` above it.

    The third operand, `rest`, is shifted up and stays above both; without it these bits are zero.
    """
    width = int(form.modifiers[2][1:])
    low, high = bounds(form.modifiers[2][0] == "s", width)
    first, second = ((word.max(low).min(high) & (1 << width) - 1).view("u32") for word in (a, b))
    both = first << width | second
    return both if rest is None else rest << 2 * width | both
