"""What orders the accesses of a launch: barriers, warps that meet, and atomic operations with fences.

It errs to one side: what a lane may have been ordered after counts as ordered, so that no race is told that is none.
A number of an access stands for all accesses before it. Each class keeps such numbers for one scope: a cluster, a warp
and its collectives, warps that count at a barrier (``bar.sync`` and ``bar.arrive`` with a count), and fences.
"""

from __future__ import annotations

import functools

import numpy as np

from cudakit.emulator.checks.shadow import LANE, LANE_BITS
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, Machine

#: Arrivals of a lane that has exited.
_ALL = np.iinfo(np.int64).max


class Clusters:
    """The clusters of a machine.

    A block has passed a barrier when one of its threads has, which may have told the others.

    Parameters
    ----------
    block_of : numpy.ndarray
        Of each lane.
    size : int
        Blocks of a cluster.

    Attributes
    ----------
    floor : int
        No lane is ordered after fewer accesses of its cluster.
    """

    def __init__(self, block_of: np.ndarray, size: int) -> None:
        self._block_of, self._cluster_of, self._everybody = block_of, block_of // size, np.arange(block_of.size)
        #: How many barriers each lane has arrived at, and each block passed.
        self._arrived = np.zeros(block_of.size, np.int64)
        self._passed = np.zeros(int(block_of[-1]) + 1, np.int64)
        #: Up to which access each lane has published, with its last arrival at an even and at an odd one.
        self._published = np.zeros((2, block_of.size), np.int64)
        self._waited = np.zeros(self._passed.size, np.int64)
        self.floor: int = 0

    def arrive(self, lanes: Index, upto: int | np.ndarray) -> None:
        """Lanes arrive, having published so much."""
        each = self._everybody if lanes is None else lanes
        before = self._published[self._arrived[each] % 2, each]
        self._arrived[each] += 1
        self._published[self._arrived[each] % 2, each] = np.maximum(before, upto)

    def join(self, lanes: Index) -> None:
        """Lanes come to where they go on when all have arrived."""
        each = self._everybody if lanes is None else lanes
        np.maximum.at(self._passed, self._block_of[each], self._arrived[each])
        self.floor = int(self._of_barriers(self._everybody, self._passed.min()).min())

    def exit(self, lanes: Index, now: int) -> None:
        """Lanes exit, and count as having arrived from then on."""
        each = self._everybody if lanes is None else lanes
        self._published[:, each], self._arrived[each] = now, _ALL

    def waited(self, lanes: Index, now: int) -> None:
        """Lanes have waited at an mbarrier."""
        self._waited[self._block_of[slice(None) if lanes is None else lanes]] = now

    def known(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Number of the access before which all that each of `others` did comes before what each of `lanes` does."""
        blocks = self._block_of[lanes]
        same = self._cluster_of[others] == self._cluster_of[lanes]
        return np.where(same, np.maximum(self._of_barriers(others, self._passed[blocks]), self._waited[blocks]), 0)

    def _of_barriers(self, others: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """What others had published when barriers were passed, of which the last may still lack some of them."""
        at = np.minimum(passed, self._arrived[others])
        return np.where(at > 0, self._published[at % 2, others], 0)


#: The mask of a whole warp.
WHOLE = 0xFFFFFFFF


class Warps:
    """The warps of a machine.

    Parameters
    ----------
    machine : Machine
    block : numpy.ndarray
        Number of the access before which all of its block come before what each lane does now; lanes that meet share
        what they know of it.

    Attributes
    ----------
    masks : numpy.ndarray
        Of the collective that each lane came to last.
    whole : numpy.ndarray
        Number of the access before which all of its warp come before what each lane does now.
    part : numpy.ndarray or None
        The same by lanes of the warp, (lanes, 32); None until a mask names a part of a warp.
    """

    def __init__(self, machine: Machine, block: np.ndarray) -> None:
        self._machine, self._block = machine, block
        self.masks: np.ndarray = np.full(machine.lanes, WHOLE, np.uint32)
        self.whole: np.ndarray = np.zeros(machine.lanes, np.int64)
        self.part: np.ndarray | None = None
        #: Whether lanes of one warp may know different things of their block.
        self.is_uneven = False
        #: Lanes and masks of the last collective, if of parts of warps, and the columns that those of each lane have.
        self._again: tuple[Index, np.ndarray, np.ndarray] | None = None

    def meet(self, lanes: Index, masks: np.ndarray | None, now: int) -> None:
        """Lanes come to a collective, without masks to one of the whole warp; others may wait there for them."""
        machine = self._machine
        is_whole = masks is None or bool((masks == WHOLE).all())
        self.masks[slice(None) if lanes is None else lanes] = WHOLE if masks is None else masks
        again, self._again = self._again, None
        if lanes is None:
            if is_whole:
                self.whole[:] = now
                if self.is_uneven:
                    self._share(np.arange(machine.lanes))
                return
            members, waiting = np.arange(machine.lanes), None
        else:
            waiting = np.flatnonzero(machine.status == AT_WARP)
            if waiting.size:
                touched = np.zeros(int(machine.warp_of[-1]) + 1, bool)
                touched[machine.warp_of[lanes]] = True
                waiting = waiting[touched[machine.warp_of[waiting]]]
            if is_whole:
                members = np.concatenate([lanes, waiting[self.masks[waiting] == WHOLE]])
                self.whole[members] = now
                if self.is_uneven:
                    self._share(members)
                return
            members = np.concatenate([lanes, waiting])
        masks = np.broadcast_to(np.asarray(masks), members.shape) if waiting is None or not waiting.size else None
        if masks is None or self.is_uneven:
            self._meet_in_part(members, now)
        elif again is not None and again[0] is lanes and np.array_equal(again[1], masks):
            # They have met so before: each knows what the others know.
            self._put(lanes, again[2], now)
            self._again = again
        else:
            self._again = lanes, masks.copy(), self._meet_in_part(members, now)

    def met(self, lanes: np.ndarray, now: int) -> None:
        """Lanes of whole warps have met in another way."""
        self.whole[lanes], self._again = now, None

    def known(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Number of the access before which all that each of `others` did comes before what each of `lanes` does."""
        known: np.ndarray = self.whole[lanes]
        if self.part is not None:
            known = np.maximum(known, self.part[lanes, self._machine.lane_id[others]])
        return np.where(self._machine.warp_of[others] == self._machine.warp_of[lanes], known, 0)

    def gone(self, lanes: np.ndarray, now: int) -> None:
        """Lanes exit, for which others wait that name them."""
        machine = self._machine
        waiting = np.flatnonzero(machine.status == AT_WARP)
        if not waiting.size:
            return
        exited = np.zeros((int(machine.warp_of[-1]) + 1, 32), bool)
        exited[machine.warp_of[lanes], machine.lane_id[lanes]] = True
        bits = np.arange(32, dtype=np.uint32)
        named = (self.masks[waiting, None] >> bits & 1).astype(bool) & exited[machine.warp_of[waiting]]
        if named.any():
            self._again = None
            held = self._parts()
            held[waiting] = np.where(named, now, held[waiting])

    def _meet_in_part(self, members: np.ndarray, now: int) -> np.ndarray:
        """Lanes of one warp and mask learn of each other, and what each of them knows; whom they met, (lanes, 32)."""
        machine, held = self._machine, self._parts()
        keys = machine.warp_of[members].astype(np.int64) << 32 | self.masks[members]
        order = np.argsort(keys, kind="stable")
        members, keys = members[order], keys[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        starts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        known = np.maximum.reduceat(held[members], starts, axis=0)
        known[group, machine.lane_id[members]] = now
        held[members] = known[group]
        for values in (self.whole, self._block):
            values[members] = np.maximum.reduceat(values[members], starts)[group]
        met = np.zeros(known.shape, bool)
        met[group, machine.lane_id[members]] = True
        columns = np.empty((members.size, 32), bool)
        columns[order] = met[group]
        return columns

    def _put(self, lanes: Index, columns: np.ndarray, now: int) -> None:
        held = self._parts()
        if lanes is None:
            held[columns] = now
        else:
            held[lanes] = np.where(columns, now, held[lanes])

    def _parts(self) -> np.ndarray:
        if self.part is None:
            self.part = np.zeros((self._machine.lanes, 32), np.int64)
        return self.part

    def _share(self, members: np.ndarray) -> None:
        """What one lane of a warp knows of its block all of them know."""
        warps = self._machine.warp_of[members]
        known = np.zeros(int(self._machine.warp_of[-1]) + 1, np.int64)
        np.maximum.at(known, warps, self._block[members])
        self._block[members] = known[warps]


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

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps) -> None:
        self._machine, self._block, self._warps = machine, block, warps
        self.warp_of: np.ndarray = np.arange(machine.lanes // machine.blocks) // 32
        self.table: np.ndarray | None = None
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

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps, groups: Groups) -> None:
        self._machine, self._block, self._warps, self._groups = machine, block, warps, groups
        #: Each lane's last fence, and what it knew of its block then.
        self._own, self._knew, self.covered = (np.zeros((2, machine.lanes), np.int64) for _ in range(3))
        self.several: set[int] = set()
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

    def __init__(self, machine: Machine, base: int) -> None:
        self.machine, self.base = machine, base
        self.block: np.ndarray = np.zeros(machine.lanes, np.int64)
        self.warps: Warps = Warps(machine, self.block)
        self.groups: Groups = Groups(machine, self.block, self.warps)
        self.fences: Fences = Fences(machine, self.block, self.warps, self.groups)
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
        self.floor: int = 0
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
