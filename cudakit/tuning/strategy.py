"""Strategies of search: the base class, and the order of a Latin hypercube."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cudakit.errors import ArgumentError
from cudakit.tuning.space import LARGEST, Point, Row, Space

#: Points of a large space that a strategy looks at.
POOL = 20_000


class Searcher(Protocol):
    """A search, as `ck.tune` needs it. `Strategy` is one; another project's can be wrapped as one."""

    def ask(self, count: int = 1) -> list[Point]:
        """Return up to `count` points to measure next. Empty: the search has ended."""

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Take the value of a point: less is better, None for a point that is invalid."""


class Strategy:
    """A search over a space. Equal seeds and values give equal searches.

    Parameters
    ----------
    space : Space
        Space to search.
    seed : int
        Seed of all random choices.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.space = space
        self.seed = seed
        self.rows = space.sample(POOL, seed)
        self._numbers: dict[Row, int] = {tuple(map(int, row)): number for number, row in enumerate(self.rows)}
        #: Whether all points of the space are in `rows`.
        self.is_whole = space.product <= LARGEST and len(self.rows) == len(space)
        #: Whether a point can still be asked for.
        self.is_open = np.ones(len(self.rows), bool)
        #: Value of each point: NaN before it is reported, infinity if invalid.
        self.results = np.full(len(self.rows), np.nan)
        #: Numbers of the points with results, in the order of the reports.
        self.measured: list[int] = []

    def ask(self, count: int = 1) -> list[Point]:
        """Return up to `count` points to measure next, and remember them as asked. Empty: the space is exhausted."""
        numbers = self._next(count)
        self.is_open[numbers] = False
        return [self.space.point(self.rows[number]) for number in numbers]

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Take the value of a point: less is better, None for a point that is invalid."""
        row = self.space.row(point)
        if row not in self._numbers:
            if not self.space.is_valid(row):
                raise ArgumentError(f"{dict(point)} is not a point of the space: its restrictions exclude it")
            self._add([row])
        number = self._numbers[row]
        is_first = bool(np.isnan(self.results[number]))
        self.is_open[number] = False
        self.results[number] = np.inf if value is None or not np.isfinite(value) else value
        if not self.is_whole and self.results[number] <= np.nanmin(self.results):
            self._add([row for row in self.space.neighbours(row) if row not in self._numbers])
        if is_first:
            self.measured.append(number)
        self._learn(number)

    def neighbours(self, number: int) -> list[int]:
        """Return the numbers of the points that differ from a point in one parameter."""
        row = tuple(map(int, self.rows[number]))
        rows = (
            (*row[:axis], value, *row[axis + 1 :])
            for axis, values in enumerate(self.space.values)
            for value in range(len(values))
            if value != row[axis]
        )
        return [self._numbers[row] for row in rows if row in self._numbers]

    def _add(self, rows: list[Row]) -> None:
        """Add points of a large space that are not in its pool."""
        self._numbers.update({row: len(self.rows) + number for number, row in enumerate(rows)})
        self.rows = np.concatenate([self.rows, np.array(rows, np.int32).reshape(-1, self.rows.shape[1])])
        self.is_open = np.append(self.is_open, np.ones(len(rows), bool))
        self.results = np.append(self.results, np.full(len(rows), np.nan))

    @property
    def best(self) -> Point | None:
        """The point with the least value so far, or None."""
        values = np.where(np.isnan(self.results), np.inf, self.results)
        number = int(np.argmin(values))
        return self.space.point(self.rows[number]) if np.isfinite(values[number]) else None

    def _next(self, count: int) -> NDArray[np.intp]:
        """Return numbers of the next points, none of them asked before. Changes nothing."""
        raise NotImplementedError

    def _learn(self, number: int) -> None:
        """Take note of a point's new result."""


def latin_order(
    space: Space, rows: NDArray[np.int32], seed: int, count: int = 256, far: NDArray[np.float64] | float = 0.0
) -> NDArray[np.intp]:
    """Return an order of rows that begins with Latin hypercubes of 16, 16, 32, … points, `count` in all.

    Each hypercube's points are replaced by the nearest rows that are left; `far` is added to the distances of rows.
    The rest follows in random order.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([len(values) for values in space.values])
    places = rows / np.maximum(lengths - 1, 1)
    is_left = np.ones(len(rows), bool)
    order: list[int] = []
    while len(order) < min(count, len(rows)):
        size = max(min(16, count), len(order))
        cube = np.stack([rng.permutation(np.arange(size) * length // size) for length in lengths], axis=1)
        for place in (cube / np.maximum(lengths - 1, 1))[: len(rows) - len(order)]:
            distances = np.abs(places - place).sum(axis=1) + far
            distances[~is_left] = np.inf
            order.append(int(np.argmin(distances)))
            is_left[order[-1]] = False
    return np.concatenate([np.array(order, np.intp), rng.permutation(np.flatnonzero(is_left))])
