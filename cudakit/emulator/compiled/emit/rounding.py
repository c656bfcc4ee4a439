"""Floats with what stands around them: ``.ftz``, ``.sat``, the direction of rounding, and the right NaN."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit.common import (
    flushed,
    flushed_rounded,
    intrinsic,
    nan_kept,
    only,
    saturated,
    type_of,
)
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Instruction


def mode_of(given: Instruction) -> str:
    """The direction in which an instruction rounds."""
    return next((modifier for modifier in given.modifiers if modifier in ("rz", "rm", "rp")), "rn")


def directed(b: Builder, mode: str, result: X, off: X) -> X:
    """A float32 that was rounded to nearest, moved by one place where `mode` asks for its other neighbour.

    `off` has the sign of the exact result less this one; NaN stays where it is.
    """
    text, zero = b.text, constant(off.type, 0)
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
    return text.cast("bitcast", moved, "float")


def directed_result(b: Builder, opcode: str, mode: str, result: X, sources: tuple[X, ...]) -> X:
    """A result of arithmetic in float32, rounded to nearest, as `mode` asks for it."""
    text = b.text
    wide = [text.cast("fpext", source, "double") for source in sources]
    zero = constant(wide[0].type, 0)
    if opcode in ("div", "sqrt"):
        # What is left of the dividend; its sign is right, though it may be rounded.
        found = text.cast("fpext", result, "double")
        by = found if opcode == "sqrt" else wide[1]
        rest = intrinsic(b, "fma", text.make(f"fneg {found}", found.type), by, wide[0])
        return directed(b, mode, result, text.binary("fdiv", rest, by))
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
    moved = directed(b, mode, result, off)
    if mode == "rm" and opcode != "mul":
        # A sum of nothing is -0, unless both are +0.
        signs = text.binary("or", *(text.cast("bitcast", each, "i64") for each in (first, second)))
        minus = text.compare("slt", signs, constant(signs.type, 0))
        is_zero = text.binary("and", text.compare("oeq", whole, zero), text.compare("oeq", lost, zero))
        minus = text.binary("and", minus, is_zero)
        moved = text.select(minus, constant(moved.type, 0x8000_0000), moved)
    return moved


def write_float(given: Instruction, b: Builder, function: Callable[..., X], order: tuple[int, ...]) -> None:
    """Write ``function(*sources)`` of floats, with ``.ftz``, ``.sat`` and the right NaN around it."""
    kind = type_of(given)
    mode = mode_of(given)
    only(given, "rn", "ftz", "sat", "full", "NaN", mode)
    if mode != "rn" and (kind == "f64" or "ftz" in given.modifiers):
        raise Refusal(f"instruction {given}")
    ftz, sat = "ftz" in given.modifiers, "sat" in given.modifiers
    target, *operands = given.operands

    def compute(*sources: X) -> X:
        if ftz:
            sources = tuple(flushed(b, source) for source in sources)
        result = function(*sources)
        if mode != "rn":
            result = directed_result(b, given.opcode, mode, result, sources)
        if kind == "f64":
            result = nan_kept(b, result, sources, order)
        if ftz:
            result = flushed_result(b, given.opcode, result, sources)
        return saturated(b, result) if sat else result

    b.apply(target, kind, [(operand, kind) for operand in operands], compute, raw=True)


def flushed_result(b: Builder, opcode: str, result: X, sources: tuple[X, ...]) -> X:
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
