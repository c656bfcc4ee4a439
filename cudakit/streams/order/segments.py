"""Memory as the order between streams sees it: a line of segments, each with the uses that later ones must come after.

A segment is cut where a range begins or ends inside it, and made whole again where it is written as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

#: A stream's name here: anything that is equal to itself only.
Name: TypeAlias = Hashable
#: Bytes of memory: the first one's address, and the address after the last.
Range: TypeAlias = tuple[int, int]

#: The count of uses that go on: no clock reaches it.
NEVER = 1 << 62
#: Looked up once: what was touched lately.
_MOST_TOUCHED = 1024


class Spell:
    """A time in which a stream may repeat uses without saying so.

    Attributes
    ----------
    end : Use or None
        The place in the stream's order where it was over, which is what must be waited for; None while it lasts.
    """

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: Use | None = None


class Use:
    """A place in a stream's order: one use of memory, or all that the stream was given until then.

    Attributes
    ----------
    stream : hashable
    count : int
        How many uses the stream had then, this one included.
    clock : mapping
        The stream's clock then: counts of other streams that come before.
    note : object
        Whatever the caller gave.
    event : object
        What can be waited for; kept for the caller, who may set it.
    spell : Spell or None
        Where the use may have been repeated since.
    """

    __slots__ = ("clock", "count", "event", "note", "spell", "stream")

    def __init__(self, stream: Name, count: int, clock: Mapping[Name, int]) -> None:
        self.stream: Name = stream
        self.count: int = count
        self.clock: Mapping[Name, int] = clock
        self.note: Any = None
        self.event: Any = None
        self.spell: Spell | None = None

    @property
    def last(self) -> int:
        """The count up to which the stream must be waited for; `NEVER` while the use goes on."""
        if self.spell is None:
            return self.count
        return NEVER if self.spell.end is None else self.spell.end.count

    def __repr__(self) -> str:
        return f"Use({self.stream!r}, {self.count if self.last != NEVER else 'going on'})"


class Segment:
    """Bytes that were always used together: their last write and, by stream, the last read since then.

    Attributes
    ----------
    start, stop : int
    write : Use or None
    reads : dict of stream to Use
    warmth : int
        For how many uses it stays warm; see `Clocks.warm`.
    """

    __slots__ = ("reads", "start", "stop", "warmth", "write")

    def __init__(self, start: int, stop: int) -> None:
        self.start: int = start
        self.stop: int = stop
        self.write: Use | None = None
        self.reads: dict[Name, Use] = {}
        self.warmth: int = 0


class Touched(NamedTuple):
    """The segments of some ranges; good while `Segments.version` is `version`.

    Attributes
    ----------
    version : int
    read, written : tuple of Segment
        A segment that is both read and written is in `written` alone.
    cut : tuple of tuple of Segment
        The segments of each written range that has more than one.
    steps : dict
        By stream; see `Clocks.step`.
    """

    version: int
    read: tuple[Segment, ...]
    written: tuple[Segment, ...]
    cut: tuple[tuple[Segment, ...], ...]
    steps: dict[Name, Callable[[Use, bool], Any]]


class Segments:
    """All memory that was touched and is remembered.

    Attributes
    ----------
    version : int
        Changes whenever a segment is cut, joined or forgotten: what was touched before must be looked up again.
    segments : list of Segment
        In the order of their addresses.
    """

    def __init__(self) -> None:
        self.version: int = 0
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self._touched: dict[tuple[tuple[Range, ...], tuple[Range, ...]], Touched] = {}

    def touch(self, reads: Iterable[Range] = (), writes: Iterable[Range] = ()) -> Touched:
        """The segments of what is read and of what is written (read or not); empty ranges are left out.

        Segments begin and end where the ranges do: all that were cut are in the answer whole.
        """
        key = (tuple(reads), tuple(writes))
        found = self._touched.get(key)
        if found is None or found.version != self.version:
            if len(self._touched) >= _MOST_TOUCHED:
                self._touched.clear()
            found = self._touched[key] = self._touch(*key)
        return found

    def _touch(self, reads: tuple[Range, ...], writes: tuple[Range, ...]) -> Touched:
        covers: list[tuple[Segment, ...]] = []
        version = None
        while version != self.version:  # a later range may have cut what an earlier one covers
            version = self.version
            covers = [self._bounded(start, stop) for start, stop in (*reads, *writes)]
        covered = covers[len(reads) :]
        written = dict.fromkeys(chain.from_iterable(covered))
        read = dict.fromkeys(chain.from_iterable(covers[: len(reads)]))
        for segment in written:
            read.pop(segment, None)
        return Touched(self.version, tuple(read), tuple(written), tuple([c for c in covered if len(c) > 1]), {})

    def _bounded(self, start: int, stop: int) -> tuple[Segment, ...]:
        """The segments of a range, none of which goes beyond it, with new ones where there were none."""
        if start >= stop:
            return ()
        starts, segments = self._starts, self.segments
        for address in (start, stop):
            position = bisect_left(starts, address)
            if position and segments[position - 1].stop > address:
                self._cut(position - 1, address)
        first = position = bisect_left(starts, start)
        while start < stop:
            following = starts[position] if position < len(starts) else stop
            if following > start:
                starts.insert(position, start)
                segments.insert(position, Segment(start, min(following, stop)))
            start = segments[position].stop
            position += 1
        return tuple(segments[first:position])

    def _cut(self, position: int, address: int) -> None:
        """Make two of the segment that has `address` inside it."""
        first = self.segments[position]
        second = Segment(address, first.stop)
        second.write, second.reads, second.warmth = first.write, dict(first.reads), first.warmth
        first.stop = address
        self._starts.insert(position + 1, address)
        self.segments.insert(position + 1, second)
        self.version += 1

    def _join(self, pieces: tuple[Segment, ...]) -> None:
        """Make one of what was just written as one, so that memory cut once does not stay cut."""
        first, last = pieces[0], pieces[-1]
        start, stop = bisect_left(self._starts, first.start), bisect_left(self._starts, last.start)
        if self.segments[start : stop + 1] != list(pieces):
            return  # an overlapping range was joined before
        first.stop, first.warmth = last.stop, max(piece.warmth for piece in pieces)
        del self._starts[start + 1 : stop + 1], self.segments[start + 1 : stop + 1]
        self.version += 1

    def forget_range(self, start: int, stop: int) -> None:
        """Forget memory that is gone; new arrays may be there."""
        if gone := self._bounded(start, stop):
            first = bisect_left(self._starts, start)
            del self._starts[first : first + len(gone)], self.segments[first : first + len(gone)]
            self.version += 1

    def keep(self, kept: Iterable[Segment]) -> None:
        """Forget all other segments; those kept are given in their order."""
        segments = list(kept)
        if len(segments) < len(self.segments):
            self.segments = segments
            self._starts = [segment.start for segment in segments]
            self.version += 1
