"""Asynchronous copies that land late: when somebody waits for them, as a GPU may let them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.ptx.program import Instruction

#: What a copy is waited for by: a group of its thread's copies, a group of its bulk copies, an mbarrier.
Awaited: TypeAlias = Literal["group", "bulk", "mbarrier"]


class Part(NamedTuple):
    """Memory that copies read or write: for units of `size` bytes the position of the copy, and the address."""

    space: str
    positions: np.ndarray
    addresses: np.ndarray
    size: int


@dataclass(slots=True, eq=False)
class Copies:
    """What one instruction copies, for several lanes.

    Attributes
    ----------
    instr : Instruction
    awaited : str
    lanes : numpy.ndarray
        Of each copy; the numbers of the following are positions in it.
    land : callable
        Makes the copies at some positions.
    reads, writes : sequence of Part
    barriers : numpy.ndarray or None
        The mbarrier of each, by a number among those of all blocks.
    """

    instr: Instruction
    awaited: Awaited
    lanes: np.ndarray
    land: Callable[[np.ndarray], None]
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    barriers: np.ndarray | None = None
    #: Positions that have not landed, and the group that each is in.
    open: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    groups: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Listener(Protocol):
    """Is told of copies."""

    def issued(self, copies: Copies) -> None:
        """They are under way from now on."""

    def landed(self, copies: Copies, positions: np.ndarray, awaited: Awaited) -> None:
        """Those at some positions are done, for somebody waited in such a way."""

    def left(self, copies: Copies, positions: np.ndarray) -> None:
        """Nobody has waited for those at some positions."""


class Late:
    """The copies that are under way in a machine.

    Parameters
    ----------
    lanes : int
        Of the machine.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._open: list[Copies] = []
        self._committed = {awaited: np.zeros(lanes, np.int64) for awaited in ("group", "bulk")}
        self.listeners: list[Listener] = []

    def issue(self, copies: Copies) -> None:
        """Let copies be under way."""
        copies.open = np.ones(copies.lanes.size, bool)
        if copies.awaited != "mbarrier":
            copies.groups = self._committed[copies.awaited][copies.lanes]
        self._open.append(copies)
        for listener in self.listeners:
            listener.issued(copies)

    def before(self, lanes: np.ndarray) -> Callable[[np.ndarray], None]:
        """A function that lands, for some of `lanes`, the copies of their groups that are under way now."""
        under_way = [copies for copies in self._open if copies.awaited == "group"]

        def land(some: np.ndarray) -> None:
            for copies in under_way:
                self._land(copies, np.isin(copies.lanes, lanes[some]), "mbarrier")

        return land

    def commit(self, awaited: Awaited, lanes: np.ndarray) -> None:
        """The lanes' copies so far are a group."""
        self._committed[awaited][lanes] += 1

    def wait(self, awaited: Awaited, lanes: np.ndarray, but: int | None) -> None:
        """Lanes wait for all their groups `but` the last ones; for all that they copy where it is None."""
        limit = np.full(self._lanes, -1)
        limit[lanes] = np.iinfo(np.int64).max if but is None else self._committed[awaited][lanes] - but
        for copies in list(self._open):
            if copies.awaited == awaited:
                self._land(copies, copies.groups < limit[copies.lanes])

    def reached(self, barriers: np.ndarray) -> None:
        """Some lane looks at mbarriers."""
        for copies in list(self._open):
            if copies.barriers is not None:
                self._land(copies, np.isin(copies.barriers, barriers))

    def finish(self) -> None:
        """All lanes are done: nobody will wait any more."""
        for copies in list(self._open):
            for listener in self.listeners:
                listener.left(copies, np.flatnonzero(copies.open))
            if copies.awaited == "bulk":  # others write shared memory, which is gone
                self._land(copies, copies.open)
        # They know the machine, which knows this.
        self.listeners.clear()

    def _land(self, copies: Copies, chosen: np.ndarray, awaited: Awaited | None = None) -> None:
        positions = np.flatnonzero(copies.open & chosen)
        if not positions.size:
            return
        copies.open[positions] = False
        if not copies.open.any():
            self._open.remove(copies)
        copies.land(positions)
        for listener in self.listeners:
            listener.landed(copies, positions, awaited or copies.awaited)
