"""Thread block clusters: PTX ISA 9.7.13.3 (barrier.cluster), 9.7.9.23 (mapa) and 9.7.9.24 (getctarank)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cudakit.emulator.instructions.access import space_of, type_of
from cudakit.emulator.machine.context import Context, Frame
from cudakit.emulator.machine.decode import Control, Step, instruction
from cudakit.emulator.machine.memory import RANK_SHIFT, SHARED_WINDOW, WINDOW_BITS, Index
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

if TYPE_CHECKING:
    from cudakit.emulator.machine.machine import Machine


@dataclass(slots=True)
class _State:
    """The cluster barriers of a machine: cluster of each lane, phases completed, phase at which each lane arrived."""

    cluster_of: np.ndarray
    phase: np.ndarray
    arrived_in: np.ndarray
    arrived: np.ndarray
    waiting: np.ndarray


def _state(machine: Machine) -> _State:
    found = machine.waiters.get("cluster")
    if found is None:
        x, y, z = machine.launch.geometry.cluster
        cluster_of = machine.block_of // (x * y * z)
        none = np.zeros(machine.lanes, bool)
        phases = np.zeros(int(cluster_of[-1]) + 1, np.int64)
        found = _State(cluster_of, phases, np.full(machine.lanes, -1), none, none.copy())
        machine.waiters["cluster"] = found
    assert isinstance(found, _State)
    return found


def cluster_barrier(given: Instruction, context: Context) -> Control:
    """``barrier.cluster.arrive`` and ``.wait``; lanes that have exited count as arrived."""
    arrives = "arrive" in given.modifiers

    def control(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        from cudakit.emulator.machine.machine import AT_BARRIER

        state = _state(machine)
        lanes = np.arange(machine.lanes) if active is None else active
        if arrives:
            if state.arrived[lanes].any():
                raise EmulationError("a thread arrives twice at one phase of the cluster's barrier")
            state.arrived[lanes] = True
            state.arrived_in[lanes] = state.phase[state.cluster_of[lanes]]
            release(machine)
            return True
        if (state.arrived_in[lanes] < 0).any():
            raise EmulationError("a thread waits at the cluster's barrier where it has not arrived")
        blocked = lanes[state.phase[state.cluster_of[lanes]] <= state.arrived_in[lanes]]
        machine.status[blocked] = AT_BARRIER
        state.waiting[blocked] = True
        return not blocked.size

    return control


def release(machine: Machine) -> None:
    """Complete the phases at which every lane of a cluster has arrived or exited, and let those who wait go on."""
    from cudakit.emulator.machine.machine import DONE, RUNNING

    if "cluster" not in machine.waiters:
        return
    state = _state(machine)
    if not state.arrived.any():
        return
    missing = np.bincount(state.cluster_of, ~(state.arrived | (machine.status == DONE)), state.phase.size)
    some = np.bincount(state.cluster_of, state.arrived, state.phase.size)
    complete = (missing == 0) & (some > 0)
    if complete.any():
        state.phase[complete] += 1
        inside = complete[state.cluster_of]
        state.arrived[inside] = False
        ready = np.flatnonzero(state.waiting & inside)
        state.waiting[ready] = False
        machine.status[ready] = RUNNING


#: Ranks that a 32-bit address has room for; no cluster is as large.
_MOST_RANK = 254
_RANKS = np.uint64((1 << WINDOW_BITS) - (1 << RANK_SHIFT))


@instruction("mapa", "9.7.9.23")
def mapa(given: Instruction, context: Context) -> Step:
    """The address in another block's shared memory that an own one has there; `Memory` checks it where it is used."""
    kind, target = type_of(given), given.operands[0]
    write, read, rank_of = context.write(target, kind), *map(context.read, given.operands[1:], (kind, "u32"))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = np.asarray(read(frame, index, machine)).astype(np.uint64)
        rank = np.minimum(rank_of(frame, index, machine), np.uint32(_MOST_RANK)).astype(np.uint64) + np.uint64(1)
        write(frame, index, addresses & ~_RANKS | rank << np.uint64(RANK_SHIFT))

    return step


@instruction("getctarank", "9.7.9.24")
def getctarank(given: Instruction, context: Context) -> Step:
    """Rank of the block that an address in shared memory belongs to."""
    target, source = given.operands
    write, read = context.write(target, "u32"), context.read(source, type_of(given))
    is_generic = space_of(given) == "generic"

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = np.asarray(read(frame, index, machine)).astype(np.uint64)
        if is_generic and (addresses >> np.uint64(WINDOW_BITS) != SHARED_WINDOW >> WINDOW_BITS).any():
            raise EmulationError("getctarank of a generic address that is not in shared memory")
        rank = (addresses & _RANKS) >> np.uint64(RANK_SHIFT)
        own = machine.special["cluster_ctarank"]
        write(frame, index, np.where(rank > 0, rank - np.uint64(1), own if index is None else own[index]))

    return step
