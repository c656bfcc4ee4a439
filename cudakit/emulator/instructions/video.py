"""Video instructions, on bytes and halves of 32 bits: PTX ISA 9.7.18 (scalar and SIMD).

Where the sequences that an H200 runs for the scalar ones depart from the ISA's pseudo-code, they are followed; a
comment says so at each place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.instructions.elementwise import compute
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.ptx.program import Group, Instruction, Operand
from cudakit.errors import EmulationError

Function: TypeAlias = Callable[[Any, Any], Any]

_FUNCTIONS: dict[str, Function] = {
    "vadd": np.add, "vsub": np.subtract, "vmin": np.minimum, "vmax": np.maximum, "vabsdiff": lambda a, b: np.abs(a - b),
}  # fmt: skip
_AVERAGE: dict[str, Function] = {"vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1}
_COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_SECOND: dict[str, Function] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_CHOSEN = ("b", "h")
#: Functions whose results may take more than 32 bits.
_SUMS = ("vadd", "vsub", "vabsdiff")


def _selected(operand: Operand, usual: str) -> tuple[Operand, str]:
    """A register and the part of it that an operand names, such as ``b0``."""
    if isinstance(operand, Group) and operand.kind[0] in _CHOSEN:
        return operand.items[0], operand.kind
    return operand, usual


def _negated(operand: Operand) -> tuple[Operand, bool]:
    if isinstance(operand, Group) and operand.kind == "negative":
        return operand.items[0], True
    return operand, False


def _types(given: Instruction) -> list[str]:
    return [modifier for modifier in given.modifiers if modifier in ("u32", "s32")]


def _bounds(signed: bool, bits: int) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _pieces(values: Any, kind: str, size: int) -> np.ndarray:
    """The pieces of `size` bytes in 32-bit values, along a last axis, as int64 of the sign of `kind`."""
    dtype = np.dtype(f"{'i' if kind == 's32' else 'u'}{size}")
    return np.ascontiguousarray(values)[..., None].view(dtype).astype(np.int64)


# ── scalar ──


def _extract(values: Any, kind: str, part: str) -> np.ndarray:
    """A byte, a half or all of 32-bit values, as int64."""
    size = {"b": 1, "h": 2, "w": 4}[part[0]]
    return np.asarray(_pieces(values, kind, size)[..., int(part[1])])


def _scalar(
    given: Instruction, context: Context, types: tuple[str, str, str], function: Callable[[Any, Any], Any]
) -> Step:
    """A step of a function of int64, clamped and then combined with a third source or merged into it."""
    out, first, second = types
    target, part = _selected(given.operands[0], "w0")
    (a, a_part), (b, b_part) = (_selected(operand, "w0") for operand in given.operands[1:3])
    signed, size = out == "s32", {"b": 8, "h": 16, "w": 32}[part[0]]
    low, high = _bounds(signed, size)
    word = np.int32 if signed else np.uint32
    saturates, makes_sums = "sat" in given.modifiers, given.opcode in _SUMS
    if saturates and makes_sums and not signed and size == 32:
        # The hardware keeps a sum from falling below 0, and lets one past 32 bits wrap.
        high = np.iinfo(np.int64).max
    combine = next((_SECOND[modifier] for modifier in given.modifiers if modifier in _SECOND), None)
    # The hardware's second operation sees 32 bits of a sum or difference, and takes one that was to be clamped to
    # unsigned for the greater of any two if its top bit is set.
    wraps = given.opcode in ("vadd", "vsub")
    is_top_above = wraps and saturates and not signed and combine is not np.add
    shift, mask = np.int64(int(part[1]) * size), np.int64((1 << size) - 1)
    # The upper half of the destination takes the result's own upper half, if the result is not clamped to 16 bits.
    down = np.int64(16 if part == "h1" and not saturates else 0)

    def step(x: Any, y: Any, z: Any = 0) -> Any:
        result = np.asarray(function(_extract(x, first, a_part), _extract(y, second, b_part)))
        if saturates:
            result = np.clip(result, low, high)
        third = np.asarray(z).astype(np.uint32).view(word).astype(np.int64)
        if combine is not None:
            if wraps:
                result = result.astype(np.uint32).view(word).astype(np.int64)
            if is_top_above:
                result = result | (result & np.int64(1 << 31)) << 1
            result = combine(result, third)
        if size < 32:
            result = (result >> down & mask) << shift | third & ~(mask << shift)
        return result.astype(np.uint32)

    sources = [(operand, "b32") for operand in (a, b, *given.operands[3:])]
    return compute(context, step, target, "b32", sources)


def _enter_scalar(opcode: str, function: Function) -> None:
    @instruction(opcode, "9.7.18.1.1")
    def make(given: Instruction, context: Context) -> Step:
        out, first, second = _types(given)
        return _scalar(given, context, (out, first, second), function)


for _opcode, _function in _FUNCTIONS.items():
    _enter_scalar(_opcode, _function)


@instruction("vset", "9.7.18.1.4")
def vset(given: Instruction, context: Context) -> Step:
    first, second = _types(given)
    compare = next(_COMPARE[modifier] for modifier in given.modifiers if modifier in _COMPARE)
    return _scalar(given, context, ("u32", first, second), lambda a, b: compare(a, b).astype(np.int64))


@instruction("vshl", "9.7.18.1.2")
def vshl(given: Instruction, context: Context) -> Step:
    # The hardware keeps 34 bits of what is shifted, the last of them its sign, and saturates those.
    return _shift(given, context, lambda a, by: a << by << 30 >> 30)


@instruction("vshr", "9.7.18.1.2")
def vshr(given: Instruction, context: Context) -> Step:
    return _shift(given, context, np.right_shift)


def _shift(given: Instruction, context: Context, function: Function) -> Step:
    wraps = "wrap" in given.modifiers
    out, first, second = _types(given)
    return _scalar(
        given, context, (out, first, second), lambda a, b: function(a, b & 31 if wraps else np.minimum(b, 32))
    )


@instruction("vmad", "9.7.18.1.3")
def vmad(given: Instruction, context: Context) -> Step:
    _, first, second = _types(given)
    target, *operands = given.operands
    (a, a_minus), (b, b_minus), (c, c_minus) = (_negated(operand) for operand in operands)
    (a, a_part), (b, b_part) = _selected(a, "w0"), _selected(b, "w0")
    signed = "s32" in (first, second) or a_minus != b_minus or c_minus
    if a_part == b_part == "w0":
        # The hardware multiplies and adds whole words as signed ones, whatever their types; 64 bits hold the sum.
        first = second = last = "s32"
    else:
        last = "s32" if signed else "u32"
    low, high = _bounds(signed, 32)
    scale = np.int64(7 if "shr7" in given.modifiers else 15 if "shr15" in given.modifiers else 0)

    def step(x: Any, y: Any, z: Any) -> Any:
        product = _extract(x, first, a_part) * _extract(y, second, b_part)
        third = _extract(z, last, "w0")
        total = (-product if a_minus != b_minus else product) + (-third if c_minus else third)
        total = np.asarray(total + int("po" in given.modifiers))
        # An unsigned result is shifted as unsigned, even where the sum is below 0.
        result = (
            total >> scale if signed or not scale else (total.view(np.uint64) >> scale.astype(np.uint64)).view("i8")
        )
        if "sat" in given.modifiers:
            result = np.clip(result, low, high)
        return result.astype(np.uint32)

    return compute(context, step, target, "b32", ((a, "b32"), (b, "b32"), (c, "b32")))


# ── SIMD ──


def _places(part: str) -> list[int]:
    """Numbers of the pieces that a selector such as ``h10`` names, the lowest piece's first."""
    return [int(digit) for digit in reversed(part[1:])]


def _simd(given: Instruction, context: Context, count: int, types: tuple[str, str, str], function: Function) -> Step:
    """A step on 2 halves or 4 bytes, each chosen from both sources; those masked off are the third source's."""
    out, first, second = types
    if len(given.operands) != 4:
        raise EmulationError("SIMD video instructions take three sources")
    size, letter = 4 // count, "h" if count == 2 else "b"
    low, high = _bounds(out == "s32", 8 * size)
    every = "".join(str(place) for place in reversed(range(2 * count)))
    target, mask = _selected(given.operands[0], letter + every[count:])
    (a, a_part), (b, b_part) = (
        _selected(operand, letter + usual)
        for operand, usual in zip(given.operands[1:3], (every[count:], every[:count]), strict=True)
    )
    if not len(a_part) == len(b_part) == count + 1:
        raise EmulationError(f"a selector names {count} pieces")
    kept = np.isin(np.arange(count), _places(mask))

    def step(x: Any, y: Any, z: Any) -> Any:
        x, y = np.broadcast_arrays(x, y)
        chosen = [
            np.concatenate((_pieces(x, kind, size), _pieces(y, kind, size)), axis=-1)[..., _places(part)]
            for kind, part in ((first, a_part), (second, b_part))
        ]
        pieces = np.asarray(function(chosen[0], chosen[1])).astype(np.int64)
        if "add" in given.modifiers:
            return ((pieces * kept).sum(-1) + np.asarray(z).astype(np.int64)).astype(np.uint32)
        if "sat" in given.modifiers:
            pieces = np.clip(pieces, low, high)
        merged = np.where(kept, pieces, _pieces(z, "u32", size))
        return np.ascontiguousarray(merged.astype(f"u{size}")).view(np.uint32)[..., 0]

    return compute(context, step, target, "b32", ((a, "b32"), (b, "b32"), (given.operands[3], "b32")))


def _enter_simd(opcode: str, count: int, function: Function, section: str) -> None:
    @instruction(f"{opcode}{count}", section)
    def make(given: Instruction, context: Context) -> Step:
        out, first, second = _types(given)
        return _simd(given, context, count, (out, first, second), function)


def _enter_simd_set(count: int, section: str) -> None:
    @instruction(f"vset{count}", section)
    def make(given: Instruction, context: Context) -> Step:
        first, second = _types(given)
        compare = next(_COMPARE[modifier] for modifier in given.modifiers if modifier in _COMPARE)
        return _simd(given, context, count, ("u32", first, second), compare)


for _count, _arithmetic, _set in ((2, "9.7.18.2.1", "9.7.18.2.2"), (4, "9.7.18.2.3", "9.7.18.2.4")):
    _enter_simd_set(_count, _set)
    for _opcode, _function in {**_FUNCTIONS, **_AVERAGE}.items():
        _enter_simd(_opcode, _count, _function, _arithmetic)
