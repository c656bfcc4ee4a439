"""Products of matrices in a warp's registers: PTX ISA 9.7.14.5 (mma); their numerics are in `products`.

The sparse forms (mma.sp) and those with block scales (sm_120) are not here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudakit.emulator.instructions.access import parts
from cudakit.emulator.instructions.aligned import aligned, table_reader, table_writer
from cudakit.emulator.instructions.fragments import (
    BITS,
    Fragment,
    a_fragment,
    b_fragment,
    c_fragment,
    packed,
    quad_pair_fragments,
    raw_of,
    register_bits,
    values_of,
)
from cudakit.emulator.instructions.products import check_types, multiply_add, shape_of, types_of
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Control, Step, control
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

_BYTES = {"m8n8k16", "m16n8k16", "m16n8k32"}
_NIBBLES = {"m8n8k32", "m16n8k32", "m16n8k64"}
#: Shapes that mma has up to sm_90, by the type of A.
_MMA_SHAPES = {
    "f16": {"m8n8k4", "m16n8k8", "m16n8k16"}, "bf16": {"m16n8k8", "m16n8k16"}, "tf32": {"m16n8k4", "m16n8k8"},
    "f64": {"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"}, "s8": _BYTES, "u8": _BYTES, "s4": _NIBBLES, "u4": _NIBBLES,
    "b1": {"m8n8k128", "m16n8k128", "m16n8k256"}, "e4m3": {"m16n8k16", "m16n8k32"}, "e5m2": {"m16n8k16", "m16n8k32"},
}  # fmt: skip
#: What mma and wmma.mma may say besides shape, layouts and types.
_MMA_QUALIFIERS = {"mma", "sync", "aligned", "row", "col", "satfinite", "rn", "rz", "rm", "rp", "xor", "and", "popc"}


def check_form(given: Instruction, types: Sequence[str], shapes: dict[str, set[str]]) -> None:
    """Raise for a form that there is not; `types` are those of D, A, B and C."""
    to, a, b, c = types
    check_types(given, a, b, c, to)
    rest = {m for m in given.modifiers if m not in _MMA_QUALIFIERS and m not in BITS}
    if len(rest) != 1 or not rest <= shapes[a]:
        raise EmulationError(str(given))


@control("mma", "9.7.14.5.14")
def mma(given: Instruction, context: Context) -> Control:
    types = types_of(given.modifiers)
    check_form(given, types, _MMA_SHAPES)
    to, kind, _, of_c = types
    m, n, k = shape_of(given.modifiers)
    layouts = [layout for layout in given.modifiers if layout in ("row", "col")]
    if (kind, m) == ("f16", 8):
        a, b, by_type = quad_pair_fragments(*layouts)
        return aligned(given, product(given, context, types, a, b, by_type[of_c], by_type[to]))
    if layouts != ["row", "col"]:
        raise EmulationError(str(given))
    c = c_fragment(m, n)
    return aligned(given, product(given, context, types, a_fragment(m, k, kind), b_fragment(k, n, kind), c, c))


def product(
    given: Instruction, context: Context, types: Sequence[str], a: Fragment, b: Fragment, c: Fragment, d: Fragment
) -> Step:
    """A step of D = A · B + C with the registers of the four laid out as given."""
    to, *kinds = types
    target, *sources = given.operands
    fragments = (a, b, c)
    for operand, kind, fragment in zip(given.operands, types, (d, *fragments), strict=True):
        if len(parts(operand)) * packed(kind) != fragment.places.shape[1]:
            raise EmulationError(f"{len(parts(operand))} registers for a matrix of {fragment.shape} in {kind}")
    reads = [table_reader(context, source, register_bits(kind)) for source, kind in zip(sources, kinds, strict=True)]
    write = table_writer(context, target, register_bits(to))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            first, second, addend = (
                fragment.gather(values_of(read(frame, index, machine), kind))
                for fragment, read, kind in zip(fragments, reads, kinds, strict=True)
            )
            result = multiply_add(first, second, addend, kinds[0], given.modifiers)
            write(frame, index, raw_of(d.scatter(result), to))

    return step
