"""Half precision, one value or two in a register: computed in float32, and rounded once."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit.common import intrinsic, only, saturated
from cudakit.emulator.compiled.text import X, constant, like
from cudakit.emulator.ptx.program import Instruction

HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_INFINITY = {"f": 0x7C00, "b": 0x7F80}


def widened(b: Builder, bits: X, kind: str) -> X:
    """Bits of halves as float32."""
    text = b.text
    if kind[0] == "b":
        wide = text.binary("shl", text.cast("zext", bits, "i32"), constant(like(bits, "i32"), 16))
        return text.cast("bitcast", wide, "float")
    return text.cast("fpext", text.cast("bitcast", bits, "half"), "float")


def narrowed(b: Builder, x: X, kind: str) -> X:
    """float32 to bits of halves, to nearest, NaN canonical."""
    text = b.text
    nan = text.compare("uno", x, x)
    if kind[0] == "b":
        bits = text.cast("bitcast", x, "i32")
        tie = text.binary("and", text.binary("lshr", bits, constant(bits.type, 16)), constant(bits.type, 1))
        up = text.binary("add", text.binary("add", bits, constant(bits.type, 0x7FFF)), tie)
        found = text.cast("trunc", text.binary("lshr", up, constant(bits.type, 16)), "i16")
    else:
        found = text.cast("bitcast", text.cast("fptrunc", x, "half"), "i16")
    return text.select(nan, constant(found.type, 0x7FFF), found)


def odd_float(b: Builder, x: X) -> X:
    """float64 to float32, rounded to odd where it is normal there, so that to round it once more is to round once."""
    text = b.text
    bits = text.cast("bitcast", x, "i64")
    low = (1 << 29) - 1
    rest = text.compare("ne", text.binary("and", bits, constant(bits.type, low)), constant(bits.type, 0))
    cut = text.binary("and", bits, constant(bits.type, ~low))
    odd = text.select(rest, text.binary("or", cut, constant(bits.type, low + 1)), cut)
    odd = text.select(text.compare("uno", x, x), bits, odd)
    return text.cast("fptrunc", text.cast("bitcast", odd, "double"), "float")


def _odd_sum(b: Builder, x: X, y: X) -> X:
    """A sum in float64, rounded to odd."""
    text = b.text
    whole = text.binary("fadd", x, y)
    part = text.binary("fsub", whole, x)
    lost = text.binary("fsub", y, part)
    lost = text.binary("fadd", text.binary("fsub", x, text.binary("fsub", whole, part)), lost)
    zero = constant(whole.type, 0)
    bits = text.cast("bitcast", whole, "i64")
    even = text.compare("eq", text.binary("and", bits, constant(bits.type, 1)), constant(bits.type, 0))
    inexact = text.binary("and", text.compare("one", lost, zero), even)
    away = text.binary("xor", text.compare("olt", lost, zero), text.compare("ogt", whole, zero))
    step = text.select(away, constant(bits.type, 1), constant(bits.type, -1))
    moved = text.select(inexact, text.binary("add", bits, step), bits)
    return text.cast("bitcast", moved, "double")


def _few(b: Builder, x: X) -> X:
    """What is subnormal as bfloat16 rounded to its last place, as others are when they become one."""
    text = b.text
    # Next to 1.5 · 2^-81 float64 has steps of 2^-133.
    base = constant(x.type, (1023 - 81) << 52 | 1 << 51)
    rounded = text.binary("fsub", text.binary("fadd", x, base), base)
    small = text.compare("olt", intrinsic(b, "fabs", x), constant(x.type, (1023 - 126) << 52))
    return text.select(small, intrinsic(b, "copysign", rounded, x), x)


def by_halves(given: Instruction, b: Builder, function: Callable[..., X]) -> None:
    """Write a function of the bits of one half, for both where there are two."""
    kind = given.modifiers[-1]
    target, *operands = given.operands
    text = b.text
    if not kind.endswith("x2"):
        b.apply(target, "b16", [(operand, "b16") for operand in operands], function)
        return

    def both(*sources: X) -> X:
        found = []
        for shift in (0, 16):
            parts = [
                text.cast("trunc", text.binary("lshr", source, constant(source.type, shift)), "i16")
                for source in sources
            ]
            found.append(text.cast("zext", function(*parts), "i32"))
        high = text.binary("shl", found[1], constant(found[1].type, 16))
        return text.binary("or", found[0], high)

    b.apply(target, "b32", [(operand, "b32") for operand in operands], both)


def arithmetic(given: Instruction, b: Builder) -> None:
    """``add``, ``sub``, ``mul`` and ``fma`` of halves."""
    kind, text = given.modifiers[-1], b.text
    only(given, "rn", "sat", "relu", "f16x2", "bf16x2", "f16", "bf16")

    def compute(*sources: X) -> X:
        values = [widened(b, source, kind) for source in sources]
        if given.opcode == "fma":
            wide = [text.cast("fpext", value, "double") for value in values]
            product = text.binary("fmul", wide[0], wide[1])
            if kind[0] == "b":
                found = odd_float(b, _few(b, _odd_sum(b, product, wide[2])))
            else:  # where it is not exact, the sum is out of reach of a rounding
                found = odd_float(b, text.binary("fadd", product, wide[2]))
        else:
            found = text.binary(f"f{given.opcode}", *values)
        if "sat" in given.modifiers:
            found = saturated(b, found)
        if "relu" in given.modifiers:
            below = text.compare("ole", found, constant(found.type, 0))
            found = text.select(below, constant(found.type, 0), found)
        return narrowed(b, found, kind)

    by_halves(given, b, compute)


def signed(given: Instruction, b: Builder) -> None:
    """``neg`` and ``abs`` of halves."""
    kind, text = given.modifiers[-1], b.text
    only(given, "f16x2", "bf16x2", "f16", "bf16")

    def compute(x: X) -> X:
        mask = 0x8000 if given.opcode == "neg" else 0x7FFF
        found = text.binary("xor" if given.opcode == "neg" else "and", x, constant(x.type, mask))
        size = text.binary("and", found, constant(x.type, 0x7FFF))
        nan = text.compare("ugt", size, constant(x.type, _INFINITY[kind[0]]))
        return text.select(nan, constant(x.type, 0x7FFF), found)

    by_halves(given, b, compute)


def extremum(given: Instruction, b: Builder) -> None:
    """``min`` and ``max`` of halves: -0 is below +0; NaN gives the other operand, or with ``.NaN`` itself."""
    kind, text = given.modifiers[-1], b.text
    only(given, "NaN", "f16x2", "bf16x2", "f16", "bf16")
    infinity = _INFINITY[kind[0]]

    def key(x: X) -> X:
        negative = text.compare("slt", x, constant(x.type, 0))
        return text.select(negative, text.binary("xor", x, constant(x.type, 0x7FFF)), x)

    def is_nan(x: X) -> X:
        size = text.binary("and", x, constant(x.type, 0x7FFF))
        return text.compare("ugt", size, constant(x.type, infinity))

    def pick(x: X, y: X) -> X:
        found = key(intrinsic(b, "smin" if given.opcode == "min" else "smax", key(x), key(y)))
        a, c = is_nan(x), is_nan(y)
        found = text.select(a, y, text.select(c, x, found))
        none = text.binary("or" if "NaN" in given.modifiers else "and", a, c)
        return text.select(none, constant(x.type, 0x7FFF), found)

    def fold(x: X, *others: X) -> X:
        for other in others:
            x = pick(x, other)
        return x

    by_halves(given, b, fold)
