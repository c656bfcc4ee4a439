"""Floats with what stands around them: ``.ftz``, ``.sat``, the direction of rounding, and the right NaN."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit.common import flushed, flushed_rounded, nan_kept, only, saturated, type_of
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Instruction


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


def write_float(given: Instruction, b: Builder, function: Callable[..., X], order: tuple[int, ...]) -> None:
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
