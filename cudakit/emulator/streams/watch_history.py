"""What was touched until now and by whom, for as long as later work may race with it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE
from cudakit.emulator.streams.watch import CONFLICTS, COVERS, Touch
from cudakit.errors import EmulationError
from cudakit.streams.order.segments import Use

#: Touches after which it is time to look for those that no later work can race with.
_MANY = 256
_VERBS = {WRITE: "writes", STRONG_WRITE: "changes atomically", READ: "reads", STRONG_READ: "reads atomically"}


@dataclass(frozen=True, slots=True)
class Doer:
    """A piece of work, as messages name it.

    Attributes
    ----------
    name : str
        A kernel's name expression, or what copies.
    stream : int
        Handle of its stream.
    site : str
        File and line of the program that asked for it.
    """

    name: str
    stream: int
    site: str

    def __str__(self) -> str:
        return f"{self.name} on stream {self.stream} ({self.site})"


@dataclass(order=True, slots=True)
class _Entry:
    start: int
    serial: int
    touch: Touch = field(compare=False)
    use: Use = field(compare=False)
    doer: Doer = field(compare=False)


class History:
    """Touches of memory, until later ones cover them, they are over, or the memory is gone."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._serial = count()
        self._longest = 0
        self._limit = _MANY

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def streams(self) -> set[Any]:
        """The streams of all uses that are remembered."""
        return {entry.use.stream for entry in self._entries}

    @property
    def is_long(self) -> bool:
        """Whether it is time to forget what is over."""
        return len(self._entries) > self._limit

    def add(
        self, doer: Doer, use: Use, touches: Iterable[Touch], is_before: Callable[[Use], bool]
    ) -> EmulationError | None:
        """Note what a piece of work touches.

        Parameters
        ----------
        doer : Doer
        use : Use
            Its place in the order.
        touches : iterable of Touch
        is_before : callable
            Whether an earlier use comes before this work.

        Returns
        -------
        EmulationError or None
            What there is to raise, where the work races with an earlier one.
        """
        race = None
        touches = list(touches)
        for touch in touches:
            for entry in self._overlapping(touch):
                start, stop = max(entry.start, touch.start), min(entry.touch.stop, touch.stop)
                new, old = touch.within(start, stop), entry.touch.within(start, stop)
                if is_before(entry.use):
                    old &= ~_of_each(new, COVERS)
                    if not entry.touch.flags.any():
                        self._entries.remove(entry)
                elif race is None and (bad := _of_each(new, CONFLICTS) & old).any():
                    race = _race(doer, touch, entry, start, bad)
        for touch in touches:
            insort(self._entries, _Entry(touch.start, next(self._serial), touch, use, doer))
            self._longest = max(self._longest, touch.flags.size)
        return race

    def _overlapping(self, touch: Touch) -> list[_Entry]:
        first = bisect_left(self._entries, touch.start - self._longest, key=_start)
        last = bisect_left(self._entries, touch.stop, key=_start)
        return [entry for entry in self._entries[first:last] if entry.touch.stop > touch.start]

    def forget(self, is_over: Callable[[Use], bool]) -> None:
        """Forget the touches of uses that no later work can race with."""
        self._keep([entry for entry in self._entries if not is_over(entry.use)])

    def forget_memory(self, start: int, stop: int) -> None:
        """Forget the touches of memory that is gone; new arrays may lie there."""
        self._keep([entry for entry in self._entries if entry.touch.stop <= start or entry.start >= stop])

    def _keep(self, entries: list[_Entry]) -> None:
        self._entries = entries
        self._limit = max(_MANY, 2 * len(entries))
        self._longest = max((entry.touch.flags.size for entry in entries), default=0)


def _start(entry: _Entry) -> int:
    return entry.start


def _of_each(flags: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``table[flags]``; a number where all are the same, as they mostly are, which is much faster."""
    first = flags[0]
    return np.asarray(table[first] if (flags == first).all() else table.take(flags))


def _race(doer: Doer, touch: Touch, entry: _Entry, start: int, bad: np.ndarray) -> EmulationError:
    """The error for flags `bad` of earlier work, from the byte at `start` on; names the first run of such bytes."""
    places = np.flatnonzero(bad)
    jumps = np.flatnonzero(np.diff(places) > 1)
    first, last = int(places[0]), int(places[jumps[0]] if jumps.size else places[-1])
    other = entry.touch
    theirs = _verb(int(bad[first]))
    ours = _verb(int(CONFLICTS[bad[first]] & touch.within(start + first, start + first + 1)[0]))
    low, high = start + first, start + last
    return EmulationError(
        f"race: {doer} {ours} {_where(touch, low, high)}, which {entry.doer} {theirs}"
        f"{'' if (other.name, other.address) == (touch.name, touch.address) else ' as ' + _where(other, low, high)}"
        f", and neither comes first. After "
        f"{entry.doer.name}, record an event on stream {entry.doer.stream}; before {doer.name}, let stream "
        f"{doer.stream} wait for it: stream.wait(event)"
    )


def _verb(flags: int) -> str:
    return next(verb for flag, verb in _VERBS.items() if flags & flag)


def _where(touch: Touch, low: int, high: int) -> str:
    """``bytes 0 … 7 of x (elements 0 … 1)``."""
    first, last = low - touch.address, high - touch.address
    named = f"bytes {first} … {last} of {touch.name}"
    if touch.itemsize == 1:
        return named
    first, last = first // touch.itemsize, last // touch.itemsize
    return f"{named} ({f'element {first}' if first == last else f'elements {first} … {last}'})"
