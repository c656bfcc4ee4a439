"""Recorded spaces: points and what was measured for them."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cudakit.errors import ArgumentError
from cudakit.tuning.space import Point, Row, Space


class Measurement(NamedTuple):
    """A measured point.

    Attributes
    ----------
    point : dict
        Parameter → value.
    value : float or None
        Value of the objective, None for a point that is invalid.
    invalidity : str
        ``"correct"``, or why there is no value, in the words of T4: ``"compile"``, ``"runtime"``, ``"correctness"``,
        ``"constraints"`` or ``"timeout"``.
    """

    point: Point
    value: float | None
    invalidity: str = "correct"


@dataclass(frozen=True)
class Recorded:
    """The record of a space.

    Attributes
    ----------
    measurements : sequence of Measurement
        Measured points, at least one.
    kernel, card, objective, unit : str
        Names of the kernel, the card, the objective and its unit.
    problem_size : sequence of int
        Size of the problem.
    parameters : mapping of str to sequence, optional
        Parameter → values, in the order of the space. Default: the values that occur, numbers in increasing order.
    """

    measurements: Sequence[Measurement]
    kernel: str = ""
    card: str = ""
    objective: str = "time"
    unit: str = "ms"
    problem_size: Sequence[int] = ()
    parameters: Mapping[str, Sequence[Any]] | None = None

    def __post_init__(self) -> None:
        if not self.measurements:
            raise ArgumentError("the record has no measurements")

    @functools.cached_property
    def space(self) -> Space:
        """The space of the recorded points, and no others."""
        return _RecordedSpace(self.parameters or _values_of(self.measurements), (m.point for m in self.measurements))

    @functools.cached_property
    def _values(self) -> dict[Row, float | None]:
        return {self.space.row(measurement.point): measurement.value for measurement in self.measurements}

    def value(self, point: Mapping[str, Any]) -> float | None:
        """Return the recorded value of a point of the space; None: it is invalid."""
        return self._values[self.space.row(point)]

    @functools.cached_property
    def optimum(self) -> float:
        """The least value. Infinite if no point is valid."""
        return min((value for value in self._values.values() if value is not None), default=float("inf"))


class _RecordedSpace(Space):
    """The recorded points of a space: all others are excluded."""

    def __init__(self, values: Mapping[str, Sequence[Any]], points: Iterable[Point]) -> None:
        super().__init__(values)
        self._recorded = dict.fromkeys(self.row(point) for point in points)
        self.product = len(self._recorded)

    def walk(self, rng: random.Random | None = None) -> Iterator[Row]:
        rows = list(self._recorded)
        return iter(rng.sample(rows, len(rows)) if rng else rows)

    def is_valid(self, row: Iterable[int]) -> bool:
        return tuple(map(int, row)) in self._recorded


def _values_of(measurements: Sequence[Measurement]) -> dict[str, list[Any]]:
    """Return the values of each parameter that occur."""
    values = {
        name: list({repr(m.point[name]): m.point[name] for m in measurements}.values())
        for name in measurements[0].point
    }
    return {name: sorted(row) if all(isinstance(v, int | float) for v in row) else row for name, row in values.items()}
