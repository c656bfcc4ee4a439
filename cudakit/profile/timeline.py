"""Timelines of streams: spans, busy time, idle gaps, and the stage that bounds the whole.

Timelines are shown as SVG inside HTML, whose tooltips are the browser's own, and saved as JSON in the trace-event
format, which Perfetto and Chrome read, or as a picture.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from cudakit.errors import CudakitError
from cudakit.streams.witnesses import Kind
from cudakit.types.shown import Table, escaped, text

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
    """A piece of work, from its turn on its stream until it was done.

    Attributes
    ----------
    kind : {"kernel", "copy", "fill", "host", "compile", "graph"}
        Category of the work.
    name : str
        Name expression of a kernel, name of an operation or of a stage.
    stream : str
        Name of the stream; for work of the host, name of the thread.
    start_ms, end_ms : float
        Time since the trace began, in milliseconds. On the emulator a step counts as a microsecond, and time begins
        with the trace's first step.
    size : int
        Bytes moved by a copy or a fill.
    place : str
        ``GPU 0``, ``emulator`` or ``host``.
    after : tuple of int
        Indices of the trace's spans on other streams that wrote memory used by this span.
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
        """Duration in milliseconds."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True)
class Lane:
    """A stream, or a thread of the host.

    Attributes
    ----------
    name, place : str
        Name of the stream or thread, and ``GPU 0``, ``emulator`` or ``host``.
    spans : tuple of Span
        Work of the stream or thread.
    busy_ms : float
        Busy time in milliseconds.
    gaps : tuple of (float, float)
        Begin and end of idle times, between the first start and the last end of all lanes with the same clock.
    """

    name: str
    place: str
    spans: tuple[Span, ...]
    busy_ms: float
    gaps: tuple[Interval, ...]

    @property
    def idle_ms(self) -> float:
        """Idle time in milliseconds."""
        return sum(end - start for start, end in self.gaps)


@dataclass(frozen=True)
class Stage:
    """All work of one category and name, on all streams.

    Attributes
    ----------
    kind, name : str
        Category and name of the work.
    count : int
        Number of spans.
    total_ms : float
        Sum of the spans, in milliseconds.
    busy_ms : float
        Time during which at least one span was running, in milliseconds.
    size : int
        Bytes moved.
    lanes : tuple of str
        Names of the streams that it ran on.
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
    """The spans of a trace with one clock, in the order in which the work was put on streams.

    Attributes
    ----------
    spans : tuple of Span
        Spans of the work.
    """

    spans: tuple[Span, ...]

    @property
    def is_emulated(self) -> bool:
        """True if the clock counts the emulator's steps."""
        return any(span.place == EMULATOR for span in self.spans)

    @cached_property
    def extent(self) -> Interval:
        """First start and last end of the spans, in milliseconds."""
        return min((s.start_ms for s in self.spans), default=0.0), max((s.end_ms for s in self.spans), default=0.0)

    @property
    def elapsed_ms(self) -> float:
        """Time from the first start to the last end, in milliseconds."""
        return self.extent[1] - self.extent[0]

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The streams and the host's threads, each in the order of first use."""
        grouped: dict[tuple[str, str], list[Span]] = {}
        for span in self.spans:
            grouped.setdefault((span.place, span.stream), []).append(span)
        result = []
        for (place, name), spans in grouped.items():
            busy = _union(spans)
            result.append(Lane(name, place, tuple(spans), _length(busy), tuple(_between(busy, self.extent))))
        return tuple(result)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the timeline: all work by category and name, in descending order of busy time."""
        grouped: dict[tuple[Kind, str], list[Span]] = {}
        for span in self.spans:
            grouped.setdefault((span.kind, span.name), []).append(span)
        result = [
            Stage(
                category,
                name,
                len(spans),
                sum(span.elapsed_ms for span in spans),
                _length(_union(spans)),
                sum(span.size for span in spans),
                tuple(dict.fromkeys(span.stream for span in spans)),
            )
            for (category, name), spans in grouped.items()
        ]
        return tuple(sorted(result, key=lambda stage: -stage.busy_ms))

    @cached_property
    def critical(self) -> Stage | Lane | None:
        """The stage, or the stream or thread, that bounds the total time. None for an empty timeline.

        It is the stage that is busy longest, or a stream that is clearly busy longer than each stage.

        If a stage is busy nearly always, the other stages cannot hide it: make it faster. If a stream is busy nearly
        always, and none of its stages is, its stages run one after the other. They could overlap on several streams.
        """
        if not self.spans:
            return None
        stage, lane = self.stages[0], max(self.lanes, key=lambda lane: lane.busy_ms)
        return lane if lane.busy_ms > _CLEARLY * stage.busy_ms else stage

    @cached_property
    def overlap(self) -> float:
        """Average number of busy streams and threads, over the time in which any was busy."""
        any_busy = _length(_union(self.spans))
        return sum(lane.busy_ms for lane in self.lanes) / any_busy if any_busy else 0.0

    def summary(self) -> str:
        """Return the timeline as text: busy time and gaps by stream, totals by stage, the bound of the total time."""
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
        """Return a sentence that names the stage or the stream that bounds the total time."""
        critical = self.critical
        if critical is None:
            return "critical: nothing ran"
        share = f"busy for {self.show(critical.busy_ms)} of {self.show(self.elapsed_ms)}"
        if self.elapsed_ms:
            share += f" ({critical.busy_ms / self.elapsed_ms:.0%})"
        if isinstance(critical, Stage):
            if critical.lanes == (critical.name,):
                return f"critical: {critical.name}, {share}"
            where = critical.lanes[0] if len(critical.lanes) == 1 else f"{len(critical.lanes)} streams"
            return f"critical: {critical.name}, {share}, on {where}"
        stages = Timeline(critical.spans).stages[:_SHOWN_GAPS]
        parts = ", ".join(f"{stage.name} {stage.busy_ms / critical.busy_ms:.0%}" for stage in stages)
        return f"critical: {critical.name}, {share}, one after the other: {parts}"

    def show(self, elapsed_ms: float) -> str:
        """Return a duration as text with its unit: milliseconds, microseconds, or the emulator's steps. Draws nothing.

        `elapsed_ms` is the duration in milliseconds.
        """
        if self.is_emulated:
            return f"{round(elapsed_ms * 1000)} steps"
        return f"{elapsed_ms:.3f} ms" if elapsed_ms >= 1 else f"{elapsed_ms * 1000:.1f} µs"

    def __str__(self) -> str:
        return self.summary()


def by_clock(spans: Iterable[Span]) -> tuple[Timeline, ...]:
    """Return a timeline for each clock: the time of GPUs and host, and the emulator's steps."""
    timed: list[Span] = []
    stepped: list[Span] = []
    for span in spans:
        (stepped if span.place == EMULATOR else timed).append(span)
    return tuple(Timeline(tuple(part)) for part in (stepped, timed) if part)


def _union(spans: Iterable[Span]) -> list[Interval]:
    """Return the times at which any of `spans` was running, as sorted pairs of start and end that do not overlap."""
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
    """Return the parts of the interval `extent` in which nothing is busy, as pairs of start and end."""
    starts = [extent[0], *(end for _, end in busy)]
    ends = [*(start for start, _ in busy), extent[1]]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if end > start]


# ── as SVG inside HTML ──

_LEFT, _WIDTH, _ROW = 170, 730, 22
#: The least width of a mark, in pixels; of more spans than this, neighbours are one mark: a page stays small.
_THIN, _MOST_MARKS = 0.5, 1000
#: From which width on a mark has its name in it, and how wide a character is.
_NAMED, _CHARACTER = 60, 7
_MOST_LANES = 40
_MOST_DEPENDENCIES = 25
_STATUS_COLOURS = {"missing": "#c03d3e", "unseen": "#ef8636", "put in": "#519e3e", "implied": "#888888"}


def timelines(spans: Iterable[Span]) -> str:
    """Return HTML with a picture for each clock: a row for each stream, a colour for each category.

    It also names the stage or stream that bounds the time.
    """
    return "".join(map(_timeline, by_clock(spans)))


def _timeline(timeline: Timeline) -> str:
    start, whole = timeline.extent[0], timeline.elapsed_ms or 1.0
    parts, lanes = [], timeline.lanes[:_MOST_LANES]
    joined = 2 * _THIN if len(timeline.spans) <= _MOST_MARKS else max(1.0, len(lanes) * _WIDTH / _MOST_MARKS)
    for row, lane in enumerate(lanes):
        label = f"{lane.name}  {lane.busy_ms / whole:.0%}"
        parts.append(_label(row, label))
        for span, left, width, count in _marks(lane, start, _WIDTH / whole, joined):
            parts.append(
                f'<rect x="{_LEFT + left:.1f}" y="{row * _ROW + 3}" width="{max(width, _THIN):.1f}" '
                f'height="{_ROW - 6}" fill="{COLOURS[span.kind]}">'
                f"<title>{escaped(_tooltip(timeline, span, count))}</title></rect>"
            )
            if width > _NAMED:
                name = span.name[: int(width / _CHARACTER)]
                parts.append(_text(_LEFT + left + width / 2, row * _ROW + 15, name, "middle", "white"))
    y = len(lanes) * _ROW + 12
    ends = ((_LEFT, "start", timeline.show(start)), (_LEFT + _WIDTH, "end", timeline.show(timeline.extent[1])))
    parts += [_text(x, y, text, anchor) for x, anchor, text in ends]
    categories = dict.fromkeys(span.kind for span in timeline.spans)
    legend = " ".join(f'<span style="color: {COLOURS[category]}">■</span> {category}' for category in categories)
    more = f"; {len(timeline.lanes) - len(lanes)} more streams" if len(timeline.lanes) > len(lanes) else ""
    return f"<div>{legend}</div>{_picture(y + 6, parts)}<div>{escaped(timeline.verdict() + more)}</div>"


def _marks(lane: Lane, start: float, scale: float, joined: float) -> Iterator[tuple[Span, float, float, int]]:
    """Yield (span, left edge, width, number of joined spans) for each bar of a row, with edge and width in pixels.

    A bar joins neighbouring spans of one category that together are narrower than `joined` pixels. `start` is the time
    of the left border in milliseconds, `scale` the pixels of a millisecond.
    """
    pending: tuple[Span, float, float, int] | None = None
    for span in sorted(lane.spans, key=lambda span: (span.start_ms, -span.elapsed_ms)):
        left, right = scale * (span.start_ms - start), scale * (span.end_ms - start)
        if pending is not None:
            first, begun, width, count = pending
            if first.kind == span.kind and right - begun < joined:
                pending = first, begun, max(width, right - begun), count + 1
                continue
            yield pending
        pending = span, left, right - left, 1
    if pending is not None:
        yield pending


def _tooltip(timeline: Timeline, span: Span, count: int) -> str:
    if count > 1:
        return f"{count} works, the first: {span.name}"
    size = f", {span.size:,} bytes" if span.size else ""
    return f"{span.name} ({span.kind}): {timeline.show(span.elapsed_ms)} from {timeline.show(span.start_ms)}{size}"


def dependencies(rows: Sequence[tuple[str, str, tuple[str, str], tuple[str, str]]]) -> str:
    """Return a picture of work on streams, with lines from each work to the work that must wait for it.

    Parameters
    ----------
    rows : sequence of (status, words, (stream, work), (stream, work))
        Each dependency: its status, a description, the first work, and the work that must wait for it.
    """
    drawn = rows[:_MOST_DEPENDENCIES]
    streams = list(dict.fromkeys(party[0] for _, _, *parties in drawn for party in parties))
    step = _WIDTH / max(1, len(drawn))
    parts = [_label(2 * row, stream, _ROW) for row, stream in enumerate(streams)]
    for place, (status, words, first, second) in enumerate(drawn):
        x, to_x = _LEFT + (place + 0.25) * step, _LEFT + (place + 0.75) * step
        y, to_y = (_ROW * (2 * streams.index(stream) + 1.5) for stream in (first[0], second[0]))
        colour = _STATUS_COLOURS[status]
        parts.append(
            f'<g stroke="{colour}" fill="{colour}"><title>{escaped(words, 500)}</title>'
            f'<line x1="{x:.1f}" y1="{y}" x2="{to_x:.1f}" y2="{to_y}" stroke-width="2"/>'
            f'<circle cx="{x:.1f}" cy="{y}" r="3"/><rect x="{to_x - 4:.1f}" y="{to_y - 4}" width="8" height="8"/></g>'
        )
        if step / 2 > _NAMED:
            room = int(step / 2 / _CHARACTER)
            parts += [_text(x, y - 8, first[1][:room], "middle"), _text(to_x, to_y - 8, second[1][:room], "middle")]
    statuses = dict.fromkeys(status for status, *_ in rows)
    legend = " ".join(f'<span style="color: {_STATUS_COLOURS[status]}">■</span> {status}' for status in statuses)
    more = f"<div>and {len(rows) - len(drawn)} more</div>" if len(rows) > len(drawn) else ""
    picture = _picture(2 * len(streams) * _ROW, parts) if rows else ""
    return f"<div>{legend}</div>{picture}{more}"


def _picture(height: float, parts: Iterable[str]) -> str:
    width = _LEFT + _WIDTH + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" '
        f'style="max-width: {width}px" font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _label(row: int, text: str, down: float = 0) -> str:
    return _text(_LEFT - 8, row * _ROW + _ROW / 2 + 4 + down, text if len(text) <= 26 else f"{text[:25]}…", "end")


def _text(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escaped(text)}</text>'


# ── as a file ──

Event: TypeAlias = dict[str, Any]

#: Shares of the whole from which on an idle gap is marked, has its length written, and a span its name.
_MARKED, _WRITTEN = 0.002, 0.06
_MOST_PARTED = 150


def save_json(spans: Sequence[Span], path: str | PathLike[str]) -> None:
    """Write spans in the trace-event format (Google, "Trace Event Format").

    Parameters
    ----------
    spans : sequence of Span
        Spans to write.
    path : path
        File to write. It is replaced as a whole, or not at all.
    """
    content = {
        "traceEvents": trace_events(spans),
        "displayTimeUnit": "ms",
        "otherData": {"producer": "cudakit", "critical": [part.verdict() for part in by_clock(spans)]},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    publish(path, lambda file: file.write(text.encode()))


def trace_events(spans: Sequence[Span]) -> list[Event]:
    """Return the spans as trace events in µs.

    Each place is a process, each stream a thread, and each dependency a flow.
    """
    names: list[Event] = []
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str], tuple[int, int]] = {}
    for span in spans:
        process = processes.get(span.place)
        if process is None:
            process = processes[span.place] = len(processes) + 1
            note = ", a step drawn as 1 µs" if span.place == EMULATOR else ""
            names.append(_about("process_name", process, 0, name=span.place + note))
            # The host's rows come last, whatever was seen first.
            names.append(_about("process_sort_index", process, 0, sort_index=process + 1000 * (span.place == HOST)))
        key = span.place, span.stream
        if key not in threads:
            threads[key] = process, len(threads) + 1
            names.append(_about("thread_name", *threads[key], name=span.stream))
            names.append(_about("thread_sort_index", *threads[key], sort_index=threads[key][1]))
    events = [_complete(span, *threads[span.place, span.stream]) for span in spans]
    flows: list[Event] = []
    for span in spans:
        for index in span.after:
            source = spans[index]
            # Places on two clocks cannot be joined by a line.
            if (source.place == EMULATOR) == (span.place == EMULATOR):
                number = len(flows)
                # Inside the source, where it ends: a flow belongs to the event that is going on at its time.
                sent = {"ph": "s", "ts": 1e3 * (source.start_ms + 0.999 * source.elapsed_ms)}
                received = {"ph": "f", "bp": "e", "ts": 1e3 * max(span.start_ms, source.end_ms)}
                for end, at in ((sent, source), (received, span)):
                    process, thread = threads[at.place, at.stream]
                    flows.append({"name": "writes", "cat": "order", "id": number, "pid": process, "tid": thread, **end})
    return names + events + flows


def _about(event_name: str, process: int, thread: int, **arguments: Any) -> Event:
    return {"ph": "M", "name": event_name, "pid": process, "tid": thread, "args": arguments}


def _complete(span: Span, process: int, thread: int) -> Event:
    details: dict[str, Any] = {}
    if span.size:
        details["bytes"] = span.size
        if span.place != EMULATOR and span.elapsed_ms > 0:
            details["GB/s"] = round(span.size / span.elapsed_ms / 1e6, 2)
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        "pid": process,
        "tid": thread,
        "ts": 1e3 * span.start_ms,
        "dur": 1e3 * span.elapsed_ms,
        "args": details,
    }


@contextlib.contextmanager
def importing_matplotlib(subject: str) -> Iterator[None]:
    """Turn a failed import in the block into an error that says what to install. `subject` is what is drawn.

    Raises
    ------
    CudakitError
        matplotlib is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise CudakitError(
            f"{subject} is drawn with matplotlib ({error}); install it with: pip install 'cudakit[examples]'"
        ) from error


def save_figure(figure: Any, path: str | PathLike[str]) -> None:
    """Write a figure of matplotlib to a PNG file."""
    publish(path, lambda file: figure.savefig(file, format="png", dpi=110))


def save_picture(spans: Sequence[Span], path: str | PathLike[str]) -> None:
    """Draw spans: a row for each stream, a colour for each kind, idle gaps in grey, the bound in the title.

    Raises
    ------
    CudakitError
        matplotlib is not installed.
    """
    with importing_matplotlib("a timeline"):
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    timelines = by_clock(spans) or (Timeline(()),)
    rows = [max(1, len(timeline.lanes)) for timeline in timelines]
    figure = Figure(figsize=(14, 0.55 * sum(rows) + 1.4 * len(rows)), layout="constrained")
    all_axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=[row + 1.5 for row in rows])[:, 0]
    for axes, timeline in zip(all_axes, timelines, strict=True):
        for row, lane in enumerate(timeline.lanes):
            _draw(axes, row, lane, timeline)
        labels = [f"{lane.name}  {lane.busy_ms / (timeline.elapsed_ms or 1):.0%}" for lane in timeline.lanes]
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.margins(x=0)
        axes.set_xlabel("steps" if timeline.is_emulated else "ms")
        axes.set_title(timeline.verdict(), fontsize="medium", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        categories = dict.fromkeys(span.kind for span in timeline.spans)
        handles = [Patch(color=COLOURS[category], label=category) for category in categories]
        handles.append(Patch(facecolor="0.93", edgecolor="0.7", hatch="///", label="idle"))
        axes.legend(handles=handles, ncols=len(handles), loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    save_figure(figure, path)


def _draw(axes: Any, row: int, lane: Lane, timeline: Timeline) -> None:
    """Draw a row: its gaps, its spans, and the names that have room."""
    scale = 1000.0 if timeline.is_emulated else 1.0
    whole = timeline.elapsed_ms or 1.0
    gaps = [(scale * start, scale * (end - start)) for start, end in lane.gaps if end - start >= _MARKED * whole]
    axes.broken_barh(gaps, (row - 0.4, 0.8), facecolor="0.93", edgecolor="0.7", hatch="///", linewidth=0)
    for start, length in gaps:
        if length >= _WRITTEN * scale * whole:
            text = timeline.show(length / scale)
            axes.text(start + length / 2, row, text, ha="center", va="center", fontsize="x-small", color="0.35")
    # What is inside another is drawn over it, as a graph's kernels on the emulator are.
    spans = sorted(lane.spans, key=lambda span: (span.start_ms, -span.elapsed_ms))
    bars = [(scale * span.start_ms, scale * span.elapsed_ms) for span in spans]
    colours = [COLOURS[span.kind] for span in spans]
    # Lines between bars help where there is room for them, and hide the bars where there is not.
    wide = len(bars) < _MOST_PARTED
    axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=colours, edgecolor="white", linewidth=0.4 if wide else 0)
    for span, (start, length) in zip(spans, bars, strict=True):
        if length >= _WRITTEN * scale * whole:
            room = int(220 * length / (scale * whole))
            name = span.name if len(span.name) <= room else span.name[: room - 1] + "…"
            axes.text(start + length / 2, row, name, ha="center", va="center", fontsize="x-small", color="white")


def publish(path: str | PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Write a file with ``write(file)`` beside `path`, and move it to `path`.

    Readers see the old or the new file, complete.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    part = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            write(file)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
