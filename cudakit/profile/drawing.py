"""Timelines and reports of dependencies as pictures inside HTML: SVG, whose tooltips are the browser's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cudakit.profile.timeline import COLOURS, Lane, Span, Timeline, by_clock
from cudakit.types.shown import escaped

_LEFT, _WIDTH, _ROW = 170, 730, 22
#: The least width of a mark, in pixels; of more spans than this, neighbours are one mark: a page stays small.
_THIN, _MOST_MARKS = 0.5, 1000
#: From which width on a mark has its name in it, and how wide a character is.
_NAMED, _CHARACTER = 60, 7
_MOST_LANES = 40
_MOST_DEPENDENCIES = 25
_STATUS_COLOURS = {"missing": "#c03d3e", "unseen": "#ef8636", "put in": "#519e3e", "implied": "#888888"}


def timelines(spans: Iterable[Span]) -> str:
    """A picture for each clock: a row a stream, a colour a kind, and what bounds the whole."""
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
                f"<title>{escaped(_told(timeline, span, count))}</title></rect>"
            )
            if width > _NAMED:
                name = span.name[: int(width / _CHARACTER)]
                parts.append(_text(_LEFT + left + width / 2, row * _ROW + 15, name, "middle", "white"))
    y = len(lanes) * _ROW + 12
    ends = ((_LEFT, "start", timeline.show(start)), (_LEFT + _WIDTH, "end", timeline.show(timeline.extent[1])))
    parts += [_text(x, y, text, anchor) for x, anchor, text in ends]
    kinds = dict.fromkeys(span.kind for span in timeline.spans)
    legend = " ".join(f'<span style="color: {COLOURS[kind]}">■</span> {kind}' for kind in kinds)
    more = f"; {len(timeline.lanes) - len(lanes)} more streams" if len(timeline.lanes) > len(lanes) else ""
    return f"<div>{legend}</div>{_picture(y + 6, parts)}<div>{escaped(timeline.verdict() + more)}</div>"


def _marks(lane: Lane, start: float, scale: float, joined: float) -> Iterator[tuple[Span, float, float, int]]:
    """Spans with the left edge and width of each in pixels; narrow ones of a kind side by side as the first of them."""
    held: tuple[Span, float, float, int] | None = None
    for span in sorted(lane.spans, key=lambda span: (span.start_ms, -span.elapsed_ms)):
        left, right = scale * (span.start_ms - start), scale * (span.end_ms - start)
        if held is not None:
            first, begun, width, count = held
            if first.kind == span.kind and right - begun < joined:
                held = first, begun, max(width, right - begun), count + 1
                continue
            yield held
        held = span, left, right - left, 1
    if held is not None:
        yield held


def _told(timeline: Timeline, span: Span, count: int) -> str:
    if count > 1:
        return f"{count} works, the first: {span.name}"
    size = f", {span.size:,} bytes" if span.size else ""
    return f"{span.name} ({span.kind}): {timeline.show(span.elapsed_ms)} from {timeline.show(span.start_ms)}{size}"


def dependencies(found: Sequence[tuple[str, str, tuple[str, str], tuple[str, str]]]) -> str:
    """Work on streams, in the order in which it was found, and lines for what must wait for what.

    Parameters
    ----------
    found : sequence of (status, words, (stream, work), (stream, work))
        What must be done first, and what must wait for it.
    """
    drawn = found[:_MOST_DEPENDENCIES]
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
    statuses = dict.fromkeys(status for status, *_ in found)
    legend = " ".join(f'<span style="color: {_STATUS_COLOURS[status]}">■</span> {status}' for status in statuses)
    more = f"<div>and {len(found) - len(drawn)} more</div>" if len(found) > len(drawn) else ""
    picture = _picture(2 * len(streams) * _ROW, parts) if found else ""
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
