"""Comparison and selection: PTX ISA 9.7.6 and 9.7.7, and the tests of floats in 9.7.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.instructions.elementwise import compute, elementwise
from cudakit.emulator.instructions.halves import is_half, widen
from cudakit.emulator.instructions.rounding import flush
from cudakit.emulator.machine.context import DTYPES, Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Group, Instruction

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "equ": lambda a, b: ~((a < b) | (a > b)), "neu": np.not_equal, "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip

#: How a comparison joins a third, predicate operand.
COMBINE: dict[str, Callable[[Any, Any], Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(given: Instruction, kind: str) -> Callable[[Any, Any], Any]:
    """The comparison that `given` names, of registers of type `kind`; of packed halves it gives pairs."""
    compare = COMPARE[given.modifiers[0]]
    if given.modifiers[0] == "ne" and "f" in kind:
        compare = _ordered_unequal
    if is_half(kind):
        wide = widen(kind, "ftz" in given.modifiers)
        return lambda a, b: compare(wide(a), wide(b))
    if "ftz" in given.modifiers:
        return lambda a, b: compare(flush(a), flush(b))
    return compare


def _ordered_unequal(a: Any, b: Any) -> Any:
    """``ne`` of floats, which is false where one is NaN."""
    return (a < b) | (a > b)


@instruction("setp", "9.7.6.2")
def setp(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    compare = _comparison(given, kind)
    target, a, b, *rest = given.operands
    combine = COMBINE[given.modifiers[1]] if rest else None
    if not isinstance(target, Group) and combine is None:
        return elementwise(given, context, kind, compare, "pred")
    writes = [context.write(item, "pred") for item in (target.items if isinstance(target, Group) else (target,))]
    first, second = context.read(a, kind), context.read(b, kind)
    third = context.read(rest[0], "pred") if rest else None
    pairs = kind.endswith("x2")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            held = compare(first(frame, index, machine), second(frame, index, machine))
        # The two destinations are the answers for the two halves, or the answer and its opposite.
        answers = [held[..., 0], held[..., 1]] if pairs else [held, ~held]
        other = third(frame, index, machine) if third else None
        for write, answer in zip(writes, answers, strict=False):
            write(frame, index, combine(answer, other) if combine else answer)

    return step


@instruction("set", "9.7.6.1")
def set_(given: Instruction, context: Context) -> Step:
    out, kind = given.modifiers[-2:]
    compare = _comparison(given, kind)
    target, a, b, *rest = given.operands
    combine = COMBINE[given.modifiers[1]] if rest else None
    true = {"f32": 0x3F800000, "f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80}.get(out, -1)
    pairs = kind.endswith("x2")
    raw = np.dtype(np.uint16) if pairs else np.dtype(f"u{DTYPES[out].itemsize}")
    value = raw.type(true & (2 ** (8 * raw.itemsize) - 1))

    def answer(x: Any, y: Any, other: Any = None) -> Any:
        held = compare(x, y)
        if combine is not None:
            held = combine(held, np.asarray(other)[..., None] if pairs else other)
        bits = np.where(held, value, raw.type(0))
        return bits.view(np.uint32)[..., 0] if pairs else bits

    sources = [(a, kind), (b, kind), *((operand, "pred") for operand in rest)]
    return compute(context, answer, target, f"b{32 if pairs else 8 * raw.itemsize}", sources)


@instruction("selp", "9.7.6.3")
def selp(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    target, a, b, chosen = given.operands
    return compute(
        context, lambda x, y, held: np.where(held, x, y), target, kind, ((a, kind), (b, kind), (chosen, "pred"))
    )


@instruction("slct", "9.7.6.4")
def slct(given: Instruction, context: Context) -> Step:
    kind, of = given.modifiers[-2:]
    target, a, b, sign = given.operands
    # Below zero, a subnormal that .ftz makes -0 is not less than zero, and NaN is not greater either.
    ready = flush if "ftz" in given.modifiers else lambda values: values
    return compute(
        context, lambda x, y, z: np.where(ready(z) >= 0, x, y), target, kind, ((a, kind), (b, kind), (sign, of))
    )


_TESTS: dict[str, Callable[[Any], Any]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    # Zero counts as normal.
    "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= np.finfo(a.dtype).tiny) | (a == 0)),
    "subnormal": lambda a: (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0),
}


@instruction("testp", "9.7.3.1")
def testp(given: Instruction, context: Context) -> Step:
    return elementwise(given, context, type_of(given), _TESTS[given.modifiers[0]], "pred")
