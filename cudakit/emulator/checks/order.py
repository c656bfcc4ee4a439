"""What orders the accesses of a launch: barriers, warps that meet, and atomic operations with fences.

It errs to one side: what a lane may have been ordered after counts as ordered, so that no race is told that is none.
"""

from __future__ import annotations

import functools

import numpy as np

from cudakit.emulator.checks.clusters import Clusters
from cudakit.emulator.checks.fences import Fences
from cudakit.emulator.checks.groups import Groups
from cudakit.emulator.checks.shadow import LANE, LANE_BITS
from cudakit.emulator.checks.warps import Warps
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, Machine


@functools.lru_cache(4)
def first_numbers(count: int) -> np.ndarray:
    """The numbers below `count`, made once for machines of one size; nobody writes them."""
    found = np.arange(count)
    found.flags.writeable = False
    return found


class Order:
    """Numbers of accesses before which all others, of a kind of neighbours, come before what a lane does now.

    Parameters
    ----------
    machine : Machine
    base : int
        Lanes of the launch that ran before the machine's.
    """

    machine: Machine
    base: int
    floor: int
    warps: Warps
    groups: Groups
    fences: Fences

    def __init__(self, machine: Machine, base: int) -> None:
        self.machine, self.base = machine, base
        self.block: np.ndarray = np.zeros(machine.lanes, np.int64)
        self.warps = Warps(machine, self.block)
        self.groups = Groups(machine, self.block, self.warps)
        self.fences = Fences(machine, self.block, self.warps, self.groups)
        #: By atomic operations and flags, of each block: what it has been told of, and of that what it has acquired.
        self.told: np.ndarray = np.zeros(machine.blocks, np.int64)
        self.acquired: np.ndarray = np.zeros(machine.blocks, np.int64)
        #: What a fence of each lane would acquire, of its block and of the whole device; and the accesses that told.
        self._pending = np.zeros((2, machine.lanes), np.int64)
        self._is_pending = False
        self.told_by: np.ndarray = np.zeros(machine.blocks, np.int64)
        #: The last fence of each block, of any scope and of the whole device's.
        self.fenced: np.ndarray = np.zeros((2, machine.blocks), np.int64)
        #: No lane of the machine is ordered after fewer accesses of those that share its block's memory.
        self.floor = 0
        cluster = machine.memory.cluster
        self._clusters = Clusters(machine.block_of, cluster) if cluster > 1 else None

    def barrier(self, lanes: Index, now: int) -> None:
        """Lanes come to a barrier of their block; those that wait there already wait for them."""
        if lanes is None:
            self.block[:] = now
        else:
            self.block[lanes] = now
            self._wake(lanes, now)
        if self._clusters is None:
            self.floor = int(self.block.min())

    def arrive(self, lanes: Index, now: int, releases: bool) -> None:
        """Lanes come to the first half of their cluster's barrier, and publish what they did, or did before a fence."""
        if self._clusters is not None:
            upto = now if releases else self.fenced[1, self.machine.block_of[slice(None) if lanes is None else lanes]]
            self._clusters.arrive(lanes, upto)

    def join(self, lanes: Index) -> None:
        """Lanes come to its second half, which they leave when all have arrived."""
        if self._clusters is not None:
            self._clusters.join(lanes)
            self.floor = self._clusters.floor

    def waited(self, lanes: Index, now: int) -> None:
        """Lanes have waited in another way, by which any thread of their cluster may have told them."""
        if self._clusters is not None:
            self._clusters.waited(lanes, now)

    def gone(self, lanes: Index, now: int) -> None:
        """Lanes exit, and others wait for them no more."""
        if self._clusters is not None:
            self._clusters.exit(lanes, now)
        if lanes is not None and self.machine.status.any():
            self._wake(lanes, now)
            self.warps.gone(lanes, now)

    def fence(self, lanes: Index, now: int, whole: bool) -> None:
        """Lanes run a fence, `whole` for the device: they acquire what they have been told of."""
        blocks = slice(None) if lanes is None else self.machine.block_of[lanes]
        self.fenced[: 1 + whole, blocks] = now
        self.fences.fence(lanes, now, whole)
        if self._is_pending:
            each = slice(None) if lanes is None else lanes
            np.maximum.at(self.acquired, self.machine.block_of[each], self._pending[: 1 + whole, each].max(axis=0))
            self._pending[: 1 + whole, each] = 0

    def tell(self, lanes: np.ndarray, near: np.ndarray, wide: np.ndarray, now: int) -> None:
        """Lanes read what was published up to an access, to their block and to all, and acquire nothing by it."""
        blocks, told = self.machine.block_of[lanes], np.maximum(near, wide)
        if told.any():
            np.maximum.at(self.told, blocks, told)
            self.told_by[blocks[told > 0]] = now
            for held, upto in zip(self._pending, (near, wide), strict=True):
                np.maximum.at(held, lanes, upto)
            self._is_pending = True

    def acquire(self, lanes: np.ndarray, upto: np.ndarray) -> None:
        """Lanes have seen what was published up to an access, each its own."""
        if upto.any():
            for each in (self.told, self.acquired):
                np.maximum.at(each, self.machine.block_of[lanes], upto)

    def part(self) -> None:
        """What the first block has seen of shared memory all have, each of its own."""
        for each in (self.told, self.acquired, self.told_by):
            np.maximum(each, each[0], out=each)
        rows = self._pending.reshape(2, self.machine.blocks, -1)
        np.maximum(rows, rows[:, :1], out=rows)
        self.fences.part()

    def unordered(self, stamps: np.ndarray, lanes: np.ndarray, is_weak_load: bool = False) -> np.ndarray:
        """Whether the accesses that stamps stand for may come after what each of `lanes` does now.

        What must be acquired are reads: a store or a strong access does not go before the read that it depends on.
        """
        machine = self.machine
        # A stamp of 0 stands for none.
        other, event = (stamps & LANE) - self.base, stamps >> LANE_BITS
        here = (other >= 0) & (other < machine.lanes)
        mine = np.where(here, other, 0)
        same_block = here & (machine.block_of[mine] == machine.block_of[lanes])
        known = np.maximum(self.block[lanes], self.warps.known(mine, lanes))
        known = np.where(same_block, np.maximum(known, self.groups.known(mine, lanes)), 0)
        if self._clusters is not None:
            known = np.maximum(known, np.where(here, self._clusters.known(mine, lanes), 0))
        told = (self.acquired if is_weak_load else self.told)[machine.block_of[lanes]]
        if told.any():
            # Of blocks that ran before, all is taken for published.
            published = self.fences.published(told, event, mine, np.where(same_block, 0, 1))
            known = np.maximum(known, np.where(here, published, told))
        found: np.ndarray = (event > 0) & (event >= known) & (other != lanes)
        return found

    def _wake(self, lanes: np.ndarray, now: int) -> None:
        """Those who wait at a barrier of the lanes' blocks have waited for them."""
        machine = self.machine
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        self.warps.is_uneven = True
        if waiting.size:
            touched = np.zeros(machine.blocks, bool)
            touched[machine.block_of[lanes]] = True
            self.block[waiting[touched[machine.block_of[waiting]]]] = now
