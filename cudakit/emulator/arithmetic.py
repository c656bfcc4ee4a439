"""Integer, floating-point, logic and comparison instructions: PTX ISA 9.7.1 – 9.7.8."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.emulator.access import type_of
from cudakit.emulator.decode import DTYPES, Context, Frame, Step, instruction
from cudakit.emulator.memory import Index
from cudakit.emulator.ptx import Instruction

if TYPE_CHECKING:
    from cudakit.emulator.machine import Machine


def elementwise(given: Instruction, context: Context, kind: str, function: Callable[..., Any], out: str = "") -> Step:
    """A step that writes ``function(*sources)``, all of type `kind`, to the first operand (of type `out`)."""
    target, *sources = given.operands
    write = context.write(target, out or kind)
    reads = [context.read(source, kind) for source in sources]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            write(frame, index, function(*(read(frame, index, machine) for read in reads)))

    return step


def _simple(opcode: str, section: str, function: Callable[..., Any]) -> None:
    @instruction(opcode, section)
    def make(given: Instruction, context: Context) -> Step:
        return elementwise(given, context, type_of(given), function)


_simple("add", "9.7.1.1", np.add)
_simple("sub", "9.7.1.2", np.subtract)
_simple("and", "9.7.8.1", np.bitwise_and)
_simple("or", "9.7.8.2", np.bitwise_or)
_simple("xor", "9.7.8.3", np.bitwise_xor)
_simple("not", "9.7.8.4", np.invert)
_simple("neg", "9.7.1.12", np.negative)


def _twice(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


def multiply_high(a: Any, b: Any, dtype: np.dtype) -> Any:
    """High half of the product of two integers."""
    if dtype.itemsize < 8:
        wide = _twice(dtype)
        return (np.asarray(a).astype(wide) * np.asarray(b).astype(wide) >> wide.type(8 * dtype.itemsize)).astype(dtype)
    x, y = np.asarray(a).view("u8"), np.asarray(b).view("u8")
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (x >> shift) * (y & low) + ((x & low) * (y & low) >> shift)
    other = (x & low) * (y >> shift) + (middle & low)
    high = (x >> shift) * (y >> shift) + (middle >> shift) + (other >> shift)
    if dtype.kind == "i":
        high = high - np.where(np.asarray(a) < 0, y, np.uint64(0)) - np.where(np.asarray(b) < 0, x, np.uint64(0))
    return high.view(dtype)


@instruction("mul", "9.7.1.3")
def mul(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    if "wide" in given.modifiers:
        wide = _twice(dtype)
        out = f"{kind[0]}{8 * wide.itemsize}"
        return elementwise(
            given, context, kind, lambda a, b: np.asarray(a).astype(wide) * np.asarray(b).astype(wide), out
        )
    if "hi" in given.modifiers:
        return elementwise(given, context, kind, lambda a, b: multiply_high(a, b, dtype))
    return elementwise(given, context, kind, np.multiply)


@instruction("mad", "9.7.1.4")
def mad(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    dtype = DTYPES[kind]
    if "wide" in given.modifiers:
        wide = _twice(dtype)
        target, a, b, c = given.operands
        out = f"{kind[0]}{8 * wide.itemsize}"
        write = context.write(target, out)
        reads = (context.read(a, kind), context.read(b, kind), context.read(c, out))

        def step(frame: Frame, index: Index, machine: Machine) -> None:
            x, y, z = (np.asarray(read(frame, index, machine)) for read in reads)
            with np.errstate(all="ignore"):
                write(frame, index, x.astype(wide) * y.astype(wide) + z)

        return step
    if "hi" in given.modifiers:
        return elementwise(given, context, kind, lambda a, b, c: multiply_high(a, b, dtype) + c)
    return elementwise(given, context, kind, lambda a, b, c: a * b + c)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "equ": lambda a, b: ~((a < b) | (a > b)), "neu": lambda a, b: ~(a == b), "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


@instruction("setp", "9.7.6.2")
def setp(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    compare = _COMPARE[given.modifiers[0]]
    return elementwise(given, context, kind, compare, "pred")


@instruction("selp", "9.7.6.3")
def selp(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    target, a, b, c = given.operands
    write = context.write(target, kind)
    first, second, chosen = context.read(a, kind), context.read(b, kind), context.read(c, "pred")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        picked = np.where(chosen(frame, index, machine), first(frame, index, machine), second(frame, index, machine))
        write(frame, index, picked)

    return step


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
    target, a, b = given.operands
    write, value, amount = context.write(target, kind), context.read(a, kind), context.read(b, "u32")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        x, count = np.asarray(value(frame, index, machine)), np.asarray(amount(frame, index, machine))
        over = count >= bits
        by = np.where(over, bits - 1, count).astype(dtype)
        if left:
            result = np.where(over, dtype.type(0), x << by)
        elif dtype.kind == "i":
            result = x >> by
        else:
            result = np.where(over, dtype.type(0), x >> by)
        write(frame, index, result)

    return step
