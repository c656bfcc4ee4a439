"""Searches over recorded spaces: what a strategy would have found, with nothing compiled and nothing measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from cudakit.errors import ArgumentError
from cudakit.tuning.formats import read
from cudakit.tuning.recorded import Measurement, Recorded
from cudakit.tuning.search import DEFAULT, searcher_of


class Replay(NamedTuple):
    """A search over a recorded space.

    Attributes
    ----------
    measurements : list of Measurement
        Points in the order in which the strategy asked for them.
    shares : list of float
        After each of them, the optimum divided by the best value so far: 1 at the optimum, 0 before a valid point.
    """

    measurements: list[Measurement]
    shares: list[float]


def replay(
    recorded: Recorded | str | Path, strategy: Any = DEFAULT, budget: int | None = None, seed: int = 0
) -> Replay:
    """Search a recorded space.

    Parameters
    ----------
    recorded : Recorded, str or Path
        Recorded space, or its file: a result's JSON, Kernel Tuner's cache or T4.
    strategy : str or object
        Name of the strategy, or an object, as for `ck.tune`.
    budget : int, optional
        Number of points, valid or not. Default: all.
    seed : int
        Seed of the strategy.

    Raises
    ------
    ArgumentError
        The file is none of these, or the budget is no positive number.
    """
    record = recorded if isinstance(recorded, Recorded) else read(recorded)
    if budget is not None and budget < 1:
        raise ArgumentError(f"budget: expected a positive number of points, got {budget}")
    search = searcher_of(strategy, record.space, seed)
    result = Replay([], [])
    best = float("inf")
    while (budget is None or len(result.shares) < budget) and (points := search.ask()):
        value = record.value(points[0])
        search.tell(points[0], value)
        best = min(best, float("inf") if value is None else value)
        result.measurements.append(Measurement(points[0], value))
        result.shares.append(record.optimum / best if best < float("inf") else 0.0)
    return result
