"""Searches by a study of Optuna, and strategies that are objects."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import cudakit as ck
from cudakit.tuning.optuna import Study
from cudakit.tuning.search import Local, searcher_of
from cudakit.tuning.space import Point, Space

SPACE = Space({"A": [1, 2, 4, 8], "B": ["x", True, 1]}, where=lambda A, B: A > 1 or B != "x")


def cost(point: Point) -> float | None:
    """The value of a point; the points of 8 are invalid."""
    return None if point["A"] == 8 else abs(point["A"] - 4) + 0.5 * (point["B"] is True)


def points_of(strategy: Any) -> list[Point]:
    """The points of a search to its end, two at a time."""
    points: list[Point] = []
    while asked := strategy.ask(2):
        points += asked
        for point in asked:
            strategy.tell(point, cost(point))
    return points


def test_a_study_asks_for_each_valid_point_once_and_learns() -> None:
    optuna = pytest.importorskip("optuna")
    strategy = Study(SPACE, seed=1)
    points = points_of(strategy)
    assert len(points) == len(SPACE) == 11
    assert all(point in SPACE for point in points)
    assert len({repr(point) for point in points}) == 11
    assert strategy.study.best_value == 0
    assert strategy.study.best_params in ({"A": "4", "B": "'x'"}, {"A": "4", "B": "1"})
    pruned = [t.params for t in strategy.study.trials if t.state is optuna.trial.TrialState.PRUNED]
    assert any(params["A"] == "8" for params in pruned)
    assert strategy.ask(0) == []


def test_a_study_of_your_own_is_used_and_must_minimize() -> None:
    optuna = pytest.importorskip("optuna")
    own = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    strategy = Study({"A": [1, 2]}, own)
    strategy.tell({"A": 2}, 7.0)
    assert (own.best_value, own.best_params) == (7.0, {"A": "2"})
    assert strategy.ask(2) == [{"A": 1}]
    with pytest.raises(ck.ArgumentError, match="does not minimize one value"):
        Study({"A": [1, 2]}, optuna.create_study(direction="maximize"))


def test_a_missing_optuna_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ck.CudakitError, match=r"pip install 'cudakit\[optuna\]'"):
        Study(SPACE)


def test_a_strategy_is_a_name_an_object_or_its_class() -> None:
    own = Local(SPACE, 3)
    assert searcher_of(own, SPACE) is own
    made: Any = searcher_of(Local, SPACE, 3)
    assert (type(made), made.space, made.seed) == (Local, SPACE, 3)
    for wrong in (7, object()):
        with pytest.raises(ck.ArgumentError, match="strategy is a name, or has the methods ask and tell"):
            searcher_of(wrong, SPACE)


class Backwards:
    """The points of a space from its end."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.left = list(space)
        self.told: list[tuple[Any, float | None]] = []

    def ask(self, count: int = 1) -> list[Point]:
        return [self.left.pop() for _ in range(min(count, len(self.left)))]

    def tell(self, point: Any, value: float | None) -> None:
        self.told.append((point, value))


@pytest.mark.emulator
def test_a_search_goes_by_an_object() -> None:
    fill = ck.Kernel("template <int N> __global__ void fill(int* y) { for (int i = 0; i < 4; i++) y[i] = i; }")
    stream = ck.emulator.stream()
    space = {"N": [1, 2, 3]}
    strategy = Backwards(Space(space))
    tuned = ck.tune(
        fill, (ck.empty(4, "i4", stream=stream),), space, config=ck.config(1, 1), stream=stream,
        objective="instructions", strategy=strategy, workers=0,
    )  # fmt: skip
    assert [point["N"] for point, value in strategy.told if value is not None] == [3, 2, 1]
    assert (tuned.ended, len(tuned.table)) == ("exhausted", 3)
