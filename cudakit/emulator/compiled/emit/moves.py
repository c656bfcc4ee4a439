"""Moves, comparisons, choices and conversions."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled import verdicts
from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import (
    flushed,
    flushed_rounded,
    intrinsic,
    is_integer,
    only,
    saturated,
    type_of,
)
from cudakit.emulator.compiled.emit.halves import HALVES, narrowed, odd_float, widened
from cudakit.emulator.compiled.emit.rounding import directed, mode_of
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, resized
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from cudakit.emulator.ptx.program import Group, Instruction, Register

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


# ── moves ──


def _moved(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    target, source = given.operands
    if isinstance(target, Group) or isinstance(source, Group) or type_of(given) == "pred":
        return by_sources(given, shape)
    return shape(source, type_of(given))


@emits("mov", transfer=_moved, makes_nan=True)
def mov(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source = given.operands
    text = b.text
    if kind == "b128":
        raise Refusal(f"instruction {given}")
    if isinstance(target, Group):
        whole = bits_of(kind)
        part = whole // len(target.items)
        value = b.read(source, f"b{whole}")
        x = value.x if value.shape == UNIFORM else b.lanes(value)
        for number, item in enumerate(target.items):
            piece = text.binary("lshr", x, constant(x.type, number * part))
            b.write(
                item, f"b{part}", Value(UNIFORM if not x.is_vector else VARYING, text.cast("trunc", piece, f"i{part}"))
            )
        return
    if isinstance(source, Group):
        whole = bits_of(kind)
        part = whole // len(source.items)

        def pack(*pieces: X) -> X:
            found = None
            for number, piece in enumerate(pieces):
                wide = text.cast("zext", piece, f"i{whole}")
                moved = text.binary("shl", wide, constant(wide.type, number * part))
                found = moved if found is None else text.binary("or", found, moved)
            assert found is not None
            return found

        b.apply(target, f"b{whole}", [(item, f"b{part}") for item in source.items], pack)
        return
    raw = isinstance(target, Register) and target.name in b.raw
    b.write(target, kind, b.read(source, kind, raw=raw))


def _address_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    return shape(given.operands[1], type_of(given))


def _space(given: Instruction) -> str:
    return next(
        (m.partition("::")[0] for m in given.modifiers if m.partition("::")[0] in ("shared", "local", "param")), ""
    )


@emits("cvta", transfer=_address_shape)
def cvta(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind != "u64" and _space(given):
        raise Refusal(f"instruction {given}")
    value = b.read(given.operands[1], kind)
    shift = _WINDOWS.get(_space(given), 0)
    if shift:
        opcode = "sub" if "to" in given.modifiers else "add"
        moved = constant(value.x.type, shift)
        value = Value(value.shape, b.text.binary(opcode, value.x, moved), value.narrow)
    b.write(given.operands[0], kind, value)


# ── comparisons ──

_INTEGERS = {
    "eq": "eq", "ne": "ne", "lt": "{}lt", "le": "{}le", "gt": "{}gt", "ge": "{}ge",
    "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge",
}  # fmt: skip
_FLOATS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


def _held(given: Instruction, b: Builder, kind: str) -> Callable[[X, X], X]:
    how = given.modifiers[0]
    if kind in FLOATS:
        if "ftz" in given.modifiers:
            return lambda x, y: b.text.compare(_FLOATS[how], flushed(b, x), flushed(b, y))
        return lambda x, y: b.text.compare(_FLOATS[how], x, y)
    if kind in ("f16", "bf16") and "ftz" not in given.modifiers:
        return lambda x, y: b.text.compare(_FLOATS[how], widened(b, x, kind), widened(b, y, kind))
    if not is_integer(kind):
        raise Refusal(f"instruction {given}")
    return lambda x, y: b.text.compare(_INTEGERS[how].format("s" if kind[0] == "s" else "u"), x, y)


@emits("setp")
def setp(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    compare = _held(given, b, kind)
    read = "b16" if kind in HALVES else kind
    target, first, second, *rest = given.operands
    items = target.items if isinstance(target, Group) else (target,)
    for number, item in enumerate(items):

        def answer(x: X, y: X, *other: X, turned: bool = number > 0) -> X:
            held = compare(x, y)
            if turned:
                held = b.text.binary("xor", held, constant(held.type, 1))
            return b.text.binary(given.modifiers[1], held, other[0]) if other else held

        sources = [(first, read), (second, read), *((operand, "pred") for operand in rest)]
        b.apply(item, "pred", sources, answer, raw=True)
    if is_integer(kind) and not rest and not b.guarded and not isinstance(target, Group):
        x, y = b.read(first, kind), b.read(second, kind)
        verdicts.keep(b, target, verdicts.compared(b, given.modifiers[0], kind, x, y))


@emits("set")
def set_(given: Instruction, b: Builder) -> None:
    out, kind = given.modifiers[-2:]
    compare = _held(given, b, kind)
    target, first, second, *rest = given.operands
    if out not in ("u32", "s32", "f32") or kind in HALVES:
        raise Refusal(f"instruction {given}")
    true = 0x3F80_0000 if out == "f32" else -1

    def answer(x: X, y: X, *other: X) -> X:
        held = compare(x, y)
        held = b.text.binary(given.modifiers[1], held, other[0]) if other else held
        type_ = like(held, "i32")
        return b.text.select(held, constant(type_, true), constant(type_, 0))

    b.apply(target, "b32", [(first, kind), (second, kind), *((operand, "pred") for operand in rest)], answer)


@emits("selp")
def selp(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, first, second, chosen = given.operands
    bits = f"b{bits_of(kind)}"
    b.apply(
        target,
        bits,
        ((first, bits), (second, bits), (chosen, "pred")),
        lambda x, y, held: b.text.select(held, x, y),
    )


@emits("slct")
def slct(given: Instruction, b: Builder) -> None:
    """The first where the third is not below zero, and the second where it is, or is NaN."""
    kind, of = given.modifiers[-2:]
    bits = f"b{bits_of(kind)}"
    target, first, second, sign = given.operands

    def choose(x: X, y: X, z: X) -> X:
        z = flushed(b, z) if "ftz" in given.modifiers else z
        held = b.text.compare("oge" if of == "f32" else "sge", z, constant(z.type, 0))
        return b.text.select(held, x, y)

    b.apply(target, bits, ((first, bits), (second, bits), (sign, of)), choose)


@emits("testp")
def testp(given: Instruction, b: Builder) -> None:
    kind, test = type_of(given), given.modifiers[0]
    infinity, least = (0x7F80_0000, 0x0080_0000) if kind == "f32" else (0x7FF0_0000_0000_0000, 1 << 52)
    text = b.text

    def compute(x: X) -> X:
        if test in ("number", "notanumber"):
            return text.compare("ord" if test == "number" else "uno", x, x)
        size, top = intrinsic(b, "fabs", x), constant(x.type, infinity)
        if test in ("normal", "subnormal"):
            small = text.compare("olt", size, constant(x.type, least))
            small = text.binary("and", small, text.compare("one", size, constant(x.type, 0)))
            if test == "subnormal":
                return small
            # Zero counts as normal.
            return text.binary(
                "and", text.compare("olt", size, top), text.binary("xor", small, constant(small.type, 1))
            )
        return text.compare("olt" if test == "finite" else "oeq", size, top)

    b.apply(given.operands[0], "pred", ((given.operands[1], kind),), compute)


# ── conversions ──

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

        if kind == "f64" and whole:
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
