"""Asynchronous copies by threads, done at once: PTX ISA 9.7.9.25.3 (cp.async and its groups)."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.instructions.access import check_vector, space_of
from cudakit.emulator.instructions.mbarrier import apply
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction, Register
from cudakit.errors import EmulationError


@instruction("cp.async", "9.7.9.25.3.1")
def cp_async(given: Instruction, context: Context) -> Step:
    target, source, size, *rest = given.operands
    if "L2::cache_hint" in given.modifiers:
        rest.pop()
    if not isinstance(size, Immediate):
        raise EmulationError("the size of cp.async is no constant")
    total = size.value
    to, of = context.address(target, "shared"), context.address(source, "global")
    ignore = used = None
    if rest and isinstance(rest[0], Register) and context.function.registers.get(rest[0].name) == "pred":
        ignore = context.read(rest[0], "pred")
    elif rest:
        used = context.read(rest[0], "u32")
    dtype = np.dtype("u4") if total == 4 else np.dtype("u8")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        targets, sources = to(frame, index, machine), of(frame, index, machine)
        check_vector(targets, total)
        check_vector(sources, total)
        lanes = np.arange(machine.lanes) if index is None else index
        length = np.full(lanes.size, total)
        if used is not None:
            length = np.broadcast_to(used(frame, index, machine), lanes.shape).astype(np.int64)
            if (length > total).any():
                raise EmulationError(f"a copy of {total} bytes from a source of {int(length.max())}")
        if ignore is not None:
            length = np.where(ignore(frame, index, machine), 0, length)
        memory = machine.memory
        full = length == total
        for chosen, unit in ((full, dtype), (~full, np.dtype("u1"))):
            places = np.flatnonzero(chosen)
            for start in range(0, total if places.size else 0, unit.itemsize):
                # Bytes past the source's size become zero, and are not read.
                within = places[length[places] > start]
                values = np.zeros(places.size, unit)
                if within.size:
                    found = memory.load("global", sources[within] + np.uint64(start), unit, lanes[within])
                    values[np.searchsorted(places, within)] = found
                memory.store("shared", targets[places] + np.uint64(start), values, lanes[places])

    return step


@instruction("cp.async.commit_group", "9.7.9.25.3.2")
@instruction("cp.async.wait_group", "9.7.9.25.3.3")
@instruction("cp.async.wait_all", "9.7.9.25.3.3")
@instruction("cp.async.bulk.commit_group", "9.7.9.27.2.1")
@instruction("cp.async.bulk.wait_group", "9.7.9.27.2.2")
@instruction("cp.async.bulk.prefetch", "9.7.9.25.4.3")
def nothing(given: Instruction, context: Context) -> Step:
    """Copies are complete when they return, so that no group is ever open; caches there are none of."""
    return lambda frame, index, machine: None


@instruction("cp.async.mbarrier.arrive", "9.7.13.15.15")
def arrive(given: Instruction, context: Context) -> Step:
    """Without ``.noinc`` it expects its own arrival, which leaves nothing to do."""
    space = space_of(given)
    address = context.address(given.operands[0], space)
    counts = "noinc" in given.modifiers

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if counts:
            apply(machine, space, address(frame, index, machine), index, 1, 0, 0)

    return step


@instruction("createpolicy", "9.7.9.18")
def createpolicy(given: Instruction, context: Context) -> Step:
    """A cache policy, which says nothing here."""
    write = context.write(given.operands[0], "b64")
    return lambda frame, index, machine: write(frame, index, np.uint64(0))
