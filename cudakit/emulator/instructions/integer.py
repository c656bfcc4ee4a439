"""Integer arithmetic: PTX ISA 9.7.1 (integer), 9.7.2 (extended precision)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.instructions.elementwise import compute, elementwise
from cudakit.emulator.machine.context import CARRY, DTYPES, Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.ptx.program import Instruction, Operand


def twice(dtype: np.dtype) -> np.dtype:
    """The integer dtype of twice the width."""
    return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


def is_packed(given: Instruction) -> bool:
    """Whether the operands are two 16-bit integers in 32 bits."""
    return "u16x2" in given.modifiers or "s16x2" in given.modifiers


def packed(given: Instruction, context: Context, function: Callable[..., Any]) -> Step:
    """A step of `function` on both 16-bit halves of 32-bit operands."""
    dtype = np.dtype("i2" if "s16x2" in given.modifiers else "u2")

    def both(*values: Any) -> Any:
        halves = function(*(np.ascontiguousarray(value)[..., None].view(dtype) for value in values))
        return np.ascontiguousarray(halves).view(np.uint32)[..., 0]

    return elementwise(given, context, "b32", both)


# ── sums and products ──


def add(given: Instruction, context: Context) -> Step:
    if "cc" in given.modifiers:
        return _with_carry(given, context, subtract=False, extend=False)
    if is_packed(given):
        return packed(given, context, np.add)
    if "sat" in given.modifiers:
        return elementwise(given, context, "s32", lambda a, b: clamp_s32(_wide(a) + _wide(b)))
    return elementwise(given, context, type_of(given), np.add)


def subtract(given: Instruction, context: Context) -> Step:
    if "cc" in given.modifiers:
        return _with_carry(given, context, subtract=True, extend=False)
    if is_packed(given):
        return packed(given, context, np.subtract)
    if "sat" in given.modifiers:
        return elementwise(given, context, "s32", lambda a, b: clamp_s32(_wide(a) - _wide(b)))
    return elementwise(given, context, type_of(given), np.subtract)


def _wide(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)


def clamp_s32(values: Any) -> Any:
    """64-bit values clamped to 32 bits."""
    return np.clip(values, -(2**31), 2**31 - 1).astype(np.int32)


def multiply_high(a: Any, b: Any, dtype: np.dtype) -> Any:
    """High half of the product of two integers."""
    if dtype.itemsize < 8:
        wide = twice(dtype)
        return (np.asarray(a).astype(wide) * np.asarray(b).astype(wide) >> wide.type(8 * dtype.itemsize)).astype(dtype)
    x, y = np.asarray(a).view("u8"), np.asarray(b).view("u8")
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (x >> shift) * (y & low) + ((x & low) * (y & low) >> shift)
    other = (x & low) * (y >> shift) + (middle & low)
    high = (x >> shift) * (y >> shift) + (middle >> shift) + (other >> shift)
    if dtype.kind == "i":
        high = high - np.where(np.asarray(a) < 0, y, np.uint64(0)) - np.where(np.asarray(b) < 0, x, np.uint64(0))
    return np.asarray(high).view(dtype)


def multiply(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    if "wide" in given.modifiers:
        wide = twice(dtype)
        out = f"{kind[0]}{8 * wide.itemsize}"
        return elementwise(
            given, context, kind, lambda a, b: np.asarray(a).astype(wide) * np.asarray(b).astype(wide), out
        )
    if "hi" in given.modifiers:
        return elementwise(given, context, kind, lambda a, b: multiply_high(a, b, dtype))
    return elementwise(given, context, kind, np.multiply)


def multiply_add(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    if "cc" in given.modifiers:
        return _multiply_add_carry(given, context, extend=False)
    if "wide" in given.modifiers:
        wide = twice(dtype)
        target, a, b, c = given.operands
        out = f"{kind[0]}{8 * wide.itemsize}"
        return compute(
            context,
            lambda x, y, z: np.asarray(x).astype(wide) * np.asarray(y).astype(wide) + z,
            target,
            out,
            ((a, kind), (b, kind), (c, out)),
        )
    if "sat" in given.modifiers:
        return elementwise(
            given, context, "s32", lambda a, b, c: clamp_s32((_wide(a) * _wide(b) >> np.int64(32)) + _wide(c))
        )
    if "hi" in given.modifiers:
        return elementwise(given, context, kind, lambda a, b, c: multiply_high(a, b, dtype) + c)
    return elementwise(given, context, kind, lambda a, b, c: a * b + c)


def _product_24(given: Instruction) -> Callable[[Any, Any], Any]:
    """The 48-bit product of the low 24 bits of two values: its low 32 bits, or its high 32."""
    kind = type_of(given)
    high = "hi" in given.modifiers

    def product(a: Any, b: Any) -> Any:
        x, y = _wide(a) << np.int64(40), _wide(b) << np.int64(40)
        if kind == "u32":
            x, y = np.asarray(x).view(np.uint64), np.asarray(y).view(np.uint64)
        forty = x.dtype.type(40)
        whole = np.asarray((x >> forty) * (y >> forty)).view(np.int64)
        # Bits 47 … 16 of the product, which a signed one extends to 64; only the low 32 of what is left are used.
        return (whole >> np.int64(16) if high else whole).astype(DTYPES[kind])

    return product


@instruction("mul24", "9.7.1.5")
def mul24(given: Instruction, context: Context) -> Step:
    return elementwise(given, context, type_of(given), _product_24(given))


@instruction("mad24", "9.7.1.6")
def mad24(given: Instruction, context: Context) -> Step:
    product = _product_24(given)
    if "sat" in given.modifiers:
        return elementwise(given, context, "s32", lambda a, b, c: clamp_s32(_wide(product(a, b)) + _wide(c)))
    return elementwise(given, context, type_of(given), lambda a, b, c: product(a, b) + c)


@instruction("sad", "9.7.1.7")
def sad(given: Instruction, context: Context) -> Step:
    return elementwise(given, context, type_of(given), lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)))


# ── quotients ──


def quotient(a: Any, b: Any) -> Any:
    """``a / b`` towards zero; by zero all bits are one, as the hardware's sequence leaves them."""
    x, y = _magnitude(a), _magnitude(b)
    found = x // y
    if a.dtype.kind == "i":
        found = np.where((a < 0) != (b < 0), np.negative(found), found)
    return np.where(y == 0, np.invert(np.zeros_like(y)), found).astype(a.dtype)


def remainder(a: Any, b: Any) -> Any:
    """``a - b · (a / b)``, of the sign of a; by zero all bits are one, as the hardware's sequence leaves them."""
    x, y = _magnitude(a), _magnitude(b)
    found = x % y
    if a.dtype.kind == "i":
        found = np.where(a < 0, np.negative(found), found)
    return np.where(y == 0, np.invert(np.zeros_like(y)), found).astype(a.dtype)


def _magnitude(values: Any) -> Any:
    values = np.asarray(values)
    return np.abs(values).view(f"u{values.dtype.itemsize}") if values.dtype.kind == "i" else values


def divide(given: Instruction, context: Context) -> Step:
    return elementwise(given, context, type_of(given), quotient)


@instruction("rem", "9.7.1.9")
def rem(given: Instruction, context: Context) -> Step:
    return elementwise(given, context, type_of(given), remainder)


# ── smaller and larger ──


def extremum(given: Instruction, context: Context, choose: Callable[[Any, Any], Any]) -> Step:
    """The step of ``min`` or ``max``."""
    relu = "relu" in given.modifiers

    def function(*values: Any) -> Any:
        found = values[0]
        for value in values[1:]:
            found = choose(found, value)
        return np.maximum(found, found.dtype.type(0)) if relu else found

    if is_packed(given):
        return packed(given, context, function)
    return elementwise(given, context, type_of(given), function)


# ── dot products of bytes ──


def _pieces(values: Any, dtype: str) -> Any:
    return np.ascontiguousarray(values)[..., None].view(dtype).astype(np.int64)


@instruction("dp4a", "9.7.1.23")
def dp4a(given: Instruction, context: Context) -> Step:
    first, second = ("i1" if kind == "s32" else "u1" for kind in given.modifiers)
    return elementwise(
        given, context, "b32", lambda a, b, c: _narrow((_pieces(a, first) * _pieces(b, second)).sum(-1) + _wide(c))
    )


def _narrow(values: Any) -> Any:
    return values.astype(np.uint32)


@instruction("dp2a", "9.7.1.24")
def dp2a(given: Instruction, context: Context) -> Step:
    half, *kinds = given.modifiers
    words, octets = "i2" if kinds[0] == "s32" else "u2", "i1" if kinds[1] == "s32" else "u1"
    chosen = slice(0, 2) if half == "lo" else slice(2, 4)
    return elementwise(
        given,
        context,
        "b32",
        lambda a, b, c: _narrow((_pieces(a, words) * _pieces(b, octets)[..., chosen]).sum(-1) + _wide(c)),
    )


# ── extended precision: a carry flag a lane ──


def _both(context: Context, function: Callable[..., Any], target: Operand, kind: str, sources: Any, keep: bool) -> Step:
    """A step of `function`, which gives a result and a carry; the flag changes where `keep`."""
    write, flag = context.write(target, kind), context.write(CARRY, "pred")
    reads = [context.read(source, type_) for source, type_ in sources]

    def step(frame: Any, index: Any, machine: Any) -> None:
        with np.errstate(all="ignore"):
            result, carry = function(*(read(frame, index, machine) for read in reads))
        write(frame, index, result)
        if keep:
            flag(frame, index, carry)

    return step


def _with_carry(given: Instruction, context: Context, subtract: bool, extend: bool) -> Step:
    kind = f"u{8 * DTYPES[type_of(given)].itemsize}"
    target, a, b = given.operands

    def function(x: Any, y: Any, carried: Any = subtract) -> tuple[Any, Any]:
        one = np.asarray(carried).astype(DTYPES[kind])
        # x − y is x + ~y + 1, and the flag is that sum's carry: set where nothing is borrowed. The ISA says only that
        # it keeps the borrow; the compiler's own division of 128 bits reads it by addc, and counts on the carry.
        first = x + (y := ~y if subtract else y)
        second = first + one
        return second, (first < x) | (second < one)

    sources = [(a, kind), (b, kind), *([(CARRY, "pred")] if extend else [])]
    return _both(context, function, target, kind, sources, "cc" in given.modifiers)


@instruction("addc", "9.7.2.2")
def addc(given: Instruction, context: Context) -> Step:
    return _with_carry(given, context, subtract=False, extend=True)


@instruction("subc", "9.7.2.4")
def subc(given: Instruction, context: Context) -> Step:
    return _with_carry(given, context, subtract=True, extend=True)


def _multiply_add_carry(given: Instruction, context: Context, extend: bool) -> Step:
    kind = type_of(given)
    dtype, unsigned = DTYPES[kind], f"u{8 * DTYPES[kind].itemsize}"
    high = "hi" in given.modifiers
    target, a, b, c = given.operands

    def function(x: Any, y: Any, z: Any, carried: Any = False) -> tuple[Any, Any]:
        product = np.asarray(multiply_high(x, y, dtype) if high else x * y).view(DTYPES[unsigned])
        one = np.asarray(carried).astype(DTYPES[unsigned])
        first = product + z
        second = first + one
        return second, (first < product) | (second < one)

    sources = [(a, kind), (b, kind), (c, unsigned), *([(CARRY, "pred")] if extend else [])]
    return _both(context, function, target, unsigned, sources, "cc" in given.modifiers)


@instruction("madc", "9.7.2.6")
def madc(given: Instruction, context: Context) -> Step:
    return _multiply_add_carry(given, context, extend=True)
