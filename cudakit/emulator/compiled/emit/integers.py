"""Integers that are rare: products of 24 bits, differences, chains of carries, pairs of 16 bits, the n-th bit."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import intrinsic, only, type_of
from cudakit.emulator.compiled.emit.halves import by_halves
from cudakit.emulator.compiled.emit.table import emits, varies
from cudakit.emulator.compiled.shapes import VARYING
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.ptx.program import Instruction


def all_of(given: Instruction, b: Builder, function: Callable[..., X]) -> None:
    """Write a function of all operands, each of the instruction's type."""
    kind = type_of(given)
    b.apply(given.operands[0], kind, [(operand, kind) for operand in given.operands[1:]], function)


@emits("sad")
def sad(given: Instruction, b: Builder) -> None:
    """The third, and how far the first two are from each other."""
    sign = "s" if type_of(given)[0] == "s" else "u"

    def compute(x: X, y: X, z: X) -> X:
        high, low = intrinsic(b, f"{sign}max", x, y), intrinsic(b, f"{sign}min", x, y)
        return b.text.binary("add", z, b.text.binary("sub", high, low))

    all_of(given, b, compute)


@emits("cnot")
def cnot(given: Instruction, b: Builder) -> None:
    all_of(given, b, lambda x: b.text.cast("zext", b.text.compare("eq", x, constant(x.type, 0)), x.element))


@emits("mul24", "mad24")
def product_24(given: Instruction, b: Builder) -> None:
    """The product of the low 24 bits: its low 32 bits, or bits 47 … 16."""
    only(given, "lo", "hi")
    text, extend = b.text, "ashr" if type_of(given) == "s32" else "lshr"

    def low(x: X) -> X:
        wide = text.binary("shl", text.cast("zext", x, "i64"), constant(like(x, "i64"), 40))
        return text.binary(extend, wide, constant(wide.type, 40))

    def compute(x: X, y: X, *more: X) -> X:
        whole = text.binary("mul", low(x), low(y))
        if "hi" in given.modifiers:
            whole = text.binary("lshr", whole, constant(whole.type, 16))
        found = text.cast("trunc", whole, "i32")
        return text.binary("add", found, more[0]) if more else found

    all_of(given, b, compute)


# ── chains: a carry for each lane ──


@emits("add.cc", "addc", "sub.cc", "subc", "mad.lo.cc", "mad.hi.cc", "madc", transfer=varies)
def chained(given: Instruction, b: Builder) -> None:
    """A sum with the carry of the last one. x - y is x + ~y + 1, so that the carry of a difference is no borrow."""
    only(given, "cc", "lo", "hi")
    bits, text = bits_of(type_of(given)), b.text
    kind = f"u{bits}"
    target, *operands = given.operands
    values = [b.lanes(b.read(operand, kind)) for operand in operands]
    element, flags = values[0].type, b.carry()
    held = text.load(b.vector("i1"), flags)
    if given.opcode.startswith("mad"):
        opcode = "sext" if type_of(given)[0] == "s" else "zext"
        wide = [text.cast(opcode, value, f"i{2 * bits}") for value in values[:2]]
        whole = text.binary("mul", *wide)
        if "hi" in given.modifiers:
            whole = text.binary("lshr", whole, constant(whole.type, bits))
        x, y = text.cast("trunc", whole, f"i{bits}"), values[2]
    else:
        x, y = values
    if given.opcode.startswith("sub"):
        y = text.binary("xor", y, constant(element, -1))
    if given.opcode.endswith("c"):
        one = text.cast("zext", held, f"i{bits}")
    else:
        one = constant(element, 1 if given.opcode == "sub" else 0)
    first = text.binary("add", x, y)
    second = text.binary("add", first, one)
    if "cc" in given.modifiers:
        carry = text.binary("or", text.compare("ult", first, x), text.compare("ult", second, one))
        text.store(carry if b.mask is None else text.select(b.mask, carry, held), flags)
    b.write(target, kind, Value(VARYING, second))


# ── pairs of 16 bits ──


@emits("add.u16x2", "add.s16x2", "min.u16x2", "min.s16x2", "max.u16x2", "max.s16x2", "min.relu.s16x2", "max.relu.s16x2")
def pairs(given: Instruction, b: Builder) -> None:
    signed = given.modifiers[-1][0] == "s"

    def compute(x: X, y: X) -> X:
        if given.opcode == "add":
            return b.text.binary("add", x, y)
        found = intrinsic(b, f"{'s' if signed else 'u'}{given.opcode}", x, y)
        return intrinsic(b, "smax", found, constant(found.type, 0)) if "relu" in given.modifiers else found

    by_halves(given, b, compute)


@emits("fns")
def fns(given: Instruction, b: Builder) -> None:
    """The place of the n-th set bit from a base on, upwards or down; with n = 0 the base itself if it is set."""
    target, *operands = given.operands
    text = b.text

    def compute(bits: X, base: X, count: X) -> X:
        type_ = bits.type
        one, none = constant(type_, 1), constant(type_, 0)
        down, zero = text.compare("slt", count, none), text.compare("eq", count, none)
        left = text.select(down, text.binary("sub", none, count), count)
        step = text.select(down, constant(type_, -1), one)
        found, place = constant(type_, -1), text.cast("zext", base, "i64")
        step = text.cast("sext", step, "i64")
        for way in range(32):
            inside = text.compare("ult", place, constant(place.type, 32))
            at = text.cast("trunc", place, "i32")
            moved = text.binary("lshr", bits, text.binary("and", at, constant(type_, 31)))
            held = text.compare("ne", text.binary("and", moved, one), none)
            held = text.binary("and", held, inside)
            wanted = text.compare("eq", left, one)
            wanted = text.binary("or", wanted, zero) if way == 0 else wanted
            found = text.select(text.binary("and", held, wanted), at, found)
            left = text.binary("sub", left, text.cast("zext", held, "i32"))
            place = text.binary("add", place, step)
        return found

    b.apply(target, "b32", [(operand, "b32") for operand in operands], compute)
