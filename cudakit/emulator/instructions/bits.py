"""Logic, shifts and bit fields: PTX ISA 9.7.1 (bit counts and fields), 9.7.8 (logic and shift), 9.7.9.7 (prmt)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.instructions.comparison import COMBINE
from cudakit.emulator.instructions.elementwise import compute, elementwise
from cudakit.emulator.machine.context import DTYPES, Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame
from cudakit.emulator.ptx.program import Group, Immediate, Instruction
from cudakit.errors import EmulationError


def _simple(opcode: str, section: str, function: Callable[..., Any], out: str = "") -> None:
    @instruction(opcode, section)
    def make(given: Instruction, context: Context) -> Step:
        return elementwise(given, context, type_of(given), function, out)


_simple("and", "9.7.8.1", np.bitwise_and)
_simple("or", "9.7.8.2", np.bitwise_or)
_simple("xor", "9.7.8.3", np.bitwise_xor)
_simple("not", "9.7.8.4", np.invert)
_simple("cnot", "9.7.8.5", lambda a: a == 0)
_simple("popc", "9.7.1.14", np.bitwise_count, "u32")

# ── lop3 ──

#: Function of two operands by its truth table, with bit 2a + b for (a, b).
_OF_TWO: dict[int, Callable[[Any, Any], Any]] = {
    0: lambda a, b: np.zeros_like(a), 1: lambda a, b: ~(a | b), 2: lambda a, b: ~a & b, 3: lambda a, b: ~a,
    4: lambda a, b: a & ~b, 5: lambda a, b: ~b, 6: lambda a, b: a ^ b, 7: lambda a, b: ~(a & b),
    8: lambda a, b: a & b, 9: lambda a, b: ~(a ^ b), 10: lambda a, b: b, 11: lambda a, b: ~a | b,
    12: lambda a, b: a, 13: lambda a, b: a | ~b, 14: lambda a, b: a | b, 15: lambda a, b: ~np.zeros_like(a),
}  # fmt: skip


@cache
def _of_three(table: int) -> Callable[[Any, Any, Any], Any]:
    """The function of three operands with truth table `table` (bit 4a + 2b + c), in few operations."""
    without = sum(((table >> 2 * place) & 1) << place for place in range(4))
    with_ = sum(((table >> 2 * place + 1) & 1) << place for place in range(4))
    low, high, differ = _OF_TWO[without], _OF_TWO[with_], _OF_TWO[without ^ with_]
    if without == with_:
        return lambda a, b, c: low(a, b)
    if without ^ with_ == 15:
        return lambda a, b, c: low(a, b) ^ c
    if without == 0:
        return lambda a, b, c: high(a, b) & c
    if with_ == 15:
        return lambda a, b, c: low(a, b) | c
    if with_ == 0:
        return lambda a, b, c: low(a, b) & ~c
    if without == 15:
        return lambda a, b, c: high(a, b) | ~c
    return lambda a, b, c: low(a, b) ^ (differ(a, b) & c)


@instruction("lop3", "9.7.8.6")
def lop3(given: Instruction, context: Context) -> Step:
    target, a, b, c, table = given.operands[:5]
    if not isinstance(table, Immediate):
        raise EmulationError("the truth table of lop3 is no constant")
    function = _of_three(table.value & 255)
    sources = ((a, "b32"), (b, "b32"), (c, "b32"))
    if not isinstance(target, Group):
        return compute(context, function, target, "b32", sources)
    combine = COMBINE[given.modifiers[0]]
    write, flag = context.write(target.items[0], "b32"), context.write(target.items[1], "pred")
    reads = [context.read(source, kind) for source, kind in (*sources, (given.operands[5], "pred"))]

    def step(frame: Frame, index: Index, machine: Any) -> None:
        *values, other = (read(frame, index, machine) for read in reads)
        result = function(*values)
        write(frame, index, result)
        flag(frame, index, combine(result != 0, other))

    return step


# ── shifts ──


@instruction("shl", "9.7.8.8")
def shl(given: Instruction, context: Context) -> Step:
    return _shift(given, context, left=True)


@instruction("shr", "9.7.8.9")
def shr(given: Instruction, context: Context) -> Step:
    return _shift(given, context, left=False)


def _shift(given: Instruction, context: Context, left: bool) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    bits = 8 * dtype.itemsize
    move = np.left_shift if left else np.right_shift
    target, a, b = given.operands
    if isinstance(b, Immediate) and 0 <= b.value < bits:
        by = dtype.type(b.value)
        return compute(context, lambda x: move(x, by), target, kind, ((a, kind),))

    def shift(x: Any, count: Any) -> Any:
        over = count >= bits
        moved = move(x, np.minimum(count, bits - 1).astype(dtype))
        # An arithmetic shift by the width less one already leaves nothing but the sign.
        return moved if dtype.kind == "i" and not left else np.where(over, dtype.type(0), moved)

    return compute(context, shift, target, kind, ((a, kind), (b, "u32")))


@instruction("shf", "9.7.8.7")
def shf(given: Instruction, context: Context) -> Step:
    left, wraps = "l" in given.modifiers, "wrap" in given.modifiers

    def funnel(a: Any, b: Any, count: Any) -> Any:
        whole = np.asarray(b).astype(np.uint64) << np.uint64(32) | a
        by = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype(np.uint64)
        return ((whole << by) >> np.uint64(32) if left else whole >> by).astype(np.uint32)

    return elementwise(given, context, "u32", funnel)


# ── bit counts ──


def highest_bit(values: Any) -> Any:
    """Number of the highest bit that is one, -1 where none is."""
    high = np.asarray(values)
    if high.dtype.itemsize < 8:
        return np.frexp(high.astype(np.float64))[1] - 1
    # float64 would round a long run of ones up to the next power of two.
    upper = (high >> np.uint64(32)).astype(np.float64)
    lower = (high & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(upper > 0, np.frexp(upper)[1] + 31, np.frexp(lower)[1] - 1)


@instruction("clz", "9.7.1.15")
def clz(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    most = 8 * DTYPES[kind].itemsize - 1
    return elementwise(given, context, kind, lambda a: most - highest_bit(a), "u32")


@instruction("bfind", "9.7.1.16")
def bfind(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    unsigned, most = f"u{dtype.itemsize}", 8 * dtype.itemsize - 1
    amount = "shiftamt" in given.modifiers

    def find(a: Any) -> Any:
        # A negative value is searched for its highest bit that is not a sign bit.
        place = highest_bit(np.asarray(np.where(a < 0, ~a, a) if dtype.kind == "i" else a).view(unsigned))
        return (np.where(place < 0, -1, most - place) if amount else place).astype(np.int32)

    return elementwise(given, context, kind, find, "s32")


@instruction("brev", "9.7.1.18")
def brev(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    masks = [(1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)]
    of_kind = [(dtype.type(by), dtype.type(mask & (2 ** (8 * dtype.itemsize) - 1))) for by, mask in masks]

    def reverse(a: Any) -> Any:
        a = np.asarray(a).byteswap()
        for by, mask in of_kind:
            a = (a >> by & mask) | (a & mask) << by
        return a

    return elementwise(given, context, kind, reverse)


@instruction("fns", "9.7.1.17")
def fns(given: Instruction, context: Context) -> Step:
    target, mask, base, offset = given.operands

    def find(bits: Any, start: Any, count: Any) -> Any:
        bits, start, count = np.broadcast_arrays(bits, start, count)
        found = np.full(bits.shape, 0xFFFFFFFF, np.uint32)
        left = np.abs(count.astype(np.int64))
        down = count < 0
        for way in range(32):
            place = np.where(down, start.astype(np.int64) - way, start.astype(np.int64) + way)
            inside = (place >= 0) & (place < 32)
            held = inside & ((bits >> np.clip(place, 0, 31).astype(np.uint32) & np.uint32(1)) == 1)
            # An offset of zero asks for the bit at the base and no other.
            here = held & ((left == 1) | ((count == 0) & (way == 0)))
            found = np.where(here, place.astype(np.uint32), found)
            left = left - held
        return found

    return compute(context, find, target, "u32", ((mask, "u32"), (base, "u32"), (offset, "s32")))


# ── bit fields ──


def _ones(count: Any, dtype: np.dtype) -> Any:
    """`count` low bits set, for a count up to the width."""
    width = 8 * dtype.itemsize
    below = np.left_shift(dtype.type(1), np.minimum(count, width - 1).astype(dtype)) - dtype.type(1)
    return np.where(count >= width, ~dtype.type(0), below)


def _used(width: int) -> np.uint32:
    """Bits of a position or length that count: the low 8 by the ISA, but the hardware's 64-bit forms take all."""
    return np.uint32(255 if width == 32 else 2**32 - 1)


@instruction("bfe", "9.7.1.19")
def bfe(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    width = 8 * dtype.itemsize
    target, a, b, c = given.operands
    used = _used(width)

    def extract(value: Any, position: Any, length: Any) -> Any:
        position, length = position & used, length & used
        bits = np.asarray(value).view(unsigned)
        moved = np.where(position < width, bits >> np.minimum(position, width - 1).astype(unsigned), unsigned.type(0))
        held = _ones(np.minimum(length, width), unsigned)
        result = moved & held
        if dtype.kind == "i":
            top = np.clip(position.astype(np.int64) + length - 1, 0, width - 1).astype(unsigned)
            sign = ((bits >> top) & unsigned.type(1)).astype(bool) & (length > 0)
            # Bits past the value's own top are the sign's, too.
            inside = _ones(np.minimum(length, np.maximum(width - position.astype(np.int64), 0)), unsigned)
            result = np.where(sign, result | ~inside, result)
        return result

    return compute(context, extract, target, f"u{width}", ((a, kind), (b, "u32"), (c, "u32")))


@instruction("bfi", "9.7.1.20")
def bfi(given: Instruction, context: Context) -> Step:
    kind = f"u{type_of(given)[1:]}"
    dtype = DTYPES[kind]
    width = 8 * dtype.itemsize
    target, a, b, c, d = given.operands
    used = _used(width)

    def insert(field: Any, base: Any, position: Any, length: Any) -> Any:
        position, length = position & used, length & used
        by = np.minimum(position, width - 1).astype(dtype)
        mask = np.where(position < width, _ones(np.minimum(length, width), dtype) << by, dtype.type(0))
        return (base & ~mask) | (field << by & mask)

    return compute(context, insert, target, kind, ((a, kind), (b, kind), (c, "u32"), (d, "u32")))


@instruction("szext", "9.7.1.21")
def szext(given: Instruction, context: Context) -> Step:
    wraps, signed = "wrap" in given.modifiers, type_of(given) == "s32"
    target, a, b = given.operands

    def extend(value: Any, count: Any) -> Any:
        count = count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))
        mask = _ones(count, np.dtype(np.uint32))
        if not signed:
            return value & mask
        top = np.where(count > 0, value >> np.maximum(count, np.uint32(1)) - np.uint32(1) & np.uint32(1), np.uint32(0))
        return np.where(top != 0, value | ~mask, value & mask)

    return compute(context, extend, target, "u32", ((a, "u32"), (b, "u32")))


@instruction("bmsk", "9.7.1.22")
def bmsk(given: Instruction, context: Context) -> Step:
    wraps = "wrap" in given.modifiers

    def mask(start: Any, count: Any) -> Any:
        if wraps:
            start, count = start & np.uint32(31), count & np.uint32(31)
        ones = _ones(np.minimum(count, np.uint32(32)), np.dtype(np.uint32))
        return np.where(start < 32, ones << np.minimum(start, np.uint32(31)), np.uint32(0))

    return elementwise(given, context, "u32", mask)


# ── prmt ──

SELECTED: dict[str, Callable[[int], list[int]]] = {
    "f4e": lambda c: [c, c + 1, c + 2, c + 3],
    "b4e": lambda c: [c, (c - 1) & 7, (c - 2) & 7, (c - 3) & 7],
    "rc8": lambda c: [c, c, c, c],
    "ecl": lambda c: [max(place, c) for place in range(4)],
    "ecr": lambda c: [min(place, c) for place in range(4)],
    "rc16": lambda c: [0, 1, 0, 1] if c % 2 == 0 else [2, 3, 2, 3],
}


@instruction("prmt", "9.7.9.7")
def prmt(given: Instruction, context: Context) -> Step:
    mode = given.modifiers[-1]
    ways = None
    if mode in SELECTED:
        ways = np.array([sum(place << 4 * n for n, place in enumerate(SELECTED[mode](c))) for c in range(4)], np.uint32)
    control = given.operands[3]
    if isinstance(control, Immediate):
        selector = control.value & 0xFFFF if ways is None else int(ways[control.value & 3])
        target, a, b, _ = given.operands
        return compute(context, lambda x, y: _permute(x, y, selector), target, "u32", ((a, "u32"), (b, "u32")))

    def permute(x: Any, y: Any, selector: Any) -> Any:
        if ways is not None:
            selector = ways[selector & np.uint32(3)]
        selector = np.asarray(selector)
        if selector.ndim == 0 or (selector == selector.flat[0]).all():
            return _permute(x, y, int(selector.flat[0]))
        whole = np.asarray(y).astype(np.uint64) << np.uint64(32) | x
        result = np.uint64(0)
        for n in range(4):
            code = (selector >> np.uint32(4 * n)).astype(np.uint64) & np.uint64(15)
            byte = whole >> ((code & np.uint64(7)) << np.uint64(3)) & np.uint64(255)
            signs = (byte >> np.uint64(7)) * np.uint64(255)
            result = result | np.where(code > 7, signs, byte) << np.uint64(8 * n)
        return result.astype(np.uint32)

    return elementwise(given, context, "u32", permute)


def _permute(x: Any, y: Any, selector: int) -> Any:
    """Bytes of {y, x} by one selector for all lanes."""
    result: Any = np.uint32(0)
    for n in range(4):
        code = selector >> 4 * n & 15
        value = np.asarray(y if code & 4 else x)
        at, to = 8 * (code & 3), 8 * n
        if code > 7:
            byte = (value >> np.uint32(at + 7) & np.uint32(1)) * np.uint32(255) << np.uint32(to)
        elif at >= to:
            byte = value >> np.uint32(at - to) & np.uint32(255 << to)
        else:
            byte = value << np.uint32(to - at) & np.uint32(255 << to)
        result = result | byte
    return result
