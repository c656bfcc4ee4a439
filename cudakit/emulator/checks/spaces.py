"""Memory of the lanes' accesses: the shared memory or array that each lane accesses, and its stamps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cudakit.emulator.checks.findings import Reporter
from cudakit.emulator.checks.order import first_numbers
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.checks.races import Races
from cudakit.emulator.checks.shadow import Accessed, Shadow
from cudakit.emulator.instructions.access import Access, by_space
from cudakit.emulator.machine.machine import Scheduler
from cudakit.emulator.machine.memory import RANK_SHIFT, WINDOW_BITS, Allocation, Index
from cudakit.emulator.machine.state import Frame
from cudakit.emulator.resources.allocations import MARKS

_OFFSET = np.uint64((1 << WINDOW_BITS) - 1)


class Spaces:
    """The memory of one interpreter, with its stamps.

    Parameters
    ----------
    machine : Scheduler
        Interpreter of the lanes.
    reporter : Reporter
        Reporter of the findings.
    races : Races
        Race check of the interpreter.
    pieces : dict
        Stamps of the launch's pieces of global memory, by address.
    grain : int
        Bytes that share a stamp.
    """

    def __init__(
        self, machine: Scheduler, reporter: Reporter, races: Races, pieces: dict[int, Shadow], grain: int
    ) -> None:
        self._machine, self._reporter, self._races, self._pieces, self._grain = machine, reporter, races, pieces, grain
        self._everybody = first_numbers(machine.lanes)
        #: Stamps of one block, while all blocks do the same; the last group of lanes, and the first block's lanes of
        #: it.
        self._is_cluster = machine.memory.cluster > 1
        self._alike = machine.blocks > 1 and not self._is_cluster
        self._shared = Shadow(races.row * (machine.blocks if self._is_cluster else 1), grain)
        self._shared.make()
        self._group: tuple[Index, np.ndarray | None] = (None, self._everybody[: machine.threads])
        self._local: np.ndarray = np.zeros((machine.lanes, 0), bool)

    def access(self, plan: Plan, access: Access, addresses: np.ndarray, active: Index, frame: Frame) -> None:
        """Check an access of lanes to memory at addresses, and record it."""
        for space, offsets, lanes in by_space(access, plan.instr, addresses, active, self._machine):
            if space == "local":
                self._in_local(plan, access, offsets, lanes)
            elif space == "global":
                self._in_global(plan, access, offsets, self._everybody if lanes is None else lanes, frame)
            elif self._is_cluster and space in ("shared", "cluster"):
                self._in_cluster(plan, access, offsets, lanes, frame)
            elif space in ("shared", "cluster") and (
                int(offsets.max()) + access.size <= self._machine.memory.shared_bytes  # else the machine says so
            ):
                self._in_shared(plan, access, offsets, lanes, frame)

    def _in_global(self, plan: Plan, access: Access, addresses: np.ndarray, lanes: np.ndarray, frame: Frame) -> None:
        for at in self._globally(addresses, access.size, lanes):
            if at.shadow.unwritten is not None:
                if at.shadow.is_of_heap:
                    # Newly allocated bytes do not inherit stamps of freed ones.
                    at.shadow.forget(at.offsets[at.shadow.unwritten[at.offsets]], access.size)
                self.check_initialised(at, plan, access)
            self._races.access(at, plan, access, frame)

    def places(self, space: str, addresses: np.ndarray, size: int, lanes: np.ndarray) -> Iterator[Accessed]:
        """Yield the parts of an asynchronous copy's access, one for each piece of memory.

        `space` is ``global`` or a space of shared memory. Clusters are not supported.
        """
        if space == "global":
            yield from self._globally(addresses, size, lanes)
            return
        machine, offsets = self._machine, addresses & _OFFSET
        memory = machine.memory.shared
        if self._alike and lanes.size % machine.blocks == 0:
            rows = lanes.reshape(machine.blocks, -1) - np.arange(machine.blocks)[:, None] * machine.threads
            where = offsets.reshape(machine.blocks, -1)
            if (rows == rows[0]).all() and (where == where[0]).all():
                yield Accessed(self._shared, memory, where[0], rows[0], size, chosen=np.arange(rows.shape[1]))
                return
        if self._alike:
            self._split_blocks()
        yield self._in_rows(machine.block_of[lanes], offsets, lanes, size)

    def _in_rows(self, blocks: np.ndarray, offsets: np.ndarray, lanes: np.ndarray, itemsize: int) -> Accessed:
        """Return an access to shared memory in which each block has stamps of its own.

        `blocks` has the number of the block that owns the memory at each of `offsets`.
        """
        starts = (blocks * self._races.row).astype(np.uint64)
        return Accessed(self._shared, self._machine.memory.shared, offsets + starts, lanes, itemsize)

    def _globally(self, addresses: np.ndarray, size: int, lanes: np.ndarray) -> Iterator[Accessed]:
        rest, numbers = addresses, None
        while rest.size:
            piece = self._machine.memory.piece_or_heap(int(rest[0]), size)
            if piece is None:
                return
            low, high = piece.address, piece.end - size
            shadow = self._pieces.get(piece.address)
            if shadow is None or shadow.size < piece.data.size:
                shadow = self._pieces[piece.address] = Shadow(piece.data.size, self._grain)
                self._allocated(shadow, piece)
            name = f"{piece.name}[{{}}], which has {piece.data.size // piece.itemsize} elements"
            start = np.uint64(low)
            if low <= int(rest.min()) and int(rest.max()) <= high:
                some = lanes if numbers is None else lanes[numbers]
                yield Accessed(shadow, piece.data, rest - start, some, piece.itemsize, name, numbers, low)
                return
            if numbers is None:
                numbers = np.arange(rest.size)
            inside = (rest >= start) & (rest <= np.uint64(high))
            here = numbers[inside]
            yield Accessed(shadow, piece.data, rest[inside] - start, lanes[here], piece.itemsize, name, here, low)
            rest, numbers = rest[~inside], numbers[~inside]

    @staticmethod
    def _allocated(shadow: Shadow, piece: Allocation) -> None:
        """Give a shadow the allocation's flags of bytes that were never written, if the allocation has any."""
        if piece.heap is not None:
            shadow.unwritten, shadow.is_of_heap = piece.heap.unwritten, True
            return
        mark = MARKS.at(piece.address)
        if mark is not None and piece.end <= mark.end:
            shadow.unwritten = mark.flags[piece.address - mark.address : piece.end - mark.address]

    def check_initialised(self, at: Accessed, plan: Plan, access: Access) -> None:
        """Report a read of bytes none of which was ever written; after a write, clear the flags of its bytes.

        The memory must have flags of unwritten bytes.
        """
        flags = at.shadow.unwritten
        assert flags is not None
        places = at.offsets.astype(np.int64)[:, None] + np.arange(access.size)
        if plan.needs_written(access):
            unset = flags[places].all(axis=1)
            if unset.any() and MARKS.at(at.address) is not None:
                # Flags are read again: tensor copies, for example, write without the checks.
                unset = flags[places].all(axis=1)
            if unset.any():
                first = int(np.flatnonzero(unset)[0])
                lane = int(at.lanes[first])
                element = at.name.partition(",")[0].format(int(at.offsets[first]) // at.itemsize)
                text = f"{self._machine.name_of(lane)} reads {element}, which was allocated and never written"
                self._reporter.report("uninitialised", plan, text, threads=[self._machine.thread_of(lane)])
        if access.use in ("stores", "atomics"):
            flags[places] = False

    def _in_shared(self, plan: Plan, access: Access, addresses: np.ndarray, active: Index, frame: Frame) -> None:
        machine, itemsize = self._machine, plan.itemsize or access.size
        if self._alike:
            lanes = self._first_of(active)
            if lanes is not None:
                rows = addresses.reshape(machine.blocks, -1)
                if (rows == rows[0]).all():
                    at = Accessed(self._shared, machine.memory.shared, rows[0], lanes, itemsize)
                    self._races.access(at, plan, access, frame)
                    return
            self._split_blocks()
        lanes = self._everybody if active is None else active
        self._races.access(self._in_rows(machine.block_of[lanes], addresses, lanes, itemsize), plan, access, frame)

    def _in_cluster(self, plan: Plan, access: Access, addresses: np.ndarray, active: Index, frame: Frame) -> None:
        machine = self._machine
        blocks = machine.memory.blocks_at(addresses, active)
        offsets = addresses & np.uint64((1 << RANK_SHIFT) - 1)
        if int(offsets.max()) + access.size > machine.memory.shared_bytes:
            return
        at = self._in_rows(blocks, offsets, self._everybody if active is None else active, plan.itemsize or access.size)
        self._races.access(at, plan, access, frame)

    def _split_blocks(self) -> None:
        """Give each block stamps of its own in shared memory, copied from the first block's.

        Until then, all blocks made the same accesses, and only the first block's were recorded. Marks of pending copies
        are dropped.
        """
        self._alike = False
        self._shared = self._shared.repeated(self._races.row, self._machine.blocks, self._machine.threads)
        self._races.order.split_blocks()

    def _first_of(self, active: Index) -> np.ndarray | None:
        """Return the lanes of the first block among `active`; None if other blocks have other active lanes."""
        machine = self._machine
        group, lanes = self._group
        if group is not active:
            lanes = None
            if active is None:
                lanes = self._everybody[: machine.threads]
            elif active.size % machine.blocks == 0:
                rows = active.reshape(machine.blocks, -1) - np.arange(machine.blocks)[:, None] * machine.threads
                if (rows == rows[0]).all():
                    lanes = rows[0]
            self._group = active, lanes
        return lanes

    def _in_local(self, plan: Plan, access: Access, offsets: np.ndarray, active: Index) -> None:
        machine = self._machine
        memory = machine.memory.local
        if self._local.shape != memory.shape:
            grown = np.zeros(memory.shape, bool)
            grown[:, : self._local.shape[1]] = self._local
            self._local = grown
        if int(offsets.max()) + access.size > memory.shape[1]:
            return
        lanes = self._everybody if active is None else active
        places = offsets.astype(np.int64)[:, None] + np.arange(access.size)
        if access.use != "loads":
            self._local[lanes[:, None], places] = True
            return
        unset = ~self._local[lanes[:, None], places].any(axis=1)
        if unset.any():
            lane = int(lanes[np.flatnonzero(unset)[0]])
            text = f"{machine.name_of(lane)} reads {access.size} bytes of local memory that it never wrote"
            self._reporter.report("uninitialised", plan, text, threads=[machine.thread_of(lane)])
