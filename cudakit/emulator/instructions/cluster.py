"""Thread block clusters: PTX ISA 9.7.13.3 (barrier.cluster), 9.7.9.23 (mapa) and 9.7.9.24 (getctarank)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from cudakit.emulator.instructions.access import space_of, type_of
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Control, Step, instruction
from cudakit.emulator.machine.memory import RANK_SHIFT, SHARED_WINDOW, WINDOW_BITS, Index
from cudakit.emulator.machine.state import AT_BARRIER, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError


@dataclass(slots=True)
class _Barriers:
    """The cluster barriers of a machine: cluster of each lane, phases completed, phase at which each lane arrived."""

    cluster_of: np.ndarray
    phase: np.ndarray
    arrived_in: np.ndarray
    arrived: np.ndarray
    waiting: np.ndarray

    def release(self, machine: Machine) -> None:
        """Complete the phases at which every lane of a cluster has arrived or exited, and let those who wait go on."""
        if not self.arrived.any():
            return
        missing = np.bincount(self.cluster_of, ~(self.arrived | (machine.status == DONE)), self.phase.size)
        some = np.bincount(self.cluster_of, self.arrived, self.phase.size)
        complete = (missing == 0) & (some > 0)
        if complete.any():
            self.phase[complete] += 1
            inside = complete[self.cluster_of]
            self.arrived[inside] = False
            ready = np.flatnonzero(self.waiting & inside)
            self.waiting[ready] = False
            machine.status[ready] = RUNNING


def _barriers(machine: Machine) -> _Barriers:
    found = machine.waiters.get("cluster")
    if found is None:
        cluster_of = machine.block_of // prod(machine.geometry.cluster)
        none = np.zeros(machine.lanes, bool)
        phases = np.zeros(int(cluster_of[-1]) + 1, np.int64)
        found = machine.waiters["cluster"] = _Barriers(
            cluster_of, phases, np.full(machine.lanes, -1), none, none.copy()
        )
    assert isinstance(found, _Barriers)
    return found


def cluster_barrier(given: Instruction, context: Context) -> Control:
    """``barrier.cluster.arrive`` and ``.wait``; lanes that have exited count as arrived."""
    arrives = "arrive" in given.modifiers

    def control(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        state = _barriers(machine)
        lanes = np.arange(machine.lanes) if active is None else active
        if arrives:
            if state.arrived[lanes].any():
                raise EmulationError("a thread arrives twice at one phase of the cluster's barrier")
            state.arrived[lanes] = True
            state.arrived_in[lanes] = state.phase[state.cluster_of[lanes]]
            state.release(machine)
            return True
        if (state.arrived_in[lanes] < 0).any():
            raise EmulationError("a thread waits at the cluster's barrier where it has not arrived")
        blocked = lanes[state.phase[state.cluster_of[lanes]] <= state.arrived_in[lanes]]
        machine.status[blocked] = AT_BARRIER
        state.waiting[blocked] = True
        return not blocked.size

    return control


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
