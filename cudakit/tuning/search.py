"""Strategies of search: which point of a space to measure next.

A strategy is asked for points and given their values. It never asks for a point twice, and ends when none is left::

    strategy = strategy_of("random", space, seed=0)
    while points := strategy.ask():
        for point in points:
            strategy.tell(point, measure(point))  # None if the point is invalid
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudakit.errors import ArgumentError, UnknownNameError, shortened
from cudakit.tuning.model import Model
from cudakit.tuning.space import Space
from cudakit.tuning.strategy import POOL, Searcher, Strategy, latin_order


class Exhaustive(Strategy):
    """All points, in the order of the space."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        if not self.is_whole:
            raise ArgumentError(f"{space.product} points are too many for an exhaustive search; the limit is {POOL}")

    def _next(self, count: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_open)[:count]


class Random(Strategy):
    """Latin hypercubes: random points whose values occur equally often."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._order = latin_order(space, self.rows, seed)

    def _next(self, count: int) -> NDArray[np.intp]:
        return self._order[self.is_open[self._order]][:count]


class Local(Strategy):
    """Hill climbing: neighbours of the best point, and from a local optimum on again from a random point."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._order = latin_order(space, self.rows, seed)
        self._centre: int | None = None

    def _next(self, count: int) -> NDArray[np.intp]:
        near: list[int] = []
        if self._centre is not None:
            near = [number for number in self.neighbours(self._centre) if self.is_open[number]]
            near = list(np.random.default_rng([self.seed, self._centre]).permutation(near))[:count]
        others = self._order[self.is_open[self._order]][: count + len(near)]
        return np.array([*near, *others[~np.isin(others, near)]][:count], np.intp)

    def _learn(self, number: int) -> None:
        if self._centre is None or self.results[number] < self.results[self._centre]:
            self._centre = number
        elif not np.isnan(self.results[self.neighbours(self._centre)]).any():
            self._centre = None


STRATEGIES: dict[str, type[Strategy]] = {"model": Model, "local": Local, "random": Random, "exhaustive": Exhaustive}
#: Name of the strategy that is used if none is chosen.
DEFAULT = "model"


def strategy_of(name: str, space: Space, seed: int = 0) -> Strategy:
    """Return the strategy of a name: ``"model"``, ``"local"``, ``"random"`` or ``"exhaustive"``."""
    if name not in STRATEGIES:
        raise UnknownNameError(f"no strategy is named {name!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[name](space, seed)


def searcher_of(strategy: Any, space: Space, seed: int = 0) -> Searcher:
    """Return a search of a space: by a strategy's name, by its class, or the object itself.

    Raises
    ------
    ArgumentError
        The object has no methods ``ask`` and ``tell``.
    """
    if isinstance(strategy, str):
        return strategy_of(strategy, space, seed)
    searcher: Searcher = strategy(space, seed=seed) if isinstance(strategy, type) else strategy
    if not all(callable(getattr(searcher, name, None)) for name in ("ask", "tell")):
        raise ArgumentError(f"strategy is a name, or has the methods ask and tell; got {shortened(strategy)}")
    return searcher
