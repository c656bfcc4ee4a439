"""Vector clocks: what must be done before memory may be read or written, over any number of streams. No CUDA here.

Each use of memory on a stream has a count, one more than the use before it there. A stream's clock holds, for each
other stream, the count up to which everything there comes before whatever the stream is given next. Memory is a line
of segments, each with its last write and the reads since then, one a stream; a segment is cut where a range begins or
ends inside it. So a read waits for the last write, a write for the last write and the reads since, each only where it
was on another stream and the clock does not hold it yet: Lamport's order, as Mattern's and Fidge's clocks tell it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
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

    def __init__(self, stream: Name, count: int, clock: Mapping[Name, int], note: Any = None) -> None:
        self.stream = stream
        self.count = count
        self.clock = clock
        self.note = note
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

    `warmth` is the caller's: 0 at first, and copied where a segment is cut.
    """

    __slots__ = ("reads", "start", "stop", "warmth", "write")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.write: Use | None = None
        self.reads: dict[Name, Use] = {}
        self.warmth = 0


class Touched(NamedTuple):
    """The segments of some ranges; good while `Clocks.version` is `version`.

    Attributes
    ----------
    version : int
    read, written : tuple of Segment
        A segment that is both read and written is in `written` alone.
    cut : tuple of tuple of Segment
        The segments of each written range that has more than one.
    """

    version: int
    read: tuple[Segment, ...]
    written: tuple[Segment, ...]
    cut: tuple[tuple[Segment, ...], ...] = ()


class Conflict(NamedTuple):
    """An earlier use that must come first.

    Attributes
    ----------
    use : Use
    overlap : tuple of int
        The bytes that both touch.
    kind : str
        ``read after write``, ``write after read`` or ``write after write``.
    implied : bool
        Whether it comes first anyway: no wait is needed.
    """

    use: Use
    overlap: Range
    kind: str
    implied: bool


class Clocks:
    """The clocks of all streams, and the last uses of all memory.

    Examples
    --------
    >>> clocks = Clocks()
    >>> x = (0x1000, 0x2000)
    >>> touched = clocks.touch(writes=[x])
    >>> clocks.needed("a", touched), clocks.use("a", touched)
    ([], Use('a', 1))
    >>> clocks.needed("b", clocks.touch(reads=[x]))
    [Use('a', 1)]
    """

    def __init__(self) -> None:
        #: Changes whenever a segment is cut, joined or forgotten: what was touched before must be looked up again.
        self.version = 0
        self._starts: list[int] = []
        self._segments: list[Segment] = []
        self._touched: dict[tuple[tuple[Range, ...], tuple[Range, ...]], Touched] = {}
        self._counts: dict[Name, int] = {}
        self._clocks: dict[Name, dict[Name, int]] = {}
        self._done: dict[Name, int] = {}

    def __len__(self) -> int:
        """Segments of memory that are remembered."""
        return len(self._segments)

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

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
        for start, stop in (*reads, *writes):
            if start < stop:
                self._cut(start)
                self._cut(stop)
                self._cover(start, stop)
        covers = [tuple(self._cover(*each)) for each in writes]
        written = {id(segment): segment for cover in covers for segment in cover}
        read = {id(segment): segment for each in reads for segment in self._cover(*each)}
        only_read = tuple(segment for key, segment in read.items() if key not in written)
        return Touched(
            self.version, only_read, tuple(written.values()), tuple(cover for cover in covers if len(cover) > 1)
        )

    def _cut(self, address: int) -> None:
        """Let no segment have `address` inside it."""
        position = bisect_left(self._starts, address) - 1
        if position < 0 or self._segments[position].stop <= address:
            return
        first = self._segments[position]
        second = Segment(address, first.stop)
        second.write, second.reads, second.warmth = first.write, dict(first.reads), first.warmth
        first.stop = address
        self._starts.insert(position + 1, address)
        self._segments.insert(position + 1, second)
        self.version += 1

    def _cover(self, start: int, stop: int) -> list[Segment]:
        """The segments from `start` to `stop`, with new ones where there were none."""
        first = position = bisect_left(self._starts, start)
        while start < stop:
            following = self._starts[position] if position < len(self._starts) else stop
            if following > start:
                end = min(following, stop)
                self._starts.insert(position, start)
                self._segments.insert(position, Segment(start, end))
            start = self._segments[position].stop
            position += 1
        return self._segments[first:position]

    def _join(self, pieces: tuple[Segment, ...]) -> None:
        """Make one of what was just written as one, so that memory cut once does not stay cut."""
        first, last = pieces[0], pieces[-1]
        start, stop = bisect_left(self._starts, first.start), bisect_left(self._starts, last.start)
        if self._segments[start : stop + 1] != list(pieces):
            return  # an overlapping range was joined before
        first.stop, first.warmth = last.stop, max(piece.warmth for piece in pieces)
        del self._starts[start + 1 : stop + 1], self._segments[start + 1 : stop + 1]
        self.version += 1

    def forget(self) -> None:
        """Forget all memory of which every use is done (see `finish`)."""
        kept = [segment for segment in self._segments if not self._is_over(segment)]
        if len(kept) < len(self._segments):
            self._segments = kept
            self._starts = [segment.start for segment in kept]
            self.version += 1

    def _is_over(self, segment: Segment) -> bool:
        uses = [*segment.reads.values(), *([segment.write] if segment.write else [])]
        return all(use.last <= self._done.get(use.stream, 0) for use in uses)

    # ── order ────────────────────────────────────────────────────────────────────────────────────────────────────

    def needed(self, stream: Name, touched: Touched) -> list[Use]:
        """The fewest uses that `stream` must wait for before it may touch that.

        One a stream at most, and none that another of them has before it.
        """
        clock, done = self._clocks.get(stream) or {}, self._done
        latest: dict[Name, Use] = {}
        for use in _conflicting(touched):
            other = use.stream
            if other == stream:
                continue
            if use.spell is None:
                last = use.count
            elif use.spell.end is None:
                last = NEVER
            else:
                use = use.spell.end
                last = use.count
            if last <= clock.get(other, 0) or last <= done.get(other, 0):
                continue
            if other not in latest or latest[other].last < last:
                latest[other] = use
        if len(latest) < 2:
            return list(latest.values())
        return [
            use
            for use in latest.values()
            if not any(by.clock.get(use.stream, 0) >= use.last for by in latest.values() if by is not use)
        ]

    def conflicts(self, stream: Name, touched: Touched) -> list[Conflict]:
        """Every earlier use on another stream that must come before `stream` touches that, waited for or not."""
        clock, found = self._clocks.get(stream) or {}, []
        for segment, written in [*((s, False) for s in touched.read), *((s, True) for s in touched.written)]:
            uses = [(segment.write, f"{'write' if written else 'read'} after write")] if segment.write else []
            if written:
                uses += [(use, "write after read") for use in segment.reads.values()]
            for use, kind in uses:
                if use.stream != stream:
                    implied = use.last <= max(clock.get(use.stream, 0), self._done.get(use.stream, 0))
                    found.append(Conflict(use, (segment.start, segment.stop), kind, implied))
        return found

    def is_before(self, use: Use, stream: Name) -> bool:
        """Whether `use` comes before whatever `stream` is given from now on; before everything, for a new stream."""
        known = max((self._clocks.get(stream) or _EMPTY).get(use.stream, 0), self._done.get(use.stream, 0))
        return use.stream == stream or use.last <= known

    def use(self, stream: Name, touched: Touched, note: Any = None) -> Use:
        """Note that `stream` touches that now, whether or not what is needed was waited for."""
        count = self._counts.get(stream, 0) + 1
        self._counts[stream] = count
        used = Use(stream, count, self._clocks.get(stream) or _EMPTY, note)
        for segment in touched.read:
            former = segment.reads.get(stream)
            if former is not None and former.spell is not None and former.spell.end is None:
                used.spell = former.spell
            segment.reads[stream] = used
        for segment in touched.written:
            for former in (segment.write, segment.reads.get(stream)):
                if former is not None and former.spell is not None and former.stream == stream:
                    used.spell = former.spell if former.spell.end is None else used.spell
            segment.write = used
            if segment.reads:
                segment.reads = {}
        for pieces in touched.cut:
            self._join(pieces)
        return used

    def now(self, stream: Name) -> Use:
        """All that `stream` was given so far, as one thing that can be waited for (an event recorded now)."""
        count = self._counts.get(stream, 0) + 1
        self._counts[stream] = count
        return Use(stream, count, self._clocks.get(stream) or _EMPTY)

    def wait(self, stream: Name, use: Use) -> None:
        """Whatever `stream` is given from now on comes after `use`, and after what comes before that."""
        # Clocks are never changed, only replaced: uses share them.
        clock, done = dict(self._clocks.get(stream) or _EMPTY), self._done
        for other, count in use.clock.items():
            if count > clock.get(other, 0) and count > done.get(other, 0):
                clock[other] = count
        if use.count > clock.get(use.stream, 0):
            clock[use.stream] = use.count
        clock.pop(stream, None)
        self._clocks[stream] = clock

    def finish(self, use: Use) -> None:
        """`use` is done, as the host has seen, and all before it: nobody need wait for them any more."""
        for other, count in (*use.clock.items(), (use.stream, use.count)):
            if count > self._done.get(other, 0):
                self._done[other] = count

    def drop(self, stream: Name) -> None:
        """Forget a stream that is gone, all of whose work is done."""
        self._done[stream] = NEVER
        self._clocks = {
            name: {other: count for other, count in clock.items() if other != stream}
            for name, clock in self._clocks.items()
            if name != stream
        }


_EMPTY: dict[Name, int] = {}


def _conflicting(touched: Touched) -> Iterable[Use]:
    """Uses that must come before those of `touched`, whatever their stream."""
    for segment in touched.read:
        if segment.write is not None:
            yield segment.write
    for segment in touched.written:
        if segment.write is not None:
            yield segment.write
        if segment.reads:
            yield from segment.reads.values()
