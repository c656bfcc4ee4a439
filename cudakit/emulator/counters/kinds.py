"""What kind of work an instruction is, and how many floating-point operations."""

from __future__ import annotations

import re
from math import prod
from typing import Literal, TypeAlias

from cudakit.emulator.ptx.program import Instruction

Precision: TypeAlias = Literal["half", "single", "double", "tensor"]

_KINDS = {
    "load": "ld ldu ldmatrix",
    "store": "st stmatrix",
    "atomic": "atom red multimem",
    "copy": "cp prefetch prefetchu discard applypriority createpolicy tensormap",
    "texture": "tex tld4 txq suld sust sured suq",
    "branch": "bra brx call ret exit trap brkpt",
    "barrier": "bar barrier mbarrier membar fence nanosleep griddepcontrol setmaxnreg",
    "warp": "shfl vote match redux activemask elect",
    "tensor": "mma wmma wgmma movmatrix",
    "move": "mov selp slct cvta isspacep mapa getctarank alloca stacksave stackrestore",
    "convert": "cvt szext",
    "compare": "setp set testp",
    "logic": "and or xor not cnot lop3 shl shr shf bfe bfi bfind brev popc clz prmt bmsk fns",
    "special": "rcp sqrt rsqrt sin cos ex2 lg2 tanh div",
}
_KIND_OF = {opcode: kind for kind, opcodes in _KINDS.items() for opcode in opcodes.split()}
_PRECISIONS: dict[str, Precision] = {
    "f16": "half", "f16x2": "half", "bf16": "half", "bf16x2": "half", "f32": "single", "f32x2": "single",
    "f64": "double",
}  # fmt: skip
#: Floating-point operations of an instruction, for each number.
_OPERATIONS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh"), 1),
    **dict.fromkeys(("fma", "mad"), 2),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Kinds in the order in which they are shown.
KINDS = ("single", "half", "double", "integer", *_KINDS)


def kind_of(given: Instruction) -> str:
    """What an instruction is counted as, one of `KINDS`."""
    kind = _KIND_OF.get(given.opcode)
    if kind == "special" and _precision(given) is None:
        return "integer"  # a division of whole numbers
    return kind or _precision(given) or "integer"


def operations_of(given: Instruction) -> tuple[Precision | None, float]:
    """Floating-point operations of each lane, and in which precision; those of a product of matrices shared evenly."""
    if kind_of(given) == "tensor":
        shape = next((match for modifier in given.modifiers if (match := _SHAPE.fullmatch(modifier))), None)
        if shape is None or not {"mma", "mma_async"} & {given.opcode, *given.modifiers}:
            return None, 0
        # Warpgroups, of four warps, do those of wgmma.
        return "tensor", 2 * prod(map(int, shape.groups())) / (128 if given.opcode == "wgmma" else 32)
    precision = _precision(given)
    count = _OPERATIONS.get(given.opcode, 0) if precision is not None else 0
    return (precision, count * (2 if _type(given).endswith("x2") else 1)) if count else (None, 0)


def _type(given: Instruction) -> str:
    return next((modifier for modifier in reversed(given.modifiers) if modifier in _PRECISIONS), "")


def _precision(given: Instruction) -> Precision | None:
    return _PRECISIONS.get(_type(given))
