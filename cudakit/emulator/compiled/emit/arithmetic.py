"""Integers and floats: sums, products, quotients, extrema, bits."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, bits_of
from cudakit.emulator.compiled.emit import halves
from cudakit.emulator.compiled.emit.common import (
    ONE,
    flushed,
    intrinsic,
    is_integer,
    named,
    nan_kept,
    only,
    quieted,
    type_of,
    upper_double,
)
from cudakit.emulator.compiled.emit.halves import HALVES
from cudakit.emulator.compiled.emit.rounding import directed_result, flushed_result, mode_of, write_float
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, resized
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Immediate, Instruction

# ── shapes of sums and products ──


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
    kind = type_of(given)
    if not is_integer(kind) or len(given.modifiers) > 1:
        return by_sources(given, shape)
    a, b = (shape(operand, kind) for operand in given.operands[1:3])
    return _plus(a, b, -1 if given.opcode == "sub" else 1)


def _product(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """The shape of the product in ``mul`` and ``mad``, in the bits of the result."""
    kind = type_of(given)
    a, b = given.operands[1:3]
    x, y = shape(a, kind), shape(b, kind)
    if x in (None, UNIFORM) and y in (None, UNIFORM):
        return UNIFORM
    found = _times(x, b) if isinstance(x, Affine) else _times(y, a)
    if not isinstance(found, Affine) or "wide" not in given.modifiers:
        return found
    bits = bits_of(kind)
    whole = resized(x if isinstance(x, Affine) else y, bits, 2 * bits, kind[0] == "s")
    return _times(whole, b if isinstance(x, Affine) else a)


def _product_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    kind = type_of(given)
    if not is_integer(kind) or not {"hi", "sat", "cc"}.isdisjoint(given.modifiers) or kind.endswith("16"):
        return by_sources(given, shape)
    product = _product(given, shape)
    if given.opcode == "mul":
        return product
    return _plus(product, shape(given.operands[3], f"{kind[0]}64" if "wide" in given.modifiers else kind))


# ── sums and products of integers ──


def add_values(b: Builder, x: Value, y: Value, opcode: str = "add") -> Value:
    """The sum or difference of two integers, affine where they are."""
    shape = _plus(x.shape, y.shape, -1 if opcode == "sub" else 1)
    if not isinstance(shape, Affine):
        if shape == UNIFORM:
            return Value(UNIFORM, b.text.binary(opcode, x.x, y.x))
        return Value(VARYING, b.text.binary(opcode, b.lanes(x), b.lanes(y)))
    return Value(shape, b.text.binary(opcode, x.x, y.x), x.narrow or y.narrow)


def _multiplied(b: Builder, x: Value, y: Value, factor: object) -> Value:
    """The product of two integers, affine where one is and the other is the constant `factor`."""
    shape = _times(x.shape, factor)
    if isinstance(shape, Affine):
        return Value(shape, b.text.binary("mul", x.x, y.x), x.narrow)
    if x.shape == UNIFORM and y.shape == UNIFORM:
        return Value(UNIFORM, b.text.binary("mul", x.x, y.x))
    return Value(VARYING, b.text.binary("mul", b.lanes(x), b.lanes(y)))


def _multiply(given: Instruction, b: Builder, kind: str) -> tuple[Value, str]:
    """The product in ``mul`` and ``mad``, and its type."""
    first, second = given.operands[1:3]
    x, y = b.read(first, kind), b.read(second, kind)
    if isinstance(y.shape, Affine):
        x, y, second = y, x, first
    if "wide" in given.modifiers:
        out = f"{kind[0]}{2 * bits_of(kind)}"
        element, signed = f"i{bits_of(out)}", kind[0] == "s"
        if isinstance(x.shape, Affine) and isinstance(second, Immediate):
            bits = bits_of(out)
            return _multiplied(b, b.resized(x, bits, signed), b.resized(y, bits, signed), second), out
        if y.shape == UNIFORM and x.shape == UNIFORM:
            return Value(UNIFORM, _wide_product(b, x.x, y.x, element, signed)), out
        return Value(VARYING, _wide_product(b, b.lanes(x), b.lanes(y), element, signed)), out
    if "hi" in given.modifiers:
        bits, signed = bits_of(kind), kind[0] == "s"

        def high(p: X, q: X) -> X:
            whole = _wide_product(b, p, q, f"i{2 * bits}", signed)
            return b.text.cast("trunc", b.text.binary("lshr", whole, constant(whole.type, bits)), f"i{bits}")

        if y.shape == UNIFORM and x.shape == UNIFORM:
            return Value(UNIFORM, high(x.x, y.x)), kind
        return Value(VARYING, high(b.lanes(x), b.lanes(y))), kind
    return _multiplied(b, x, y, second), kind


def _wide_product(b: Builder, x: X, y: X, element: str, signed: bool) -> X:
    extend = "sext" if signed else "zext"
    return b.text.binary("mul", b.text.cast(extend, x, element), b.text.cast(extend, y, element))


@emits("add", "sub", transfer=_sum_shape, makes_nan=True)
def add(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind in HALVES:
        halves.arithmetic(given, b)
        return
    if kind in FLOATS:
        write_float(given, b, lambda x, y: b.text.binary("f" + given.opcode, x, y), (1, 0))
        return
    if not is_integer(kind):
        raise Refusal(f"instruction {given}")
    target, first, second = given.operands
    if given.modifiers == ("sat", "s32"):
        name = f"llvm.s{given.opcode}.sat"
        b.apply(target, kind, ((first, kind), (second, kind)), lambda x, y: b.text.call(named(name, x), x.type, x, y))
        return
    only(given)
    b.write(target, kind, add_values(b, b.read(first, kind), b.read(second, kind), given.opcode))


@emits("mul", transfer=_product_shape, makes_nan=True)
def mul(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind in HALVES:
        halves.arithmetic(given, b)
        return
    if kind in FLOATS:
        write_float(given, b, lambda x, y: b.text.binary("fmul", x, y), (1, 0))
        return
    if not is_integer(kind):
        raise Refusal(f"instruction {given}")
    only(given, "lo", "hi", "wide")
    value, out = _multiply(given, b, kind)
    b.write(given.operands[0], out, value)


@emits("mad", transfer=_product_shape, makes_nan=True)
def mad(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind in FLOATS:
        fma(given, b)
        return
    if not is_integer(kind):
        raise Refusal(f"instruction {given}")
    only(given, "lo", "hi", "wide")
    value, out = _multiply(given, b, kind)
    b.write(given.operands[0], out, add_values(b, value, b.read(given.operands[3], out)))


# ── floats ──


@emits("fma", makes_nan=True)
def fma(given: Instruction, b: Builder) -> None:
    if type_of(given) in HALVES:
        halves.arithmetic(given, b)
        return
    write_float(given, b, lambda x, y, z: intrinsic(b, "fma", x, y, z), (1, 2, 0))


@emits("div", makes_nan=True)
def div(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, first, second = given.operands
    if kind in FLOATS:
        if "approx" in given.modifiers:
            _divide_approximately(given, b)
        else:
            write_float(given, b, lambda x, y: b.text.binary("fdiv", x, y), (0, 1))
        return
    only(given)
    b.apply(target, kind, ((first, kind), (second, kind)), lambda x, y: _quotient(b, x, y, kind, "div"))


def _divide_approximately(given: Instruction, b: Builder) -> None:
    """The quotient, but zero for divisors above 2¹²⁶, whose reciprocal is subnormal."""
    only(given, "approx", "ftz")
    text, ftz = b.text, "ftz" in given.modifiers

    def compute(x: X, y: X) -> X:
        if ftz:
            x, y = flushed(b, x), flushed(b, y)
        size = intrinsic(b, "fabs", y)
        huge = text.binary(
            "and",
            text.compare("ogt", size, constant(y.type, (127 + 126) << 23)),
            text.compare("olt", size, constant(y.type, 0x7F80_0000)),
        )
        none = text.binary("fmul", x, intrinsic(b, "copysign", constant(y.type, 0), y))
        result = text.select(huge, none, text.binary("fdiv", x, y))
        return flushed_result(b, "div", result, (x, y)) if ftz else result

    target, first, second = given.operands
    b.apply(target, "f32", ((first, "f32"), (second, "f32")), compute, raw=True)


@emits("rem")
def rem(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    only(given)
    target, first, second = given.operands
    b.apply(target, kind, ((first, kind), (second, kind)), lambda x, y: _quotient(b, x, y, kind, "rem"))


def _quotient(b: Builder, x: X, y: X, kind: str, which: str) -> X:
    """Towards zero; by zero all bits are one."""
    text = b.text
    none = text.compare("eq", y, constant(y.type, 0))
    safe = text.select(none, constant(y.type, 1), y)
    if kind[0] == "s":
        # The lowest number by -1 wraps around, which the processor does not.
        turned = text.compare("eq", safe, constant(y.type, -1))
        by = text.select(turned, constant(y.type, 1), safe)
        found = text.binary(f"s{which}", x, by)
        if which == "div":
            found = text.select(turned, text.binary("sub", constant(x.type, 0), x), found)
    else:
        found = text.binary(f"u{which}", x, safe)
    return text.select(none, constant(x.type, -1), found)


def _mode(given: Instruction, kind: str) -> str:
    """The direction of rounding of a root or a reciprocal."""
    mode = mode_of(given)
    if mode != "rn" and (kind == "f64" or "ftz" in given.modifiers):
        raise Refusal(f"instruction {given}")
    return mode


@emits("rcp", makes_nan=True)
def rcp(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind not in ("f32", "f64"):
        raise Refusal(f"instruction {given}")
    if kind == "f64" and "approx" in given.modifiers:
        only(given, "approx", "ftz")
        upper_double(given, b, lambda x: b.text.binary("fdiv", constant(x.type, ONE), x))
        return
    ftz, mode = "ftz" in given.modifiers, _mode(given, kind)
    only(given, "approx", "rn", "ftz", mode)
    one = 0x3F80_0000 if kind == "f32" else ONE

    def compute(x: X) -> X:
        x = flushed(b, x) if ftz else x
        found = b.text.binary("fdiv", constant(x.type, one), x)
        if mode != "rn":
            found = directed_result(b, "div", mode, found, (constant(x.type, one), x))
        if ftz:
            found = flushed_result(b, "div", found, (constant(x.type, one), x))
        return nan_kept(b, found, (x,), (0,)) if kind == "f64" else found

    b.apply(given.operands[0], kind, ((given.operands[1], kind),), compute, raw=True)


@emits("sqrt", makes_nan=True)
def sqrt(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    ftz, mode = "ftz" in given.modifiers, _mode(given, kind)
    only(given, "rn", "approx", "ftz", mode)

    def compute(x: X) -> X:
        found = intrinsic(b, "sqrt", flushed(b, x) if ftz else x)
        if mode != "rn":
            found = directed_result(b, "sqrt", mode, found, (x,))
        return nan_kept(b, found, (x,), (0,)) if kind == "f64" else found

    b.apply(given.operands[0], kind, ((given.operands[1], kind),), compute, raw=True)


@emits("neg", "abs", makes_nan=True)
def signed(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind in HALVES:
        halves.signed(given, b)
        return
    target, source = given.operands
    text = b.text
    if kind in FLOATS:
        only(given, "ftz")

        def compute(x: X) -> X:
            x = flushed(b, x) if "ftz" in given.modifiers else x
            found = text.make(f"fneg {x}", x.type) if given.opcode == "neg" else intrinsic(b, "fabs", x)
            return nan_kept(b, found, (x,), (0,)) if kind == "f64" else found

        b.apply(target, kind, ((source, kind),), compute, raw=True)
        return
    only(given)

    def whole(x: X) -> X:
        turned = text.binary("sub", constant(x.type, 0), x)
        if given.opcode == "neg":
            return turned
        return text.select(text.compare("slt", x, constant(x.type, 0)), turned, x)

    b.apply(target, kind, ((source, kind),), whole)


@emits("copysign")
def copysign(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    # The sign is the first source's.
    b.apply(
        given.operands[0],
        kind,
        [(operand, kind) for operand in given.operands[1:]],
        lambda x, y: intrinsic(b, "copysign", y, x),
    )


@emits("min", "max")
def extremum(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind in HALVES:
        halves.extremum(given, b)
        return
    target, *operands = given.operands
    least, text = given.opcode == "min", b.text
    if kind in FLOATS:
        only(given, "ftz", "NaN")

        def choose(x: X, y: X) -> X:
            # -0 is below +0; NaN gives the other operand, or with .NaN itself.
            name = ("minimum" if least else "maximum") + ("" if "NaN" in given.modifiers else "num")
            found = intrinsic(b, name, x, y)
            if name.endswith("num"):
                xb, yb = b.untyped(x), b.untyped(y)
                zero = b.text.binary("or" if least else "and", xb, yb)
                same = text.compare("oeq", x, y)
                found = text.select(same, text.cast("bitcast", zero, FLOATS[kind]), found)
            if kind == "f32":
                bits = text.compare("uno", found, found)
                return text.select(bits, constant(found.type, 0x7FFF_FFFF), found)
            if "NaN" in given.modifiers:
                raise Refusal(f"instruction {given}")
            none = text.binary("and", text.compare("uno", x, x), text.compare("uno", y, y))
            return text.select(none, quieted(b, y), found)

        def compute(x: X, *others: X) -> X:
            x = flushed(b, x) if "ftz" in given.modifiers else x
            for other in others:
                x = choose(x, flushed(b, other) if "ftz" in given.modifiers else other)
            return x

        b.apply(target, kind, [(operand, kind) for operand in operands], compute)
        return
    if not is_integer(kind):
        raise Refusal(f"instruction {given}")
    only(given, "relu")
    name = f"{'s' if kind[0] == 's' else 'u'}{given.opcode}"

    def whole(x: X, *others: X) -> X:
        for other in others:
            x = intrinsic(b, name, x, other)
        return intrinsic(b, "smax", x, constant(x.type, 0)) if "relu" in given.modifiers else x

    b.apply(target, kind, [(operand, kind) for operand in operands], whole)
