"""What was touched until now and by whom, for as long as later work may race with it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE
from cudakit.emulator.streams.watch import ALL, CONFLICTS, COVERS, Touch
from cudakit.errors import EmulationError
from cudakit.streams.segments import Use

#: Of many who read the same, how many are looked at by the next.
_FEW = 4
_VERBS = {WRITE: "writes", STRONG_WRITE: "changes atomically", READ: "reads", STRONG_READ: "reads atomically"}


class Doer(NamedTuple):
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


class History:
    """Touches of memory, until later ones cover them, they are over, or the memory is gone.

    Attributes
    ----------
    touches : list of Touch
        By their first bytes.
    """

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._starts: list[int] = []
        self._longest = 0

    @property
    def uses(self) -> list[Use]:
        """All uses that are remembered."""
        return [use for touch in self.touches for use, _ in touch.uses.values()]

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
            if not isinstance(touch.flags, int):
                touch.simplify()
            for earlier in self._near(touch.start, touch.stop):
                start, stop = max(earlier.start, touch.start), min(earlier.stop, touch.stop)
                if start >= stop:
                    continue
                new, old = touch.within(start, stop), earlier.within(start, stop)
                bad, covered = CONFLICTS[new] & old, COVERS[new]
                races = bad.any() if isinstance(bad, np.ndarray) else bad > 0
                if len(earlier.uses) > 1 and not races:
                    # Readers beside readers, which may be many.
                    if (start, stop) == (earlier.start, earlier.stop) and not (old & (ALL ^ covered)).any():
                        self._cover_some(earlier, is_before)
                    continue
                for before, other in earlier.uses.values():
                    if not is_before(before):
                        if race is None and races:
                            race = _race(doer, touch, earlier, other, start, np.broadcast_to(bad, stop - start))
                        break
                else:
                    if earlier.cover(start, stop, covered):
                        self._remove(earlier)
        for touch in touches:
            same = self._alike(touch)
            same.uses[use.stream] = use, doer
            if same is touch:
                position = bisect_right(self._starts, touch.start)
                self._starts.insert(position, touch.start)
                self.touches.insert(position, touch)
                self._longest = max(self._longest, touch.stop - touch.start)
        return race

    def _cover_some(self, readers: Touch, is_before: Callable[[Use], bool]) -> None:
        """Forget those of a few uses, others each time, that come before one that touches the same."""
        for stream in list(islice(readers.uses, _FEW)):
            use, doer = readers.uses.pop(stream)
            if not is_before(use):
                readers.uses[stream] = use, doer
        if not readers.uses:
            self._remove(readers)

    def _alike(self, touch: Touch) -> Touch:
        """The touch that reads the same bytes in the same way as one that only reads; else the touch itself."""
        if (touch.flags if isinstance(touch.flags, int) else touch.flags.max()) > READ:
            return touch
        for position in range(bisect_left(self._starts, touch.start), len(self.touches)):
            other = self.touches[position]
            if other.start != touch.start:
                break
            same = (other.name, other.address, other.itemsize, other.stop)
            if same == (touch.name, touch.address, touch.itemsize, touch.stop) and _equal(other.flags, touch.flags):
                return other
        return touch

    def _near(self, start: int, stop: int) -> list[Touch]:
        """Those that may have bytes from `start` to `stop`."""
        first, last = bisect_left(self._starts, start - self._longest), bisect_left(self._starts, stop)
        return self.touches[first:last]

    def _remove(self, touch: Touch) -> None:
        position = self.touches.index(touch, bisect_left(self._starts, touch.start))
        del self.touches[position], self._starts[position]

    def forget(self, is_over: Callable[[Use], bool]) -> None:
        """Forget the touches of uses that no later work can race with."""
        for touch in self.touches:
            touch.uses = {stream: each for stream, each in touch.uses.items() if not is_over(each[0])}
        self.touches = [touch for touch in self.touches if touch.uses]
        self._starts = [touch.start for touch in self.touches]
        self._longest = max((touch.stop - touch.start for touch in self.touches), default=0)

    def forget_bytes(self, start: int, stop: int) -> None:
        """Forget who touched some bytes."""
        for touch in self._near(start, stop):
            low, high = max(start, touch.start), min(stop, touch.stop)
            if low < high and touch.cover(low, high, ALL):
                self._remove(touch)

    def forget_memory(self, start: int, stop: int) -> None:
        """Forget the touches of memory that is gone; new arrays may lie there."""
        for touch in self._near(start, stop):
            if touch.stop > start:
                self._remove(touch)


def _equal(one: Any, other: Any) -> bool:
    same = one == other
    return same if isinstance(same, bool) else bool(same.all())


def _race(doer: Doer, touch: Touch, other: Touch, earlier: Doer, start: int, bad: np.ndarray) -> EmulationError:
    """The error for flags `bad` of earlier work, from the byte at `start` on; names the first run of such bytes."""
    places = np.flatnonzero(bad)
    jumps = np.flatnonzero(np.diff(places) > 1)
    first, last = int(places[0]), int(places[jumps[0]] if jumps.size else places[-1])
    theirs = _verb(int(bad[first]))
    ours = _verb(int(CONFLICTS[bad[first]] & np.min(touch.within(start + first, start + first + 1))))
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
