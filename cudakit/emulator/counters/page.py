"""The report as one page of HTML, with its style and its plots in it: nothing is fetched, and no script runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import log10
from typing import TypeAlias

from cudakit.emulator.counters.advice import Advice
from cudakit.emulator.counters.annotated import listing, memory_of
from cudakit.emulator.counters.cards import Roof
from cudakit.emulator.counters.counts import Counts
from cudakit.emulator.counters.lines import Line

#: A kernel's name, its launches, and what it did.
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
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
.source td { border: 0; padding: 0 .7rem; font: 13px/1.5 ui-monospace, monospace; }
.source td:last-child { text-align: left; white-space: pre; width: 100%; }
.source td:nth-child(3) { color: var(--dim); text-align: left; }
.source .heat2 { background: var(--hot); } .source .heat1 { background: var(--warm); }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font: 13px system-ui, sans-serif; }
svg .axis { stroke: var(--line); } svg .roof { stroke: var(--bar); fill: none; stroke-width: 2; }
svg .bar { fill: var(--bar); } svg .mark { fill: var(--mark); stroke: var(--mark); stroke-width: 2; }
.dim { color: var(--dim); }
"""
_LONGEST = 48
_HEADS = (
    "kernel", "launches", "instructions", "active lanes", "global requests", "sectors", "coalescing", "wavefronts",
    "bank conflicts", "atomics", "turns", "barrier waits", "divergent branches",
)  # fmt: skip


def page(rows: Sequence[Row], counts: Counts, roof: Roof, advice: Iterable[Advice], lines: Iterable[Line]) -> str:
    """The page.

    Parameters
    ----------
    rows : sequence of (str, int, Counts)
        The kernels.
    counts : Counts
        Of all of them.
    roof : Roof
    advice : iterable of Advice
    lines : iterable of Line
    """
    told = [f"<li>{escape(str(each))}</li>" for each in advice]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>What the kernels do</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>What the kernels do</h1>",
        '<p class="dim">Exact counts of the emulator, of the instructions of the PTX; there is no time in them.</p>',
        _table(rows, counts),
        *(["<h2>Advice</h2>", f"<ul>{''.join(told)}</ul>"] if told else []),
        "<h2>Instructions by kind</h2>",
        _bars(counts.kinds),
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


def _table(rows: Sequence[Row], counts: Counts) -> str:
    cells = [_cells(*row) for row in rows]
    if len(cells) > 1:
        cells.append(_cells("all", sum(launches for _, launches, _ in rows), counts))
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    return f'<div class="wide"><table><tr>{"".join(f"<th>{head}</th>" for head in _HEADS)}</tr>{body}</table></div>'


def _cells(name: str, launches: int, counts: Counts) -> tuple[str, ...]:
    memory = counts.global_.all
    return (
        name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…",
        f"{launches:,}",
        f"{counts.instructions:,}",
        f"{counts.active_lanes:.1f}",
        f"{memory.requests:,}",
        f"{memory.sectors:,}",
        f"{memory.coalescing:.2f}",
        f"{counts.shared.wavefronts:,}",
        f"{counts.shared.bank_conflicts:,}",
        f"{counts.atomics.operations:,}",
        f"{counts.atomics.contention:.3g}" if counts.atomics.requests else "–",
        f"{counts.barrier_waits:,}",
        f"{counts.divergent_branches:,}",
    )


def _bars(kinds: dict[str, int]) -> str:
    """Bars, the longest first."""
    ordered = sorted(kinds.items(), key=lambda item: -item[1])
    total, most, height = sum(kinds.values()) or 1, max(kinds.values(), default=1), 24
    rows = [
        f'<text x="84" y="{number * height + 16}" text-anchor="end">{kind}</text>'
        f'<rect class="bar" x="92" y="{number * height + 4}" width="{max(1, 380 * count / most):.1f}" height="15"/>'
        f'<text x="{98 + 380 * count / most:.1f}" y="{number * height + 16}">{count:,} '
        f"({100 * count / total:.1f} %)</text>"
        for number, (kind, count) in enumerate(ordered)
    ]
    size = f'width="640" height="{height * len(rows)}" viewBox="0 0 640 {height * len(rows)}"'
    return f'<svg role="img" aria-label="instructions by kind" {size}>{"".join(rows)}</svg>'


def _roofline(roof: Roof) -> str:
    """Both axes in powers of ten: operations a byte, and the rate that memory or arithmetic allow."""
    left, top, width, height = 70, 12, 520, 260
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
        f'<circle class="mark" cx="{x(each):.1f}" cy="{y(reached(each)):.1f}" r="5"/>'
        for each in dict.fromkeys((roof.intensity, roof.best_intensity))
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
        f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">flop/byte</text>'
        f'<text x="{left}" y="{top + 12}" dx="6">Tflop/s, {roof.precision}</text>'
    )
    return (
        f'<svg role="img" aria-label="roofline" width="620" height="320" viewBox="0 0 620 320">'
        f"{''.join(ticks)}{line}{between}{''.join(marks)}{names}</svg>"
    )


def _sources(lines: Iterable[Line]) -> Iterable[str]:
    for file, shown in listing(lines):
        rows = []
        for each in shown:
            if not each.number:
                rows.append("<tr><td></td><td></td><td></td><td>…</td></tr>")
                continue
            share = f"{100 * each.share:.1f} %" if each.found is not None else ""
            memory = memory_of(each.found) if each.found is not None else ""
            rows.append(
                f'<tr class="heat{each.heat}"><td>{each.number}</td><td>{share}</td><td>{escape(memory)}</td>'
                f"<td>{escape(each.text)}</td></tr>"
            )
        yield f'<h3>{escape(file)}</h3><div class="wide"><table class="source">{"".join(rows)}</table></div>'
