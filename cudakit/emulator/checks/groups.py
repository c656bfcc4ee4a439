"""What orders the warps of a block at a barrier that some come to: ``bar.sync`` and ``bar.arrive`` with a count."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.checks.warps import Warps
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, Machine


class Groups:
    """The warps of a machine's blocks, by what each knows of the others.

    Parameters
    ----------
    machine : Machine
    block : numpy.ndarray
        Number of the access before which all of its block come before what each lane does now.
    warps : Warps

    Attributes
    ----------
    table : numpy.ndarray or None
        Number of the access before which a warp's come before what another does, (blocks, other, warp); None until
        threads are counted.
    warp_of : numpy.ndarray
        Warp in its block of each thread.
    """

    table: np.ndarray | None
    warp_of: np.ndarray

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps) -> None:
        self._machine, self._block, self._warps = machine, block, warps
        self.warp_of = np.arange(machine.lanes // machine.blocks) // 32
        self.table = None
        #: The barrier that each lane came to last, and of each the arrivals of warps that did not wait.
        self._at = np.full(machine.lanes, -1)
        self._arrived: dict[int, np.ndarray] = {}

    def come(self, numbers: np.ndarray, lanes: Index, waits: bool, now: int) -> None:
        """Lanes come to barriers; those that wait there learn of all who have come, and of what these know."""
        machine = self._machine
        lanes = np.arange(machine.lanes) if lanes is None else lanes
        numbers = np.broadcast_to(numbers, lanes.shape).astype(np.int64)
        if waits:
            self._at[lanes] = numbers
        for number in np.unique(numbers).tolist():
            self._meet(number, lanes[numbers == number], waits, now)

    def known(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray | int:
        """Number of the access before which all that each of `others`, of its block, did comes before each lane's."""
        if self.table is None:
            return 0
        threads = self.warp_of.size
        return np.asarray(
            self.table[self._machine.block_of[lanes], self.warp_of[lanes % threads], self.warp_of[others % threads]]
        )

    def _meet(self, number: int, lanes: np.ndarray, waits: bool, now: int) -> None:
        machine, shape = self._machine, (self._machine.blocks, int(self.warp_of[-1]) + 1)
        if self.table is None:
            self.table = np.zeros((*shape, shape[1]), np.int64)
        warp = self.warp_of[lanes % self.warp_of.size]
        arrived = self._arrived.setdefault(number, np.zeros(shape, np.int64))
        if not waits:
            arrived[machine.block_of[lanes], warp] = now
        waiting = np.flatnonzero((machine.status == AT_BARRIER) & (self._at == number))
        members = np.union1d(waiting, lanes) if waits else waiting
        is_waiting = np.zeros(shape, bool)
        is_waiting[machine.block_of[members], self.warp_of[members % self.warp_of.size]] = True
        come = np.where(is_waiting, now, arrived)
        blocks = np.unique(machine.block_of[lanes])
        come, is_waiting, table = come[blocks], is_waiting[blocks], self.table[blocks]
        learned = np.maximum(np.where(come[:, :, None] > 0, table, 0).max(axis=1), come)
        self.table[blocks] = np.where(is_waiting[:, :, None], np.maximum(table, learned[:, None]), table)
        # What one of them knows of the whole block all of them know.
        held = self._block.reshape(machine.blocks, -1)
        most = np.where((come > 0)[:, self.warp_of], held[blocks], 0).max(axis=1)
        held[blocks] = np.maximum(held[blocks], np.where(is_waiting[:, self.warp_of], most[:, None], 0))
        self._warps.met(members, now)
