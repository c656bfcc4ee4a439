"""Candidates of a search: the records of points that were tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cudakit.errors import ArgumentError
from cudakit.tuning.space import Point

#: What became of a candidate: it is right and was measured; its result is wrong; it needs more than the device has;
#: it does not compile or its launch failed; it was measured a few times and is far from the best.
State = Literal["right", "wrong", "invalid", "failed", "slow"]


@dataclass
class Candidate:
    """A candidate that was tried.

    Attributes
    ----------
    point : dict
        Parameter → value.
    state : {"right", "wrong", "invalid", "failed", "slow"}
        What became of it.
    value : float or None
        Median of the objective; None if it was not measured.
    values : dict of str to float
        Objective → its median. A right candidate has all of them.
    low, high : float or None
        Interval that holds the median with 95 %.
    runs : int
        Number of measured launches.
    registers, spill_bytes, shared_bytes : int or None
        Resources, as `Kernel.attributes` has them; None on the emulator.
    occupancy : float or None
        Resident threads divided by the maximum of a multiprocessor.
    tied : bool
        Whether the measurements do not tell it from the best.
    why : str
        Why it was left: the error, or the element that is wrong.
    """

    point: Point
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    tied: bool = False
    why: str = ""
    values: dict[str, float] = field(default_factory=dict)


class Traffic(NamedTuple):
    """The work of one launch, from which rates follow.

    Attributes
    ----------
    bytes : int
        Bytes that a launch must move: of each array that it reads, and again of each that it may write.
    flops : float
        Floating-point operations; 0 if unknown.
    card : str
        Name of the card.
    peak : float
        Memory rate of the card's datasheet, in GB/s; 0 if unknown.
    """

    bytes: int
    flops: float
    card: str
    peak: float

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the columns of rates."""
        return ("GB/s", *((f"of {self.peak:,.0f}",) if self.peak else ()), *(("GFLOP/s",) if self.flops else ()))

    def cells(self, microseconds: float | None) -> tuple[str, ...]:
        """Return the rates of a launch that takes a time."""
        if not microseconds:
            return ("",) * len(self.heads)
        rate = self.bytes / microseconds / 1e3
        return (
            f"{rate:,.0f}",
            *((f"{rate / self.peak:.0%}",) if self.peak else ()),
            *((f"{self.flops / microseconds / 1e3:,.0f}",) if self.flops else ()),
        )


def front(candidates: Iterable[Candidate], objectives: Sequence[str]) -> list[Candidate]:
    """Return the right candidates that no other beats: as good in all objectives, and better in one."""
    rows = [row for row in candidates if row.state == "right" and all(name in row.values for name in objectives)]
    values = [tuple(row.values[name] for name in objectives) for row in rows]
    return [
        row
        for row, own in zip(rows, values, strict=True)
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in values)
    ]


def none_right(kernel: str, candidates: Iterable[Candidate]) -> ArgumentError:
    """Return the error of a search without a right candidate: each reason with the number of its candidates."""
    reasons: dict[str, list[Point]] = {}
    for candidate in candidates:
        reasons.setdefault(f"{candidate.state}: {candidate.why}", []).append(candidate.point)
    lines = [f"  {len(points)} × {reason} (as {shown(points[0])})" for reason, points in reasons.items()]
    return ArgumentError(f"{kernel}: no candidate of the space is right\n" + "\n".join(lines))


def shown(point: Point) -> str:
    """Return a point as text."""
    return ", ".join(f"{name}={value}" for name, value in point.items())
