"""Surfaces by object: PTX ISA 9.7.11. A surface is an array's own memory, read and written at byte offsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import parts
from cudakit.emulator.instructions.atomic import apply_in_order
from cudakit.emulator.instructions.texture import coordinates_of, handle_of, values_of
from cudakit.emulator.machine.context import DTYPES, Context, Reader
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import READ, STRONG_WRITE, WRITE, AccessError, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand
from cudakit.emulator.resources.surface import SURFACES
from cudakit.errors import EmulationError

_SURFACE_SHAPES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}


class _Place:
    """Where lanes access a surface: byte offsets, and which of them lie inside."""

    def __init__(self, given: Instruction, operand: Operand, context: Context, size: int, use: int) -> None:
        shape = next(modifier for modifier in given.modifiers if modifier in _SURFACE_SHAPES)
        self.rank, self.layered = _SURFACE_SHAPES[shape]
        self.mode, self.size, self.use = given.modifiers[-1], size, use
        self.handle = handle_of(operand, context)
        self.coordinates = coordinates_of(operand, ["s32"] * (self.layered + self.rank), context)

    def find(self, frame: Frame, index: Index, machine: Machine) -> Any:
        """(surface, lanes of it that access it, byte offsets) for each surface that lanes name."""
        handles, *where = values_of([self.handle, *self.coordinates], frame, index, machine)
        for surface, named in SURFACES.among(handles):
            if surface.rank != self.rank:
                raise EmulationError(
                    f"the surface has {surface.rank} dimensions, and the kernel accesses {self.rank} of it"
                )
            lanes = np.arange(handles.size)[named]
            layer = [where[0][lanes]] if self.layered else []
            places = [place[lanes].astype(np.int64) for place in where[self.layered :]]
            places += [np.zeros(lanes.size, np.int64)] * (3 - self.rank) + layer
            inside, offset = np.ones(lanes.size, bool), np.zeros(lanes.size, np.int64)
            for axis, size in reversed(list(enumerate(surface.sizes))):
                most = size - (self.size if axis == 0 else 1)
                place = places[axis].astype(np.int64) if axis < len(places) else np.int64(0)
                inside &= (place >= 0) & (place <= most)
                offset = offset * size + np.clip(place, 0, most)
            if self.mode == "trap" and not inside.all():
                bad = int(np.flatnonzero(~inside)[0])
                at = tuple(int(place[bad]) for place in places[: self.rank])
                width, height, depth, layers = surface.sizes
                raise AccessError(
                    f"{self.size} bytes at {at} are outside the surface of {width} bytes × {height} × {depth}, "
                    f"{layers} layers"
                )
            if (offset % self.size).any():
                raise AccessError(f"byte {int(places[0][np.flatnonzero(offset % self.size)[0]])} of a surface's row is "
                                  f"not aligned to {self.size} bytes")  # fmt: skip
            chosen = inside if self.mode == "zero" else np.ones(lanes.size, bool)
            if machine.memory.watcher is not None:
                flags = machine.memory.watcher.flags_of("the surface", surface.array)
                flags[offset[chosen, None] + np.arange(self.size)] |= self.use
            yield surface, lanes[chosen], offset[chosen]


def _kind(given: Instruction) -> str:
    return next(modifier for modifier in given.modifiers[1:] if modifier in DTYPES)


@instruction("suld", "9.7.11.1")
def suld(given: Instruction, context: Context) -> Step:
    target, source = given.operands
    kind, items = _kind(given), parts(target)
    dtype = DTYPES[kind]
    place = _Place(given, source, context, dtype.itemsize * len(items), READ)
    writes = [context.write(item, kind) for item in items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        result = np.zeros((machine.lanes if index is None else index.size, len(items)), dtype)
        for surface, lanes, offsets in place.find(frame, index, machine):
            result[lanes] = surface.elements(dtype)[offsets[:, None] // dtype.itemsize + np.arange(len(items))]
        for number, write in enumerate(writes):
            write(frame, index, result[:, number])

    return step


@instruction("sust", "9.7.11.2")
def sust(given: Instruction, context: Context) -> Step:
    if given.modifiers[0] != "b":
        raise EmulationError("formatted stores")
    target, source = given.operands
    kind, items = _kind(given), parts(source)
    dtype = DTYPES[kind]
    place = _Place(given, target, context, dtype.itemsize * len(items), WRITE)
    reads: list[Reader] = [context.read(item, kind) for item in items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values = np.stack(values_of(reads, frame, index, machine), axis=-1).view(dtype)
        for surface, lanes, offsets in place.find(frame, index, machine):
            surface.elements(dtype)[offsets[:, None] // dtype.itemsize + np.arange(len(items))] = values[lanes]

    return step


@instruction("sured", "9.7.11.3")
def sured(given: Instruction, context: Context) -> Step:
    if given.modifiers[0] != "b":
        raise EmulationError("formatted reductions")
    operation, kind = given.modifiers[1], _kind(given)
    target, source = given.operands
    dtype = DTYPES[kind]
    place = _Place(given, target, context, dtype.itemsize, STRONG_WRITE)
    read = context.read(source, kind)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        (values,) = values_of([read], frame, index, machine)
        for surface, lanes, offsets in place.find(frame, index, machine):
            apply_in_order(operation, surface.elements(dtype), offsets // dtype.itemsize, values[lanes])

    return step


@instruction("suq", "9.7.11.4")
def suq(given: Instruction, context: Context) -> Step:
    axis = ("width", "height", "depth", "array_size").index(given.modifiers[0])
    target, source = given.operands
    write, read = context.write(target, "b32"), handle_of(source, context)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        (handles,) = values_of([read], frame, index, machine)
        result = np.zeros(handles.size, np.uint32)
        for surface, lanes in SURFACES.among(handles):
            layers, *sizes, _ = surface.array.shape
            # Axes that there are not have size 0.
            sizes = [*sizes[: -surface.rank - 1 : -1], *[0] * (3 - surface.rank), layers if layers > 1 else 0]
            result[lanes] = sizes[axis]
        write(frame, index, result)

    return step
