"""Strategies of search: which point of a space to measure next.

A strategy is asked for points and given their values. It never asks for a point twice, and ends when none is left::

    strategy = strategy_of("random", space, seed=0)
    while points := strategy.ask():
        for point in points:
            strategy.tell(point, measure(point))  # None if the point is invalid

`Strategy.likely` forecasts the next points without a decision, so that they can be compiled ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudakit.errors import ArgumentError, UnknownNameError
from cudakit.tuning.space import Point, Row, Space

#: Points of a large space that a strategy looks at.
POOL = 20_000


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
        #: Whether a point can still be asked for.
        self.is_open = np.ones(len(self.rows), bool)
        #: Value of each point: NaN before it is reported, infinity if invalid.
        self.results = np.full(len(self.rows), np.nan)

    def ask(self, count: int = 1) -> list[Point]:
        """Return up to `count` points to measure next, and remember them as asked. Empty: the space is exhausted."""
        numbers = self._next(count)
        self.is_open[numbers] = False
        return [self.space.point(self.rows[number]) for number in numbers]

    def likely(self, count: int) -> list[Point]:
        """Return the up to `count` points that the next calls of `ask` will probably return."""
        return [self.space.point(self.rows[number]) for number in self._next(count)]

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Take the value of a point: less is better, None for a point that is invalid."""
        number = self.number(point)
        self.is_open[number] = False
        self.results[number] = np.inf if value is None or not np.isfinite(value) else value

    def number(self, point: Mapping[str, Any]) -> int:
        """Return the number of a point in `rows`. A valid point that is not in a large space's pool is added."""
        row = self.space.row(point)
        if row not in self._numbers:
            if not self.space.is_valid(row):
                raise ArgumentError(f"{dict(point)} is not a point of the space: its restrictions exclude it")
            self._numbers[row] = len(self.rows)
            self.rows = np.vstack([self.rows, row])
            self.is_open = np.append(self.is_open, True)
            self.results = np.append(self.results, np.nan)
        return self._numbers[row]

    @property
    def best(self) -> Point | None:
        """The point with the least value so far, or None."""
        values = np.where(np.isnan(self.results), np.inf, self.results)
        number = int(np.argmin(values))
        return self.space.point(self.rows[number]) if np.isfinite(values[number]) else None

    def _next(self, count: int) -> NDArray[np.intp]:
        """Return numbers of the next points, none of them asked before. Changes nothing."""
        raise NotImplementedError


class Exhaustive(Strategy):
    """All points, in the order of the space."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        if len(self.rows) < len(space):
            raise ArgumentError(f"{len(space)} points are too many for an exhaustive search; the limit is {POOL}")

    def _next(self, count: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_open)[:count]


class Random(Strategy):
    """Latin hypercubes: random points whose values occur equally often."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._order = latin_order(space, self.rows, seed)

    def _next(self, count: int) -> NDArray[np.intp]:
        return self._order[self.is_open[self._order]][:count]


def latin_order(space: Space, rows: NDArray[np.int32], seed: int, count: int = 256) -> NDArray[np.intp]:
    """Return an order of rows that begins with Latin hypercubes of 16, 16, 32, … points, `count` in all.

    Each hypercube's points are replaced by the nearest rows that are left. The rest follows in random order.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([len(values) for values in space.values])
    places = rows / np.maximum(lengths - 1, 1)
    is_left = np.ones(len(rows), bool)
    order: list[int] = []
    while len(order) < min(count, len(rows)):
        size = max(16, len(order))
        cube = np.stack([rng.permutation(np.arange(size) * length // size) for length in lengths], axis=1)
        for place in (cube / np.maximum(lengths - 1, 1))[: len(rows) - len(order)]:
            distances = np.abs(places - place).sum(axis=1)
            distances[~is_left] = np.inf
            order.append(int(np.argmin(distances)))
            is_left[order[-1]] = False
    return np.concatenate([np.array(order, np.intp), rng.permutation(np.flatnonzero(is_left))])


STRATEGIES: dict[str, type[Strategy]] = {"exhaustive": Exhaustive, "random": Random}


def strategy_of(name: str, space: Space, seed: int = 0) -> Strategy:
    """Return the strategy of a name."""
    if name not in STRATEGIES:
        raise UnknownNameError(f"no strategy is named {name!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name](space, seed)
