"""Searches by a study of Optuna, and strategies that are objects."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
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
        assert len(asked) <= 2
        assert len(points) <= len(SPACE)
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


class StandIn:
    """The part of Optuna that a study needs, with a sampler that repeats itself."""

    def __init__(self, sampler: Any = None) -> None:
        self.sampler, self.directions, self.rng = sampler, ["minimize"], random.Random(0)
        self.queue, self.ended, self.asked = list[dict[str, str]](), list[tuple[Any, Any]](), 0

    def enqueue_trial(self, params: dict[str, str]) -> None:
        self.queue.append(params)

    def ask(self, distributions: dict[str, list[str]]) -> Any:
        self.asked += 1
        drawn = {name: self.rng.choice(texts[1:]) for name, texts in distributions.items()}
        return SimpleNamespace(params=self.queue.pop(0) if self.queue else drawn)

    def tell(self, trial: Any, value: float | None = None, state: str | None = None) -> None:
        self.ended.append((trial.params, state if value is None else value))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    names = SimpleNamespace(
        create_study=lambda sampler: StandIn(sampler), samplers=SimpleNamespace(TPESampler=lambda seed: seed),
        study=SimpleNamespace(StudyDirection=SimpleNamespace(MINIMIZE="minimize")),
        distributions=SimpleNamespace(CategoricalDistribution=list),
        trial=SimpleNamespace(TrialState=SimpleNamespace(PRUNED="pruned")),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "optuna", names)


def test_a_study_is_told_of_each_trial(stand_in: None) -> None:
    orders = set()
    for seed in range(3):
        strategy = Study(SPACE, seed=seed)
        points = points_of(strategy)
        assert points_of(Study(SPACE, seed=seed)) == points
        orders.add(repr(points))
        assert sorted(map(repr, points)) == sorted(map(repr, SPACE))
        assert (strategy.ask(), strategy.ask(0), strategy.study.sampler) == ([], [], seed)
        values = {repr(point): cost(point) for point in points}
        for params, value in strategy.study.ended:
            point = {"A": int(params["A"]), "B": {"'x'": "x", "True": True, "1": 1}[params["B"]]}
            # Pruned is also a point that is drawn again while it waits for its value.
            assert value == "pruned" or value == values[repr(point)]
        told = [value for _, value in strategy.study.ended]
        assert {value for value in values.values() if value is not None} <= set(told)
        assert len(told) == strategy.study.asked >= len(SPACE)
    assert len(orders) == 3  # the last points are drawn without Optuna


def test_values_that_are_no_number_are_pruned(stand_in: None) -> None:
    strategy = Study({"A": [1, 2, 3]})
    for value, expected in ((None, "pruned"), (float("nan"), "pruned"), (float("inf"), "pruned"), (2.5, 2.5)):
        strategy.tell({"A": 2}, value)
        assert strategy.study.ended[-1] == ({"A": "2"}, expected)
    assert sorted(point["A"] for point in strategy.ask(5)) == [1, 3]
    own = StandIn()
    own.directions = ["maximize"]
    with pytest.raises(ck.ArgumentError, match="does not minimize one value"):
        Study({"A": [1, 2]}, own)


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
