"""Conversions between types of numbers."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import (
    flushed,
    flushed_rounded,
    intrinsic,
    only,
    saturated,
)
from cudakit.emulator.compiled.emit.halves import HALVES, narrowed, odd_float, widened
from cudakit.emulator.compiled.emit.rounding import directed, mode_of
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import VARYING, Affine, Shape, resized
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.ptx.program import Instruction

_WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_INTEGER_TYPES = frozenset(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))


def _converted(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    out, kind = given.modifiers[-2:]
    held = shape(given.operands[1], kind)
    if not isinstance(held, Affine) or not {out, kind} <= _INTEGER_TYPES or "sat" in given.modifiers:
        return by_sources(given, shape)
    if bits_of(kind) < 32 or bits_of(out) < 32:
        return VARYING
    return resized(held, bits_of(kind), bits_of(out), kind[0] == "s")


@emits("cvt", transfer=_converted)
def cvt(given: Instruction, b: Builder) -> None:
    out, kind = given.modifiers[-2:]
    if out in _INTEGER_TYPES and kind in _INTEGER_TYPES:
        _between_integers(given, b, out, kind)
    elif out in _INTEGER_TYPES and kind in FLOATS:
        _to_integer(given, b, out, kind)
    elif out in FLOATS and kind in _INTEGER_TYPES:
        _from_integer(given, b, out, kind)
    elif out in FLOATS and kind in FLOATS:
        _between_floats(given, b, out, kind)
    elif (out == "f32" and kind in ("f16", "bf16")) or (kind == "f32" and out in HALVES):
        _half(given, b, out, kind)
    elif out == kind == "f16":
        only(given)
        b.apply(given.operands[0], "b16", ((given.operands[1], "b16"),), lambda x: _canonical_half(b, x))
    elif {out, kind} <= {"f16", "f64", *_INTEGER_TYPES}:
        _half_and_other(given, b, out, kind)
    else:
        raise Refusal(f"instruction {given}")


def _from_integer(given: Instruction, b: Builder, out: str, kind: str) -> None:
    mode, opcode = mode_of(given), "sitofp" if kind[0] == "s" else "uitofp"
    only(given, "rn", mode)
    if mode != "rn" and (out == "f64" or bits_of(kind) == 64):
        raise Refusal(f"instruction {given}")

    def compute(x: X) -> X:
        found = b.text.cast(opcode, x, FLOATS[out])
        if mode == "rn":
            return found
        return directed(b, mode, found, _beyond(b, found, b.text.cast(opcode, x, "double")))

    b.apply(given.operands[0], out, ((given.operands[1], kind),), compute)


def _beyond(b: Builder, found: X, exact: X) -> X:
    """What float64 has more than the float32 that it was rounded to."""
    return b.text.binary("fsub", exact, b.text.cast("fpext", found, "double"))


def _half_and_other(given: Instruction, b: Builder, out: str, kind: str) -> None:
    """Between half precision and integers or float64."""
    text = b.text
    target, source = given.operands
    if kind == "f16" and out in _INTEGER_TYPES:
        _to_integer(given, b, out, kind)
    elif kind == "f16":
        only(given)
        b.apply(target, out, ((source, "b16"),), lambda x: text.cast("fpext", widened(b, x, kind), "double"))
    elif kind == "f64":
        only(given, "rn")

        def narrow(x: X) -> X:
            # NaN keep their sign and what of their payload has room.
            bits = text.cast("bitcast", x, "i64")
            sign = text.binary("and", text.binary("lshr", bits, constant(bits.type, 48)), constant(bits.type, 0x8000))
            rest = text.binary("and", text.binary("lshr", bits, constant(bits.type, 42)), constant(bits.type, 0x3FF))
            nan = text.binary("or", text.binary("or", sign, rest), constant(bits.type, 0x7E00))
            found = narrowed(b, odd_float(b, x), out)
            return text.select(text.compare("uno", x, x), text.cast("trunc", nan, "i16"), found)

        b.apply(target, "b16", ((source, kind),), narrow)
    else:
        only(given, "rn")
        if bits_of(kind) == 64 or out != "f16":
            raise Refusal(f"instruction {given}")
        opcode = "sitofp" if kind[0] == "s" else "uitofp"
        b.apply(
            target,
            "b16",
            ((source, kind),),
            lambda x: narrowed(b, odd_float(b, text.cast(opcode, x, "double")), out),
        )


def _between_integers(given: Instruction, b: Builder, out: str, kind: str) -> None:
    target, source = given.operands[:2]
    if "pack" in given.modifiers:
        raise Refusal(f"instruction {given}")
    if "sat" in given.modifiers:
        b.apply(target, out, ((source, kind),), lambda x: _held_to(b, x, kind, out))
        return
    value = b.read(source, kind)
    if min(bits_of(kind), bits_of(out)) < 32 and isinstance(value.shape, Affine):
        value = Value(VARYING, b.lanes(value))
    b.write(target, out, b.resized(value, bits_of(out), kind[0] == "s"))


def _held_to(b: Builder, x: X, kind: str, out: str) -> X:
    """An integer held to the range of another type."""
    bits, extend = bits_of(out), "sext" if kind[0] == "s" else "zext"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if out[0] == "s" else (0, (1 << bits) - 1)
    wide = b.text.cast(extend, x, f"i{2 * max(bits, bits_of(kind))}")
    held = intrinsic(b, "smax", intrinsic(b, "smin", wide, constant(wide.type, high)), constant(wide.type, low))
    return b.text.cast("trunc", held, f"i{bits}")


def _to_integer(given: Instruction, b: Builder, out: str, kind: str) -> None:
    """To a whole number, held to the type's range; NaN is zero, or the highest bit where a side has 64 bits."""
    whole = next((_WHOLE[modifier] for modifier in given.modifiers if modifier in _WHOLE), "")
    if not whole:
        raise Refusal(f"instruction {given}")
    bits, wide = bits_of(out), 64 in (bits_of(out), bits_of(kind))
    name = "fptosi" if out[0] == "s" else "fptoui"
    text = b.text

    def compute(x: X) -> X:
        if kind == "f16":
            x = widened(b, x, kind)
        elif "ftz" in given.modifiers:
            x = flushed(b, x)
        rounded = intrinsic(b, whole, x) if whole != "trunc" else x
        type_ = like(x, f"i{bits}")
        count = f"v{x.type[1 : x.type.index(' ')]}" if x.is_vector else ""
        short = {"float": "f32", "double": "f64"}[x.element]
        found = text.call(f"llvm.{name}.sat.{count}i{bits}.{count}{short}", type_, rounded)
        if not wide:
            return found
        nan = text.compare("uno", x, x)
        return text.select(nan, constant(type_, 1 << bits - 1), found)

    read = "b16" if kind == "f16" else kind
    b.apply(given.operands[0], out, ((given.operands[1], read),), compute)


def _between_floats(given: Instruction, b: Builder, out: str, kind: str) -> None:
    target, source = given.operands
    text = b.text
    whole = next((_WHOLE[modifier] for modifier in given.modifiers if modifier in _WHOLE), "")
    ftz, mode = "ftz" in given.modifiers, mode_of(given)
    only(given, "rn", "ftz", "sat", mode, *_WHOLE)
    if out == kind == "f32" or (out == kind and not ftz):

        def compute(x: X) -> X:
            x = flushed(b, x) if ftz else x
            x = intrinsic(b, whole, x) if whole else x
            if whole or ftz or "sat" in given.modifiers:
                x = saturated(b, x) if "sat" in given.modifiers else _canonical(b, x) if kind == "f32" else x
            return x

        if kind == "f64" and whole and "sat" not in given.modifiers:  # which makes zero of NaN
            inner = compute

            def compute(x: X) -> X:
                found = inner(x)
                from cudakit.emulator.compiled.emit.common import quieted

                return text.select(text.compare("uno", x, x), quieted(b, x), found)

        b.apply(target, out, ((source, kind),), compute)
        return
    if whole or "sat" in given.modifiers or (ftz and mode != "rn"):
        raise Refusal(f"instruction {given}")

    def other(x: X) -> X:
        if out == "f64":
            # Flushing makes NaN canonical; without it they keep what they hold.
            return text.cast("fpext", _canonical(b, flushed(b, x)) if ftz else x, "double")
        found = text.cast("fptrunc", x, "float")
        if mode != "rn":
            found = directed(b, mode, found, _beyond(b, found, x))
        return flushed_rounded(b, found, x) if ftz else found

    b.apply(target, out, ((source, kind),), other)


def _canonical(b: Builder, x: X) -> X:
    return b.text.select(b.text.compare("uno", x, x), constant(x.type, 0x7FFF_FFFF), x)


def _canonical_half(b: Builder, x: X) -> X:
    """The same bits, and one NaN for all."""
    magnitude = b.text.binary("and", x, constant(x.type, 0x7FFF))
    return b.text.select(b.text.compare("ugt", magnitude, constant(x.type, 0x7C00)), constant(x.type, 0x7FFF), x)


def _half(given: Instruction, b: Builder, out: str, kind: str) -> None:
    """Between float32 and half precision; two at once, the first source in the upper half."""
    target, *operands = given.operands
    text = b.text
    only(given, "rn", "relu", *(("ftz",) if kind == "f16" else ()))
    relu = "relu" in given.modifiers
    if out == "f32":
        if relu:
            raise Refusal(f"instruction {given}")

        def widen(x: X) -> X:
            found = widened(b, x, kind)
            # What the hardware gives of the NaN of bfloat16 keeps the payload.
            return found if kind == "bf16" else _canonical(b, found)

        b.apply(target, "f32", ((operands[0], "b16"),), widen)
        return

    def narrow(x: X) -> X:
        bits = narrowed(b, x, out)
        if relu:
            negative = text.compare("slt", bits, constant(bits.type, 0))
            bits = text.select(negative, constant(bits.type, 0), bits)
        return bits

    if not out.endswith("x2"):
        b.apply(target, "b16", ((operands[0], "f32"),), narrow)
        return

    def both(high: X, low: X) -> X:
        upper = text.cast("zext", narrow(high), "i32")
        return text.binary(
            "or", text.binary("shl", upper, constant(upper.type, 16)), text.cast("zext", narrow(low), "i32")
        )

    b.apply(target, "b32", [(operand, "f32") for operand in operands], both)
