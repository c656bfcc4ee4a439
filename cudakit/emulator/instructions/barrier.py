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
class _Barrier:
    """A barrier of each block: which lanes have come to it, which wait there, for how many, and their inputs."""

    come: np.ndarray
    waits: np.ndarray
    expected: np.ndarray
    held: np.ndarray
    #: Frame, writer and reduction of each place where lanes wait for a result.
    places: dict[int, tuple[Frame, Writer, str]] = field(default_factory=dict)

    def release(self, machine: Machine) -> None:
        """Let lanes go on where all that they wait for have come."""
        come = np.flatnonzero(self.come)
        if come.size == 0:
            return
        alive = np.bincount(machine.block_of[machine.status != DONE], minlength=machine.blocks)
        block, expected = machine.block_of[come], self.expected[come]
        needed = np.where(expected > 0, expected, alive[block])
        # Lanes that still run behind a bar.arrive may have exited since: they have come all the same.
        gone = np.bincount(block, (machine.status[come] == DONE) & (expected == 0), machine.blocks)[block]
        counted = np.bincount(block, minlength=machine.blocks)[block] - gone
        if expected.any():
            counted = np.where(expected > 0, _with_exited(machine, come)[block], counted)
        met = counted >= needed
        ready = come[met]
        if ready.size == 0:
            return
        waiting = met & self.waits[come]
        true = np.bincount(block[waiting], self.held[come[waiting]], machine.blocks)
        of = np.bincount(block[waiting], minlength=machine.blocks)
        places = machine.place[come]
        for place in np.unique(places[waiting]) if self.places else ():
            if int(place) in self.places:
                frame, write, reduction = self.places[int(place)]
                here = waiting & (places == place)
                write(frame, come[here], _REDUCE[reduction](true, of)[block[here]])
        self.come[ready] = False
        machine.status[come[waiting]] = RUNNING


def _barrier(machine: Machine, number: int) -> _Barrier:
    found = machine.waiters.get(f"barrier {number}")
    if found is None:
        count = machine.lanes
        found = _Barrier(np.zeros(count, bool), np.zeros(count, bool), np.zeros(count, np.int64), np.zeros(count, bool))
        machine.waiters[f"barrier {number}"] = found
    assert isinstance(found, _Barrier)
    return found


def _is_untouched(machine: Machine) -> bool:
    """Whether nobody has come to a barrier that is yet to be met."""
    return not any(isinstance(each, _Barrier) and each.come.any() for each in machine.waiters.values())


def _with_exited(machine: Machine, come: np.ndarray) -> np.ndarray:
    """Threads of each block that have come, a warp counting whole once all that is left of it has come."""
    alive, bits = warp_bits(machine, None, machine.status != DONE), warp_bits(machine, come)
    whole = (bits != 0) & ((alive & ~bits) == 0)
    counted: np.ndarray = np.where(whole, 32, np.bitwise_count(bits)).reshape(machine.blocks, -1).sum(1)
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
        together = active is None or active.size == np.count_nonzero(machine.status != DONE)
        if count is None and together and (which == which.flat[0]).all() and _is_untouched(machine):
            if write is not None:
                block = machine.block_of if active is None else machine.block_of[active]
                true = np.bincount(block, np.broadcast_to(held, block.shape), machine.blocks)
                write(frame, active, _REDUCE[reduction](true, np.bincount(block, minlength=machine.blocks))[block])
            return True
        lanes = np.arange(machine.lanes) if active is None else active
        expected = np.asarray(count(frame, active, machine) if count else 0).astype(np.int64)
        if (expected % 32).any():
            raise EmulationError(f"a barrier for {int(expected.max())} threads, which are no whole warps")
        if not arrives:
            machine.status[lanes] = AT_BARRIER
        which, expected, held = (np.broadcast_to(each, lanes.shape) for each in (which, expected, held))
        for each in np.unique(which):
            here = which == each
            own, barrier = lanes[here], _barrier(machine, int(each))
            if barrier.come[own].any():
                raise EmulationError("a thread comes to a barrier again before the others have come to it once")
            barrier.come[own], barrier.waits[own] = True, not arrives
            barrier.expected[own], barrier.held[own] = expected[here], held[here]
            if write is not None:
                barrier.places[int(machine.place[lanes[0]])] = (frame, write, reduction)
            barrier.release(machine)
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
