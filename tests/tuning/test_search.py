"""Strategies: each asks for valid points once, is repeated by its seed, and finds the best point of a small space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.errors import ArgumentError, UnknownNameError
from cudakit.tuning import strategy as strategies
from cudakit.tuning.search import STRATEGIES, strategy_of
from cudakit.tuning.space import Point, Space
from cudakit.tuning.strategy import Strategy

SPACE = Space(
    {"BLOCK": [32, 64, 128, 256], "ITEMS": [1, 2, 4, 8], "VECTOR": [1, 2, 4], "LAYOUT": ["row", "column"]},
    where=lambda BLOCK, ITEMS: BLOCK * ITEMS <= 1024,
)


def time_of(point: Point) -> float | None:
    """Return a time with its optimum, 1.0, at 128, 4, 2, column; None for points that cannot run."""
    if point["VECTOR"] * point["ITEMS"] > 16:
        return None
    far = abs(np.log2(point["BLOCK"] / 128)) + abs(np.log2(point["ITEMS"] / 4)) + abs(np.log2(point["VECTOR"] / 2))
    return float(1 + far * (1.5 if point["LAYOUT"] == "column" else 1) + (point["LAYOUT"] == "row"))


def run(strategy: Strategy, budget: int, batch: int = 1) -> list[Point]:
    """Search, and return the points in the order in which they were measured."""
    points: list[Point] = []
    while len(points) < budget and (batch_of := strategy.ask(min(batch, budget - len(points)))):
        for point in batch_of:
            strategy.tell(point, time_of(point))
        points += batch_of
    return points


@pytest.fixture(params=sorted(STRATEGIES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_point_comes_once_and_the_best_is_among_them(name: str) -> None:
    strategy = strategy_of(name, SPACE, seed=1)
    points = run(strategy, 1000)
    assert len(points) == len(SPACE) == len({SPACE.row(point) for point in points})
    assert all(point in SPACE for point in points)
    assert strategy.ask() == []
    assert strategy.best == {"BLOCK": 128, "ITEMS": 4, "VECTOR": 2, "LAYOUT": "column"}


def test_a_seed_repeats_a_search(name: str) -> None:
    first, again, other = (run(strategy_of(name, SPACE, seed=seed), 40) for seed in (5, 5, 6))
    assert first == again
    assert (first == other) == (name == "exhaustive")


@pytest.mark.parametrize("batch", [3, 8])
def test_points_can_be_taken_before_results_are_known(name: str, batch: int) -> None:
    points = run(strategy_of(name, SPACE, seed=2), 1000, batch)
    assert len({SPACE.row(point) for point in points}) == len(points) == len(SPACE)


def test_a_space_in_which_nothing_runs_is_searched_to_its_end(name: str) -> None:
    strategy = strategy_of(name, SPACE)
    count = 0
    while points := strategy.ask():
        strategy.tell(points[0], [None, np.inf, np.nan][count % 3])
        count += 1
    assert count == len(SPACE)
    assert strategy.best is None


def test_a_space_of_one_point(name: str) -> None:
    strategy = strategy_of(name, Space({"BLOCK": [64]}))
    assert strategy.ask(5) == [{"BLOCK": 64}]
    assert strategy.ask() == []


def test_a_point_that_nobody_asked_for_counts(name: str) -> None:
    strategy = strategy_of(name, SPACE)
    point = SPACE[17]
    strategy.tell(point, 0.5)
    assert strategy.best == point
    assert point not in run(strategy, 1000)


def test_what_is_no_point_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="a value that is not in the space"):
        strategy_of(name, SPACE).tell(SPACE[0] | {"BLOCK": 1}, 1.0)
    with pytest.raises(ArgumentError, match="restrictions exclude it"):
        strategy_of(name, SPACE).tell(SPACE[0] | {"BLOCK": 256, "ITEMS": 8}, 1.0)


def test_the_first_points_of_random_search_have_all_values_equally_often() -> None:
    space = Space({"A": list(range(16)), "B": list(range(4)), "C": ["x", "y"]})
    points = strategy_of("random", space, seed=3).ask(16)
    for name, count in (("A", 1), ("B", 4), ("C", 8)):
        values = [point[name] for point in points]
        assert {values.count(value) for value in values} == {count}


def test_a_large_space_is_searched_without_all_its_points(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "POOL", 1000)
    space = Space({f"P{number}": range(20) for number in range(12)})
    if name == "exhaustive":
        small = Space({"A": range(32), "B": range(32)})
        with pytest.raises(ArgumentError, match="too many for an exhaustive search"):
            strategy_of(name, small)
        return
    strategy = strategy_of(name, space)
    for _ in range(10):
        strategy.tell(strategy.ask()[0], 1.0)
    point: dict[str, Any] = dict.fromkeys(space.names, 7)
    strategy.tell(point, 0.5)
    assert strategy.best == point


def test_an_unknown_strategy_is_refused_with_the_names() -> None:
    with pytest.raises(UnknownNameError, match="no strategy is named 'best'; there are model, local"):
        strategy_of("best", SPACE)
