"""Source with what each line cost, for a terminal."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from cudakit.emulator.counters.lines import Line

#: Lines that are shown around those that did anything, and gaps that are shown whole.
_AROUND, _GAP = 1, 4
_HOT, _WARM, _DIM, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class Shown(NamedTuple):
    """A line of the source as it is shown.

    Attributes
    ----------
    number : int
        0 where lines are left out.
    text : str
    share : float
        Of all instructions of the report.
    heat : int
        2 for the hottest lines, 1 for warm ones.
    found : Line or None
    """

    number: int
    text: str
    share: float
    heat: int
    found: Line | None

    @property
    def percent(self) -> str:
        """Its share in words; empty for lines that did nothing."""
        return f"{100 * self.share:.1f} %" if self.found is not None else ""

    @property
    def memory(self) -> str:
        """What it asked of memory, in a few words."""
        return memory_of(self.found) if self.found is not None else ""


def listing(lines: Iterable[Line]) -> Iterator[tuple[str, list[Shown]]]:
    """Each file with its lines: those that did anything, and some around them."""
    by_file: dict[str, dict[int, Line]] = {}
    for line in lines:
        by_file.setdefault(line.file, {})[line.line] = line
    total = sum(line.counts.instructions for of_file in by_file.values() for line in of_file.values()) or 1
    for file, of_file in by_file.items():
        shown: list[Shown] = []
        wanted = sorted(of_file)
        last = 0
        for number in _with_context(wanted):
            if last and number > last + 1:
                shown.append(Shown(0, "", 0.0, 0, None))
            last = number
            found = of_file.get(number)
            text = linecache.getline(file, number).rstrip() or (found.text if found is not None else "")
            if found is None and not text and number not in range(wanted[0], wanted[-1]):
                continue
            share = found.counts.instructions / total if found is not None else 0.0
            shown.append(Shown(number, text, share, _heat(found, share), found))
        yield file, shown


def _with_context(wanted: list[int]) -> list[int]:
    near = {number + step for number in wanted for step in range(-_AROUND, _AROUND + 1) if number + step > 0}
    for before, after in pairwise(wanted):
        if after - before <= _GAP:
            near.update(range(before, after))
    return sorted(near)


def _heat(found: Line | None, share: float) -> int:
    if found is None:
        return 0
    counts = found.counts
    wasteful = counts.global_.coalescing >= 4 or counts.shared.bank_conflicts > counts.shared.all.least_wavefronts
    return 2 if wasteful or share >= 0.25 else 1 if share >= 0.1 else 0


def memory_of(line: Line) -> str:
    """What a line asked of memory, in a few words."""
    counts, parts = line.counts, []
    if (found := counts.global_.all).requests:
        more = f", least {found.least_sectors:,}" if found.sectors > found.least_sectors else ""
        parts.append(f"{found.sectors:,} sectors{more}")
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


def annotated(found: Iterable[Line], colour: bool) -> str:
    """The source as lines of text."""
    lines = []
    for file, shown in listing(found):
        lines.append(file)
        width = max(len(each.memory) for each in shown)
        for each in shown:
            if not each.number:
                lines.append("     …")
                continue
            text = f"{each.number:6} {each.percent:>7}  {each.memory:{width}}  {each.text}".rstrip()
            tint = ("" if each.found is not None else _DIM, _WARM, _HOT)[each.heat]
            lines.append(f"{tint}{text}{_PLAIN}" if colour and tint else text)
    return "\n".join(lines)
