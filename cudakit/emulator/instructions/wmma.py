"""Matrices loaded, multiplied and stored by a warp, the layout in registers being its own: PTX ISA 9.7.14.4 (wmma).

The layout here is that of mma, which is also sm_80's: A and B of halves are held twice or four times over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from cudakit.emulator.instructions.access import parts, space_of
from cudakit.emulator.instructions.aligned import WARP, aligned, of_lanes, table_reader, table_writer, uniform
from cudakit.emulator.instructions.fragments import (
    BITS,
    Fragment,
    a_fragment,
    b_fragment,
    c_fragment,
    packed,
    register_bits,
)
from cudakit.emulator.instructions.products import RESULTS, shape_of, types_of
from cudakit.emulator.instructions.tensor import check_form, product
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand
from cudakit.errors import EmulationError

_SIXTEENS = {"m16n16k16", "m8n32k16", "m32n8k16"}
#: Shapes that wmma has up to sm_90, by the type of A.
_WMMA_SHAPES = {
    "f16": _SIXTEENS, "bf16": _SIXTEENS, "s8": _SIXTEENS, "u8": _SIXTEENS, "tf32": {"m16n16k8"}, "f64": {"m8n8k4"},
    "s4": {"m8n8k32"}, "u4": {"m8n8k32"}, "b1": {"m8n8k128"},
}  # fmt: skip

#: addresses(frame, index, machine) → those of the elements that each lane holds, and the lanes, both flat
Addresses: TypeAlias = Callable[[Frame, Index, Machine], tuple[np.ndarray, np.ndarray]]


@control("wmma", "9.7.14.4.3 – 9.7.14.4.5")
def wmma(given: Instruction, context: Context) -> Control:
    if given.modifiers[0] == "load":
        return _load(given, context)
    if given.modifiers[0] == "store":
        return _store(given, context)
    types = types_of(given.modifiers)
    if len(types) == 2:
        # Of halves only D and C are named.
        types = [types[0], "f16", "f16", types[1]]
    check_form(given, types, _WMMA_SHAPES)
    m, n, k = shape_of(given.modifiers)
    held_a, held_b = (len(parts(operand)) * packed(types[1]) for operand in given.operands[1:3])
    a, b = a_fragment(m, k, types[1]).repeated(held_a), b_fragment(k, n, types[1]).repeated(held_b)
    return aligned(given, product(given, context, types, a, b, c_fragment(m, n), c_fragment(m, n)))


def _load(given: Instruction, context: Context) -> Control:
    target, place, *stride = given.operands
    (kind,) = types_of(given.modifiers)
    bits = register_bits(kind)
    addresses, unit = _in_memory(given, context, kind, len(parts(target)) * packed(kind), place, stride)
    write = table_writer(context, target, bits)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where, lanes = addresses(frame, index, machine)
        write(frame, index, machine.memory.load(space_of(given), where, unit, lanes).view(f"u{bits // 8}"))

    return aligned(given, step)


def _store(given: Instruction, context: Context) -> Control:
    place, source, *stride = given.operands
    (kind,) = types_of(given.modifiers)
    addresses, unit = _in_memory(given, context, kind, len(parts(source)) * packed(kind), place, stride)
    read = table_reader(context, source, register_bits(kind))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where, lanes = addresses(frame, index, machine)
        machine.memory.store(space_of(given), where, read(frame, index, machine).reshape(-1).view(unit), lanes)

    return aligned(given, step)


def _in_memory(
    given: Instruction, context: Context, kind: str, elements: int, place: Operand, strides: list[Operand]
) -> tuple[Addresses, np.dtype]:
    """Addresses of the `elements` that each lane loads or stores, and their dtype there."""
    which, by_rows = given.modifiers[1], "row" in given.modifiers
    # Less than a byte each, they lie along A's rows or B's columns: a register's worth is taken as one.
    group = packed(kind) if BITS[kind] < 8 else 1
    if group > 1 and (which, by_rows) not in (("a", True), ("b", False)):
        raise EmulationError(str(given))
    fragment = _fragment(given, kind, group).repeated(elements // group)
    row, column = np.divmod(fragment.places, fragment.shape[1])
    along, across = (column, row) if by_rows else (row, column)
    unit = np.dtype(f"u{BITS[kind] * group // 8}")
    base = context.address(place, space_of(given))
    pitch = context.read(strides[0], "u32") if strides else None
    packed_rows = fragment.shape[1 if by_rows else 0]

    def addresses(frame: Frame, index: Index, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
        start = uniform(base(frame, index, machine), "address")
        step = np.array(packed_rows)
        if pitch is not None:
            step = uniform(of_lanes(pitch, frame, index, machine), "stride").astype(np.int64) // group
        offsets = (across * step.reshape(-1, 1, 1) + along) * unit.itemsize
        where = start[:, None, None] + offsets.astype(np.uint64)
        lanes = np.arange(machine.lanes) if index is None else index
        return np.broadcast_to(where, (start.size, WARP, along.shape[1])).reshape(-1), np.repeat(lanes, along.shape[1])

    return addresses, unit


def _fragment(given: Instruction, kind: str, group: int) -> Fragment:
    """The matrix that is loaded or stored, in groups of elements that are taken as one."""
    m, n, k = shape_of(given.modifiers)
    which, unit = given.modifiers[1], kind if group == 1 else "tf32"
    factors = [kind] if which in "ab" else [factor for factor, results in RESULTS.items() if kind in results]
    if all(f"m{m}n{n}k{k}" not in _WMMA_SHAPES.get(factor, ()) for factor in factors):
        raise EmulationError(str(given))
    if which == "a":
        return a_fragment(m, k // group, unit)
    return b_fragment(k // group, n, unit) if which == "b" else c_fragment(m, n)
