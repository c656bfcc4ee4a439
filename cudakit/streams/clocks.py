"""Vector clocks: they compute which work must be done before memory is read or written, over any number of streams.

No CUDA calls.

Each use of memory on a stream has a count, one more than the use before it there. A stream's clock holds, for each
other stream, the count up to which all work there precedes the stream's next work. Memory is a line of segments, each
with its last write and the reads since then, one for each stream. A segment is cut where a range begins or ends inside
it. A read waits for the last write. A write waits for the last write and the reads since then. There is no wait for the
same stream, or for a use that the clock already holds. This is Lamport's order, by Mattern's and Fidge's clocks.

`make_step` makes the function that computes and records the common case in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from cudakit.records import NamedTuple
from cudakit.streams.segments import COLD, MANY, NEVER, Name, Range, Segment, Segments, Touched, Use


def many(used: Use, waits: bool) -> Any:
    """Return `MANY`, and record nothing. This replaces `make_step`'s function for memory in several segments."""
    return MANY


_EMPTY: dict[Name, int] = {}


def make_step(
    clocks: dict[Name, dict[Name, int]],
    counts: dict[Name, int],
    finished: dict[Name, int],
    stream: Name,
    written: tuple[Segment, ...],
    read: tuple[Segment, ...],
    warmth: int,
) -> Callable[[Use, bool], Any]:
    """Return ``step(used, waits)`` for a stream and some segments, none of which is cut. See `Clocks.step`.

    The function loops over the segments. Unrolled code for each number of segments saves 0.1 µs of a launch that waits
    for another stream. Such a launch takes 1.2 µs beside the driver's calls. (CPython 3.11, one array. With four arrays
    it saves nothing.)
    """
    segments = (*((segment, True) for segment in written), *((segment, False) for segment in read))

    def step(used: Use, waits: bool) -> Any:
        clock = clocks.get(stream) or _EMPTY
        needed: Any = None
        for segment, is_written in segments:
            former: Any = segment.write
            if former is not used and former is not None:
                if former.spell is not None:
                    return MANY
                other, count = former.stream, former.count
                if other is not stream and count > clock.get(other, 0) and count > finished.get(other, 0):
                    if needed is None or (needed.stream is other and needed.count < count):
                        needed = former
                    elif needed.stream is not other:
                        return MANY
            if segment.reads:
                for former in segment.reads.values() if is_written else (segment.reads.get(stream),):
                    if former is used or former is None:
                        continue
                    if former.spell is not None:
                        return MANY
                    other, count = former.stream, former.count
                    if other is not stream and count > clock.get(other, 0) and count > finished.get(other, 0):
                        if needed is None or (needed.stream is other and needed.count < count):
                            needed = former
                        elif needed.stream is not other:
                            return MANY
        result = COLD if needed is None else needed
        if needed is not None and waits:
            clock = clock.copy()
            clock[needed.stream] = needed.count
            before = needed.clock
            if len(before) > 1 or stream not in before:
                for other, count in before.items():
                    if other is not stream and count > clock.get(other, 0) and count > finished.get(other, 0):
                        clock[other] = count
            clocks[stream] = clock
        used.event, used.point, used.clock = None, None, clock
        used.count = counts[stream] = counts.get(stream, 0) + 1
        for segment, is_written in segments:
            former, reads = segment.write, segment.reads
            if needed is not None and ((former is not None and former.stream is not stream) or (is_written and reads)):
                segment.warmth = warmth
            elif segment.warmth:
                segment.warmth -= 1
                result = needed
            if is_written:
                segment.write = used
                if reads:
                    segment.reads = {}
            else:
                reads[stream] = used
        return result

    return step


class Conflict(NamedTuple):
    """An earlier use that must come before a new use.

    Attributes
    ----------
    use : Use
        Earlier use.
    overlap : tuple of int
        First address that both uses touch, and the address after the last.
    hazard : str
        ``read after write``, ``write after read`` or ``write after write``.
    implied : bool
        Whether earlier waits already put the earlier use first, so that no wait is needed.
    """

    use: Use
    overlap: Range
    hazard: str
    implied: bool


class Clocks(Segments):
    """The clocks of all streams, and the last uses of all memory.

    Attributes
    ----------
    clocks : dict of stream to its clock
        Clock of each stream that comes after another stream.
    counts : dict of stream to int
        Number of uses of each stream.

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

    version: int

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[Name, int] = {}
        self.clocks: dict[Name, dict[Name, int]] = {}
        self._finished: dict[Name, int] = {}

    def forget(self) -> None:
        """Forget all memory whose uses are all done (see `finish`)."""
        self.keep(segment for segment in self.segments if not self._is_over(segment))

    def _is_over(self, segment: Segment) -> bool:
        uses = [*segment.reads.values(), *([segment.write] if segment.write else [])]
        return all(use.last <= self._finished.get(use.stream, 0) for use in uses)

    def needed(self, stream: Name, touched: Touched) -> list[Use]:
        """Return the fewest uses for which `stream` must wait before it may access the memory.

        The list has at most one use for each stream, and no use that a wait for another of them includes.
        """
        others = []
        for segment in touched.read:
            use = segment.write
            if use is not None and use.stream != stream:
                others.append(use)
        for segment in touched.written:
            use = segment.write
            if use is not None and use.stream != stream:
                others.append(use)
            if segment.reads:
                others += [use for use in segment.reads.values() if use.stream != stream]
        return self._latest(stream, others) if others else others

    def _latest(self, stream: Name, uses: list[Use]) -> list[Use]:
        """Return the uses that are not yet before `stream`: the last of each stream, and none that is implied."""
        clock, finished = self.clocks.get(stream) or _EMPTY, self._finished
        latest: dict[Name, Use] = {}
        for use in uses:
            if use.spell is None:
                last = use.count
            elif use.spell.end is None:
                last = NEVER
            else:
                use = use.spell.end
                last = use.count
            other = use.stream
            if last <= clock.get(other, 0) or last <= finished.get(other, 0):
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
        """Return every earlier use on another stream that must come before `stream`'s access to the memory.

        Uses for which `stream` has already waited are included, marked as implied.
        """
        clock, result = self.clocks.get(stream) or {}, []
        for segment, written in [*((s, False) for s in touched.read), *((s, True) for s in touched.written)]:
            uses = [(segment.write, f"{'write' if written else 'read'} after write")] if segment.write else []
            if written:
                uses += [(use, "write after read") for use in segment.reads.values()]
            for use, access in uses:
                if use.stream != stream:
                    implied = use.last <= max(clock.get(use.stream, 0), self._finished.get(use.stream, 0))
                    result.append(Conflict(use, (segment.start, segment.stop), access, implied))
        return result

    def is_before(self, use: Use, stream: Name) -> bool:
        """Return whether `use` comes before all future work of `stream`. True for uses on `stream` itself."""
        if use.stream == stream:
            return True
        last = use.count if use.spell is None else use.last
        return last <= max((self.clocks.get(stream) or _EMPTY).get(use.stream, 0), self._finished.get(use.stream, 0))

    def goes_on(self, stream: Name, touched: Touched) -> bool:
        """Return whether `stream` may repeat its use of the memory without recording each repetition.

        True if `stream` already repeats such a use unrecorded, no other stream has read the written memory, and no
        memory is warm (has moved between streams lately).
        """
        for segment in touched.written:
            if segment.warmth or not _goes_on(segment.write, stream) or segment.reads.keys() - {stream}:
                return False
        for segment in touched.read:
            if segment.warmth or not (_goes_on(segment.write, stream) or _goes_on(segment.reads.get(stream), stream)):
                return False
        return True

    def use(self, stream: Name, touched: Touched, note: Any = None) -> Use:
        """Record that `stream` accesses the memory now, whether or not it waited for earlier uses. Return this use."""
        self.counts[stream] = count = self.counts.get(stream, 0) + 1
        used = Use(stream, count, self.clocks.get(stream) or _EMPTY)
        if note is not None:
            used.note = note
        for segment in touched.read:
            former = segment.reads.get(stream)
            if former is not None and former.spell is not None and former.spell.end is None:
                used.spell = former.spell
            segment.reads[stream] = used
        for segment in touched.written:
            former = segment.write
            if former is not None and former.spell is not None and former.stream == stream:
                used.spell = former.spell if former.spell.end is None else used.spell
            segment.write = used
            if segment.reads:
                former = segment.reads.get(stream)
                if former is not None and former.spell is not None and former.spell.end is None:
                    used.spell = former.spell
                segment.reads = {}
        for pieces in touched.cut:
            self._join(pieces)
        return used

    def step(self, stream: Name, touched: Touched, warmth: int) -> Callable[[Use, bool], Any]:
        """Return ``step(used, waits)``: it does `needed`, `wait`, `warm` and `use` at once, while `version` stays.

        The function records `used` as the stream's present use. It returns the use for which the stream must wait, and
        records the wait if `waits` is True. It returns None if there is no such use, `COLD` if additionally no memory
        is warm. It returns `MANY` and records nothing if several uses may be needed, or uses may have been repeated.

        The same `Use` may be passed again at each launch: it then replaces itself. Its event is then None. Streams'
        names are compared by identity here.
        """
        entry = touched.steps.get(stream)
        if entry is None:
            _, read, written, cut, steps = touched
            arguments = self.clocks, self.counts, self._finished, stream, written, read, warmth
            entry = steps[stream] = many if cut else make_step(*arguments)
        return entry

    def warm(self, stream: Name, touched: Touched, warmth: int) -> bool:
        """Return whether any of the memory is warm: has moved from one stream to another in its last uses.

        Also updates the memory. Memory that moves to `stream` from another stream is warm for the next `warmth` uses.
        Each use without such a move makes this one less. Call this before `use`.
        """
        is_warm = False
        for segments in touched[1:3]:
            for segment in segments:
                if warmth:
                    former = segment.write
                    crosses = former is not None and former.stream != stream
                    if crosses or (segment.reads and segment.reads.keys() != {stream}):
                        segment.warmth = warmth
                        is_warm = True
                        continue
                if segment.warmth:
                    segment.warmth -= 1
                    is_warm = True
        return is_warm

    def now(self, stream: Name) -> Use:
        """Return all work of `stream` so far as one use, for an event recorded now."""
        count = self.counts.get(stream, 0) + 1
        self.counts[stream] = count
        return Use(stream, count, self.clocks.get(stream) or _EMPTY)

    def postpone(self, use: Use) -> bool:
        """Move `use` behind all present work of its stream. Return whether other work had come after it."""
        try:
            if use.count == self.counts[use.stream]:
                return False
        except KeyError:
            pass  # the stream was dropped since
        use.count = self.now(use.stream).count
        return True

    def wait(self, stream: Name, use: Use) -> None:
        """Record that all future work of `stream` comes after `use`, and after all that precedes it."""
        # Clocks are never changed, only replaced: uses share them.
        clock, finished = {**(self.clocks.get(stream) or _EMPTY)}, self._finished
        for other, count in use.clock.items():
            if other != stream and count > clock.get(other, 0) and count > finished.get(other, 0):
                clock[other] = count
        if use.count > clock.get(use.stream, 0):
            clock[use.stream] = use.count
        self.clocks[stream] = clock

    def finish(self, use: Use) -> None:
        """Record that the host has seen `use` done, and with it all earlier work of its stream.

        All work of other streams that came before `use` is recorded as done, too. No stream waits for finished work.
        """
        for other, count in (*use.clock.items(), (use.stream, use.count)):
            if count > self._finished.get(other, 0):
                self._finished[other] = count

    def is_idle(self, stream: Name) -> bool:
        """Return whether all work of `stream` is done, as far as `finish` has recorded it."""
        return self.counts.get(stream, 0) <= self._finished.get(stream, 0)

    def drop(self, streams: Collection[Name]) -> None:
        """Forget closed streams whose work is all done. `prune` removes them from other clocks."""
        gone = set(streams)
        for segment in self.segments:
            if segment.write is not None and segment.write.stream in gone:
                segment.write = None
            for stream in gone & segment.reads.keys():
                del segment.reads[stream]
        self.keep([segment for segment in self.segments if segment.write is not None or segment.reads])
        self.version += 1  # whoever goes by a name that was dropped must ask again
        for stream in gone:
            for table in (self.counts, self.clocks, self._finished):
                table.pop(stream, None)

    def prune(self, others: Iterable[Use] = ()) -> None:
        """Remove streams from all clocks if none of their uses is remembered, here or among `others`.

        Without this, each of many streams would hold the counts of all earlier streams. Reads that precede a later read
        are removed, too: a wait for the later read includes them.
        """
        uses = list(others)
        for segment in self.segments:
            if len(segment.reads) > _FEW:
                segment.reads = _last_reads(segment.reads)
            uses += segment.reads.values()
            if segment.write is not None:
                uses.append(segment.write)
        names = {use.stream for use in uses}
        pruned: dict[int, dict[Name, int]] = {}
        originals = []  # so that no other clock has the identity of one of these

        def prune(clock: Mapping[Name, int]) -> dict[Name, int]:
            entry = pruned.get(id(clock))
            if entry is None:
                entry = pruned[id(clock)] = {name: count for name, count in clock.items() if name in names}
                originals.append(clock)
            return entry

        for use in uses:
            use.clock = prune(use.clock)
        for stream, clock in list(self.clocks.items()):
            if pruned_clock := prune(clock):
                self.clocks[stream] = pruned_clock
            else:
                del self.clocks[stream]
        for stream in self._finished.keys() - self.counts.keys():
            del self._finished[stream]


def _last_reads(reads: dict[Name, Use]) -> dict[Name, Use]:
    """Return reads by stream, without most of the reads that a wait for a later read includes. The order stays."""
    uses: list[Use] = []
    for use in reversed(reads.values()):
        if not any(later.clock.get(use.stream, 0) >= use.last for later in uses[:_FEW]):
            uses.append(use)
    return {use.stream: use for use in reversed(uses)}


def _goes_on(use: Use | None, stream: Name) -> bool:
    return use is not None and use.stream == stream and use.last == NEVER


#: Of many reads, with how many each is compared.
_FEW = 4
