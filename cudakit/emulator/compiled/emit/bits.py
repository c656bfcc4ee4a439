"""Integers as bits: logic, shifts, fields, counts, bytes picked, and products of bytes."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled import verdicts
from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import intrinsic, is_integer, named, type_of
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, Affine, Shape
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.instructions.bits import SELECTED
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand


def _logic_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    _, first, second = given.operands
    if given.opcode == "and" and _keeps_steps(shape(first, type_of(given)), second):
        return UNIFORM
    return by_sources(given, shape)


def _keeps_steps(x: Shape, mask: Operand) -> bool:
    """Whether a mask leaves only bits that lanes have in common, for they are whole steps apart."""
    if not isinstance(x, Affine) or not isinstance(mask, Immediate):
        return False
    low = mask.value & 0xFFFF_FFFF_FFFF_FFFF
    return low < 1 << 31 and low < x.stride & -x.stride


@emits("and", "or", "xor", transfer=_logic_shape)
def logic(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, first, second = given.operands
    if given.opcode == "and" and kind != "pred":
        value = b.read(first, kind)
        if _keeps_steps(value.shape, second):
            b.write(target, kind, Value(UNIFORM, b.text.binary("and", value.x, b.read(second, kind).x)))
            return
    known = None
    if kind == "pred" and not b.guarded:
        known = verdicts.joined(b, given.opcode, verdicts.held(b, first), verdicts.held(b, second))
    b.apply(target, kind, ((first, kind), (second, kind)), lambda x, y: b.text.binary(given.opcode, x, y))
    verdicts.keep(b, target, known)


@emits("not")
def invert(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    b.apply(
        given.operands[0],
        kind,
        ((given.operands[1], kind),),
        lambda x: b.text.binary("xor", x, constant(x.type, 1 if kind == "pred" else -1)),
    )


@emits("lop3")
def lop3(given: Instruction, b: Builder) -> None:
    if given.modifiers != ("b32",):
        raise Refusal(f"instruction {given}")
    target, *operands, table = given.operands
    assert isinstance(table, Immediate)
    wanted, text = table.value, b.text

    def compute(x: X, y: X, z: X) -> X:
        found = constant(x.type, 0)
        for row in range(8):
            if wanted >> row & 1:
                term = None
                for at, each in ((4, x), (2, y), (1, z)):
                    part = each if row & at else text.binary("xor", each, constant(x.type, -1))
                    term = part if term is None else text.binary("and", term, part)
                assert term is not None
                found = text.binary("or", found, term)
        return found

    b.apply(target, "b32", [(operand, "b32") for operand in operands[:3]], compute)


def _shift_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    x, by = shape(given.operands[1], type_of(given)), given.operands[2]
    if isinstance(x, Affine) and isinstance(by, Immediate) and by.value < 20 and is_integer(type_of(given)):
        return Affine(x.stride << by.value, x.of)
    return by_sources(given, shape)


@emits("shl", transfer=_shift_shape)
def shl(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source, by = given.operands
    value = b.read(source, kind)
    if isinstance(value.shape, Affine) and isinstance(by, Immediate) and by.value < 20:
        amount = constant(value.x.type, by.value)
        shape = Affine(value.shape.stride << by.value, value.shape.of)
        b.write(target, kind, Value(shape, b.text.binary("shl", value.x, amount), value.narrow))
        return
    _shift(given, b, "shl")


@emits("shr")
def shr(given: Instruction, b: Builder) -> None:
    _shift(given, b, "ashr" if type_of(given)[0] == "s" else "lshr")


def _shift(given: Instruction, b: Builder, opcode: str) -> None:
    kind = type_of(given)
    bits = bits_of(kind)
    target, source, by = given.operands

    def compute(x: X, y: X) -> X:
        # By more than all bits: nothing is left, or the sign.
        y = intrinsic(b, "umin", y, constant(y.type, bits - 1 if opcode == "ashr" else bits))
        amount = b.text.cast("trunc" if bits < 32 else "zext", y, f"i{bits}") if bits != 32 else y
        if opcode == "ashr":
            return b.text.binary(opcode, x, amount)
        far = b.text.compare("eq", amount, constant(x.type, bits))
        shifted = b.text.binary(opcode, x, b.text.select(far, constant(x.type, 0), amount))
        return b.text.select(far, constant(x.type, 0), shifted)

    b.apply(target, kind, ((source, kind), (by, "u32")), compute)


@emits("clz", "popc", "brev")
def counted(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    name = {"clz": "ctlz", "popc": "ctpop", "brev": "bitreverse"}[given.opcode]
    more = (X("i1", "false"),) if name == "ctlz" else ()

    def compute(x: X) -> X:
        found = b.text.call(named(f"llvm.{name}", x), x.type, x, *more)
        return found if given.opcode == "brev" or x.element == "i32" else b.text.cast("trunc", found, "i32")

    b.apply(given.operands[0], kind if given.opcode == "brev" else "u32", ((given.operands[1], kind),), compute)


@emits("shf")
def shf(given: Instruction, b: Builder) -> None:
    """A funnel shift of two words, by an amount that wraps or is held to 32."""
    side, mode, _ = given.modifiers
    target, low, high, by = given.operands
    name = "fshl" if side == "l" else "fshr"

    def compute(x: X, y: X, amount: X) -> X:
        if mode == "wrap":
            return intrinsic(b, name, y, x, amount)
        held = intrinsic(b, "umin", amount, constant(amount.type, 32))
        whole = b.text.compare("eq", held, constant(amount.type, 32))
        return b.text.select(whole, x if side == "l" else y, intrinsic(b, name, y, x, held))

    b.apply(target, "b32", ((low, "b32"), (high, "b32"), (by, "u32")), compute)


def _field_number(b: Builder, x: X, bits: int) -> X:
    """Where a field begins, or its length: of 32 bits its lowest byte, of 64 bits all of it, held to 64."""
    if bits == 32:
        return b.text.binary("and", x, constant(x.type, 255))
    return b.text.cast("zext", intrinsic(b, "umin", x, constant(x.type, 64)), "i64")


@emits("bfe")
def bfe(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    bits, signed, text = bits_of(kind), kind[0] == "s", b.text
    target, source, start, count = given.operands

    def compute(x: X, at: X, length: X) -> X:
        at, length = (_field_number(b, each, bits) for each in (at, length))
        width = constant(x.type, bits)
        top = constant(x.type, bits - 1)
        shift = "ashr" if signed else "lshr"
        # In one go: the field moved to the top, then down; what lies above the highest bit is the sign or zero.
        near = intrinsic(b, "umin", at, top if signed else width)
        far = text.compare("eq", near, width)
        moved = text.binary(shift, x, text.select(far, constant(x.type, 0), near))
        if not signed:
            moved = text.select(far, constant(x.type, 0), moved)
        rest = text.binary("sub", width, intrinsic(b, "umin", length, width))
        none = text.compare("eq", length, constant(x.type, 0))
        safe = text.select(none, constant(x.type, 0), rest)
        found = text.binary(shift, text.binary("shl", moved, safe), safe)
        return text.select(none, constant(x.type, 0), found)

    b.apply(target, kind, ((source, kind), (start, "u32"), (count, "u32")), compute)


@emits("bfi")
def bfi(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    bits, text = bits_of(kind), b.text
    target, source, into, start, count = given.operands

    def compute(x: X, y: X, at: X, length: X) -> X:
        at, length = (_field_number(b, each, bits) for each in (at, length))
        width = constant(x.type, bits)
        far = text.compare("uge", at, width)
        near = text.select(far, constant(x.type, 0), at)
        long = text.compare("uge", length, width)
        one = constant(x.type, 1)
        ones = text.binary("sub", text.binary("shl", one, text.select(long, constant(x.type, 0), length)), one)
        ones = text.select(long, constant(x.type, -1), ones)
        mask = text.binary("shl", ones, near)
        kept = text.binary("and", y, text.binary("xor", mask, constant(x.type, -1)))
        found = text.binary("or", kept, text.binary("and", text.binary("shl", x, near), mask))
        return text.select(far, y, found)

    b.apply(target, kind, ((source, kind), (into, kind), (start, "u32"), (count, "u32")), compute)


def _ones(b: Builder, count: X) -> X:
    """So many bits from the lowest, all from 32 on."""
    far = b.text.compare("uge", count, constant(count.type, 32))
    one = constant(count.type, 1)
    some = b.text.binary("shl", one, b.text.select(far, constant(count.type, 0), count))
    return b.text.select(far, constant(count.type, -1), b.text.binary("sub", some, one))


@emits("bmsk")
def bmsk(given: Instruction, b: Builder) -> None:
    text = b.text
    target, first, second = given.operands

    def compute(start: X, count: X) -> X:
        if "wrap" in given.modifiers:
            start, count = (text.binary("and", each, constant(each.type, 31)) for each in (start, count))
        far = text.compare("uge", start, constant(start.type, 32))
        moved = text.binary("shl", _ones(b, count), text.select(far, constant(start.type, 0), start))
        return text.select(far, constant(start.type, 0), moved)

    b.apply(target, "u32", ((first, "u32"), (second, "u32")), compute)


@emits("szext")
def szext(given: Instruction, b: Builder) -> None:
    """The lowest bits, and above them zero or the highest of them."""
    text, signed = b.text, type_of(given) == "s32"
    target, first, second = given.operands

    def compute(x: X, count: X) -> X:
        zero, width = constant(x.type, 0), constant(x.type, 32)
        if "wrap" in given.modifiers:
            count = text.binary("and", count, constant(count.type, 31))
        none = text.compare("eq", count, zero)
        rest = text.select(none, zero, text.binary("sub", width, intrinsic(b, "umin", count, width)))
        found = text.binary("ashr" if signed else "lshr", text.binary("shl", x, rest), rest)
        return text.select(none, zero, found)

    b.apply(target, "u32", ((first, "u32"), (second, "u32")), compute)


@emits("prmt")
def prmt(given: Instruction, b: Builder) -> None:
    target, first, second, chosen = given.operands
    text, mode = b.text, given.modifiers[-1]

    def compute(x: X, y: X, control: X) -> X:
        if mode in SELECTED:
            # Its two lowest bits choose one of four orders.
            way = text.binary("and", control, constant(control.type, 3))
            for number in range(4):
                order = sum(byte << 4 * place for place, byte in enumerate(SELECTED[mode](number)))
                chosen_ = text.compare("eq", way, constant(way.type, number))
                control = text.select(chosen_, constant(control.type, order), control)
        both = text.binary(
            "or",
            text.cast("zext", x, "i64"),
            text.binary("shl", text.cast("zext", y, "i64"), constant(like(x, "i64"), 32)),
        )
        found = constant(x.type, 0)
        for byte in range(4):
            part = text.binary("lshr", control, constant(x.type, 4 * byte))
            at = text.binary("shl", text.binary("and", part, constant(x.type, 7)), constant(x.type, 3))
            picked = text.cast("trunc", text.binary("lshr", both, text.cast("zext", at, "i64")), "i8")
            if mode not in SELECTED and (not isinstance(chosen, Immediate) or chosen.value >> 4 * byte & 8):
                sign = text.binary("ashr", picked, constant(picked.type, 7))
                replicate = text.compare("ne", text.binary("and", part, constant(x.type, 8)), constant(x.type, 0))
                picked = text.select(replicate, sign, picked)
            moved = text.binary("shl", text.cast("zext", picked, "i32"), constant(x.type, 8 * byte))
            found = text.binary("or", found, moved)
        return found

    b.apply(target, "b32", ((first, "b32"), (second, "b32"), (chosen, "b32")), compute)


@emits("bfind")
def bfind(given: Instruction, b: Builder) -> None:
    """The highest bit that is set, or for negative numbers is not; all bits are one where there is none."""
    kind, text = type_of(given), b.text
    bits = bits_of(kind)

    def compute(x: X) -> X:
        if kind[0] == "s":
            x = text.binary("xor", x, text.binary("ashr", x, constant(x.type, bits - 1)))
        zeros = text.call(named("llvm.ctlz", x), x.type, x, X("i1", "false"))
        none = text.compare("eq", x, constant(x.type, 0))
        found = zeros if "shiftamt" in given.modifiers else text.binary("sub", constant(x.type, bits - 1), zeros)
        found = text.select(none, constant(x.type, -1), found)
        return text.cast("trunc", found, "i32") if bits == 64 else found

    b.apply(given.operands[0], "u32", ((given.operands[1], kind),), compute)


@emits("dp4a", "dp2a")
def dot(given: Instruction, b: Builder) -> None:
    """Sums of products of bytes, or of halves and bytes."""
    text = b.text
    half, kinds = ("", given.modifiers) if given.opcode == "dp4a" else (given.modifiers[0], given.modifiers[1:])
    parts = 4 if given.opcode == "dp4a" else 2
    step = 8 if parts == 4 else 16
    first = 2 if half == "hi" else 0

    def compute(x: X, y: X, z: X) -> X:
        def part(value: X, bits: int, number: int, kind: str) -> X:
            moved = text.binary("shl", value, constant(value.type, 32 - bits * (number + 1)))
            return text.binary("ashr" if kind == "s32" else "lshr", moved, constant(value.type, 32 - bits))

        for number in range(parts):
            product = text.binary("mul", part(x, step, number, kinds[0]), part(y, 8, first + number, kinds[1]))
            z = text.binary("add", z, product)
        return z

    target, *operands = given.operands
    b.apply(target, "b32", [(operand, "b32") for operand in operands], compute)
