"""Asynchronous copies that land late: only when a thread waits for them, as a GPU may let them land."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.ptx.program import Instruction

#: Mechanism that waits for a copy: a group of its thread's copies, a group of its bulk copies, an mbarrier.
Awaited: TypeAlias = Literal["group", "bulk", "mbarrier"]


class Part(NamedTuple):
    """Memory that copies read or write: a state space, and units of `size` bytes in it.

    Each unit has an address in `addresses`, and in `positions` the position of its copy in `Copies.lanes`.
    """

    space: str
    positions: np.ndarray
    addresses: np.ndarray
    size: int


@dataclass(slots=True, eq=False)
class Copies:
    """Asynchronous copies of one instruction, for several lanes.

    Attributes
    ----------
    instr : Instruction
        Instruction that copies.
    awaited : str
        Mechanism by which threads wait for the copies.
    lanes : numpy.ndarray
        Lane of each copy. Positions in the other fields are positions in this array.
    land : callable
        Function that performs the copies at some positions.
    reads, writes : sequence of Part
        Memory that the copies read and write.
    barriers : numpy.ndarray or None
        Mbarrier of each copy, by a number among the mbarriers of all blocks.
    """

    instr: Instruction
    awaited: Awaited
    lanes: np.ndarray
    land: Callable[[np.ndarray], None]
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    barriers: np.ndarray | None = None
    #: Whether each position is still under way, and the group of each.
    open: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    groups: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Listener(Protocol):
    """Observer of asynchronous copies."""

    def issued(self, copies: Copies) -> None:
        """React to copies that have been issued."""

    def landed(self, copies: Copies, positions: np.ndarray, awaited: Awaited) -> None:
        """React to copies at some positions that have landed because a thread waited by the mechanism `awaited`."""

    def abandoned(self, copies: Copies, positions: np.ndarray) -> None:
        """React to copies at some positions that no thread has waited for when the kernel ends."""


class Late:
    """Asynchronous copies under way in an interpreter.

    Parameters
    ----------
    lanes : int
        Lanes of the interpreter.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._open: list[Copies] = []
        self._committed = {awaited: np.zeros(lanes, np.int64) for awaited in ("group", "bulk")}
        self.listeners: list[Listener] = []

    def issue(self, copies: Copies) -> None:
        """Issue copies: from now on they are under way."""
        copies.open = np.ones(copies.lanes.size, bool)
        if copies.awaited != "mbarrier":
            copies.groups = self._committed[copies.awaited][copies.lanes]
        self._open.append(copies)
        for listener in self.listeners:
            listener.issued(copies)

    def before(self, lanes: np.ndarray) -> Callable[[np.ndarray], None]:
        """Return a function that lands the ``cp.async`` copies that are under way now, at the time of this call.

        The function takes positions in `lanes`, and lands the copies of the lanes at these positions.
        """
        under_way = [copies for copies in self._open if copies.awaited == "group"]

        def land(some: np.ndarray) -> None:
            for copies in under_way:
                self._land(copies, np.isin(copies.lanes, lanes[some]), "mbarrier")

        return land

    def commit(self, awaited: Awaited, lanes: np.ndarray) -> None:
        """Close a group for each of the lanes: their copies since the last group, of the mechanism `awaited`."""
        self._committed[awaited][lanes] += 1

    def wait(self, awaited: Awaited, lanes: np.ndarray, but: int | None) -> None:
        """Land all groups of the lanes except the last `but` groups; land all the lanes' copies if `but` is None."""
        limit = np.full(self._lanes, -1)
        limit[lanes] = np.iinfo(np.int64).max if but is None else self._committed[awaited][lanes] - but
        for copies in list(self._open):
            if copies.awaited == awaited:
                self._land(copies, copies.groups < limit[copies.lanes])

    def reached(self, barriers: np.ndarray) -> None:
        """Land the copies that complete on mbarriers which a lane tests now.

        `barriers` has the numbers of these mbarriers among the mbarriers of all blocks.
        """
        for copies in list(self._open):
            if copies.barriers is not None:
                self._land(copies, np.isin(copies.barriers, barriers))

    def finish(self) -> None:
        """Report copies for which no thread has waited, when all lanes are done; bulk copies to global memory land."""
        for copies in list(self._open):
            for listener in self.listeners:
                listener.abandoned(copies, np.flatnonzero(copies.open))
            if copies.awaited == "bulk":  # others write shared memory, which is gone
                self._land(copies, copies.open)
        # Listeners refer to the interpreter, which refers to this object: break the cycle.
        self.listeners.clear()

    def _land(self, copies: Copies, chosen: np.ndarray, awaited: Awaited | None = None) -> None:
        """Land copies under way where the mask `chosen` is true, and notify the listeners."""
        positions = np.flatnonzero(copies.open & chosen)
        if not positions.size:
            return
        copies.open[positions] = False
        if not copies.open.any():
            self._open.remove(copies)
        copies.land(positions)
        for listener in self.listeners:
            listener.landed(copies, positions, awaited or copies.awaited)
