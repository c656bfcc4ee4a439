"""Asynchronous copies, done at once: PTX ISA 9.7.9.25 (cp.async and its groups)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudakit.emulator.access import check_vector
from cudakit.emulator.decode import Context, Frame, Step, instruction
from cudakit.emulator.mbarrier import apply
from cudakit.emulator.memory import Index
from cudakit.emulator.ptx import Immediate, Instruction, Register
from cudakit.errors import EmulationError

if TYPE_CHECKING:
    from cudakit.emulator.machine import Machine


@instruction("cp", "9.7.9.25")
def cp(given: Instruction, context: Context) -> Step:
    """``cp.async``; bulk and tensor copies are not here."""
    parts = given.modifiers
    if parts[0] != "async" or "bulk" in parts:
        raise EmulationError(str(given))
    if "mbarrier" in parts:
        return _arrive(given, context)
    if {"commit_group", "wait_group", "wait_all"} & set(parts):
        # Copies are complete when they return, so that no group is ever open.
        return lambda frame, index, machine: None
    target, source, size, *rest = given.operands
    if "L2::cache_hint" in parts:
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
            length = np.minimum(np.broadcast_to(used(frame, index, machine), lanes.shape).astype(np.int64), total)
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


def _arrive(given: Instruction, context: Context) -> Step:
    """``cp.async.mbarrier.arrive``: without ``.noinc`` it expects its own arrival, which leaves nothing to do."""
    space = "shared" if any(part.startswith("shared") for part in given.modifiers) else "generic"
    address = context.address(given.operands[0], space)
    counts = "noinc" in given.modifiers

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if counts:
            apply(machine, space, address(frame, index, machine), index, 1, 0, 0)

    return step
