"""What the fences of a block cover: of each thread, the accesses that somebody has published.

Thread 0 that counts for its block publishes what the others did before the barrier that it came from, and of what they
did since, only what their own fences stand behind.
"""

from __future__ import annotations

import numpy as np

from cudakit.emulator.checks.groups import Groups
from cudakit.emulator.checks.warps import Warps
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Machine


class Fences:
    """The fences of a machine, by rows: of any scope, and of the whole device's.

    Parameters
    ----------
    machine : Machine
    block : numpy.ndarray
        Number of the access before which all of its block come before what each lane does now.
    warps : Warps
    groups : Groups

    Attributes
    ----------
    covered : numpy.ndarray
        Number of the access before which what each lane did is published, (2, lanes).
    several : set of int
        Accesses that store what others store too, or what is there: one of these may be published.
    """

    covered: np.ndarray
    several: set[int]

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps, groups: Groups) -> None:
        self._machine, self._block, self._warps, self._groups = machine, block, warps, groups
        #: Each lane's last fence, and what it knew of its block then.
        self._own, self._knew, self.covered = (np.zeros((2, machine.lanes), np.int64) for _ in range(3))
        self.several = set()
        self._warp_of = groups.warp_of

    def fence(self, lanes: Index, now: int, whole: bool) -> None:
        """Lanes run a fence, `whole` for the device."""
        where = slice(None) if lanes is None else lanes
        self._own[: 1 + whole, where] = now
        self._knew[: 1 + whole, where] = self._block[where]

    def release(self, lanes: np.ndarray, whole: bool, seen: np.ndarray) -> None:
        """Lanes write what may tell others of all that their fences cover; blocks have seen so much of each other."""
        machine = self._machine
        blocks, number = np.unique(machine.block_of[lanes], return_inverse=True)
        covered, own = (held.reshape(2, machine.blocks, -1)[:, blocks] for held in (self.covered, self._own))

        def most(values: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
            highest = np.zeros((count, *values.shape[1:]), np.int64)
            np.maximum.at(highest, at, values)
            return highest

        # Of a warp: what the lane knows that releases, or the other's own fence, whichever it has.
        per_block = int(self._warp_of[-1]) + 1
        warp = number * per_block + self._warp_of[lanes % self._warp_of.size]
        in_warp = most(self._warps.whole[lanes], warp, blocks.size * per_block)
        in_warp = in_warp.reshape(blocks.size, -1)[:, self._warp_of]
        if self._warps.part is not None:
            table = most(self._warps.part[lanes], warp, blocks.size * per_block)
            table = table.reshape(blocks.size, -1)[:, : self._warp_of.size]
            in_warp = np.maximum(in_warp, table)
        in_block = most(self._block[lanes], number, blocks.size)[:, None]
        in_group = np.zeros((blocks.size, 1), np.int64)
        if self._groups.table is not None:
            known = self._groups.table[machine.block_of[lanes], self._warp_of[lanes % self._warp_of.size]]
            in_group = most(known, number, blocks.size)[:, self._warp_of]
        for row in range(1 + whole):
            any_fence = most(self._own[row, lanes], number, blocks.size)[:, None]
            fence = most(self._own[row, lanes], warp, blocks.size * per_block)
            fence = fence.reshape(blocks.size, -1)[:, self._warp_of]
            for published in (
                most(self._knew[row, lanes], number, blocks.size)[:, None],
                np.minimum(own[row], in_block),
                np.minimum(np.maximum(own[row], fence), in_warp),
                np.minimum(np.maximum(own[row], any_fence), in_group),
                np.minimum(covered[0], seen[blocks, None]),
            ):
                covered[row] = np.maximum(covered[row], published)
        self.covered.reshape(2, machine.blocks, -1)[:, blocks] = covered
        self.covered[: 1 + whole, lanes] = np.maximum(self.covered, self._own)[: 1 + whole, lanes]

    def published(self, told: np.ndarray, events: np.ndarray, others: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What lanes that were told so much know of accesses of others, by a scope."""
        known: np.ndarray = np.minimum(told, self.covered[rows, others])
        if self.several:
            known = np.where(np.isin(events, list(self.several)), told, known)
        return known

    def part(self) -> None:
        """What the first block has published of shared memory all have, each of its own."""
        rows = self.covered.reshape(2, self._machine.blocks, -1)
        np.maximum(rows, rows[:, :1], out=rows)
