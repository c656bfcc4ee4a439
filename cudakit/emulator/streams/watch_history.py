"""What was touched until now and by whom, for as long as later work may race with it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE
from cudakit.emulator.streams.watch import CONFLICTS, COVERS, Touch
from cudakit.errors import EmulationError
from cudakit.streams.order.segments import Use

#: Touches after which it is time to look for those that no later work can race with.
_MANY = 256
#: Of many who read the same, how many are looked at by the next.
_FEW = 4
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
    """A touch, of each stream that touches the same in the same way, which only readers do."""

    start: int
    serial: int
    touch: Touch = field(compare=False)
    uses: dict[Any, tuple[Use, Doer]] = field(compare=False)


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
    def uses(self) -> list[Use]:
        """All uses that are remembered."""
        return [use for entry in self._entries for use, _ in entry.uses.values()]

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
            for entry in self._within(touch.start, touch.stop):
                start, stop = max(entry.start, touch.start), min(entry.touch.stop, touch.stop)
                new, old = touch.within(start, stop), entry.touch.within(start, stop)
                bad = _of_each(new, CONFLICTS) & old
                if len(entry.uses) > 1 and not bad.any():
                    # Readers beside readers, which may be many.
                    if entry.start == start and entry.touch.stop == stop and not (old & ~_of_each(new, COVERS)).any():
                        self._cover_some(entry, is_before)
                    continue
                late = next((other for earlier, other in entry.uses.values() if not is_before(earlier)), None)
                if late is None:
                    old &= ~_of_each(new, COVERS)
                    if not entry.touch.flags.any():
                        self._remove(entry)
                elif race is None and bad.any():
                    race = _race(doer, touch, entry.touch, late, start, bad)
        for touch in touches:
            uses = self._alike(touch)
            if uses is None:
                insort(self._entries, _Entry(touch.start, next(self._serial), touch, {use.stream: (use, doer)}))
                self._longest = max(self._longest, touch.flags.size)
            else:
                uses[use.stream] = use, doer
        return race

    def _cover_some(self, entry: _Entry, is_before: Callable[[Use], bool]) -> None:
        """Forget those of a few uses, others each time, that come before one that touches the same."""
        for stream in list(islice(entry.uses, _FEW)):
            use, doer = entry.uses.pop(stream)
            if not is_before(use):
                entry.uses[stream] = use, doer
        if not entry.uses:
            self._remove(entry)

    def _alike(self, touch: Touch) -> dict[Any, tuple[Use, Doer]] | None:
        """The uses that read the same bytes in the same way as one that only reads."""
        if touch.flags.max(initial=0) > READ:
            return None
        for entry in self._entries[bisect_left(self._entries, touch.start, key=_start) :]:
            other = entry.touch
            if entry.start != touch.start:
                return None
            same = (other.name, other.address, other.itemsize) == (touch.name, touch.address, touch.itemsize)
            if same and np.array_equal(other.flags, touch.flags):
                return entry.uses
        return None

    def _within(self, start: int, stop: int) -> list[_Entry]:
        first = bisect_left(self._entries, start - self._longest, key=_start)
        last = bisect_left(self._entries, stop, key=_start)
        return [entry for entry in self._entries[first:last] if entry.touch.stop > start]

    def _remove(self, entry: _Entry) -> None:
        del self._entries[bisect_left(self._entries, entry)]

    def forget(self, is_over: Callable[[Use], bool]) -> None:
        """Forget the touches of uses that no later work can race with."""
        for entry in self._entries:
            entry.uses = {stream: each for stream, each in entry.uses.items() if not is_over(each[0])}
        self._entries = [entry for entry in self._entries if entry.uses]
        self._limit = max(_MANY, 2 * len(self._entries))
        self._longest = max((entry.touch.flags.size for entry in self._entries), default=0)

    def forget_memory(self, start: int, stop: int) -> None:
        """Forget the touches of memory that is gone; new arrays may lie there."""
        for entry in self._within(start, stop):
            self._remove(entry)


def _start(entry: _Entry) -> int:
    return entry.start


def _of_each(flags: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``table[flags]``; a number where all are the same, as they mostly are, which is much faster."""
    first = flags[0]
    return np.asarray(table[first] if (flags == first).all() else table.take(flags))


def _race(doer: Doer, touch: Touch, other: Touch, earlier: Doer, start: int, bad: np.ndarray) -> EmulationError:
    """The error for flags `bad` of earlier work, from the byte at `start` on; names the first run of such bytes."""
    places = np.flatnonzero(bad)
    jumps = np.flatnonzero(np.diff(places) > 1)
    first, last = int(places[0]), int(places[jumps[0]] if jumps.size else places[-1])
    theirs = _verb(int(bad[first]))
    ours = _verb(int(CONFLICTS[bad[first]] & touch.within(start + first, start + first + 1)[0]))
    low, high = start + first, start + last
    return EmulationError(
        f"race: {doer} {ours} {_where(touch, low, high)}, which {earlier} {theirs}"
        f"{'' if (other.name, other.address) == (touch.name, touch.address) else ' as ' + _where(other, low, high)}"
        f", and neither comes first. After "
        f"{earlier.name}, record an event on stream {earlier.stream}; before {doer.name}, let stream "
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
