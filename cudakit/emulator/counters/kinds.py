"""What kind of work an instruction is, and how many floating-point operations."""

from __future__ import annotations

import re
from math import prod
from typing import Literal, TypeAlias, get_args

from cudakit.emulator.isa.facts import Category, facts_of
from cudakit.emulator.ptx.program import Instruction

Precision: TypeAlias = Literal["half", "single", "double", "tensor"]

_PRECISIONS: dict[str, Precision] = {
    "f16": "half", "f16x2": "half", "bf16": "half", "bf16x2": "half", "f32": "single", "f32x2": "single",
    "f64": "double",
}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Kinds in the order in which they are shown.
KINDS = ("single", "half", "double", "integer", *get_args(Category))


def kind_of(given: Instruction) -> str:
    """What an instruction is counted as, one of `KINDS`."""
    category = facts_of(given).category
    if category == "special" and _precision(given) is None:
        return "integer"  # a division of whole numbers
    return category or _precision(given) or "integer"


def operations_of(given: Instruction) -> tuple[Precision | None, float]:
    """Floating-point operations of each lane, and in which precision; those of a product of matrices shared evenly."""
    if kind_of(given) == "tensor":
        shape = next((match for modifier in given.modifiers if (match := _SHAPE.fullmatch(modifier))), None)
        if shape is None or not {"mma", "mma_async"} & {given.opcode, *given.modifiers}:
            return None, 0
        # Warpgroups, of four warps, do those of wgmma.
        return "tensor", 2 * prod(map(int, shape.groups())) / (128 if given.opcode == "wgmma" else 32)
    precision = _precision(given)
    count = facts_of(given).operations if precision is not None else 0
    return (precision, count * (2 if _type(given).endswith("x2") else 1)) if count else (None, 0)


def _type(given: Instruction) -> str:
    return next((modifier for modifier in reversed(given.modifiers) if modifier in _PRECISIONS), "")


def _precision(given: Instruction) -> Precision | None:
    return _PRECISIONS.get(_type(given))
