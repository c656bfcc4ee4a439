"""Textures and surfaces by object: PTX ISA 9.7.10 and 9.7.11.

An object is a number that `ck.texture` or `ck.surface` made, in a 64-bit register. A surface is an array's own memory,
read and written at byte offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import parts
from cudakit.emulator.instructions.atomic import apply_in_order
from cudakit.emulator.machine.decode import DTYPES, Context, Reader, Step, instruction
from cudakit.emulator.machine.memory import READ, STRONG_WRITE, WRITE, AccessError, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Group, Instruction, Operand, Register
from cudakit.emulator.resources.texture import SURFACES, TEXTURES, Handles, SurfaceObject, TextureObject, gather, sample
from cudakit.errors import EmulationError

#: Coordinates of each shape, and whether a layer's number comes before them.
_TEXTURE_SHAPES = {
    "1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True),
    "cube": (3, False), "acube": (3, True),
}  # fmt: skip
_COMPONENTS = {"r": 0, "g": 1, "b": 2, "a": 3}


def handle_of(operand: Operand, context: Context) -> Reader:
    """Return a function that reads the handle of a texture or surface in brackets."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Register):
        raise EmulationError("a texture or surface is named by an object in a register, not by a reference")
    return context.read(operand.base, "u64")


def coordinates_of(operand: Operand, type_names: list[str], context: Context) -> list[Reader]:
    """Return functions that read the coordinates in ``[a, {x, y}]``, one for each of `type_names`.

    Further coordinates in the operand are padding and are ignored.
    """
    if not isinstance(operand, Address) or len(operand.coordinates) != 1:
        raise EmulationError("a texture with a sampler of its own")
    coordinates = operand.coordinates[0]
    items = coordinates.items if isinstance(coordinates, Group) else (coordinates,)
    return [context.read(item, type_name) for item, type_name in zip(items, type_names, strict=False)]


def values_of(reads: list[Reader], frame: Frame, index: Index, machine: Machine) -> list[np.ndarray]:
    """Read operands as one value a lane each."""
    count = machine.lanes if index is None else index.size
    return [np.broadcast_to(np.asarray(read(frame, index, machine)), (count,)) for read in reads]


@instruction("tex")
def tex(instr: Instruction, context: Context) -> Step:
    shape = next(modifier for modifier in instr.modifiers if modifier in _TEXTURE_SHAPES)
    # A texture has one level, which is read for every level of detail.
    rest = list(instr.operands[2:])[{"level": 1, "grad": 2}.get(instr.modifiers[0], 0) :]
    return _lookup(instr, context, shape, rest, None)


@instruction("tld4")
def tld4(instr: Instruction, context: Context) -> Step:
    component, shape = instr.modifiers[:2]
    return _lookup(instr, context, shape, list(instr.operands[2:]), _COMPONENTS[component])


def _lookup(instr: Instruction, context: Context, shape: str, rest: list[Operand], component: int | None) -> Step:
    """Make a step that looks up a texture: all channels of a filtered value, or one channel of four texels.

    `component` is the channel of the four texels, or None. `rest` has the operand of offsets, or is empty.
    """
    rank, layered = _TEXTURE_SHAPES[shape]
    out, type_name = instr.modifiers[-2:]
    target, source = instr.operands[:2]
    if any(not isinstance(operand, Group) for operand in rest):
        raise EmulationError("the depth compare of textures is not emulated")
    is_cube = shape.endswith("cube")
    reads = [handle_of(source, context), *coordinates_of(source, ["u32"] * layered + [type_name] * rank, context)]
    moves = [context.read(item, "s32") for item in rest[0].items[:rank]] if rest and isinstance(rest[0], Group) else []
    resident = None
    if isinstance(target, Group) and target.notation == "pair":
        target, to = target.items
        resident = context.write(to, "pred")
    assert isinstance(target, Group)
    register = "b16" if out == "f16" else out
    writes = [context.write(item, "b32" if out == "f16x2" else register) for item in target.items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        handles, *where = values_of(reads, frame, index, machine)
        layer = where.pop(0) if layered else np.zeros(handles.size, np.uint32)
        offsets = values_of(moves, frame, index, machine) or [np.zeros(handles.size, np.int32)] * rank
        result = np.zeros((handles.size, 4), np.float32 if out[0] == "f" else np.uint32)
        for texture, lanes in TEXTURES.among(handles):
            _check(texture, shape, type_name, out)
            watcher = machine.memory.watcher
            texture.flags = watcher.flags_of("the texture", texture.texels) if watcher is not None else None
            at, lane_coordinates = layer[lanes], [coordinate[lanes] for coordinate in where]
            if is_cube:
                at, lane_coordinates = _face(at, lane_coordinates, texture)
            by = [offset[lanes] for offset in offsets[: len(lane_coordinates)]]
            if component is None:
                texels = sample(texture, at, lane_coordinates, by)
            elif component < texture.texels.shape[-1]:
                texels = gather(texture, at, lane_coordinates, by)[:, :, component]
            else:
                texels = np.zeros((at.size, 4), result.dtype)
            wide = texels.astype(result.dtype) if out[0] == "f" else texels.astype(np.int64).astype(np.uint32)
            # Channels that the texels lack are 0.
            result[lanes, : wide.shape[1]] = wide
        if out in ("f16", "f16x2"):
            result = result.astype(np.float16).view(np.uint16 if out == "f16" else np.uint32)
        for channel, write in enumerate(writes):
            write(frame, index, result[:, channel].view(np.int32) if out == "s32" else result[:, channel])
        if resident is not None:
            resident(frame, index, True)

    return step


def _check(texture: TextureObject, shape: str, type_name: str, out: str) -> None:
    """Raise an error if an instruction's shape, coordinate type or result type `out` does not fit the texture."""
    layers = texture.texels.shape[0]
    rank = 2 if shape.endswith("cube") else _TEXTURE_SHAPES[shape][0]
    if rank != texture.rank:
        raise EmulationError(f"the texture has {texture.rank} dimensions, and the kernel reads {rank} of it")
    if shape.endswith("cube") and layers % 6:
        raise EmulationError(f"a cube map has 6 layers a cube, and the texture has {layers}")
    if texture.gives_floats != (out[0] == "f"):
        dtype = texture.texels.dtype
        gives = "floats" if texture.gives_floats else "integers"
        hint = "" if texture.gives_floats or dtype.itemsize > 2 else "; ck.texture(…, read='normalized') gives floats"
        raise EmulationError(f"a texture of {dtype} gives {gives}, and the kernel reads {out} of it{hint}")
    if texture.is_linear and texture.rank == 1 and type_name == "f32":
        raise EmulationError(
            "tex1D reads arrays, and this texture is linear memory: read it by tex1Dfetch, or make it with "
            "ck.texture(…, memory='array')"
        )


def _face(layer: np.ndarray, direction: list[np.ndarray], texture: TextureObject) -> tuple[np.ndarray, list[Any]]:
    """Return the layer of a cube's face, and the two coordinates on it, for a direction (x, y, z) from the centre.

    `layer` is the number of the cube. A cube has six layers of the texture.
    """
    x, y, z = direction
    wide, high, deep = np.abs(x), np.abs(y), np.abs(z)
    along_x, along_y = (wide >= high) & (wide >= deep), (high > wide) & (high >= deep)
    faces = [along_x & (x >= 0), along_x, along_y & (y >= 0), along_y, z >= 0]
    face = np.select(faces, range(5), 5)
    s = np.select(faces, [-z, z, x, x, x], -x)
    t = np.select(faces, [-y, -y, z, -z, -y], -y)
    major = np.maximum(np.maximum(wide, high), deep)
    with np.errstate(all="ignore"):
        on_face = [(part / major + np.float32(1)) / np.float32(2) for part in (s, t)]
    width = 1 if texture.normalized else texture.sizes[0]
    return layer * np.uint32(6) + face.astype(np.uint32), [part * np.float32(width) for part in on_face]


# ── queries ──

#: The numbers that OpenCL and CUDA have for them.
_ADDRESS_NUMBERS = {"wrap": 0, "mirror": 1, "clamp": 3, "border": 4}
_QUERIES: dict[str, Any] = {
    "width": lambda texture: texture.sizes[0],
    "height": lambda texture: texture.sizes[1] if texture.rank > 1 else 0,
    "depth": lambda texture: texture.sizes[2] if texture.rank > 2 else 0,
    "array_size": lambda texture: texture.texels.shape[0] if texture.texels.shape[0] > 1 else 0,
    "normalized_coords": lambda texture: texture.normalized,
    "filter_mode": lambda texture: texture.filter == "linear",
    "num_mipmap_levels": lambda texture: 0,
    "num_samples": lambda texture: 0,
    **{f"addr_mode_{axis}": (lambda texture, axis=axis: _ADDRESS_NUMBERS[texture.address[axis]]) for axis in range(3)},
}


@instruction("txq")
def txq(instr: Instruction, context: Context) -> Step:
    return _query(instr, context, TEXTURES, _QUERIES[next(part for part in instr.modifiers if part != "level")])


def _query(instr: Instruction, context: Context, objects: Handles[Any], query: Callable[[Any], int]) -> Step:
    """Make a step that writes the result of `query` for the object that each lane names."""
    target, source = instr.operands[:2]
    write, read = context.write(target, "b32"), handle_of(source, context)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        (handles,) = values_of([read], frame, index, machine)
        result = np.empty(handles.size, np.uint32)
        for resource, lanes in objects.among(handles):
            result[lanes] = query(resource)
        write(frame, index, result)

    return step


@instruction("istypep")
def istypep(instr: Instruction, context: Context) -> Step:
    """Make a step that writes false: objects here are no variables of an opaque type."""
    write = context.write(instr.operands[0], "pred")
    return lambda frame, index, machine: write(frame, index, False)


# ── surfaces ──

_SURFACE_SHAPES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}


class _Place:
    """Addressed part of a surface: byte offsets, and whether each is inside the surface."""

    def __init__(self, instr: Instruction, operand: Operand, context: Context, size: int, use: int) -> None:
        shape = next(modifier for modifier in instr.modifiers if modifier in _SURFACE_SHAPES)
        self.rank, self.layered = _SURFACE_SHAPES[shape]
        self.mode, self.size, self.use = instr.modifiers[-1], size, use
        self.handle = handle_of(operand, context)
        self.coordinates = coordinates_of(operand, ["s32"] * (self.layered + self.rank), context)

    def find(self, frame: Frame, index: Index, machine: Machine) -> Any:
        """Yield (surface, accessing lanes, byte offsets) for each surface that lanes name."""
        handles, *where = values_of([self.handle, *self.coordinates], frame, index, machine)
        for surface, chosen_lanes in SURFACES.among(handles):
            if surface.rank != self.rank:
                raise EmulationError(
                    f"the surface has {surface.rank} dimensions, and the kernel accesses {self.rank} of it"
                )
            lanes = np.arange(handles.size)[chosen_lanes]
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


def _element_type(instr: Instruction) -> str:
    """Return the element type of a surface instruction."""
    return next(modifier for modifier in instr.modifiers[1:] if modifier in DTYPES)


@instruction("suld")
def suld(instr: Instruction, context: Context) -> Step:
    target, source = instr.operands
    type_name, items = _element_type(instr), parts(target)
    dtype = DTYPES[type_name]
    place = _Place(instr, source, context, dtype.itemsize * len(items), READ)
    writes = [context.write(item, type_name) for item in items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        result = np.zeros((machine.lanes if index is None else index.size, len(items)), dtype)
        for surface, lanes, offsets in place.find(frame, index, machine):
            result[lanes] = surface.elements(dtype)[offsets[:, None] // dtype.itemsize + np.arange(len(items))]
        for number, write in enumerate(writes):
            write(frame, index, result[:, number])

    return step


@instruction("sust")
def sust(instr: Instruction, context: Context) -> Step:
    if instr.modifiers[0] != "b":
        raise EmulationError("formatted stores")
    target, source = instr.operands
    type_name, items = _element_type(instr), parts(source)
    dtype = DTYPES[type_name]
    place = _Place(instr, target, context, dtype.itemsize * len(items), WRITE)
    reads: list[Reader] = [context.read(item, type_name) for item in items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values = np.stack(values_of(reads, frame, index, machine), axis=-1).view(dtype)
        for surface, lanes, offsets in place.find(frame, index, machine):
            surface.elements(dtype)[offsets[:, None] // dtype.itemsize + np.arange(len(items))] = values[lanes]

    return step


@instruction("sured")
def sured(instr: Instruction, context: Context) -> Step:
    if instr.modifiers[0] != "b":
        raise EmulationError("formatted reductions")
    operation, type_name = instr.modifiers[1], _element_type(instr)
    target, source = instr.operands
    dtype = DTYPES[type_name]
    place = _Place(instr, target, context, dtype.itemsize, STRONG_WRITE)
    read = context.read(source, type_name)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        (values,) = values_of([read], frame, index, machine)
        for surface, lanes, offsets in place.find(frame, index, machine):
            apply_in_order(operation, surface.elements(dtype), offsets // dtype.itemsize, values[lanes])

    return step


@instruction("suq")
def suq(instr: Instruction, context: Context) -> Step:
    axis = ("width", "height", "depth", "array_size").index(instr.modifiers[0])

    def size(surface: SurfaceObject) -> int:
        layers, *sizes, _ = surface.array.shape
        # Missing axes have size 0.
        all_sizes = (*sizes[: -surface.rank - 1 : -1], *[0] * (3 - surface.rank), layers if layers > 1 else 0)
        return int(all_sizes[axis])

    return _query(instr, context, SURFACES, size)
