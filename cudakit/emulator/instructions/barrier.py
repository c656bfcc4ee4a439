"""Barriers of a block, and fences: PTX ISA 9.7.13.1 – 9.7.13.4.

A barrier is met when the threads it expects have come: as many as the instruction says, else all of the block. Threads
that have exited count as come: one by one for the whole block; with a count, where all that is left of their warp came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudakit.emulator.instructions.cluster import cluster_barrier
from cudakit.emulator.instructions.warp import warp_barrier, warp_bits
from cudakit.emulator.machine.context import Context, Writer
from cudakit.emulator.machine.decode import Control, Step, control, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

_BARRIERS = 16


_REDUCE: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "popc": lambda held, of: held.astype(np.uint32),
    "and": lambda held, of: held == of,
    "or": lambda held, of: held > 0,
}


@dataclass(slots=True)
class _Barriers:
    """The barriers of a machine: which each lane has come to (−1: none), whether it waits there, and its inputs."""

    at: np.ndarray
    waits: np.ndarray
    expected: np.ndarray
    held: np.ndarray
    #: Frame, writer and reduction of each place where lanes wait for a result.
    places: dict[int, tuple[Frame, Writer, str]] = field(default_factory=dict)

    def release(self, machine: Machine) -> None:
        """Let lanes go on whose barrier all that it waits for have reached."""
        come = np.flatnonzero(self.at >= 0)
        if come.size == 0:
            return
        alive = np.bincount(machine.block_of[machine.status != DONE], minlength=machine.blocks)
        group = machine.block_of[come] * _BARRIERS + self.at[come]
        groups = machine.blocks * _BARRIERS
        arrived = np.bincount(group, minlength=groups)
        expected = self.expected[come]
        needed = np.where(expected > 0, expected, alive[machine.block_of[come]])
        # Lanes that still run behind a bar.arrive may have exited since: they have come all the same.
        gone = np.bincount(group, (machine.status[come] == DONE) & (expected == 0), groups)[group]
        counted = arrived[group] - gone
        if expected.any():
            counted = np.where(expected > 0, _with_exited(machine, come, group, groups), counted)
        met = counted >= needed
        ready = come[met]
        if ready.size == 0:
            return
        waiting = met & self.waits[come]
        true = np.bincount(group[waiting], self.held[come[waiting]], groups)
        of = np.bincount(group[waiting], minlength=groups)
        places = machine.place[come]
        for place in np.unique(places[waiting]) if self.places else ():
            if int(place) in self.places:
                frame, write, reduction = self.places[int(place)]
                here = waiting & (places == place)
                write(frame, come[here], _REDUCE[reduction](true, of)[group[here]])
        self.at[ready] = -1
        machine.status[come[waiting]] = RUNNING


def _barriers(machine: Machine) -> _Barriers:
    found = machine.waiters.get("barrier")
    if found is None:
        count = machine.lanes
        found = _Barriers(np.full(count, -1), np.zeros(count, bool), np.zeros(count, np.int64), np.zeros(count, bool))
        machine.waiters["barrier"] = found
    assert isinstance(found, _Barriers)
    return found


def _with_exited(machine: Machine, come: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Threads that have come to each lane's barrier, a warp counting whole once all that is left of it has come."""
    total = np.zeros(groups, np.int64)
    alive = warp_bits(machine, None, machine.status != DONE)
    for which in np.unique(group % _BARRIERS):
        lanes = come[group % _BARRIERS == which]
        bits = warp_bits(machine, lanes)
        whole = (bits != 0) & ((alive & ~bits) == 0)
        warps = np.where(whole, 32, np.bitwise_count(bits)).reshape(machine.blocks, -1).sum(1)
        total[which::_BARRIERS] = warps
    counted: np.ndarray = total[group]
    return counted


@control("bar", "9.7.13.1")
@control("barrier", "9.7.13.1")
def bar(given: Instruction, context: Context) -> Control:
    if "cluster" in given.modifiers:
        return cluster_barrier(given, context)
    if "warp" in given.modifiers:
        return warp_barrier(given, context)
    operands = list(given.operands)
    arrives, reduction = "arrive" in given.modifiers, ""
    write: Writer | None = None
    predicate = None
    if "red" in given.modifiers:
        reduction = next(m for m in given.modifiers if m in _REDUCE)
        write = context.write(operands.pop(0), "u32" if reduction == "popc" else "pred")
        predicate = context.read(operands.pop(), "pred")
    number = context.read(operands[0], "u32") if operands else None
    count = context.read(operands[1], "u32") if len(operands) > 1 else None

    def wait(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is not None and active.size == 0:
            return True
        which = np.asarray(number(frame, active, machine) if number else 0).astype(np.int64)
        if (which >= _BARRIERS).any():
            raise EmulationError(f"barrier {int(which.max())} of {_BARRIERS}")
        held = predicate(frame, active, machine) if predicate else False
        earlier = machine.waiters.get("barrier")
        untouched = not isinstance(earlier, _Barriers) or not (earlier.at >= 0).any()
        together = active is None or active.size == np.count_nonzero(machine.status != DONE)
        if count is None and untouched and together and (which == which.flat[0]).all():
            if write is not None:
                block = machine.block_of if active is None else machine.block_of[active]
                true = np.bincount(block, np.broadcast_to(held, block.shape), machine.blocks)
                write(frame, active, _REDUCE[reduction](true, np.bincount(block, minlength=machine.blocks))[block])
            return True
        state = _barriers(machine)
        lanes = np.arange(machine.lanes) if active is None else active
        if (state.at[lanes] >= 0).any():
            raise EmulationError("a thread comes to a barrier again before the others have come to it once")
        expected = np.asarray(count(frame, active, machine) if count else 0).astype(np.int64)
        if (expected % 32).any():
            raise EmulationError(f"a barrier for {int(expected.max())} threads, which are no whole warps")
        state.at[lanes], state.waits[lanes] = which, not arrives
        state.expected[lanes], state.held[lanes] = expected, held
        if write is not None:
            state.places[int(machine.place[lanes[0]])] = (frame, write, reduction)
        if not arrives:
            machine.status[lanes] = AT_BARRIER
        state.release(machine)
        return arrives

    return wait


@control("nanosleep", "9.7.19.2")
def nanosleep(given: Instruction, context: Context) -> Control:
    """Time is steps here, so that to sleep is to let the others go first."""

    def sleep(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is None or active.size == 0:
            return True
        machine.pause(active)
        return False

    return sleep


@instruction("membar", "9.7.13.4")
@instruction("fence", "9.7.13.4")
@instruction("pmevent", "9.7.19.3")
@instruction("griddepcontrol", "9.7.13.13")
@instruction("setmaxnreg", "9.7.19.5")
def nothing(given: Instruction, context: Context) -> Step:
    """Every access is seen by all at once here, so that there is nothing to order."""
    return lambda frame, index, machine: None
