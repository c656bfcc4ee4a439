"""Asynchronous copies: PTX ISA 9.7.9.25.3 (by threads: cp.async and its groups) and 9.7.9.25.4 (bulk copies).

Stores that complete on an mbarrier are here too: PTX ISA 9.7.9.12 and 9.7.13.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.instructions.access import CHUNK, check_vector, parts, space_of, st, type_of
from cudakit.emulator.instructions.atomic import COMPUTED, change, red
from cudakit.emulator.instructions.barrier import apply, numbers_of
from cudakit.emulator.machine.decode import DTYPES, Context, Maker, Reader, Step, constant_of, instruction
from cudakit.emulator.machine.late import Awaited, Copies, Part
from cudakit.emulator.machine.memory import RANK_SHIFT, READ, STRONG_WRITE, WRITE, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand, Register
from cudakit.errors import EmulationError


@instruction("cp.async")
def cp_async(instr: Instruction, context: Context) -> Step:
    target, source, size, *rest = instr.operands
    if "L2::cache_hint" in instr.modifiers:
        rest.pop()
    total = constant_of(size, "the size of cp.async")
    to, read_at = context.address(target, "shared"), context.address(source, "global")
    ignore = used = None
    if rest and isinstance(rest[0], Register) and context.function.registers.get(rest[0].name) == "pred":
        ignore = context.read(rest[0], "pred")
    elif rest:
        used = context.read(rest[0], "u32")
    dtype = np.dtype("u4") if total == 4 else np.dtype("u8")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        targets, sources = to(frame, index, machine), read_at(frame, index, machine)
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
                    loaded = memory.load("global", sources[within] + np.uint64(start), unit, lanes[within])
                    values[np.searchsorted(places, within)] = loaded
                memory.store("shared", targets[places] + np.uint64(start), values, lanes[places])

        if machine.late is None:
            land()
            return
        # Registers may change before the copy lands.
        targets, sources = targets.copy(), sources.copy()
        read = np.flatnonzero(full)
        # An invalid copy raises here, not where it is waited for.
        last = np.uint64(total - dtype.itemsize)
        for shift in (np.uint64(0), last):
            memory.views("shared", targets + shift, dtype, lanes, WRITE)
            memory.views("global", sources[read] + shift, dtype, lanes[read], READ)
        reads = (Part("global", read, sources[read], total),)
        writes = (Part("shared", np.arange(lanes.size), targets, total),)
        machine.late.issue(Copies(instr, "group", lanes, land, reads, writes))

    return step


@instruction("cp.async.commit_group", "cp.async.bulk.commit_group")
def commit(instr: Instruction, context: Context) -> Step:
    awaited: Awaited = "bulk" if "bulk" in instr.modifiers else "group"

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if machine.late is not None:
            machine.late.commit(awaited, np.arange(machine.lanes) if index is None else index)

    return step


@instruction("cp.async.wait_group", "cp.async.wait_all", "cp.async.bulk.wait_group")
def wait(instr: Instruction, context: Context) -> Step:
    """Make a step that waits for copies; it does nothing if copies land at once."""
    awaited: Awaited = "bulk" if "bulk" in instr.modifiers else "group"
    but = constant_of(instr.operands[0], "the number of groups") if "wait_group" in instr.modifiers else None

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        if machine.late is not None:
            machine.late.wait(awaited, np.arange(machine.lanes) if index is None else index, but)

    return step


@instruction("cp.async.mbarrier.arrive")
def arrive(instr: Instruction, context: Context) -> Step:
    """Make a step that arrives on an mbarrier when the copies are done; without ``.noinc`` its count stays the same."""
    space = space_of(instr)
    address = context.address(instr.operands[0], space)
    counts = "noinc" in instr.modifiers

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

        late.issue(Copies(instr, "mbarrier", lanes, land, barriers=numbers_of(machine, space, where, lanes)))

    return step


@instruction("createpolicy")
def createpolicy(instr: Instruction, context: Context) -> Step:
    """Make a step that writes a zero as cache policy: there are no caches."""
    write = context.write(instr.operands[0], "b64")
    return lambda frame, index, machine: write(frame, index, np.uint64(0))


# ── bulk copies ──

#: Dtype for checks of accesses, by their bytes.
DTYPE_OF: dict[int, np.dtype] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8"), 16: CHUNK}
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
#: Types of cp.reduce.async.bulk for each operation.
_REDUCED = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), ("b32", "b64")),
}
_SPACES = {"shared::cluster": "cluster", "shared::cta": "shared", "shared": "shared", "global": "global"}
#: Destination of copies: positions of the copying lanes, addresses of the data and of the mbarrier.
Destination: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
Destinations: TypeAlias = Callable[[Machine, Frame, Index, np.ndarray], Iterator[Destination]]


def spaces(instr: Instruction) -> tuple[str, str]:
    """Return the state spaces that a bulk copy writes to and reads from, in this order.

    Raises
    ------
    EmulationError
        For a pair of spaces between which PTX has no bulk copy.
    """
    to, source_space = (_SPACES[part] for part in instr.modifiers if part in _SPACES)
    if (to, source_space) not in (
        ("cluster", "global"),
        ("shared", "global"),
        ("cluster", "shared"),
        ("global", "shared"),
    ):
        raise EmulationError(f"{instr} copies from {source_space} to {to} memory")
    return to, source_space


def check_multiple(values: np.ndarray, factor: int, description: str) -> None:
    """Check that addresses or sizes of a bulk copy are multiples of `factor`."""
    misaligned = values % np.asarray(factor, values.dtype) != 0
    if misaligned.any():
        raise EmulationError(f"{description} {int(values[misaligned][0]):#x} is not a multiple of {factor} bytes")


def complete(
    machine: Machine, space: str, barriers: np.ndarray, lanes: np.ndarray, targets: np.ndarray, count: Any
) -> None:
    """Subtract `count` bytes that landed at `targets` from the bytes that copies owe, on each lane's mbarrier.

    `barriers` and `targets` are addresses in `space`, one for each of `lanes`.

    Raises
    ------
    EmulationError
        If an mbarrier is in another block than its target.
    """
    if space == "cluster":
        memory = machine.memory
        if (memory.blocks_at(barriers, lanes) != memory.blocks_at(targets, lanes)).any():
            raise EmulationError("the mbarrier is not in the shared memory of the block that the copy goes to")
    apply(machine, space, barriers, lanes, 0, -np.asarray(count, np.int64), 0)


def destinations(instr: Instruction, context: Context, to: str, operands: list[Operand]) -> Destinations:
    """Return a function that yields each block's part of a copy to shared memory.

    It removes the operands that it needs from the list `operands`. A copy to global memory is one part and counts on no
    mbarrier.
    """
    if to == "global":
        return lambda machine, frame, index, targets: iter([(np.arange(targets.size), targets, targets[:0])])
    barrier = context.address(operands.pop(0), to)
    mask: Reader | None = None
    if "multicast::cluster" in instr.modifiers:
        mask = context.read(operands.pop(0), "u16")

    def by_block(machine: Machine, frame: Frame, index: Index, targets: np.ndarray) -> Iterator[Destination]:
        barriers = barrier(frame, index, machine)
        if mask is None:
            yield np.arange(targets.size), targets, barriers
            return
        block_masks = np.broadcast_to(mask(frame, index, machine), targets.shape)
        blocks = machine.memory.cluster
        if blocks < 16 and (block_masks >> np.uint16(blocks)).any():
            raise EmulationError(
                f"a multicast to blocks {int(block_masks.max()):#b} of a cluster, which has {blocks} blocks"
            )
        offset = np.uint64((1 << RANK_SHIFT) - 1)
        for rank in range(blocks):
            lanes = np.flatnonzero(block_masks >> np.uint16(rank) & np.uint16(1))
            if lanes.size:
                block_bits = np.uint64(rank + 1 << RANK_SHIFT)
                yield lanes, targets[lanes] & offset | block_bits, barriers[lanes] & offset | block_bits

    return by_block


def perform(machine: Machine, copies: Copies) -> None:
    """Perform copies at once, or issue them to land when a thread waits for them."""
    if machine.late is None:
        copies.land(np.arange(copies.lanes.size))
        return
    for parts_of, use in ((copies.reads, READ), (copies.writes, WRITE)):
        for part in parts_of:
            # An invalid copy raises here, not where it is waited for.
            machine.memory.views(part.space, part.addresses, DTYPE_OF[part.size], copies.lanes[part.positions], use)
    machine.late.issue(copies)


def _spread(sizes: np.ndarray, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Split copies of `sizes` bytes into units of `unit` bytes.

    Return for each unit the index of its copy, and its byte offset in the copy.
    """
    counts = sizes // unit
    copy = np.repeat(np.arange(sizes.size), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return copy, ((np.arange(copy.size) - first) * unit).astype(np.uint64)


def reduction(instr: Instruction, type_name: str, space: str) -> tuple[np.dtype, Callable[..., None]]:
    """Return the dtype to compute in, and a function that combines memory with values by the instruction's operation.

    The function takes the interpreter, addresses in `space`, values and lanes, and writes the results to memory.
    """
    operation = next(part for part in instr.modifiers if part in REDUCTIONS)
    dtype = COMPUTED.get(type_name, DTYPES[type_name])

    def reduce(machine: Machine, addresses: np.ndarray, values: np.ndarray, lanes: np.ndarray) -> None:
        for view, elements, positions in machine.memory.views(space, addresses, dtype, lanes, STRONG_WRITE):
            change(operation, type_name, space == "global", False, view, elements, values[positions], None)

    return dtype, reduce


@instruction("cp.async.bulk", "cp.reduce.async.bulk")
def bulk(instr: Instruction, context: Context) -> Step:
    to, source_space = spaces(instr)
    target, source, size, *rest = instr.operands
    write_at, read_at, length = (
        context.address(target, to),
        context.address(source, source_space),
        context.read(size, "u32"),
    )
    destinations_of = destinations(instr, context, to, rest)
    dtype, reduce = CHUNK, None
    if instr.modifiers[0] == "reduce":
        type_name = type_of(instr)
        if not any(type_name in _REDUCED.get(part, ()) for part in instr.modifiers):
            raise EmulationError(f"{instr} of type .{type_name}")
        dtype, reduce = reduction(instr, type_name, to)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        lanes = np.arange(machine.lanes) if index is None else index
        targets, sources = write_at(frame, index, machine), read_at(frame, index, machine)
        sizes = np.broadcast_to(length(frame, index, machine), lanes.shape).astype(np.int64)
        for values, description in ((targets, "destination"), (sources, "source"), (sizes, "size")):
            check_multiple(values, CHUNK.itemsize, description)
        targets, sources = targets.copy(), sources.copy()  # registers may change before it lands

        def move(chosen: np.ndarray, target_addresses: np.ndarray) -> None:
            """Copy for the lanes at the positions `chosen`, each from its source to its target address."""
            copy, offset = _spread(sizes[chosen], dtype.itemsize)
            lane_of = lanes[chosen[copy]]
            data = machine.memory.load(source_space, sources[chosen[copy]] + offset, dtype, lane_of)
            if reduce is None:
                machine.memory.store(to, target_addresses[copy] + offset, data, lane_of)
            else:
                reduce(machine, target_addresses[copy] + offset, data, lane_of)

        for chosen, block_targets, barriers in destinations_of(machine, frame, index, targets):
            held_targets, ends = block_targets.copy(), barriers.copy()

            def land(
                some: np.ndarray, chosen: Any = chosen, target_addresses: Any = held_targets, ends: Any = ends
            ) -> None:
                move(chosen[some], target_addresses[some])
                if ends.size:
                    complete(machine, to, ends[some], lanes[chosen[some]], target_addresses[some], sizes[chosen[some]])

            copy, offset = _spread(sizes[chosen], dtype.itemsize)
            reads = (Part(source_space, copy, sources[chosen[copy]] + offset, dtype.itemsize),)
            writes = (Part(to, copy, held_targets[copy] + offset, dtype.itemsize),)
            numbers = numbers_of(machine, to, ends, lanes[chosen]) if ends.size else None
            awaited: Awaited = "mbarrier" if ends.size else "bulk"
            perform(machine, Copies(instr, awaited, lanes[chosen], land, reads, writes, numbers))

    return step


def _completing(instr: Instruction, context: Context, maker: Maker) -> Step:
    """Make a step that stores or reduces, then counts the bytes on an mbarrier."""
    *operands, barrier = instr.operands
    if len(operands) != 2:
        raise EmulationError(f"{instr} without an mbarrier")
    space = space_of(instr)
    act = maker(replace(instr, operands=tuple(operands)), context)
    target, counted = context.address(operands[0], space), context.address(barrier, space)
    size = DTYPES[type_of(instr)].itemsize * len(parts(operands[1]))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        act(frame, index, machine)
        lanes = np.arange(machine.lanes) if index is None else index
        complete(machine, space, counted(frame, index, machine), lanes, target(frame, index, machine), size)

    return step


@instruction("st.async")
def st_async(instr: Instruction, context: Context) -> Step:
    return _completing(instr, context, st)


@instruction("red.async")
def red_async(instr: Instruction, context: Context) -> Step:
    return _completing(instr, context, red)
