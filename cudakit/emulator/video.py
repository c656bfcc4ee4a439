"""Video instructions, on bytes and halves of 32 bits: PTX ISA 9.7.18 (scalar and SIMD)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.context import Context
from cudakit.emulator.decode import Step, instruction
from cudakit.emulator.elementwise import compute
from cudakit.emulator.program import Group, Instruction, Operand
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
    combine = next((_SECOND[modifier] for modifier in given.modifiers if modifier in _SECOND), None)
    shift, mask = np.int64(int(part[1]) * size), np.int64((1 << size) - 1)

    def step(x: Any, y: Any, z: Any = 0) -> Any:
        result = np.asarray(function(_extract(x, first, a_part), _extract(y, second, b_part)))
        if "sat" in given.modifiers:
            result = np.clip(result, low, high)
        third = np.asarray(z).astype(np.uint32).view(np.int32 if signed else np.uint32).astype(np.int64)
        if combine is not None:
            result = combine(result, third)
        if size < 32:
            result = (result & mask) << shift | third & ~(mask << shift)
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
    # A shift by 32 leaves nothing in 32 bits, and is past all bounds; as it is, it would be past int64's, too.
    return _shift(given, context, lambda a, by: np.where(by > 31, np.sign(a) << 62, a << np.minimum(by, 31)))


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
    low, high = _bounds(signed, 32)
    scale = 7 if "shr7" in given.modifiers else 15 if "shr15" in given.modifiers else 0

    def step(x: Any, y: Any, z: Any) -> Any:
        # The sum takes up to 66 bits, which only Python's integers have.
        product = _extract(x, first, a_part).astype(object) * _extract(y, second, b_part).astype(object)
        third = _pieces(z, "s32" if signed else "u32", 4)[..., 0].astype(object)
        total = (-product if a_minus != b_minus else product) + (-third if c_minus else third)
        total = total + int("po" in given.modifiers)
        result = np.asarray(total, object) >> scale
        if "sat" in given.modifiers:
            result = np.clip(result, low, high)
        return (result & 0xFFFFFFFF).astype(np.uint32)

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
