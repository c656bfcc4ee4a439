"""Report of the counters as one page of HTML with style and plots inside: it fetches nothing and runs no script."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import log10
from typing import NamedTuple, TypeAlias

from cudakit.emulator.counters.advice import Advice
from cudakit.emulator.counters.cards import Roof
from cudakit.emulator.counters.counts import Counts, Line
from cudakit.types.shown import Table, table_html

#: Displayed lines around lines with counts, and gaps that are displayed whole.
_AROUND, _GAP = 1, 4
_HOT, _WARM, _DIM, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class Shown(NamedTuple):
    """A displayed source line.

    Attributes
    ----------
    number : int
        Number of the line; 0 for a gap where lines are left out.
    text : str
        Text of the line.
    share : float
        Share of the line in all instructions of the report.
    heat : int
        2 for the hottest lines, 1 for warm ones, else 0.
    line : Line or None
        Counts of the line, if it has any.
    """

    number: int
    text: str
    share: float
    heat: int
    line: Line | None

    @property
    def percent(self) -> str:
        """Share of the line as text; empty for lines without counts."""
        return f"{100 * self.share:.1f} %" if self.line is not None else ""

    @property
    def memory(self) -> str:
        """Memory traffic of the line, in a few words."""
        return memory_of(self.line) if self.line is not None else ""


def listing(lines: Iterable[Line]) -> Iterator[tuple[str, list[Shown]]]:
    """Yield each file with its displayed lines: lines with counts, and some around them."""
    by_file: dict[str, dict[int, Line]] = {}
    for line in lines:
        by_file.setdefault(line.file, {})[line.line] = line
    total = sum(line.counts.instructions for of_file in by_file.values() for line in of_file.values()) or 1
    for file, of_file in by_file.items():
        shown: list[Shown] = []
        numbers = sorted(of_file)
        last = 0
        for number in _with_context(numbers):
            if last and number > last + 1:
                shown.append(Shown(0, "", 0.0, 0, None))
            last = number
            counted_line = of_file.get(number)
            text = linecache.getline(file, number).rstrip() or (counted_line.text if counted_line is not None else "")
            if counted_line is None and not text and number not in range(numbers[0], numbers[-1]):
                continue
            share = counted_line.counts.instructions / total if counted_line is not None else 0.0
            shown.append(Shown(number, text, share, _heat(counted_line, share), counted_line))
        yield file, shown


def _with_context(numbers: list[int]) -> list[int]:
    near = {number + step for number in numbers for step in range(-_AROUND, _AROUND + 1) if number + step > 0}
    for before, after in pairwise(numbers):
        if after - before <= _GAP:
            near.update(range(before, after))
    return sorted(near)


def _heat(line: Line | None, share: float) -> int:
    if line is None:
        return 0
    counts = line.counts
    wasteful = counts.global_.coalescing >= 4 or counts.shared.bank_conflicts > counts.shared.all.least_wavefronts
    return 2 if wasteful or share >= 0.25 else 1 if share >= 0.1 else 0


def memory_of(line: Line) -> str:
    """Return the memory traffic of a line, in a few words."""
    counts, parts = line.counts, []
    if (accesses := counts.global_.all).requests:
        more = f", least {accesses.least_sectors:,}" if accesses.sectors > accesses.least_sectors else ""
        parts.append(f"{accesses.sectors:,} sectors{more}")
    if (local := counts.local.all).requests:
        parts.append(f"{local.sectors:,} local sectors")
    if (shared := counts.shared.all).requests:
        more = f", {shared.bank_conflicts:,} conflicts" if shared.bank_conflicts else ""
        parts.append(f"{shared.wavefronts:,} wavefronts{more}")
    if counts.atomics.requests:
        parts.append(f"{counts.atomics.operations:,} atomics, {counts.atomics.contention:.3g} turns")
    if counts.barrier_waits:
        parts.append(f"{counts.barrier_waits:,} waits")
    if counts.divergent_branches:
        parts.append(f"{counts.divergent_branches:,} of {counts.branches:,} branches diverge")
    return "; ".join(parts)


def annotated(source_lines: Iterable[Line], colour: bool) -> str:
    """Return the annotated source as text."""
    lines = []
    for file, shown in listing(source_lines):
        lines.append(file)
        width = max(len(row.memory) for row in shown)
        for row in shown:
            if not row.number:
                lines.append("     …")
                continue
            text = f"{row.number:6} {row.percent:>7}  {row.memory:{width}}  {row.text}".rstrip()
            tint = ("" if row.line is not None else _DIM, _WARM, _HOT)[row.heat]
            lines.append(f"{tint}{text}{_PLAIN}" if colour and tint else text)
    return "\n".join(lines)


#: Name, launches and counts of a kernel.
Row: TypeAlias = tuple[str, int, Counts]

_STYLE = """
:root { color-scheme: light dark; --text: #1a1c1f; --dim: #62676f; --line: #d9dce1; --back: #ffffff; --bar: #2f7d4f;
  --hot: #f7c9c4; --warm: #faecc0; --mark: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e7e9ec; --dim: #9aa1ab; --line: #3a3f47; --back: #16181c;
  --bar: #63b886; --hot: #5c2622; --warm: #4c411c; --mark: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; color: var(--text); background: var(--back);
  font: 16px/1.5 system-ui, sans-serif; }
h1, h2, h3, p, li { overflow-wrap: anywhere; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; } ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: bottom; }
td { white-space: nowrap; } th { color: var(--dim); font-weight: 500; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--back); }
.source td { border: 0; padding: 0 .7rem; font: 13px/1.5 ui-monospace, monospace; background: none; }
.source td:last-child { text-align: left; white-space: pre; width: 100%; }
.source td:nth-child(3) { color: var(--dim); text-align: left; }
.source .heat2 { background: var(--hot); } .source .heat1 { background: var(--warm); }
.source .heat2 td, .source .heat1 td { color: var(--text); }
@media (max-width: 45rem) { .source, .source tbody { display: block; } .source td:empty { display: none; }
  .source tr { display: grid; grid-template-columns: 2.6rem 4rem minmax(0, 1fr); } .source td { padding: 0 .3rem; }
  .source td:nth-child(2) { grid-column: 2; } .source td:nth-child(3) { grid-area: 2 / 3; white-space: normal; }
  .source td:last-child { grid-area: 1 / 3; white-space: pre-wrap; overflow-wrap: anywhere; } }
.plot { display: grid; grid-template-columns: minmax(4rem, max-content) minmax(0, 34rem); column-gap: .6rem;
  font-size: 13px; }
.plot span:nth-child(odd) { text-align: right; overflow-wrap: anywhere; }
.plot i { display: inline-block; width: calc(62% * var(--part)); height: .85rem; vertical-align: -.1rem;
  background: var(--bar); }
.plot i.more { background: var(--mark); } .plot i:last-of-type { margin-right: .4rem; }
@media (max-width: 45rem) { .plot i { width: calc(45% * var(--part)); } .plot.lines { display: block; }
  .plot.lines span { display: block; } .plot.lines span:nth-child(odd) { text-align: left; } }
svg { width: 100%; max-width: 32rem; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); } svg .roof { stroke: var(--bar); fill: none; stroke-width: 2; }
svg .mark { fill: var(--mark); stroke: var(--mark); stroke-width: 2; }
.dim { color: var(--dim); }
"""
_LONGEST = 48
#: Most lines of a plot.
_MOST_LINES = 8


def page(rows: Sequence[Row], counts: Counts, roof: Roof, advice: Iterable[Advice], lines: Sequence[Line]) -> str:
    """Return the report as a page of HTML.

    Parameters
    ----------
    rows : sequence of (str, int, Counts)
        Name, launches and counts of each kernel.
    counts : Counts
        Counts of all kernels.
    roof : Roof
        Position of all work under a card's roofline.
    advice : iterable of Advice
        Advice on all kernels.
    lines : sequence of Line
        Source lines with their counts.
    """
    items = [f"<li>{escape(str(item))}</li>" for item in advice]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>What the kernels do</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>What the kernels do</h1>",
        '<p class="dim">Exact counts of the emulator, of the instructions of the PTX; there is no time in them.</p>',
        f'<div class="wide">{table_html(kernel_table(rows, counts, whole=True), len(rows) + 1)}</div>',
        *(["<h2>Advice</h2>", f"<ul>{''.join(items)}</ul>"] if items else []),
        "<h2>Instructions by kind</h2>",
        _category_plot(counts.kinds),
        *_by_line(lines),
        f"<h2>Roofline of {escape(roof.card.name)}</h2>",
        f"<p>{escape(str(roof))}.</p>" if counts.flops else "<p>There are no floating-point operations.</p>",
        _roofline(roof) if counts.flops and roof.intensity > 0 else "",
        f'<p class="dim">Figures: {escape(roof.card.source)}. Left mark: every request goes to memory; right mark: '
        "each sector comes from memory once.</p>",
        "<h2>Source</h2>",
        *_sources(lines),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def kernel_table(rows: Sequence[Row], counts: Counts, whole: bool = False) -> Table:
    """Return the table of counts by kernel, and a row for all kernels if there are several.

    `counts` has the counts of all kernels. With `whole`, for the HTML page, the table has two more columns.
    """
    cells = [_cells(*row) for row in rows]
    if len(cells) > 1:
        cells.append(_cells("all", sum(launches for _, launches, _ in rows), counts))
    heads = [head for head in _cells("", 0, counts) if whole or head not in ("global requests", "turns")]
    return Table(heads, [[row[head] for head in heads] for row in cells], range(1, len(heads)))


def _cells(name: str, launches: int, counts: Counts) -> dict[str, object]:
    memory = counts.global_.all
    return {
        "kernel": name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…",
        "launches": launches,
        "instructions": counts.instructions,
        "lanes": counts.active_lanes,
        "global requests": memory.requests,
        "global sectors": memory.sectors,
        "coalescing": f"{memory.coalescing:.2f}" if memory.sectors else "–",
        "shared wavefronts": counts.shared.wavefronts,
        "bank conflicts": counts.shared.bank_conflicts,
        "atomics": counts.atomics.operations,
        "turns": f"{counts.atomics.contention:.3g}" if counts.atomics.requests else "–",
        "barrier waits": counts.barrier_waits,
        "divergent": counts.divergent_branches,
    }


class _Bar(NamedTuple):
    """A bar of a plot.

    Its fields are name, whole length, `more`, the part of the length that is avoidable, and the text beside the bar.
    """

    name: str
    length: int
    more: int
    text: str


def _category_plot(counts: dict[str, int]) -> str:
    """Return a plot of instructions by category, the longest bar first."""
    ordered, total = sorted(counts.items(), key=lambda item: -item[1]), sum(counts.values())
    return _plot(
        "instructions by kind",
        [_Bar(category, count, 0, f"{count:,} ({count / total:.1%})") for category, count in ordered],
    )


def _by_line(lines: Sequence[Line]) -> Iterator[str]:
    """Yield plots of the lines with the most sectors and the most wavefronts, as HTML."""
    touched = [(line, line.counts.global_.all) for line in lines]
    shared = [(line, line.counts.shared.all) for line in lines]
    sectors = [_bar(line, requests.sectors, requests.least_sectors) for line, requests in touched if requests.sectors]
    wavefronts = [
        _bar(line, requests.wavefronts, requests.least_wavefronts) for line, requests in shared if requests.wavefronts
    ]
    for title, unit, bars in (("Sectors of global memory by line", "sectors", sectors),
                               ("Wavefronts of shared memory by line", "wavefronts", wavefronts)):  # fmt: skip
        if bars:
            yield f"<h2>{title}</h2>"
            yield _plot(f"{unit} by line", sorted(bars, key=lambda bar: -bar.length)[:_MOST_LINES], "lines")
            yield f'<p class="dim">The second colour: {unit} beyond the least in which the accesses would fit.</p>'


def _bar(line: Line, used: int, least: int) -> _Bar:
    more = f", least {least:,}" if least < used else ""
    return _Bar(f"{line.line}: {line.text.strip()}", used, used - least, f"{used:,}{more}")


def _plot(label: str, bars: Sequence[_Bar], style: str = "") -> str:
    """Return a plot as HTML: bars one under the other, each relative to the longest."""
    longest = max((bar.length for bar in bars), default=1)

    def part(length: int, of: str) -> str:
        return f'<i class="{of}" style="--part:{length / longest:.4f}"></i>' if length else ""

    rows = (
        f"<span>{escape(bar.name)}</span><span>{part(bar.length - bar.more, 'least')}{part(bar.more, 'more')}"
        f"{escape(bar.text)}</span>"
        for bar in bars
    )
    return f'<div class="plot {style}" role="figure" aria-label="{label}">{"".join(rows)}</div>'


def _roofline(roof: Roof) -> str:
    """Return a plot of the roofline, with logarithmic axes.

    It shows operations a byte against the rate that memory or arithmetic allow.
    """
    left, top, width, height = 44, 8, 300, 200
    peak, ridge = roof.card.teraflops(roof.precision), roof.card.ridge(roof.precision)
    low = min(-2, int(log10(roof.intensity)) - 1)
    high = max(3, int(log10(max(ridge, roof.best_intensity))) + 1)
    floor, ceiling = log10(peak) - (log10(ridge) - low), log10(peak) + 0.4

    def x(intensity: float) -> float:
        return left + width * (log10(intensity) - low) / (high - low)

    def y(rate: float) -> float:
        return top + height * (1 - (log10(rate) - floor) / (ceiling - floor))

    def reached(intensity: float) -> float:
        return min(peak, peak * intensity / ridge)

    ticks = [
        f'<line class="axis" x1="{x(10**power):.1f}" x2="{x(10**power):.1f}" y1="{top}" y2="{top + height}"/>'
        f'<text x="{x(10**power):.1f}" y="{top + height + 18}" text-anchor="middle">{10.0**power:g}</text>'
        for power in range(low, high + 1)
    ] + [
        f'<line class="axis" x1="{left}" x2="{left + width}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}"/>'
        f'<text x="{left - 8}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        for power in range(int(floor) if floor < 0 else int(floor) + 1, int(ceiling) + 1)
        if floor <= power
    ]
    marks = [
        f'<circle class="mark" cx="{x(intensity):.1f}" cy="{y(reached(intensity)):.1f}" r="4"/>'
        for intensity in dict.fromkeys((roof.intensity, roof.best_intensity))
    ]
    between = (
        f'<line class="mark" x1="{x(roof.intensity):.1f}" y1="{y(reached(roof.intensity)):.1f}" '
        f'x2="{x(roof.best_intensity):.1f}" y2="{y(reached(roof.best_intensity)):.1f}"/>'
    )
    line = (
        f'<polyline class="roof" points="{x(10**low):.1f},{y(reached(10**low)):.1f} {x(ridge):.1f},{y(peak):.1f} '
        f'{x(10**high):.1f},{y(peak):.1f}"/>'
    )
    names = (
        f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">flop/byte</text>'
        f'<text x="{left}" y="{top + 12}" dx="6">Tflop/s, {roof.precision}</text>'
    )
    return (
        f'<svg role="img" aria-label="roofline" viewBox="0 0 360 256">'
        f"{''.join(ticks)}{line}{between}{''.join(marks)}{names}</svg>"
    )


def _sources(lines: Iterable[Line]) -> Iterable[str]:
    for file, shown in listing(lines):
        rows = []
        for row in shown:
            if not row.number:
                rows.append("<tr><td></td><td></td><td></td><td>…</td></tr>")
                continue
            rows.append(
                f'<tr class="heat{row.heat}"><td>{row.number}</td><td>{row.percent}</td>'
                f"<td>{escape(row.memory)}</td><td>{escape(row.text)}</td></tr>"
            )
        yield f'<h3>{escape(file)}</h3><div class="wide"><table class="source">{"".join(rows)}</table></div>'
