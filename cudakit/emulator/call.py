"""A checked call on the emulator: NumPy arrays and numbers become the bytes of a launch's parameters."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cudakit import binding
from cudakit.arguments import Argument, describe
from cudakit.compiled import Compiled
from cudakit.config import Config, Cover, spread
from cudakit.deduce import Evidence
from cudakit.dispatch import evaluate
from cudakit.emulator.machine import Geometry, Launch, Module, run
from cudakit.emulator.memory import Memory
from cudakit.emulator.ptx import Function, parse
from cudakit.emulator.stream import EmulatedStream
from cudakit.errors import ArgumentError, LaunchError
from cudakit.slots import Slot
from cudakit.specialise import Specialization

#: Limits of the arches that are emulated, as the CUDA programming guide's table of compute capabilities has them.
_MOST_THREADS = 1024
_SHARED_BYTES = {"sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
_COVER_THREADS = 256


@dataclasses.dataclass
class Emulated:
    """A specialization decoded for the emulator; later launches parse nothing."""

    specialization: Specialization
    compiled: Compiled
    slots: tuple[Slot, ...]
    module: Module
    entry: Function


def prepare(specialization: Specialization, compiled: Compiled, slots: tuple[Slot, ...]) -> Emulated:
    """Parse compiled PTX and find the kernel in it."""
    program = parse(compiled.code.decode())
    entry = program.functions[compiled.lowered[specialization.name_expression]]
    if len(entry.parameters) != len(slots):
        raise ArgumentError(
            f"{specialization.name_expression}: the compiled kernel has {len(entry.parameters)} parameters, its "
            f"signature {len(slots)}"
        )
    return Emulated(specialization, compiled, slots, Module(program, Memory()), entry)


def describe_host(value: Any) -> Argument:
    """Describe an argument of a call on the emulator: as on a GPU, but arrays are NumPy's.

    Raises
    ------
    ArgumentError
        For an array in device memory.
    """
    if isinstance(value, np.ndarray) and not (value.shape == () and value.dtype.names is not None):
        if not value.dtype.isnative:
            raise ArgumentError(f"numpy array has dtype {value.dtype.str}, which is not in native byte order")
        words = f"numpy array of {value.dtype} with shape {value.shape}"
        evidence = Evidence("array", words, value.dtype, value.ndim, not value.flags.writeable)
        size = max(1, value.dtype.itemsize)
        strides = tuple(step // size for step in value.strides)
        address = int(value.__array_interface__["data"][0])
        return Argument(
            value, "memory", evidence, None, address, value.flags.c_contiguous, value.shape, strides, address
        )
    found = describe(value)
    if found.evidence.kind == "array":
        raise ArgumentError(f"{found.evidence.shown} is in device memory; the emulator takes NumPy arrays")
    return found


def launch(emulated: Emulated, stream: EmulatedStream, given: Config | Cover, described: Sequence[Argument]) -> None:
    """Check the arguments, run the kernel to its end.

    Raises
    ------
    ArgumentError, LaunchError, EmulationError
    """
    specialization, entry = emulated.specialization, emulated.entry
    target = binding.Target(specialization.name_expression, 0, False)
    memory = emulated.module.memory
    added: list[int] = []
    packed = bytearray()
    try:
        for slot, argument, variable in zip(emulated.slots, described, entry.parameters, strict=True):
            data = _bytes(slot, argument, target, variable.size)
            if argument.family == "memory":
                added.append(memory.add(argument.value, slot.name, argument.evidence.readonly))
            packed += bytes(-len(packed) % max(1, variable.align)) + data[: variable.size].ljust(variable.size, b"\0")
        geometry = _geometry(emulated, stream, given)
        run(Launch(emulated.module, entry, geometry, bytes(packed), stream.output, (), stream.step_budget))
    finally:
        for address in added:
            memory.remove(address)


def _bytes(slot: Slot, argument: Argument, target: binding.Target, size: int) -> bytes:
    """The bytes that a parameter is given."""
    fragment = binding.bind(slot, argument, target, size, False)
    if argument.family == "memory":
        if slot.kind == "strided":
            return struct.pack(f"<Q{2 * slot.count}q", argument.pointer, *argument.shape, *argument.strides)
        return struct.pack("<Q", argument.pointer)
    value = evaluate(fragment, argument.value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    return struct.pack("<d", value) if isinstance(value, float) else (value & (2**64 - 1)).to_bytes(8, "little")


def _geometry(emulated: Emulated, stream: EmulatedStream, given: Config | Cover) -> Geometry:
    name, directives = emulated.specialization.name_expression, emulated.entry.directives
    own = prod(directives.get("maxntid") or directives.get("reqntid") or (_MOST_THREADS,))
    config = spread(given, min(_COVER_THREADS, own)) if isinstance(given, Cover) else given
    threads = prod(config.block)
    if threads > _MOST_THREADS or config.block[2] > 64:
        raise LaunchError(f"{name}: a block of {threads} threads {config.block} is over the limit {_MOST_THREADS}")
    if threads > own:
        raise LaunchError(f"{name}: a block of {threads} threads {config.block} is over this kernel's own limit {own}")
    _, static = emulated.module.shared_layout()
    most = _SHARED_BYTES.get(stream.arch.rstrip("af"), 227 * 1024)
    if static + config.shared_bytes > most:
        raise LaunchError(
            f"{name}: shared memory a block is {static + config.shared_bytes} bytes ({static} static, "
            f"{config.shared_bytes} dynamic), over the limit {most} bytes of {stream.arch}"
        )
    return Geometry(config.grid, config.block, config.shared_bytes, config.cluster or (1, 1, 1))
