"""Moves, comparisons and choices."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled import verdicts
from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import (
    flushed,
    intrinsic,
    is_integer,
    type_of,
)
from cudakit.emulator.compiled.emit.halves import HALVES, widened
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
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
    if is_integer(kind) and not rest and not b.guarded and not b.brief and isinstance(target, Register):
        x, y = b.read(first, kind), b.read(second, kind)
        verdict = verdicts.compared(b, given.modifiers[0], kind, x, y)
        if verdict is not None:
            lazy = target.name not in b.for_branch
            found = _unless(b, verdict, compare, x, y) if lazy else compare(b.lanes(x), b.lanes(y))
            b.write(target, "pred", Value(VARYING, found))
            verdicts.keep(b, target, verdict)
            return
    for number, item in enumerate(items):

        def answer(x: X, y: X, *other: X, turned: bool = number > 0) -> X:
            held = compare(x, y)
            if turned:
                held = b.text.binary("xor", held, constant(held.type, 1))
            return b.text.binary(given.modifiers[1], held, other[0]) if other else held

        sources = [(first, read), (second, read), *((operand, "pred") for operand in rest)]
        b.apply(item, "pred", sources, answer, raw=True)


def _unless(b: Builder, verdict: verdicts.Verdict, compare: Callable[[X, X], X], x: Value, y: Value) -> X:
    """A comparison of all lanes, where it is not known for all at once."""
    text, type_ = b.text, b.vector("i1")
    each, other, joined = text.fresh("each"), text.fresh("other"), text.fresh("joined")
    before = text.here
    text.branch(verdict.all, joined, other)
    text.label(other)
    text.branch(verdict.none, joined, each)
    text.label(each)
    found = compare(b.lanes(x), b.lanes(y))
    at = text.here
    text.jump(joined)
    text.label(joined)
    return text.phi(type_, (constant(type_, 1), before), (constant(type_, 0), other), (found, at))


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
