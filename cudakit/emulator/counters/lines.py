"""Source lines, and what their instructions did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cudakit.emulator.counters.counts import Counts, counts_of
from cudakit.emulator.counters.tally import Record


class Line(NamedTuple):
    """A source line, and what its instructions did."""

    file: str
    line: int
    text: str
    counts: Counts


def lines_of(records: Iterable[Record]) -> list[Line]:
    """Lines that did anything, by file and number."""
    by_line: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_line.setdefault(record.where, []).append(record)
    return [
        Line(file, line, found[0].text or _instructions(found), counts_of(found))
        for (file, line), found in sorted(by_line.items())
    ]


def _instructions(records: list[Record]) -> str:
    return ", ".join(dict.fromkeys(str(each.given) for each in records))
