"""Tensor maps that a kernel changes: PTX ISA 9.7.9.28 (tensormap.replace) and 9.7.13.16 (tensormap.cp_fenceproxy)."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.instructions.bulk import CHUNK, spaces
from cudakit.emulator.machine.context import Context, Reader
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand
from cudakit.emulator.resources.tensor_map import BYTES, SWIZZLES, place
from cudakit.errors import EmulationError

#: Our field for each of PTX's, and the PTX type of its value where that is no constant.
_FIELDS = {
    "global_address": ("address", "u64"), "rank": ("rank", "u32"), "box_dim": ("box", "u32"),
    "global_dim": ("shape", "u32"), "global_stride": ("strides", "u64"), "element_stride": ("element_strides", "u32"),
    "elemtype": ("kind", ""), "swizzle_mode": ("swizzle", ""), "fill_mode": ("nan", ""),
}  # fmt: skip
_BY_DIMENSION = ("box_dim", "global_dim", "global_stride", "element_stride")
#: PTX's numbers of element types, of swizzles and of what is filled with.
_ELEMENT_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", None, "f64", "bf16")
_CONSTANTS: dict[str, list[int | None]] = {
    "elemtype": [int.from_bytes(kind.encode(), "little") if kind else None for kind in _ELEMENT_TYPES],
    "swizzle_mode": list(SWIZZLES.values()),
    "fill_mode": [0, 1],
}


def _constant(given: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise EmulationError(f"{given} takes a constant")
    return operand.value


def _value(given: Instruction, name: str, operand: Operand, context: Context) -> Reader:
    """A function that reads what the field becomes."""
    if name not in _CONSTANTS:
        return context.read(operand, _FIELDS[name][1])
    number = _constant(given, operand)
    known = _CONSTANTS[name]
    value = known[number] if number < len(known) else None
    if value is None:
        raise EmulationError(f"{given} to number {number}")
    return lambda frame, index, machine: np.uint64(value)


@instruction("tensormap.replace", "9.7.9.28")
def replace(given: Instruction, context: Context) -> Step:
    name, (target, *rest) = given.modifiers[2], given.operands
    if name == "interleave_layout" and _constant(given, rest[0]) == 0:
        return lambda frame, index, machine: None
    start, dtype = place(_FIELDS[name][0])
    if name in _BY_DIMENSION:
        start += _constant(given, rest.pop(0)) * dtype.itemsize
    space, read = space_of(given), _value(given, name, rest[0], context)
    address = context.address(target, space)
    # A rank is PTX's number of dimensions less one.
    more = dtype.type(name == "rank")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where = address(frame, index, machine) + np.uint64(start)
        machine.memory.store(space, where, np.asarray(read(frame, index, machine)).astype(dtype) + more, index)

    return step


@instruction("tensormap.cp_fenceproxy", "9.7.13.16")
def cp_fenceproxy(given: Instruction, context: Context) -> Step:
    """A tensor map copied from shared to global memory; every lane of the warp copies the same."""
    to, of = spaces(given)
    write_at, read_at = context.address(given.operands[0], to), context.address(given.operands[1], of)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        targets, sources = write_at(frame, index, machine), read_at(frame, index, machine)
        for offset in range(0, BYTES, CHUNK.itemsize):
            data = machine.memory.load(of, sources + np.uint64(offset), CHUNK, index)
            machine.memory.store(to, targets + np.uint64(offset), data, index)

    return step
