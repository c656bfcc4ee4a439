"""Order of the accesses of a launch: by barriers, warp collectives, and atomic operations with fences.

The order errs to one side: accesses that may have been ordered count as ordered. Every reported race is real. The
price: some races are missed.

The accesses of a launch are numbered. A bound of a lane is the number of an access: all accesses before the bound are
ordered before the lane's next access. Each class keeps bounds for one scope: a cluster, a warp and its collectives,
warps that count at a barrier (``bar.sync`` and ``bar.arrive`` with a count), and fences.
"""

from __future__ import annotations

import functools

import numpy as np

from cudakit.emulator.checks.shadow import LANE, LANE_BITS
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, Machine

#: Count of arrivals of a lane that has exited.
_ALL = np.iinfo(np.int64).max


class Clusters:
    """Order between the blocks of a cluster.

    A block has passed a barrier once one of its threads has: the thread may have informed the others.

    Parameters
    ----------
    block_of : numpy.ndarray
        Block of each lane.
    size : int
        Number of blocks of a cluster.

    Attributes
    ----------
    floor : int
        Least bound of all lanes on accesses of their cluster.
    """

    def __init__(self, block_of: np.ndarray, size: int) -> None:
        self._block_of, self._cluster_of, self._everybody = block_of, block_of // size, np.arange(block_of.size)
        #: Barriers at which each lane has arrived, and which each block has passed.
        self._arrived = np.zeros(block_of.size, np.int64)
        self._barriers_passed = np.zeros(int(block_of[-1]) + 1, np.int64)
        #: Bound that each lane has published, by its last arrivals at an even and at an odd barrier.
        self._published = np.zeros((2, block_of.size), np.int64)
        self._waited = np.zeros(self._barriers_passed.size, np.int64)
        self.floor: int = 0

    def arrive(self, lanes: Index, upto: int | np.ndarray) -> None:
        """Record that lanes arrive at the cluster's barrier; the accesses before number `upto` become published."""
        selected = self._everybody if lanes is None else lanes
        before = self._published[self._arrived[selected] % 2, selected]
        self._arrived[selected] += 1
        self._published[self._arrived[selected] % 2, selected] = np.maximum(before, upto)

    def join(self, lanes: Index) -> None:
        """Record that lanes wait at the cluster's barrier until all have arrived, and update `floor`."""
        selected = self._everybody if lanes is None else lanes
        np.maximum.at(self._barriers_passed, self._block_of[selected], self._arrived[selected])
        self.floor = int(self._published_at(self._everybody, self._barriers_passed.min()).min())

    def exit(self, lanes: Index, now: int) -> None:
        """Record that lanes exit at access `now`: they count as arrived at every later barrier."""
        selected = self._everybody if lanes is None else lanes
        self._published[:, selected], self._arrived[selected] = now, _ALL

    def waited(self, lanes: Index, now: int) -> None:
        """Record that lanes have waited at an mbarrier.

        Their blocks are ordered after all accesses of the cluster before number `now`.
        """
        self._waited[self._block_of[slice(None) if lanes is None else lanes]] = now

    def ordered_before(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return the bound of each of `lanes` on accesses of the lane at the same position in `others`.

        The bound is 0 on a lane of another cluster.
        """
        blocks = self._block_of[lanes]
        same = self._cluster_of[others] == self._cluster_of[lanes]
        return np.where(
            same, np.maximum(self._published_at(others, self._barriers_passed[blocks]), self._waited[blocks]), 0
        )

    def _published_at(self, others: np.ndarray, barrier_counts: np.ndarray) -> np.ndarray:
        """Return the bounds that lanes `others` had published when their cluster had passed `barrier_counts` barriers.

        A lane may not have arrived at the last barrier; its bound is then that of its own last arrival.
        """
        at = np.minimum(barrier_counts, self._arrived[others])
        return np.where(at > 0, self._published[at % 2, others], 0)


#: The mask of a whole warp.
WHOLE = 0xFFFFFFFF


class Warps:
    """Order within warps.

    Parameters
    ----------
    machine : Machine
        Interpreter of the lanes.
    block : numpy.ndarray
        Bound of each lane on accesses of its block. Lanes that converge share their bounds.

    Attributes
    ----------
    masks : numpy.ndarray
        Mask of the last collective of each lane.
    whole : numpy.ndarray
        Bound of each lane on accesses of its whole warp.
    part : numpy.ndarray or None
        Bound of each lane on accesses of each lane of its warp, (lanes, 32); None until a mask names a part of a warp.
    """

    def __init__(self, machine: Machine, block: np.ndarray) -> None:
        self._machine, self._block = machine, block
        self.masks: np.ndarray = np.full(machine.lanes, WHOLE, np.uint32)
        self.whole: np.ndarray = np.zeros(machine.lanes, np.int64)
        self.part: np.ndarray | None = None
        #: Whether lanes of one warp may have different bounds on their block.
        self.is_uneven = False
        #: Lanes and masks of the last collective of parts of warps, and for each lane the columns of its partners.
        self._again: tuple[Index, np.ndarray, np.ndarray] | None = None

    def converge(self, lanes: Index, masks: np.ndarray | None, now: int) -> None:
        """Record that lanes reach a collective with `masks`, or of their whole warps if `masks` is None.

        Other lanes may wait at the collective already.
        """
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
            self._converge_in_part(members, now)
        elif again is not None and again[0] is lanes and np.array_equal(again[1], masks):
            # The same lanes have converged before: their bounds are shared already.
            self._put(lanes, again[2], now)
            self._again = again
        else:
            self._again = lanes, masks.copy(), self._converge_in_part(members, now)

    def converged(self, lanes: np.ndarray, now: int) -> None:
        """Record that all lanes of some warps have converged other than by a collective."""
        self.whole[lanes], self._again = now, None

    def ordered_before(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return the bound of each of `lanes` on accesses of the lane at the same position in `others`.

        The bound is 0 on a lane of another warp.
        """
        bounds: np.ndarray = self.whole[lanes]
        if self.part is not None:
            bounds = np.maximum(bounds, self.part[lanes, self._machine.lane_id[others]])
        return np.where(self._machine.warp_of[others] == self._machine.warp_of[lanes], bounds, 0)

    def exit(self, lanes: np.ndarray, now: int) -> None:
        """Record that lanes exit at access `now`.

        Lanes that wait at a collective whose mask names an exited lane are ordered after this lane.
        """
        machine = self._machine
        waiting = np.flatnonzero(machine.status == AT_WARP)
        if not waiting.size:
            return
        exited = np.zeros((int(machine.warp_of[-1]) + 1, 32), bool)
        exited[machine.warp_of[lanes], machine.lane_id[lanes]] = True
        bits = np.arange(32, dtype=np.uint32)
        is_named = (self.masks[waiting, None] >> bits & 1).astype(bool) & exited[machine.warp_of[waiting]]
        if is_named.any():
            self._again = None
            parts = self._parts()
            parts[waiting] = np.where(is_named, now, parts[waiting])

    def _converge_in_part(self, members: np.ndarray, now: int) -> np.ndarray:
        """Order the `members` that have the same warp and the same mask after each other, and share their bounds.

        Return a flag for each member and each lane number of its warp, (members, 32): whether the two have converged.
        """
        machine, parts = self._machine, self._parts()
        keys = machine.warp_of[members].astype(np.int64) << 32 | self.masks[members]
        order = np.argsort(keys, kind="stable")
        members, keys = members[order], keys[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        starts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        bounds = np.maximum.reduceat(parts[members], starts, axis=0)
        bounds[group, machine.lane_id[members]] = now
        parts[members] = bounds[group]
        for values in (self.whole, self._block):
            values[members] = np.maximum.reduceat(values[members], starts)[group]
        met = np.zeros(bounds.shape, bool)
        met[group, machine.lane_id[members]] = True
        columns = np.empty((members.size, 32), bool)
        columns[order] = met[group]
        return columns

    def _put(self, lanes: Index, columns: np.ndarray, now: int) -> None:
        parts = self._parts()
        if lanes is None:
            parts[columns] = now
        else:
            parts[lanes] = np.where(columns, now, parts[lanes])

    def _parts(self) -> np.ndarray:
        if self.part is None:
            self.part = np.zeros((self._machine.lanes, 32), np.int64)
        return self.part

    def _share(self, members: np.ndarray) -> None:
        """Raise the bounds of members on accesses of their block to the greatest such bound in each warp."""
        warps = self._machine.warp_of[members]
        bounds = np.zeros(int(self._machine.warp_of[-1]) + 1, np.int64)
        np.maximum.at(bounds, warps, self._block[members])
        self._block[members] = bounds[warps]


class Groups:
    """Order between the warps of a block.

    Parameters
    ----------
    machine : Machine
        Interpreter of the lanes.
    block : numpy.ndarray
        Bound of each lane on accesses of its block.
    warps : Warps
        Order within warps.

    Attributes
    ----------
    table : numpy.ndarray or None
        Bound of a warp on accesses of another warp, (blocks, warp, other warp); None until a barrier counts threads.
    warp_of : numpy.ndarray
        Warp in its block of each thread.
    """

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps) -> None:
        self._machine, self._block, self._warps = machine, block, warps
        self.warp_of: np.ndarray = np.arange(machine.lanes // machine.blocks) // 32
        self.table: np.ndarray | None = None
        #: Last barrier of each lane, and the arrivals of warps that did not wait, by barrier.
        self._at = np.full(machine.lanes, -1)
        self._arrived: dict[int, np.ndarray] = {}

    def arrive(self, numbers: np.ndarray, lanes: Index, waits: bool, now: int) -> None:
        """Record that lanes arrive at barriers of their block that count threads.

        `numbers` has the number of the barrier, for each lane or one for all. With `waits`, the lanes are ordered after
        all arrivals, and take over the bounds of the lanes that arrived.
        """
        machine = self._machine
        lanes = np.arange(machine.lanes) if lanes is None else lanes
        numbers = np.broadcast_to(numbers, lanes.shape).astype(np.int64)
        if waits:
            self._at[lanes] = numbers
        for number in np.unique(numbers).tolist():
            self._arrive_at(number, lanes[numbers == number], waits, now)

    def ordered_before(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray | int:
        """Return the bound of each of `lanes` on accesses of the lane at the same position in `others`.

        Both lanes are of the same block.
        """
        if self.table is None:
            return 0
        threads = self.warp_of.size
        return np.asarray(
            self.table[self._machine.block_of[lanes], self.warp_of[lanes % threads], self.warp_of[others % threads]]
        )

    def _arrive_at(self, number: int, lanes: np.ndarray, waits: bool, now: int) -> None:
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
        arrivals = np.where(is_waiting, now, arrived)
        blocks = np.unique(machine.block_of[lanes])
        arrivals, is_waiting, table = arrivals[blocks], is_waiting[blocks], self.table[blocks]
        learned = np.maximum(np.where(arrivals[:, :, None] > 0, table, 0).max(axis=1), arrivals)
        self.table[blocks] = np.where(is_waiting[:, :, None], np.maximum(table, learned[:, None]), table)
        # All waiting lanes take over the greatest bound on the whole block.
        block_bounds = self._block.reshape(machine.blocks, -1)
        most = np.where((arrivals > 0)[:, self.warp_of], block_bounds[blocks], 0).max(axis=1)
        block_bounds[blocks] = np.maximum(block_bounds[blocks], np.where(is_waiting[:, self.warp_of], most[:, None], 0))
        self._warps.converged(members, now)


class Fences:
    """The fences of the running blocks, in two rows: fences of any scope, and fences of the device's scope.

    Parameters
    ----------
    machine : Machine
        Interpreter of the lanes.
    block : numpy.ndarray
        Bound of each lane on accesses of its block.
    warps : Warps
        Order within warps.
    groups : Groups
        Order between the warps of a block.

    Attributes
    ----------
    covered : numpy.ndarray
        Number of the access before which each lane's accesses are published, (2, lanes).
    several : set of int
        Accesses that store a value which other lanes store too, or which is in memory already. Any of the stores may
        have published the value.
    """

    covered: np.ndarray

    def __init__(self, machine: Machine, block: np.ndarray, warps: Warps, groups: Groups) -> None:
        self._machine, self._block, self._warps, self._groups = machine, block, warps, groups
        #: Last fence of each lane, and its bound on the block at that time.
        self._last_fence, self._block_at_fence, self.covered = (
            np.zeros((2, machine.lanes), np.int64) for _ in range(3)
        )
        self.several: set[int] = set()
        self._warp_of = groups.warp_of

    def fence(self, lanes: Index, now: int, whole: bool) -> None:
        """Record that lanes run a fence before access `now`.

        `whole` is False for a fence whose scope is only the block.
        """
        where = slice(None) if lanes is None else lanes
        self._last_fence[: 1 + whole, where] = now
        self._block_at_fence[: 1 + whole, where] = self._block[where]

    def release(self, lanes: np.ndarray, whole: bool, observed: np.ndarray) -> None:
        """Record that lanes write a flag, which publishes the accesses that their fences cover.

        `whole` is True if the accesses are published to the whole device, False if only to the own block. `observed`
        has, for each block, the bound on published accesses that the block has observed.
        """
        machine = self._machine
        blocks, number = np.unique(machine.block_of[lanes], return_inverse=True)
        covered, own = (rows.reshape(2, machine.blocks, -1)[:, blocks] for rows in (self.covered, self._last_fence))

        def most(values: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
            highest = np.zeros((count, *values.shape[1:]), np.int64)
            np.maximum.at(highest, at, values)
            return highest

        # Within a warp: the releasing lane's bound, or the other lane's own fence, whichever there is.
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
            group_bounds = self._groups.table[machine.block_of[lanes], self._warp_of[lanes % self._warp_of.size]]
            in_group = most(group_bounds, number, blocks.size)[:, self._warp_of]
        for row in range(1 + whole):
            any_fence = most(self._last_fence[row, lanes], number, blocks.size)[:, None]
            fence = most(self._last_fence[row, lanes], warp, blocks.size * per_block)
            fence = fence.reshape(blocks.size, -1)[:, self._warp_of]
            for published in (
                most(self._block_at_fence[row, lanes], number, blocks.size)[:, None],
                np.minimum(own[row], in_block),
                np.minimum(np.maximum(own[row], fence), in_warp),
                np.minimum(np.maximum(own[row], any_fence), in_group),
                np.minimum(covered[0], observed[blocks, None]),
            ):
                covered[row] = np.maximum(covered[row], published)
        self.covered.reshape(2, machine.blocks, -1)[:, blocks] = covered
        self.covered[: 1 + whole, lanes] = np.maximum(self.covered, self._last_fence)[: 1 + whole, lanes]

    def published(self, observed: np.ndarray, events: np.ndarray, others: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the bounds of lanes on accesses of the lanes `others`.

        These are the bounds in `observed`, as far as a fence covers the accesses.

        `events` has the number of the access of each of `others`. `rows` selects the row of `covered` for each lane: 0
        if the other lane is in the same block, else 1.
        """
        bounds: np.ndarray = np.minimum(observed, self.covered[rows, others])
        if self.several:
            bounds = np.where(np.isin(events, list(self.several)), observed, bounds)
        return bounds

    def split_blocks(self) -> None:
        """Raise the published bounds of each block to at least those of the first block.

        Until then, only the first block's accesses to shared memory are recorded, since all blocks do the same.
        """
        rows = self.covered.reshape(2, self._machine.blocks, -1)
        np.maximum(rows, rows[:, :1], out=rows)


@functools.lru_cache(4)
def first_numbers(count: int) -> np.ndarray:
    """Return the read-only array of the numbers below `count`, cached for each size."""
    numbers = np.arange(count)
    numbers.flags.writeable = False
    return numbers


class Order:
    """Bounds of all lanes: all accesses before a lane's bound are ordered before the lane's next access.

    Parameters
    ----------
    machine : Machine
        Interpreter of the lanes.
    base : int
        Number of lanes of the launch that ran before this interpreter's lanes.
    """

    machine: Machine
    base: int

    def __init__(self, machine: Machine, base: int) -> None:
        self.machine, self.base = machine, base
        self.block: np.ndarray = np.zeros(machine.lanes, np.int64)
        self.warps: Warps = Warps(machine, self.block)
        self.groups: Groups = Groups(machine, self.block, self.warps)
        self.fences: Fences = Fences(machine, self.block, self.warps, self.groups)
        #: Bounds of each block by atomic operations and flags: observed, and of these acquired.
        self.observed: np.ndarray = np.zeros(machine.blocks, np.int64)
        self.acquired: np.ndarray = np.zeros(machine.blocks, np.int64)
        #: Bounds that a fence of each lane would acquire, of its block and of the whole device; and the accesses
        #: observed.
        self._pending = np.zeros((2, machine.lanes), np.int64)
        self._is_pending = False
        self.observed_by: np.ndarray = np.zeros(machine.blocks, np.int64)
        #: Last fence of each block, of any scope and of the device's scope.
        self.fenced: np.ndarray = np.zeros((2, machine.blocks), np.int64)
        #: Least bound of all lanes on accesses of those that share their block's memory.
        self.floor: int = 0
        cluster = machine.memory.cluster
        self._clusters = Clusters(machine.block_of, cluster) if cluster > 1 else None

    def barrier(self, lanes: Index, now: int) -> None:
        """Record that lanes arrive at a barrier of their block; lanes that wait at it are ordered after them."""
        if lanes is None:
            self.block[:] = now
        else:
            self.block[lanes] = now
            self._wake(lanes, now)
        if self._clusters is None:
            self.floor = int(self.block.min())

    def arrive(self, lanes: Index, now: int, releases: bool) -> None:
        """Record that lanes arrive at a cluster's barrier, and publish accesses.

        With `releases` they publish all their accesses, else the accesses before their last fence.
        """
        if self._clusters is not None:
            upto = now if releases else self.fenced[1, self.machine.block_of[slice(None) if lanes is None else lanes]]
            self._clusters.arrive(lanes, upto)

    def join(self, lanes: Index) -> None:
        """Record that lanes wait at a cluster's barrier until all lanes have arrived."""
        if self._clusters is not None:
            self._clusters.join(lanes)
            self.floor = self._clusters.floor

    def waited(self, lanes: Index, now: int) -> None:
        """Record that lanes have waited at an mbarrier, at which any thread of their cluster may have arrived."""
        if self._clusters is not None:
            self._clusters.waited(lanes, now)

    def exit(self, lanes: Index, now: int) -> None:
        """Record that lanes exit: waiting lanes are ordered after them."""
        if self._clusters is not None:
            self._clusters.exit(lanes, now)
        if lanes is not None and self.machine.status.any():
            self._wake(lanes, now)
            self.warps.exit(lanes, now)

    def fence(self, lanes: Index, now: int, whole: bool) -> None:
        """Record that lanes run a fence before access `now`, and acquire the accesses that they have observed.

        `whole` is False for a fence whose scope is only the block.
        """
        blocks = slice(None) if lanes is None else self.machine.block_of[lanes]
        self.fenced[: 1 + whole, blocks] = now
        self.fences.fence(lanes, now, whole)
        if self._is_pending:
            selected = slice(None) if lanes is None else lanes
            np.maximum.at(
                self.acquired, self.machine.block_of[selected], self._pending[: 1 + whole, selected].max(axis=0)
            )
            self._pending[: 1 + whole, selected] = 0

    def observe(self, lanes: np.ndarray, near: np.ndarray, wide: np.ndarray, now: int) -> None:
        """Record that lanes read a flag in access `now` without an acquire. A later fence of the lanes acquires.

        `near` has the bound published to each lane's block, `wide` the bound published to all blocks.
        """
        blocks, observed = self.machine.block_of[lanes], np.maximum(near, wide)
        if observed.any():
            np.maximum.at(self.observed, blocks, observed)
            self.observed_by[blocks[observed > 0]] = now
            for pending, upto in zip(self._pending, (near, wide), strict=True):
                np.maximum.at(pending, lanes, upto)
            self._is_pending = True

    def acquire(self, lanes: np.ndarray, upto: np.ndarray) -> None:
        """Record that lanes acquire the accesses published before a bound; `upto` has one bound a lane."""
        if upto.any():
            for bounds in (self.observed, self.acquired):
                np.maximum.at(bounds, self.machine.block_of[lanes], upto)

    def split_blocks(self) -> None:
        """Raise the observed and acquired bounds of each block to at least those of the first block.

        Until then, only the first block's accesses to shared memory are recorded, since all blocks do the same.
        """
        for bounds in (self.observed, self.acquired, self.observed_by):
            np.maximum(bounds, bounds[0], out=bounds)
        rows = self._pending.reshape(2, self.machine.blocks, -1)
        np.maximum(rows, rows[:, :1], out=rows)
        self.fences.split_blocks()

    def unordered(self, stamps: np.ndarray, lanes: np.ndarray, is_weak_load: bool = False) -> np.ndarray:
        """Return for each of `lanes` whether the access of its stamp is unordered with the lane's next access.

        The stamp is that of an earlier access; stamps of 0 and of the lane itself give False. `is_weak_load` is True if
        the next access is a read that is not strong: only such a read needs an acquire.
        """
        machine = self.machine
        # A stamp of 0 means no access.
        other, event = (stamps & LANE) - self.base, stamps >> LANE_BITS
        here = (other >= 0) & (other < machine.lanes)
        mine = np.where(here, other, 0)
        same_block = here & (machine.block_of[mine] == machine.block_of[lanes])
        bounds = np.maximum(self.block[lanes], self.warps.ordered_before(mine, lanes))
        bounds = np.where(same_block, np.maximum(bounds, self.groups.ordered_before(mine, lanes)), 0)
        if self._clusters is not None:
            bounds = np.maximum(bounds, np.where(here, self._clusters.ordered_before(mine, lanes), 0))
        observed = (self.acquired if is_weak_load else self.observed)[machine.block_of[lanes]]
        if observed.any():
            # All accesses of blocks that ran before count as published.
            published = self.fences.published(observed, event, mine, np.where(same_block, 0, 1))
            bounds = np.maximum(bounds, np.where(here, published, observed))
        is_unordered: np.ndarray = (event > 0) & (event >= bounds) & (other != lanes)
        return is_unordered

    def _wake(self, lanes: np.ndarray, now: int) -> None:
        """Order lanes that wait at a barrier after `lanes`, if they are in the same blocks."""
        machine = self.machine
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        self.warps.is_uneven = True
        if waiting.size:
            touched = np.zeros(machine.blocks, bool)
            touched[machine.block_of[lanes]] = True
            self.block[waiting[touched[machine.block_of[waiting]]]] = now
