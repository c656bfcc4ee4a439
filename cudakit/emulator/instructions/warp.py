"""Warp collectives: PTX ISA 9.7.9.6 (shfl), 9.7.13.8 – 9.7.13.14 (vote, match, redux, elect).

A lane waits at a collective for every lane in its member mask that has not exited. These lanes must come to an
instruction with the same name and mask, but not at the same place: the ISA asks for equal qualifiers and masks only.
A lane that must wait leaves its inputs at a `_Rendezvous`, and the last lane computes for all. Nearly always all
members come together, and no lane waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.instructions.access import type_of
from cudakit.emulator.instructions.rounding import quieted
from cudakit.emulator.machine.decode import DTYPES, Context, Control, Reader, Step, Writer, control, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_WARP, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Group, Instruction, Operand
from cudakit.errors import EmulationError

#: compute(interpreter, lanes, member mask of each lane's operation, inputs) → outputs
Compute: TypeAlias = Callable[[Machine, Index, np.ndarray, list[Any]], tuple[Any, ...]]


@dataclass(slots=True)
class _Rendezvous:
    """Lanes that wait for other lanes at collectives with one name, with the inputs of the waiting lanes."""

    compute: Compute
    waiting: np.ndarray
    masks: np.ndarray
    inputs: list[np.ndarray]
    #: Frame and writers of each place where lanes wait.
    places: dict[int, tuple[Frame, list[Writer]]] = field(default_factory=dict)

    def release(self, machine: Machine) -> None:
        """Let lanes go on if all other members of their mask have come or exited."""
        lanes = np.flatnonzero(self.waiting)
        if lanes.size == 0:
            return
        masks = self.masks[lanes]
        if (masks == masks[0]).all():
            present = lane_values(machine, lanes, warp_bits(machine, lanes))
        else:
            # Only lanes with equal masks converge; a sum of distinct powers of two below 2³² is exact in float64.
            _, group = np.unique(machine.warp_of[lanes] << 32 | masks, return_inverse=True)
            bits = np.ldexp(1.0, machine.lane_id[lanes].astype(np.int32))
            present = np.bincount(group, bits)[group].astype(np.uint32)
        members = masks & lane_values(machine, lanes, _alive(machine))
        complete = (members & ~present) == 0
        ready = lanes[complete]
        if ready.size == 0:
            return
        outputs = self.compute(machine, ready, members[complete], [input_values[ready] for input_values in self.inputs])
        places = machine.place[ready]
        for place in np.unique(places):
            frame, writes = self.places[int(place)]
            at_place = places == place
            for write, output in zip(writes, outputs, strict=False):
                write(frame, ready[at_place], np.broadcast_to(output, ready.shape)[at_place])
        self.waiting[ready] = False
        machine.status[ready] = RUNNING


def warp_bits(machine: Machine, lanes: Index, truths: Any = True) -> np.ndarray:
    """Return a 32-bit mask for each warp, shape (warps,): bit i is the truth value of its lane i.

    Bits of lanes outside `lanes` are 0. `truths` has a value for each of `lanes`, or one for all.
    """
    warps = -(-machine.threads // 32) * machine.blocks
    if lanes is None and machine.threads % 32 == 0:
        flags = np.broadcast_to(truths, (machine.lanes,))
    else:
        flags = np.zeros(32 * warps, bool)
        # Where blocks end within a warp, lanes are fewer than 32 · warps.
        flags[machine.slots if lanes is None else machine.slots[lanes]] = truths
    bits: np.ndarray = np.packbits(flags, bitorder="little").view("<u4")
    return bits


def by_warp(machine: Machine, lanes: Index, values: Any) -> np.ndarray:
    """Return `values` as a table (warps, 32); zero for lanes outside `lanes`."""
    values = np.asarray(values)
    if lanes is None and machine.threads % 32 == 0:
        return np.broadcast_to(values, (machine.lanes,)).reshape(-1, 32)
    table = np.zeros(-(-machine.threads // 32) * machine.blocks * 32, values.dtype)
    table[machine.slots if lanes is None else machine.slots[lanes]] = values
    return table.reshape(-1, 32)


def lane_values(machine: Machine, lanes: Index, per_warp: np.ndarray) -> np.ndarray:
    """Return the value of each lane's warp, from one value a warp."""
    values: np.ndarray = per_warp[machine.warp_of if lanes is None else machine.warp_of[lanes]]
    return values


def _lowest(members: np.ndarray) -> np.ndarray:
    """Return the number of the lowest set bit of each mask."""
    wide = members.astype(np.int64)
    return np.asarray(np.frexp((wide & -wide).astype(np.float64))[1] - 1)


def _alive(machine: Machine) -> np.ndarray:
    """Return each warp's mask of lanes that have not exited."""
    return warp_bits(machine, None, machine.status != DONE)


def synchronised(
    key: str, mask: Reader | None, reads: list[tuple[Reader, np.dtype]], compute: Compute, writes: list[Writer]
) -> Control:
    """Return a control of a warp collective: it waits for member lanes, then writes the results of `compute`.

    Parameters
    ----------
    key : str
        Name of the collective.
    mask : callable or None
        Reader of the member mask. None: the members are the active lanes, and no lane waits.
    reads : list of (callable, numpy.dtype)
        Reader and dtype of each input.
    compute : callable
        Function of the interpreter, lanes, members and inputs that returns the outputs.
    writes : list of callable
        Writer of each output.
    """

    def converge(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        inputs = [read(frame, active, machine) for read, _ in reads]
        if mask is None:
            members = lane_values(machine, active, warp_bits(machine, active))
        else:
            masks = np.asarray(mask(frame, active, machine))
            lane = machine.lane_id if active is None else machine.lane_id[active]
            own = (masks >> lane) & np.uint32(1)
            if not own.all():
                bad = int(np.flatnonzero(own == 0)[0])
                mask_of_lane = int(np.broadcast_to(masks, lane.shape)[bad])
                raise EmulationError(f"lane {int(lane[bad])} is not in its own member mask {mask_of_lane:#010x}")
            members = masks & lane_values(machine, active, _alive(machine))
            if active is not None:
                absent = members & ~lane_values(machine, active, warp_bits(machine, active))
                if absent.any():
                    _leave(machine, frame, active, masks, inputs)
                    return False
        for write, output in zip(writes, compute(machine, active, members, inputs), strict=False):
            write(frame, active, output)
        return True

    def _leave(machine: Machine, frame: Frame, lanes: np.ndarray, masks: np.ndarray, inputs: list[Any]) -> None:
        rendezvous = machine.waiters.get(key)
        if rendezvous is None:
            rendezvous = machine.waiters[key] = _Rendezvous(
                compute,
                np.zeros(machine.lanes, bool),
                np.zeros(machine.lanes, np.uint32),
                [np.zeros(machine.lanes, dtype) for _, dtype in reads],
            )
        assert isinstance(rendezvous, _Rendezvous)
        rendezvous.waiting[lanes] = True
        rendezvous.masks[lanes] = masks
        for stored, value in zip(rendezvous.inputs, inputs, strict=True):
            stored[lanes] = value
        rendezvous.places[int(machine.place[lanes[0]])] = (frame, writes)
        machine.status[lanes] = AT_WARP
        rendezvous.release(machine)

    return converge


def _writers(context: Context, target: Operand) -> list[Writer]:
    """Return writers for the 32-bit result and the predicate of ``d|p``, or only the first for ``d`` alone."""
    items = target.items if isinstance(target, Group) and target.notation == "pair" else (target,)
    return [context.write(item, type_name) for item, type_name in zip(items, ("b32", "pred"), strict=False)]


def shuffle_source(mode: str, lane: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return the lane that each `lane` reads from in a shuffle, and whether this source is in range.

    A source out of range is the lane itself. `b` and `c` are the operands of PTX ISA 9.7.9.6.
    """
    lane, b, c = (np.asarray(x).astype(np.int32) for x in (lane, b, c))
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    most = (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source = lane - b
        inside = source >= most
    elif mode == "idx":
        source = (lane & segment) | (b & ~segment)
        inside = source <= most
    else:
        source = lane + b if mode == "down" else lane ^ b
        inside = source <= most
    return np.where(inside, source, lane), inside


@control("shfl")
def shfl(instr: Instruction, context: Context) -> Control:
    target, a, b, c, *rest = instr.operands
    mode = next(m for m in instr.modifiers if m in ("up", "down", "bfly", "idx"))
    mask = context.read(rest[0], "b32") if "sync" in instr.modifiers else None
    word = np.dtype("u4")
    reads = [(context.read(x, "b32"), word) for x in (a, b, c)]

    def compute(machine: Machine, lanes: Index, members: np.ndarray, inputs: list[Any]) -> tuple[Any, ...]:
        values, distance, clamp = inputs
        lane = machine.lane_id if lanes is None else machine.lane_id[lanes]
        source, inside = shuffle_source(mode, lane, distance, clamp)
        warp = machine.warp_of if lanes is None else machine.warp_of[lanes]
        moved = by_warp(machine, lanes, values).reshape(-1)[warp * 32 + source]
        # A lane that reads from a non-member gets an undefined value: zero here, so that runs are equal.
        takes_part = (members >> source.astype(np.uint32)) & np.uint32(1)
        return moved * takes_part, inside

    return synchronised(str(instr), mask, reads, compute, _writers(context, target))


@control("vote")
def vote(instr: Instruction, context: Context) -> Control:
    target, a, *rest = instr.operands
    mode = next(m for m in instr.modifiers if m in ("all", "any", "uni", "ballot"))
    mask = context.read(rest[0], "b32") if "sync" in instr.modifiers else None

    def compute(machine: Machine, lanes: Index, members: np.ndarray, inputs: list[Any]) -> tuple[Any, ...]:
        bits = lane_values(machine, lanes, warp_bits(machine, lanes, inputs[0])) & members
        if mode == "ballot":
            return (bits,)
        if mode == "any":
            return (bits != 0,)
        every = bits == members
        return (every | (bits == 0) if mode == "uni" else every,)

    write = context.write(target, "b32" if mode == "ballot" else "pred")
    return synchronised(str(instr), mask, [(context.read(a, "pred"), np.dtype("?"))], compute, [write])


@control("match")
def match(instr: Instruction, context: Context) -> Control:
    target, a, member_mask = instr.operands
    type_name = type_of(instr)
    every = "all" in instr.modifiers

    def compute(machine: Machine, lanes: Index, members: np.ndarray, inputs: list[Any]) -> tuple[Any, ...]:
        values = by_warp(machine, lanes, inputs[0])
        if every:
            warp = machine.warp_of if lanes is None else machine.warp_of[lanes]
            first = values.reshape(-1)[warp * 32 + _lowest(members)]
            own = np.broadcast_to(inputs[0], first.shape)
            # Where masks divide a warp, each lane compares with the lowest lane of its part.
            same_bits = lane_values(machine, lanes, warp_bits(machine, lanes, own == first))
            all_equal = (same_bits & members) == members
            return np.where(all_equal, members, np.uint32(0)), all_equal
        equal = values[:, :, None] == values[:, None, :]
        bits = np.packbits(equal.reshape(-1, 32), axis=1, bitorder="little").view("<u4").reshape(-1)
        return (bits[machine.slots if lanes is None else machine.slots[lanes]] & members,)

    reads = [(context.read(a, type_name), DTYPES[type_name])]
    return synchronised(str(instr), context.read(member_mask, "b32"), reads, compute, _writers(context, target))


_REDUCE: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@control("redux")
def redux(instr: Instruction, context: Context) -> Control:
    target, a, member_mask = instr.operands
    type_name = type_of(instr)
    operation = next(m for m in instr.modifiers if m in _REDUCE)
    function = _REDUCE[operation]
    absolute, propagate = "abs" in instr.modifiers, "NaN" in instr.modifiers
    if type_name == "f32":
        function = {
            ("min", False): np.fmin, ("max", False): np.fmax, ("min", True): np.minimum, ("max", True): np.maximum,
        }[operation, propagate]  # fmt: skip

    def compute(machine: Machine, lanes: Index, members: np.ndarray, inputs: list[Any]) -> tuple[Any, ...]:
        values = np.abs(inputs[0]) if absolute else inputs[0]
        if type_name == "f32":
            values = quieted(values)
        warp = machine.warp_of if lanes is None else machine.warp_of[lanes]
        part = warp * 32 + _lowest(members)
        order = np.argsort(part, kind="stable")
        values = np.broadcast_to(values, part.shape)[order]
        starts = np.flatnonzero(np.diff(part[order], prepend=-1))
        reduced = function.reduceat(values, starts)
        result = np.empty(part.size, reduced.dtype)
        result[order] = np.repeat(reduced, np.diff(starts, append=part.size))
        if type_name == "f32":
            bits = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), result.view(np.uint32))
            return (bits.view(np.float32),)
        return (result,)

    reads = [(context.read(a, type_name), DTYPES[type_name])]
    write = context.write(target, type_name)
    return synchronised(str(instr), context.read(member_mask, "b32"), reads, compute, [write])


@control("elect")
def elect(instr: Instruction, context: Context) -> Control:
    target, member_mask = instr.operands

    def compute(machine: Machine, lanes: Index, members: np.ndarray, inputs: list[Any]) -> tuple[Any, ...]:
        leader = _lowest(members).astype(np.uint32)
        return leader, leader == (machine.lane_id if lanes is None else machine.lane_id[lanes])

    return synchronised(str(instr), context.read(member_mask, "b32"), [], compute, _writers(context, target))


def warp_barrier(instr: Instruction, context: Context) -> Control:
    """Make the control of ``bar.warp.sync``: PTX ISA 9.7.13.2."""
    mask = context.read(instr.operands[0], "b32")
    return synchronised(str(instr), mask, [], lambda machine, lanes, members, inputs: (), [])


@instruction("activemask")
def activemask(instr: Instruction, context: Context) -> Step:
    write = context.write(instr.operands[0], "b32")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, lane_values(machine, index, warp_bits(machine, index)))

    return step
