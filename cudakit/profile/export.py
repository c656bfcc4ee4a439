"""A timeline as a file: JSON in the trace-event format, which Perfetto and Chrome read, and a picture."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

from cudakit.errors import CudakitError
from cudakit.profile.timeline import COLOURS, EMULATOR, HOST, Lane, Span, Timeline, by_clock

Event: TypeAlias = dict[str, Any]

#: Shares of the whole from which on an idle gap is marked, has its length written, and a span its name.
_MARKED, _WRITTEN = 0.002, 0.06
_MOST_PARTED = 150


def save_json(spans: Sequence[Span], path: str | PathLike[str]) -> None:
    """Write spans in the trace-event format (Google, "Trace Event Format").

    Parameters
    ----------
    spans : sequence of Span
    path : path
        Replaced as a whole, or not at all.
    """
    content = {
        "traceEvents": trace_events(spans),
        "displayTimeUnit": "ms",
        "otherData": {"producer": "cudakit", "critical": [part.verdict() for part in by_clock(spans)]},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    publish(path, lambda file: file.write(text.encode()))


def trace_events(spans: Sequence[Span]) -> list[Event]:
    """The spans as events: a process for each place, a thread for each stream, a flow for each dependency; in µs."""
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


def _about(kind: str, process: int, thread: int, **given: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": given}


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


def save_picture(spans: Sequence[Span], path: str | PathLike[str]) -> None:
    """Draw spans: a row a stream, a colour a kind, idle gaps in grey, the bound in the title.

    Raises
    ------
    CudakitError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise CudakitError(
            f"a timeline is drawn with matplotlib ({error}); install it with: pip install 'cudakit[examples]'"
        ) from error
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
        kinds = dict.fromkeys(span.kind for span in timeline.spans)
        handles = [Patch(color=COLOURS[kind], label=kind) for kind in kinds]
        handles.append(Patch(facecolor="0.93", edgecolor="0.7", hatch="///", label="idle"))
        axes.legend(handles=handles, ncols=len(handles), loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    publish(path, lambda file: figure.savefig(file, format="png", dpi=110))


def _draw(axes: Any, row: int, lane: Lane, timeline: Timeline) -> None:
    """One row: its gaps, its spans on them, and the names that have room."""
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
    """Write a file beside its place and move it there: whoever looks sees the old one or the new one, whole."""
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
