"""The step of a use in the order between streams: what it must wait for, found and noted in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudakit.streams.segments import Name, Segment, Use

#: What a step says in place of a use; see `cudakit.streams.order.clocks.Clocks.step`.
MANY: Any = object()
COLD: Any = object()


def many(used: Use, waits: bool) -> Any:
    """The step where memory is cut, which a use may join."""
    return MANY


_NO_CLOCK: dict[Name, int] = {}


def make_step(
    clocks: dict[Name, dict[Name, int]],
    counts: dict[Name, int],
    done: dict[Name, int],
    stream: Name,
    written: tuple[Segment, ...],
    read: tuple[Segment, ...],
    warmth: int,
) -> Callable[[Use, bool], Any]:
    """``step(used, waits)`` for a stream and some segments, none of which is cut; see `Clocks.step`.

    Loops over the segments. Code written out for each number of them took 0.1 µs less of a launch that waits for
    another stream's, which takes 1.2 µs beside the driver's calls (CPython 3.11, one array; with four no less).
    """
    segments = (*((segment, True) for segment in written), *((segment, False) for segment in read))

    def step(used: Use, waits: bool) -> Any:
        clock = clocks.get(stream) or _NO_CLOCK
        needed: Any = None
        for segment, is_written in segments:
            former: Any = segment.write
            if former is not used and former is not None:
                if former.spell is not None:
                    return MANY
                other, count = former.stream, former.count
                if other is not stream and count > clock.get(other, 0) and count > done.get(other, 0):
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
                    if other is not stream and count > clock.get(other, 0) and count > done.get(other, 0):
                        if needed is None or (needed.stream is other and needed.count < count):
                            needed = former
                        elif needed.stream is not other:
                            return MANY
        found = COLD if needed is None else needed
        if needed is not None and waits:
            clock = clock.copy()
            clock[needed.stream] = needed.count
            before = needed.clock
            if len(before) > 1 or stream not in before:
                for other, count in before.items():
                    if other is not stream and count > clock.get(other, 0) and count > done.get(other, 0):
                        clock[other] = count
            clocks[stream] = clock
        used.event, used.clock = None, clock
        used.count = counts[stream] = counts.get(stream, 0) + 1
        for segment, is_written in segments:
            former, reads = segment.write, segment.reads
            if needed is not None and ((former is not None and former.stream is not stream) or (is_written and reads)):
                segment.warmth = warmth
            elif segment.warmth:
                segment.warmth -= 1
                found = needed
            if is_written:
                segment.write = used
                if reads:
                    segment.reads = {}
            else:
                reads[stream] = used
        return found

    return step
