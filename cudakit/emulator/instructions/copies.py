"""Asynchronous copies by threads: PTX ISA 9.7.9.25.3 (cp.async and its groups)."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.instructions.access import check_vector, space_of
from cudakit.emulator.instructions.mbarrier import apply, numbers_of
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.late import Awaited, Copies, Part
from cudakit.emulator.machine.memory import READ, WRITE, Index
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

        def land(some: np.ndarray | None = None) -> None:
            for chosen, unit in ((full, dtype), (~full, np.dtype("u1"))):
                places = np.flatnonzero(chosen) if some is None else some[chosen[some]]
                move(places, unit)

        def move(places: np.ndarray, unit: np.dtype) -> None:
            for start in range(0, total if places.size else 0, unit.itemsize):
                # Bytes past the source's size become zero, and are not read.
                within = places[length[places] > start]
                values = np.zeros(places.size, unit)
                if within.size:
                    found = memory.load("global", sources[within] + np.uint64(start), unit, lanes[within])
                    values[np.searchsorted(places, within)] = found
                memory.store("shared", targets[places] + np.uint64(start), values, lanes[places])

        if machine.late is None:
            land()
            return
        # Registers may change before it lands.
        targets, sources = targets.copy(), sources.copy()
        read = np.flatnonzero(full)
        # What cannot be done is an error here, not where it is waited for.
        last = np.uint64(total - dtype.itemsize)
        for shift in (np.uint64(0), last):
            memory.views("shared", targets + shift, dtype, lanes, WRITE)
            memory.views("global", sources[read] + shift, dtype, lanes[read], READ)
        reads = (Part("global", read, sources[read], total),)
        writes = (Part("shared", np.arange(lanes.size), targets, total),)
        machine.late.issue(Copies(given, "group", lanes, land, reads, writes))

    return step


@instruction("cp.async.commit_group", "9.7.9.25.3.2")
@instruction("cp.async.bulk.commit_group", "9.7.9.27.2.1")
def commit(given: Instruction, context: Context) -> Step:
    kind: Awaited = "bulk" if "bulk" in given.modifiers else "group"

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if machine.late is not None:
            machine.late.commit(kind, np.arange(machine.lanes) if index is None else index)

    return step


@instruction("cp.async.wait_group", "9.7.9.25.3.3")
@instruction("cp.async.wait_all", "9.7.9.25.3.3")
@instruction("cp.async.bulk.wait_group", "9.7.9.27.2.2")
def wait(given: Instruction, context: Context) -> Step:
    """Those that come later may go on; what was copied once is complete where nothing lands late."""
    kind: Awaited = "bulk" if "bulk" in given.modifiers else "group"
    but = None
    if "wait_group" in given.modifiers:
        (count,) = given.operands
        if not isinstance(count, Immediate):
            raise EmulationError("the number of groups is no constant")
        but = count.value

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if machine.late is not None:
            machine.late.wait(kind, np.arange(machine.lanes) if index is None else index, but)

    return step


@instruction("cp.async.bulk.prefetch", "9.7.9.25.4.3")
def nothing(given: Instruction, context: Context) -> Step:
    """Caches there are none of."""
    return lambda frame, index, machine: None


@instruction("cp.async.mbarrier.arrive", "9.7.13.15.15")
def arrive(given: Instruction, context: Context) -> Step:
    """Without ``.noinc`` it expects its own arrival, which leaves nothing to do."""
    space = space_of(given)
    address = context.address(given.operands[0], space)
    counts = "noinc" in given.modifiers

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        late = machine.late
        if late is None:
            if counts:
                apply(machine, space, address(frame, index, machine), index, 1, 0, 0)
            return
        lanes, where = np.arange(machine.lanes) if index is None else index, address(frame, index, machine).copy()
        before = late.before(lanes)

        def land(some: np.ndarray) -> None:
            before(some)
            if counts:
                apply(machine, space, where[some], lanes[some], 1, 0, 0)

        late.issue(Copies(given, "mbarrier", lanes, land, barriers=numbers_of(machine, space, where, lanes)))

    return step


@instruction("createpolicy", "9.7.9.18")
def createpolicy(given: Instruction, context: Context) -> Step:
    """A cache policy, which says nothing here."""
    write = context.write(given.operands[0], "b64")
    return lambda frame, index, machine: write(frame, index, np.uint64(0))
