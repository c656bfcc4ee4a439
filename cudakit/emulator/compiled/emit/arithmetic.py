"""Integers and floats: sums, products, quotients, extrema, bits."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, bits_of
from cudakit.emulator.compiled.emit import halves
from cudakit.emulator.compiled.emit.common import (
    flushed,
    flushed_rounded,
    intrinsic,
    is_integer,
    named,
    nan_kept,
    only,
    quieted,
    saturated,
    type_of,
)
from cudakit.emulator.compiled.emit.halves import HALVES
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.ptx.program import Immediate, Instruction

# ── shapes of sums and products ──


def _times(shape: Shape, other: object) -> Shape:
    """The shape of a product with an operand."""
    if isinstance(shape, Affine) and isinstance(other, Immediate) and 0 < abs(_signed(other.value)) < 1 << 20:
        return Affine(shape.stride * _signed(other.value), shape.widened)
    return VARYING


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _plus(a: Shape, b: Shape, sign: int = 1) -> Shape:
    """The shape of a sum."""
    if a in (None, UNIFORM) and b in (None, UNIFORM):
        return UNIFORM
    if a in (None, UNIFORM) and isinstance(b, Affine):
        return Affine(sign * b.stride, b.widened)
    if b in (None, UNIFORM) and isinstance(a, Affine):
        return a
    if isinstance(a, Affine) and isinstance(b, Affine) and a.stride + sign * b.stride:
        return Affine(a.stride + sign * b.stride, a.widened or b.widened)
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
    if isinstance(found, Affine) and "wide" in given.modifiers:
        return Affine(found.stride, True)
    return found


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
    base = b.text.binary(opcode, x.x, y.x)
    if not shape.widened:
        return Value(shape, base)
    valid = b.both(x.valid, y.valid)
    return Value(shape, base, valid, b.text.binary(opcode, b.lanes(x), b.lanes(y)))


def _multiplied(b: Builder, x: Value, y: Value, factor: object) -> Value:
    """The product of two integers, affine where one is and the other is the constant `factor`."""
    shape = _times(x.shape, factor)
    if isinstance(shape, Affine):
        lanes = b.text.binary("mul", b.lanes(x), b.spread(y.x)) if shape.widened else None
        return Value(shape, b.text.binary("mul", x.x, y.x), x.valid, lanes)
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
            return _multiplied(b, b.widened(x, element, signed), b.widened(y, element, signed), second), out
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
        _float(given, b, lambda x, y: b.text.binary("f" + given.opcode, x, y), (1, 0))
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
        _float(given, b, lambda x, y: b.text.binary("fmul", x, y), (1, 0))
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


def _directed(b: Builder, opcode: str, mode: str, result: X, sources: tuple[X, ...]) -> X:
    """A result of float32 that was rounded to nearest, moved by one place where `mode` asks for its other neighbour."""
    text = b.text
    wide = [text.cast("fpext", source, "double") for source in sources]
    zero = constant(wide[0].type, 0)
    if opcode in ("add", "sub"):
        first, second = wide
        second = text.make(f"fneg {second}", second.type) if opcode == "sub" else second
    else:  # the product is exact
        first, second = text.binary("fmul", wide[0], wide[1]), wide[2] if len(wide) > 2 else zero
    # What the sum loses (Knuth): the exact result is both together.
    whole = text.binary("fadd", first, second)
    part = text.binary("fsub", whole, first)
    lost = text.binary("fsub", second, part)
    lost = text.binary("fadd", text.binary("fsub", first, text.binary("fsub", whole, part)), lost)
    off = text.binary("fadd", text.binary("fsub", whole, text.cast("fpext", result, "double")), lost)
    below, above = text.compare("olt", off, zero), text.compare("ogt", off, zero)
    bits = b.untyped(result)
    one, none = constant(bits.type, 1), constant(bits.type, 0)
    negative = text.compare("slt", bits, none)
    positive = text.binary("xor", negative, constant(negative.type, 1))
    # Away from zero is one more, towards it one less.
    out = {"rm": text.binary("and", below, negative), "rp": text.binary("and", above, positive)}.get(mode)
    down = {
        "rm": text.binary("and", below, positive),
        "rp": text.binary("and", above, negative),
        "rz": text.binary("or", text.binary("and", below, positive), text.binary("and", above, negative)),
    }[mode]
    moved = text.binary("sub", bits, text.select(down, one, none))
    if out is not None:
        moved = text.binary("add", moved, text.select(out, one, none))
    if mode == "rm" and opcode != "mul":
        # A sum of nothing is -0, unless both are +0.
        signs = text.binary("or", *(text.cast("bitcast", each, "i64") for each in (first, second)))
        minus = text.compare("slt", signs, constant(signs.type, 0))
        is_zero = text.binary("and", text.compare("oeq", whole, zero), text.compare("oeq", lost, zero))
        minus = text.binary("and", minus, is_zero)
        moved = text.select(minus, constant(bits.type, 0x8000_0000), moved)
    return text.cast("bitcast", moved, "float")


def _float(given: Instruction, b: Builder, function: Callable[..., X], order: tuple[int, ...]) -> None:
    """Write ``function(*sources)`` of floats, with ``.ftz``, ``.sat`` and the right NaN around it."""
    kind = type_of(given)
    mode = next((modifier for modifier in given.modifiers if modifier in ("rz", "rm", "rp")), "rn")
    only(given, "rn", "ftz", "sat", "full", "NaN", mode)
    if mode != "rn" and (kind == "f64" or given.opcode not in ("add", "sub", "mul", "fma") or "ftz" in given.modifiers):
        raise Refusal(f"instruction {given}")
    ftz, sat = "ftz" in given.modifiers, "sat" in given.modifiers
    target, *operands = given.operands

    def compute(*sources: X) -> X:
        if ftz:
            sources = tuple(flushed(b, source) for source in sources)
        result = function(*sources)
        if mode != "rn":
            result = _directed(b, given.opcode, mode, result, sources)
        if kind == "f64":
            result = nan_kept(b, result, sources, order)
        if ftz:
            result = _flushed_result(b, given.opcode, result, sources)
        return saturated(b, result) if sat else result

    b.apply(target, kind, [(operand, kind) for operand in operands], compute, raw=True)


def _flushed_result(b: Builder, opcode: str, result: X, sources: tuple[X, ...]) -> X:
    """A rounded result, zero where it would be below the least normal number had exponents no end."""
    text = b.text
    if opcode not in ("mul", "fma", "mad", "div"):
        return flushed(b, result)
    wide = [text.cast("fpext", source, "double") for source in sources]
    if opcode == "div":
        exact = text.binary("fdiv", *wide)
    else:
        exact = text.binary("fmul", wide[0], wide[1])
        exact = text.binary("fadd", exact, wide[2]) if len(wide) > 2 else exact
    return flushed_rounded(b, result, exact)


@emits("fma", makes_nan=True)
def fma(given: Instruction, b: Builder) -> None:
    if type_of(given) in HALVES:
        halves.arithmetic(given, b)
        return
    _float(given, b, lambda x, y, z: intrinsic(b, "fma", x, y, z), (1, 2, 0))


@emits("div", makes_nan=True)
def div(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, first, second = given.operands
    if kind in FLOATS:
        if "approx" in given.modifiers:
            _divide_approximately(given, b)
        else:
            _float(given, b, lambda x, y: b.text.binary("fdiv", x, y), (0, 1))
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
        return _flushed_result(b, "div", result, (x, y)) if ftz else result

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


@emits("rcp", makes_nan=True)
def rcp(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    if kind != "f32" and (kind != "f64" or "approx" in given.modifiers):
        raise Refusal(f"instruction {given}")
    only(given, "approx", "rn", "ftz")
    ftz = "ftz" in given.modifiers
    one = 0x3F80_0000 if kind == "f32" else 0x3FF0_0000_0000_0000

    def compute(x: X) -> X:
        x = flushed(b, x) if ftz else x
        found = b.text.binary("fdiv", constant(x.type, one), x)
        if ftz:
            found = _flushed_result(b, "div", found, (constant(x.type, one), x))
        return nan_kept(b, found, (x,), (0,)) if kind == "f64" else found

    b.apply(given.operands[0], kind, ((given.operands[1], kind),), compute, raw=True)


@emits("sqrt", makes_nan=True)
def sqrt(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    only(given, "rn", "approx", "ftz")
    ftz = "ftz" in given.modifiers

    def compute(x: X) -> X:
        found = intrinsic(b, "sqrt", flushed(b, x) if ftz else x)
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
            return text.make(f"fneg {x}", x.type) if given.opcode == "neg" else intrinsic(b, "fabs", x)

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


# ── bits ──


@emits("and", "or", "xor")
def logic(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, first, second = given.operands
    b.apply(target, kind, ((first, kind), (second, kind)), lambda x, y: b.text.binary(given.opcode, x, y))


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
        return Affine(x.stride << by.value, x.widened)
    return by_sources(given, shape)


@emits("shl", transfer=_shift_shape)
def shl(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source, by = given.operands
    value = b.read(source, kind)
    if isinstance(value.shape, Affine) and isinstance(by, Immediate) and by.value < 20:
        amount = constant(value.x.type, by.value)
        shape = Affine(value.shape.stride << by.value, value.shape.widened)
        lanes = b.text.binary("shl", b.lanes(value), b.spread(amount)) if shape.widened else None
        b.write(target, kind, Value(shape, b.text.binary("shl", value.x, amount), value.valid, lanes))
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


@emits("bfe")
def bfe(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    bits, signed, text = bits_of(kind), kind[0] == "s", b.text
    target, source, start, count = given.operands

    def compute(x: X, at: X, length: X) -> X:
        at, length = (text.binary("and", each, constant(each.type, 255)) for each in (at, length))
        if bits == 64:
            at, length = (text.cast("zext", each, "i64") for each in (at, length))
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
        at, length = (text.binary("and", each, constant(each.type, 255)) for each in (at, length))
        if bits == 64:
            at, length = (text.cast("zext", each, "i64") for each in (at, length))
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


@emits("prmt")
def prmt(given: Instruction, b: Builder) -> None:
    if given.modifiers != ("b32",):
        raise Refusal(f"instruction {given}")
    target, first, second, chosen = given.operands
    text = b.text

    def compute(x: X, y: X, control: X) -> X:
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
            if not isinstance(chosen, Immediate) or chosen.value >> 4 * byte & 8:
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
