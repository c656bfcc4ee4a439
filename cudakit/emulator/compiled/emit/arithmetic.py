"""Integers and floats: sums, products, quotients, extrema, bits."""

from __future__ import annotations

from cudakit.emulator.compiled.builder import FLOATS, Builder
from cudakit.emulator.compiled.emit import halves, meanings
from cudakit.emulator.compiled.emit.affine import TRANSFERS
from cudakit.emulator.compiled.emit.common import (
    ONE,
    flushed,
    intrinsic,
    nan_kept,
    only,
    quieted,
    type_of,
    upper_double,
)
from cudakit.emulator.compiled.emit.halves import HALVES
from cudakit.emulator.compiled.emit.rounding import directed_result, flushed_result, mode_of, write_float
from cudakit.emulator.compiled.emit.table import emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Instruction


@emits("add", "sub", transfer=TRANSFERS["add"], makes_nan=True)
@emits("mul", transfer=TRANSFERS["mul"], makes_nan=True)
def arithmetic(given: Instruction, b: Builder) -> None:
    kind = given.modifiers[-1]
    if kind in HALVES:
        halves.arithmetic(given, b)
    elif kind in FLOATS:
        write_float(given, b, lambda x, y: b.text.binary("f" + given.opcode, x, y), (1, 0))
    else:
        meanings.emit(given, b)


@emits("mad", transfer=TRANSFERS["mad"], makes_nan=True)
def mad(given: Instruction, b: Builder) -> None:
    if type_of(given) in FLOATS:
        fma(given, b)
    else:
        meanings.emit(given, b)


# ── floats ──


@emits("fma", makes_nan=True)
def fma(given: Instruction, b: Builder) -> None:
    if type_of(given) in HALVES:
        halves.arithmetic(given, b)
        return
    write_float(given, b, lambda x, y, z: intrinsic(b, "fma", x, y, z), (1, 2, 0))


@emits("div", makes_nan=True)
def div(given: Instruction, b: Builder) -> None:
    kind = given.modifiers[-1]
    if kind in FLOATS:
        if "approx" in given.modifiers:
            _divide_approximately(given, b)
        else:
            write_float(given, b, lambda x, y: b.text.binary("fdiv", x, y), (0, 1))
        return
    meanings.emit(given, b)


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
    kind = given.modifiers[-1]
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
    meanings.emit(given, b)


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
    kind = given.modifiers[-1]
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
    meanings.emit(given, b)
