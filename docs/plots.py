"""The plots of benchmarks.md, from the tables in benchmarks/results: a panel of HTML for each family.

The position of a mark is the speed of cudakit relative to its peer, on a logarithmic axis.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LARGE, SMALL = 2**27, 2**10
PEERS = {"cupy": "CuPy", "torch": "torch", "cub": "CUB"}
BESIDE = re.compile(r"(?:^|\), )(\w+).*? [\d.]+(?: µs)? \(([\d.]+) ×")


class Bar(NamedTuple):
    """A line of a panel: the measured function, and its speed relative to each peer."""

    name: str
    ratios: dict[str, float]


class Panel(NamedTuple):
    """A family of measurements."""

    title: str
    bars: list[Bar]


def rows(page: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a page's tables, by the names of their columns."""
    head: list[str] = []
    for line in (RESULTS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif set(line) - set("|-"):
            yield dict(zip(head, cells, strict=True))


def measured_on(page: str) -> str:
    """Return the lines of a page that name GPU, versions and date."""
    lines = re.findall(r"^- (.*)$", (RESULTS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return "; ".join(line for line in lines if line.startswith(("date", "NVIDIA", "python")))


def families() -> dict[str, str]:
    """Return the family of each op, from the table of `ops.md`."""
    table = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8").split("| family | calls |\n|---|---|\n")[1]
    lines = (line.split("|") for line in table.split("\n\n")[0].splitlines())
    return {call: cells[1].strip() for cells in lines for call in re.findall(r"\w+", cells[2].split("`")[1])}


def ops(small: bool) -> list[Panel]:
    """Return the panels of `kernels` and `generate`, for the first measured dtype of each function."""
    panels: dict[str, dict[str, Bar]] = {}
    for page in ("kernels-h200.md", "generate-h200.md"):
        for row in rows(page):
            elements = int(row["elements"].replace(",", ""))
            if (elements != SMALL) if small else (elements < LARGE):
                continue
            family = families()[re.findall(r"\w+", row["op"])[0]] if page[0] == "k" else "generated functions"
            ratios = BESIDE.findall(row["peers, GB/s (time over ours)"])
            fastest_last = sorted(((peer, float(ratio)) for peer, ratio in ratios), key=lambda pair: -pair[1])
            bar = Bar(row["op"], {PEERS[peer]: ratio for peer, ratio in fastest_last if peer in PEERS})
            if bar.ratios:
                panels.setdefault(family, {}).setdefault(bar.name, bar)
    return [Panel(family, list(bars.values())) for family, bars in panels.items()]


def costs() -> list[Panel]:
    """Return the panel of host time, relative to code written by hand."""
    sources = (
        ("a launch, beside bare cuda.core", "launch-h200.md", "what", "ratio or beside", True),
        ("a graph, beside one of bare cuda.core", "graphs-h200.md", "what", "ratio to bare", True),
        ("order between streams, beside bare launches", "hazards-h200.md", "what", "beside", True),
        ("copies, beside CuPy's", "memory-h200.md", "GB/s", "cudakit over CuPy", False),
        ("pipelines, beside what copies and kernels allow", "pipeline-h200.md", "what", "of the bound", False),
    )
    return [
        Panel(title, list(_bars(page, what, ratio, inverse, "CuPy" if "CuPy" in title else "other")))
        for title, page, what, ratio, inverse in sources
    ]


def _bars(page: str, what: str, column: str, inverse: bool, peer: str) -> Iterator[Bar]:
    for row in rows(page):
        ratio = re.fullmatch(r"([\d.]+)(?: ×)?", row.get(column, ""))
        if ratio:
            yield Bar(row[what], {peer: 1 / float(ratio[1]) if inverse else float(ratio[1])})


def drawn(panels: Sequence[Panel], low: int, high: int) -> str:
    """Return the panels as HTML. Marks beyond the axis from 2 ** `low` to 2 ** `high` are at its end."""

    def place(ratio: float) -> str:
        return f"left: {100 * (min(max(math.log2(ratio), low), high) - low) / (high - low):.1f}%"

    def written(ratio: float) -> str:
        return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"

    ticks = "".join(
        f'<b style="{place(2.0**power)}">{2**power if power >= 0 else f"1/{2**-power}"}</b>'
        for power in range(low, high + 1)
    )
    one = f'<s style="{place(1)}"></s>'
    lines = ['<div class="plots">']
    for panel in panels:
        lines.append(f'<figure><figcaption>{html.escape(panel.title)}</figcaption><div class="axis">{ticks}</div>')
        for bar in panel.bars:
            beside = ", ".join(f"{written(ratio)} × {peer}" for peer, ratio in bar.ratios.items())
            marks = "".join(
                f'<i class="{peer}" style="{place(ratio)}"></i>' for peer, ratio in sorted(bar.ratios.items())
            )
            lines.append(
                f'<div class="bar" title="{html.escape(beside)}"><span>{_spans(bar.name)}</span>'
                f"<span>{one}{marks}</span><span>{written(min(bar.ratios.values()))}</span></div>"
            )
        lines.append("</figure>")
    return "\n".join([*lines, "</div>\n"])


def _spans(text: str) -> str:
    return re.sub(r"`(.*?)`", r"<code>\1</code>", html.escape(text))


def legend() -> str:
    """Return the legend of the marks."""
    return (
        '<p class="plots">'
        + " ".join(f'<span><i class="{peer}"></i> {peer}</span>' for peer in PEERS.values())
        + "</p>\n"
    )


def write(docs: Path) -> None:
    """Write the plots for benchmarks.md into docs/made/."""
    folder = docs / "made"
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("rates", legend() + drawn(ops(small=False), -1, 4)),
        ("calls", legend() + drawn(ops(small=True), -1, 5)),
        ("costs", drawn(costs(), -3, 3)),
    ):
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    (folder / "measured.md").write_text(measured_on("kernels-h200.md") + ".\n", encoding="utf-8")
