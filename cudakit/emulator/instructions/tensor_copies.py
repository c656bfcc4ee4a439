"""Tensor copies (TMA): PTX ISA 9.7.9.27.1 (cp.async.bulk.tensor and its kin); tensor maps that a kernel changes.

A box of a tensor is dense in shared memory, its fastest dimension first. A swizzle exchanges 16-byte chunks there. Each
row then takes as many bytes as the swizzle spans; a shorter row leaves the last bytes as they were. Elements of a box
outside the tensor are filled when read, and left out when written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from cudakit.emulator.instructions.access import CHUNK, space_of
from cudakit.emulator.instructions.barrier import numbers_of
from cudakit.emulator.instructions.copies import check_multiple, complete, destinations, perform, reduction, spaces
from cudakit.emulator.instructions.rounding import to_tf32
from cudakit.emulator.machine.decode import DTYPES, Context, Reader, Step, constant_of, instruction
from cudakit.emulator.machine.late import Awaited, Copies, Part
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Group, Instruction, Operand
from cudakit.emulator.resources.texture import MAGIC, TENSOR_MAP, EmulatedTensorMap
from cudakit.errors import EmulationError

_SHARED_ALIGNMENT = 128
_HALF = np.dtype(f"V{TENSOR_MAP.itemsize // 2}")
#: Value of each 16 bits outside a tensor that is filled with NaN, for every type, as on an H200.
_NAN = 0x7FF7


class _Part(NamedTuple):
    """Lanes that copy by one tensor map: their positions, the map, and the coordinates where each box starts."""

    positions: np.ndarray
    record: np.void
    coordinates: np.ndarray


class _Boxes(NamedTuple):
    """Elements of boxes, (lanes, elements): global address of each, and whether it is inside the tensor."""

    addresses: np.ndarray
    inside: np.ndarray
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        """Bytes of a box."""
        return int(self.addresses.shape[1]) * self.dtype.itemsize


def _boxes(record: np.void, coordinates: np.ndarray, itemsize: int, by_element: bool) -> _Boxes:
    """Return the boxes of a tensor that start at `coordinates`, (lanes, rank), with the fastest dimension first.

    `record` is the tensor map. Units are 16-byte chunks if the tensor's rows allow it and `by_element` is false, else
    elements of `itemsize` bytes.
    """
    rank, width, dtype = int(record["rank"]), itemsize, np.dtype(f"u{itemsize}")
    starts = coordinates[:, 0] * itemsize
    if (starts % CHUNK.itemsize).any():
        # The ISA does not say so; an H200 stops at an illegal instruction.
        odd = int(coordinates[starts % CHUNK.itemsize != 0, 0][0])
        raise EmulationError(
            f"the first coordinate is {odd} elements of {itemsize} bytes, which is not a multiple of {CHUNK.itemsize} "
            "bytes"
        )
    inner, extent = int(record["box"][0]) * itemsize, int(record["shape"][0]) * itemsize
    if not by_element and extent % CHUNK.itemsize == 0:
        width, dtype = CHUNK.itemsize, CHUNK
    addresses = np.full((coordinates.shape[0], 1), record["address"].astype(np.int64))
    inside = np.ones(addresses.shape, bool)
    for dimension in reversed(range(rank)):
        if dimension:
            step = int(record["element_strides"][dimension])
            places = coordinates[:, dimension, None] + np.arange(0, int(record["box"][dimension]), step)
            limit, stride = int(record["shape"][dimension]), int(record["strides"][dimension - 1])
        else:
            places, limit, stride = starts[:, None] + np.arange(0, inner, width), extent, 1
        in_extent = (places >= 0) & (places < limit)
        addresses = (addresses[:, :, None] + (places * stride)[:, None, :]).reshape(places.shape[0], -1)
        inside = (inside[:, :, None] & in_extent[:, None, :]).reshape(addresses.shape)
    return _Boxes(addresses.astype(np.uint64), inside, dtype)


def _in_shared(record: np.void, starts: np.ndarray, boxes: _Boxes) -> np.ndarray:
    """Return the shared address of every unit of the boxes, (lanes, units), with the tensor map's swizzle.

    `starts` has the shared address at which each lane's box begins.
    """
    offsets, span = np.arange(0, boxes.bytes, boxes.dtype.itemsize), int(record["swizzle"])
    if span:
        row, along = np.divmod(offsets, int(record["box"][0]) * DTYPES[record["kind"].decode()].itemsize)
        offsets = row * span + along
    addresses = starts[:, None] + offsets.astype(np.uint64)
    if span:
        # The chunk's number within its span is changed by that of the 128-byte line.
        addresses ^= (addresses >> np.uint64(7) & np.uint64(span // 16 - 1)) << np.uint64(4)
    return addresses


def _read_maps(context: Context, instr: Instruction, operand: Operand) -> Reader:
    """Return a function that yields a `_Part` for each distinct tensor map that lanes name."""
    if not isinstance(operand, Address) or not operand.coordinates or not isinstance(operand.coordinates[0], Group):
        raise EmulationError(f"{instr} without coordinates")
    rank = int(next(part for part in instr.modifiers if part[1:] == "d")[0])
    items = operand.coordinates[0].items
    if len(items) != rank:
        raise EmulationError(f"{instr} takes {rank} coordinates, not {len(items)}")
    address, reads = context.address(operand, "generic"), [context.read(item, "s32") for item in items]

    def parts(frame: Frame, index: Index, machine: Machine) -> Iterator[_Part]:
        lanes = np.arange(machine.lanes) if index is None else index
        where = address(frame, index, machine)
        coordinates = np.stack([np.broadcast_to(r(frame, index, machine), where.shape) for r in reads], axis=1)
        for start, first in zip(*np.unique(where, return_index=True), strict=True):
            halves = start + np.array([0, _HALF.itemsize], np.uint64)
            record = machine.memory.load("generic", halves, _HALF, lanes[[first, first]]).view(TENSOR_MAP)[0]
            if record["magic"] != MAGIC:
                raise EmulationError(f"no tensor map that ck.tensor_map made of a NumPy array is at {int(start):#x}")
            if record["rank"] != rank:
                raise EmulationError(f"{instr} of a tensor map that has {record['rank']} dimensions")
            positions = np.flatnonzero(where == start)
            yield _Part(positions, record, coordinates[positions].astype(np.int64))

    return parts


def _check_form(instr: Instruction) -> None:
    """Refuse modes of tensor copies that are not emulated."""
    modes = [part for part in instr.modifiers if part.startswith(("im2col", "tile::"))]
    if modes:
        raise EmulationError(f"the mode .{modes[0]} of tensor copies is not emulated")


@instruction("cp.async.bulk.tensor")
def tensor(instr: Instruction, context: Context) -> Step:
    _check_form(instr)
    to, _ = spaces(instr)
    return _store(instr, context) if to == "global" else _load(instr, context, to)


def _load(instr: Instruction, context: Context, to: str) -> Step:
    """Make a step that copies boxes of a tensor to shared memory."""
    target, source, *rest = instr.operands
    write_at, maps = context.address(target, to), _read_maps(context, instr, source)
    destinations_of = destinations(instr, context, to, rest)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        lanes = np.arange(machine.lanes) if index is None else index
        targets = write_at(frame, index, machine)
        check_multiple(targets, _SHARED_ALIGNMENT, "destination")
        reached = list(destinations_of(machine, frame, index, targets))
        for positions, record, coordinates in maps(frame, index, machine):
            boxes = _boxes(record, coordinates, DTYPES[record["kind"].decode()].itemsize, False)
            for chosen, block_targets, barriers in reached:
                _, mine, theirs = np.intersect1d(positions, chosen, assume_unique=True, return_indices=True)
                if mine.size:
                    own = _Boxes(boxes.addresses[mine], boxes.inside[mine], boxes.dtype)
                    _load_boxes(
                        instr, machine, to, lanes[positions[mine]], record, own, block_targets[theirs], barriers[theirs]
                    )

    return step


def _load_boxes(
    instr: Instruction, machine: Machine, to: str, lanes: np.ndarray, record: np.void, boxes: _Boxes,
    targets: np.ndarray, barriers: np.ndarray,
) -> None:  # fmt: skip
    """Copy a box for each lane to its address in shared memory, now or when a thread waits for the copy.

    Units outside the tensor are filled with zeros or NaN. The bytes are then counted on each lane's mbarrier.

    Parameters
    ----------
    to : str
        State space of `targets` and `barriers`.
    record : numpy.void
        Tensor map.
    targets, barriers : numpy.ndarray
        Address of each lane's box in shared memory, and of its mbarrier.
    """
    where = _in_shared(record, targets, boxes)

    def land(some: np.ndarray) -> None:
        inside = boxes.inside[some]
        data = np.zeros(inside.shape, boxes.dtype)
        if record["nan"]:
            data.view(np.uint16)[...] = _NAN
        target_addresses = np.broadcast_to(lanes[some, None], inside.shape)
        data[inside] = machine.memory.load(
            "global", boxes.addresses[some][inside], boxes.dtype, target_addresses[inside]
        )
        if record["kind"] == b"tf32":
            words = data.view(np.uint32)
            words[...] = to_tf32(words)
        machine.memory.store(to, where[some].reshape(-1), data.reshape(-1), target_addresses.reshape(-1))
        complete(machine, to, barriers[some], lanes[some], targets[some], boxes.bytes)

    copies = _copies(instr, "mbarrier", lanes, land, boxes, "global", boxes.addresses, to, where)
    copies.barriers = numbers_of(machine, to, barriers, lanes)
    perform(machine, copies)


def _copies(
    instr: Instruction, awaited: Awaited, lanes: np.ndarray, land: Callable[[np.ndarray], None], boxes: _Boxes,
    source_space: str, read: np.ndarray, to: str, written: np.ndarray,
) -> Copies:  # fmt: skip
    """Return the record of asynchronous copies of boxes; in global memory it has only elements inside the tensor.

    `land` performs the copies. `read` and `written` are the addresses of each box's units, in the spaces `source_space`
    and `to`.
    """
    size = boxes.dtype.itemsize
    position = np.broadcast_to(np.arange(lanes.size)[:, None], boxes.inside.shape)
    parts = []
    for space, addresses in ((source_space, read), (to, written)):
        chosen = boxes.inside if space == "global" or source_space == "shared" else np.ones_like(boxes.inside)
        parts.append(Part(space, position[chosen], addresses[chosen], size))
    return Copies(instr, awaited, lanes, land, (parts[0],), (parts[1],))


@instruction("cp.reduce.async.bulk.tensor")
def _store(instr: Instruction, context: Context) -> Step:
    """Make a step that stores or reduces a box of shared memory to a tensor."""
    _check_form(instr)
    target, source, *_ = instr.operands
    maps, read_at = _read_maps(context, instr, target), context.address(source, "shared")
    reduces = instr.modifiers[0] == "reduce"

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        lanes = np.arange(machine.lanes) if index is None else index
        sources = read_at(frame, index, machine)
        check_multiple(sources, _SHARED_ALIGNMENT, "source")
        for positions, record, coordinates in maps(frame, index, machine):
            type_name = record["kind"].decode()
            if (coordinates < 0).any():
                # As above. A box that is read may begin before the tensor, and a written box may end behind it.
                raise EmulationError(f"a box is written at {coordinates.min()}, before the tensor begins")
            boxes = _boxes(record, coordinates, DTYPES[type_name].itemsize, reduces)
            where = _in_shared(record, sources[positions], boxes)
            owner = lanes[positions]

            def land(
                some: np.ndarray, boxes: _Boxes = boxes, where: np.ndarray = where, owner: np.ndarray = owner,
                type_name: str = type_name,
            ) -> None:  # fmt: skip
                inside = boxes.inside[some]
                target_addresses = np.broadcast_to(owner[some, None], inside.shape)[inside]
                dtype, reduce = reduction(instr, type_name, "global") if reduces else (boxes.dtype, None)
                data = machine.memory.load("shared", where[some][inside], dtype, target_addresses)
                if reduce is not None:
                    reduce(machine, boxes.addresses[some][inside], data, target_addresses)
                else:
                    machine.memory.store("global", boxes.addresses[some][inside], data, target_addresses)

            perform(machine, _copies(instr, "bulk", owner, land, boxes, "shared", where, "global", boxes.addresses))

    return step


# ── tensor maps that a kernel changes: PTX ISA 9.7.9.28 and 9.7.13.16 ──

#: `TENSOR_MAP` field for each PTX field, and the PTX type of its value where that is no constant.
_FIELDS = {
    "global_address": ("address", "u64"), "rank": ("rank", "u32"), "box_dim": ("box", "u32"),
    "global_dim": ("shape", "u32"), "global_stride": ("strides", "u64"), "element_stride": ("element_strides", "u32"),
    "elemtype": ("kind", ""), "swizzle_mode": ("swizzle", ""), "fill_mode": ("nan", ""),
}  # fmt: skip
_BY_DIMENSION = ("box_dim", "global_dim", "global_stride", "element_stride")
#: Values by PTX's numbers of element types, swizzles and fill modes.
_ELEMENT_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", None, "f64", "bf16")
_CONSTANTS: dict[str, list[int | None]] = {
    "elemtype": [int.from_bytes(type_name.encode(), "little") if type_name else None for type_name in _ELEMENT_TYPES],
    "swizzle_mode": list(EmulatedTensorMap.SWIZZLES.values()),
    "fill_mode": [0, 1],
}


def _value(instr: Instruction, name: str, operand: Operand, context: Context) -> Reader:
    """Return a function that reads the new value of the tensor map's field `name`.

    Constants that are codes are converted to the field's value.
    """
    if name not in _CONSTANTS:
        return context.read(operand, _FIELDS[name][1])
    values, code = _CONSTANTS[name], constant_of(operand)
    value = values[code] if code < len(values) else None
    if value is None:
        raise EmulationError(f"{instr} to number {code}")
    return lambda frame, index, machine: np.uint64(value)


@instruction("tensormap.replace")
def replace(instr: Instruction, context: Context) -> Step:
    name, (target, *rest) = instr.modifiers[2], instr.operands
    if name == "interleave_layout" and constant_of(rest[0]) == 0:
        return lambda frame, index, machine: None
    assert TENSOR_MAP.fields is not None
    field, start, *_ = TENSOR_MAP.fields[_FIELDS[name][0]]
    type_at = TENSOR_MAP.fields["kind"][1]
    dtype = np.dtype(f"u{field.base.itemsize}")
    if name in _BY_DIMENSION:
        start += constant_of(rest.pop(0)) * dtype.itemsize
    space, read = space_of(instr), _value(instr, name, rest[0], context)
    address = context.address(target, space)
    # A rank is PTX's number of dimensions less one.
    increment = dtype.type(name == "rank")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        maps = address(frame, index, machine)
        value = np.asarray(read(frame, index, machine)).astype(dtype) + increment
        machine.memory.store(space, maps + np.uint64(start), value, index)
        if name == "rank":
            # A kernel may write all fields of a map that is zeros, which mean no swizzle, zeros outside, and u8.
            for offset, value in ((0, MAGIC), (type_at, int.from_bytes(b"u8", "little"))):
                places = maps + np.uint64(offset)
                former = machine.memory.load(space, places, np.dtype("u8"), index)
                machine.memory.store(space, places, np.where(former == 0, np.uint64(value), former), index)

    return step


@instruction("tensormap.cp_fenceproxy")
def cp_fenceproxy(instr: Instruction, context: Context) -> Step:
    """Make a step that copies a tensor map from shared to global memory; every lane of the warp copies the same."""
    to, source_space = spaces(instr)
    write_at, read_at = context.address(instr.operands[0], to), context.address(instr.operands[1], source_space)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        targets, sources = write_at(frame, index, machine), read_at(frame, index, machine)
        for offset in range(0, TENSOR_MAP.itemsize, CHUNK.itemsize):
            data = machine.memory.load(source_space, sources + np.uint64(offset), CHUNK, index)
            machine.memory.store(to, targets + np.uint64(offset), data, index)

    return step
