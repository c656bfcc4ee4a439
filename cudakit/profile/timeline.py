"""What ran when, by stream: spans, how busy each stream was, its idle gaps, and the stage that bounds the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from cudakit.streams.witnesses import Kind
from cudakit.types.shown import Table, text

#: Spans of the emulator are of this place; their clock is steps, not time.
EMULATOR = "emulator"
HOST = "host"
#: By kind of work, in pictures.
COLOURS = {
    "kernel": "#3b75af", "copy": "#ef8636", "fill": "#8d69b8", "host": "#519e3e", "compile": "#847f3a",
    "graph": "#c03d3e",
}  # fmt: skip

Interval: TypeAlias = tuple[float, float]

#: A stream is named as the bound only where it is busy for so much longer than the longest stage.
_CLEARLY = 1.1
_SHOWN_GAPS, _SHOWN_STAGES = 3, 25
#: Share of the whole from which on a gap is named.
_WORTH_SHOWING = 0.001


class Span(NamedTuple):
    """One piece of work, from when its stream came to it until it was done.

    Attributes
    ----------
    kind : {"kernel", "copy", "fill", "host", "compile", "graph"}
    name : str
        A kernel's name expression, an operation, or a stage.
    stream : str
        Name of the stream; of the thread, for work of the host.
    start_ms, end_ms : float
        Since the trace began, in milliseconds. On the emulator a step counts as a microsecond, and time begins with
        the trace's first step.
    size : int
        Bytes moved, of copies and fills.
    place : str
        ``GPU 0``, ``emulator`` or ``host``.
    after : tuple of int
        Indices, in the trace's spans, of those on other streams that wrote what this one uses.
    """

    kind: Kind
    name: str
    stream: str
    start_ms: float
    end_ms: float
    size: int = 0
    place: str = HOST
    after: tuple[int, ...] = ()

    @property
    def elapsed_ms(self) -> float:
        """How long it took, in milliseconds."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class Lane:
    """A stream, or a thread of the host.

    Attributes
    ----------
    name, place : str
    spans : tuple of Span
    busy_ms : float
        How long it had something to do, in milliseconds.
    gaps : tuple of (float, float)
        When it had not, between the first start and the last end of all lanes with the same clock.
    """

    name: str
    place: str
    spans: tuple[Span, ...]
    busy_ms: float
    gaps: tuple[Interval, ...]

    @property
    def idle_ms(self) -> float:
        """How long it had nothing to do, in milliseconds."""
        return sum(end - start for start, end in self.gaps)


@dataclass(frozen=True)
class Stage:
    """All work of one kind and name, on whichever streams.

    Attributes
    ----------
    kind, name : str
    count : int
    total_ms : float
        Sum of the spans, in milliseconds.
    busy_ms : float
        How long at least one of them was going on.
    size : int
        Bytes moved.
    lanes : tuple of str
        Streams that it ran on.
    """

    kind: Kind
    name: str
    count: int
    total_ms: float
    busy_ms: float
    size: int
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class Timeline:
    """The spans of a trace with one clock, in the order in which the work was given, and what they say.

    Attributes
    ----------
    spans : tuple of Span
    """

    spans: tuple[Span, ...]

    @property
    def is_emulated(self) -> bool:
        """Whether the clock counts the emulator's steps."""
        return any(span.place == EMULATOR for span in self.spans)

    @cached_property
    def extent(self) -> Interval:
        """First start and last end."""
        return min((s.start_ms for s in self.spans), default=0.0), max((s.end_ms for s in self.spans), default=0.0)

    @property
    def elapsed_ms(self) -> float:
        """From the first start to the last end, in milliseconds."""
        return self.extent[1] - self.extent[0]

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The streams and the host's threads, each in the order of first use."""
        grouped: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            grouped.setdefault((span.place, span.stream), []).append(span)
        made = []
        for (place, name), spans in grouped.items():
            busy = _union(spans)
            made.append(Lane(name, place, tuple(spans), _length(busy), tuple(_between(busy, self.extent))))
        return tuple(made)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All work by kind and name, the longest busy first."""
        grouped: dict[tuple[Kind, str], list[Span]] = {}
        for span in self.spans:
            grouped.setdefault((span.kind, span.name), []).append(span)
        made = [
            Stage(
                kind,
                name,
                len(spans),
                sum(span.elapsed_ms for span in spans),
                _length(_union(spans)),
                sum(span.size for span in spans),
                tuple(dict.fromkeys(span.stream for span in spans)),
            )
            for (kind, name), spans in grouped.items()
        ]
        return tuple(sorted(made, key=lambda stage: -stage.busy_ms))

    @cached_property
    def critical(self) -> Stage | Lane | None:
        """What bounds the whole: the stage that is busy the longest, or the stream, where that is clearly longer.

        A stage that is busy nearly always cannot be hidden behind the others: make it faster. A stream that is busy
        nearly always while none of its stages is does one after the other what could overlap on several streams.
        """
        if not self.spans:
            return None
        stage, lane = self.stages[0], max(self.lanes, key=lambda lane: lane.busy_ms)
        return lane if lane.busy_ms > _CLEARLY * stage.busy_ms else stage

    @cached_property
    def overlap(self) -> float:
        """Streams and threads that were busy at a time, on average over the time in which any was."""
        any_busy = _length(_union(self.spans))
        return sum(lane.busy_ms for lane in self.lanes) / any_busy if any_busy else 0.0

    def summary(self) -> str:
        """The timeline in words: by stream, by stage, and what bounds the whole."""
        if not self.spans:
            return "a timeline of nothing"
        whole = self.elapsed_ms or 1.0
        lanes = []
        for lane in self.lanes:
            gaps = [(start, end) for start, end in lane.gaps if end - start >= _WORTH_SHOWING * whole]
            largest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_SHOWN_GAPS]
            shown = ", ".join(f"{self.show(end - start)} at {self.show(start)}" for start, end in largest)
            lanes.append((lane.name, f"{lane.busy_ms / whole:.1%}", self.show(lane.idle_ms), shown or "none"))
        stages: list[tuple[str, ...]] = []
        for stage in self.stages[:_SHOWN_STAGES]:
            has_rate = stage.size and stage.busy_ms and not self.is_emulated
            rate = f"{stage.size / stage.busy_ms / 1e6:.1f}" if has_rate else ""
            mean = self.show(stage.total_ms / stage.count)
            busy = f"{stage.busy_ms / whole:.1%}"
            stages.append((stage.name, stage.kind, str(stage.count), self.show(stage.total_ms), mean, busy, rate))
        if len(self.stages) > _SHOWN_STAGES:
            stages.append((f"and {len(self.stages) - _SHOWN_STAGES} more", "", "", "", "", "", ""))
        head = f"{self.show(self.elapsed_ms)}, {len(self.spans)} spans; {self.overlap:.2f} streams busy at a time"
        by_lane = Table(("stream", "busy", "idle", "largest gaps"), lanes)
        by_stage = Table(("stage", "kind", "count", "total", "mean", "busy", "GB/s"), stages)
        return text(head, "", by_lane, "", by_stage, "", self.verdict())

    def verdict(self) -> str:
        """What bounds the whole, as a sentence."""
        critical = self.critical
        if critical is None:
            return "critical: nothing ran"
        share = f"busy for {self.show(critical.busy_ms)} of {self.show(self.elapsed_ms)}"
        if self.elapsed_ms:
            share += f" ({critical.busy_ms / self.elapsed_ms:.0%})"
        if isinstance(critical, Stage):
            where = critical.lanes[0] if len(critical.lanes) == 1 else f"{len(critical.lanes)} streams"
            return f"critical: {critical.name}, {share}, on {where}"
        stages = Timeline(critical.spans).stages[:_SHOWN_GAPS]
        parts = ", ".join(f"{stage.name} {stage.busy_ms / critical.busy_ms:.0%}" for stage in stages)
        return f"critical: {critical.name}, {share}, one after the other: {parts}"

    def show(self, elapsed_ms: float) -> str:
        """A length of time with its unit: milliseconds, microseconds, or steps."""
        if self.is_emulated:
            return f"{round(elapsed_ms * 1000)} steps"
        return f"{elapsed_ms:.3f} ms" if elapsed_ms >= 1 else f"{elapsed_ms * 1000:.1f} µs"

    def __str__(self) -> str:
        return self.summary()


def by_clock(spans: Iterable[Span]) -> tuple[Timeline, ...]:
    """A timeline for each clock: the GPUs' and the host's time, and the emulator's steps."""
    timed: list[Span] = []
    stepped: list[Span] = []
    for span in spans:
        (stepped if span.place == EMULATOR else timed).append(span)
    return tuple(Timeline(tuple(part)) for part in (stepped, timed) if part)


def _union(spans: Iterable[Span]) -> list[Interval]:
    """The times at which any of `spans` was going on, without overlaps."""
    merged: list[Interval] = []
    for start, end in sorted((span.start_ms, span.end_ms) for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def _between(busy: Sequence[Interval], extent: Interval) -> list[Interval]:
    """What is left of `extent` beside `busy`."""
    starts = [extent[0], *(end for _, end in busy)]
    ends = [*(start for start, _ in busy), extent[1]]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if end > start]
