"""Results that lie in a row where their sources do: shapes of sums, products, shifts and masks of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import is_integer
from cudakit.emulator.compiled.emit.table import Transfer, by_sources, varies
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, resized
from cudakit.emulator.isa.words import INTEGERS
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand


def _times(shape: Shape, other: object) -> Shape:
    """The shape of a product with an operand."""
    if isinstance(shape, Affine) and isinstance(other, Immediate) and 0 < abs(_signed(other.value)) < 1 << 20:
        return Affine(shape.stride * _signed(other.value), shape.of)
    return VARYING


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _plus(a: Shape, b: Shape, sign: int = 1) -> Shape:
    """The shape of a sum."""
    if a in (None, UNIFORM) and b in (None, UNIFORM):
        return UNIFORM
    if a in (None, UNIFORM) and isinstance(b, Affine):
        return Affine(sign * b.stride, b.of)
    if b in (None, UNIFORM) and isinstance(a, Affine):
        return a
    if isinstance(a, Affine) and isinstance(b, Affine) and a.stride + sign * b.stride and a.of is None is b.of:
        return Affine(a.stride + sign * b.stride)
    return VARYING


def _sum_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    kind = given.modifiers[-1]
    if not is_integer(kind) or len(given.modifiers) > 1:
        return by_sources(given, shape)
    a, b = (shape(operand, kind) for operand in given.operands[1:3])
    return _plus(a, b, -1 if given.opcode == "sub" else 1)


def _product(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """The shape of the product in ``mul`` and ``mad``, in the bits of the result."""
    kind = given.modifiers[-1]
    a, b = given.operands[1:3]
    x, y = shape(a, kind), shape(b, kind)
    if x in (None, UNIFORM) and y in (None, UNIFORM):
        return UNIFORM
    product = _times(x, b) if isinstance(x, Affine) else _times(y, a)
    if not isinstance(product, Affine) or "wide" not in given.modifiers:
        return product
    bits = bits_of(kind)
    whole = resized(x if isinstance(x, Affine) else y, bits, 2 * bits, kind[0] == "s")
    return _times(whole, b if isinstance(x, Affine) else a)


def _product_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    kind = given.modifiers[-1]
    if not is_integer(kind) or not {"hi", "sat", "cc"}.isdisjoint(given.modifiers) or kind.endswith("16"):
        return by_sources(given, shape)
    product = _product(given, shape)
    if given.opcode == "mul":
        return product
    return _plus(product, shape(given.operands[3], f"{kind[0]}64" if "wide" in given.modifiers else kind))


def add_values(b: Builder, x: Value, y: Value) -> Value:
    """The sum of two integers, affine where it is."""
    shape = _plus(x.shape, y.shape)
    if shape == VARYING:
        return Value(VARYING, b.text.binary("add", b.lanes(x), b.lanes(y)))
    return Value(shape, b.text.binary("add", x.x, y.x), x.narrow or y.narrow)


def _mask_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    _, first, second = given.operands
    if _keeps_steps(shape(first, given.modifiers[-1]), second):
        return UNIFORM
    return by_sources(given, shape)


def _keeps_steps(x: Shape, mask: Operand) -> bool:
    """Whether a mask leaves only bits that lanes have in common, for they are whole steps apart."""
    if not isinstance(x, Affine) or not isinstance(mask, Immediate):
        return False
    low = mask.value & 0xFFFF_FFFF_FFFF_FFFF
    return low < 1 << 31 and low < x.stride & -x.stride


def _shift_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    x, by = shape(given.operands[1], given.modifiers[-1]), given.operands[2]
    if isinstance(x, Affine) and isinstance(by, Immediate) and by.value < 20 and is_integer(given.modifiers[-1]):
        return Affine(x.stride << by.value, x.of)
    return by_sources(given, shape)


def _converted(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    out, kind = given.modifiers[-2:]
    held = shape(given.operands[1], kind)
    if not isinstance(held, Affine) or not {out, kind} <= INTEGERS.keys() or "sat" in given.modifiers:
        return by_sources(given, shape)
    if bits_of(kind) < 32 or bits_of(out) < 32:
        return VARYING
    return resized(held, bits_of(kind), bits_of(out), kind[0] == "s")


#: opcode → the shape of its result, where that is not only of one value or of any.
TRANSFERS: Final[dict[str, Transfer]] = {
    "add": _sum_shape, "sub": _sum_shape, "mul": _product_shape, "mad": _product_shape,
    "and": _mask_shape, "shl": _shift_shape, "cvt": _converted,
    "add.cc": varies, "addc": varies, "sub.cc": varies, "subc": varies, "madc": varies,
}  # fmt: skip
