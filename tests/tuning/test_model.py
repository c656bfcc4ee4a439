"""The default strategy: its features, what it expects, and that it finds what random search does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cudakit.tuning import model, strategy
from cudakit.tuning.recorded import Measurement, Recorded
from cudakit.tuning.replay import replay
from cudakit.tuning.search import strategy_of
from cudakit.tuning.space import Point, Space

SPACE = Space(
    {
        "BLOCK": [16 * step for step in range(1, 17)],
        "ITEMS": [1, 2, 3, 4, 6, 8],
        "VECTOR": [1, 2, 4],
        "STAGES": [1, 2, 3],
        "SWIZZLE": [False, True],
        "LAYOUT": ["row", "column", "tile"],
    },
    where="BLOCK * ITEMS <= 1024",
)


def time_of(point: Point) -> float | None:
    """Return a time with a few good points: 128 threads or another power of two, in a tile, with two stages."""
    if point["STAGES"] * point["BLOCK"] * point["ITEMS"] * point["VECTOR"] > 4096:
        return None
    time = 1 + 0.3 * abs(math.log2(point["BLOCK"] * point["ITEMS"] / 512)) + 0.4 * abs(point["STAGES"] - 2)
    time *= 1 if point["BLOCK"] & (point["BLOCK"] - 1) == 0 else 1.4
    time *= {"row": 1.6, "column": 1.3, "tile": 1.0}[point["LAYOUT"]]
    return time * (0.8 if point["SWIZZLE"] and point["LAYOUT"] == "tile" else 1) * (1 + 0.2 / point["VECTOR"])


RECORDED = Recorded([Measurement(point, time_of(point)) for point in SPACE])


def test_the_default_finds_in_50_evaluations_what_random_search_does_not() -> None:
    shares = {name: [replay(RECORDED, name, 50, seed).shares[-1] for seed in range(3)] for name in ("model", "random")}
    assert len(SPACE) > 3000
    assert np.mean(shares["model"]) > 0.93
    assert np.mean(shares["random"]) < 0.9


def test_points_asked_for_ahead_are_apart_and_nearly_as_good() -> None:
    search = strategy_of("model", SPACE, seed=2)
    for _ in range(8):
        points = search.ask(8)
        assert len({SPACE.row(point) for point in points}) == 8
        for point in points:
            search.tell(point, time_of(point))
    assert min(search.results[search.measured]) < 1.05 * RECORDED.optimum


def test_features_are_logarithm_power_of_two_and_value() -> None:
    (logarithms, first), (powers, second), (values, third) = model.features_of([16, 32, 48, 64])
    assert np.allclose(logarithms[:, 0], [0, 0.5, math.log2(3) / 2, 1])
    assert powers[:, 0].tolist() == [1, 1, 0, 1]
    assert np.allclose(values, np.eye(4) / math.sqrt(2))
    assert (first, second, third) == (model.LOGARITHM, model.POWER_OF_TWO, model.VALUE)
    assert next(model.features_of([0, 2, 1]))[0].tolist() == [[0], [1], [0.5]]
    assert [weight for _, weight in model.features_of([False, True])] == [model.VALUE_OF_TWO]
    assert [weight for _, weight in model.features_of(["a", "b", "c"])] == [model.VALUE]
    assert [weight for _, weight in model.features_of([step + 0.5 for step in range(1, 70)])] == [model.LOGARITHM]
    assert list(model.features_of([7])) == []


def test_the_first_points_are_mostly_powers_of_two_and_differ() -> None:
    assert model.are_powers([0, 1, 2, 3, 4.0, 6, 0.5, "8", -2]).tolist() == [1, 1, 1, 0, 1, 0, 0, 0, 0]
    points = strategy_of("model", SPACE, seed=1).ask(model.FIRST)
    blocks = [point["BLOCK"] for point in points]
    assert sum(block in (16, 32, 64, 128, 256) for block in blocks) > len(blocks) / 2
    assert len(set(blocks)) >= 5


def test_the_kernel_is_one_at_a_point_and_falls() -> None:
    places = np.array([[0.0], [1.0], [3.0]])
    values = model.kernel(places, places, [np.array([True])])
    assert np.allclose(np.diag(values), 1)
    root = math.sqrt(3)
    assert np.allclose(values[0], [1, (1 + root) * math.exp(-root), (1 + 3 * root) * math.exp(-3 * root)])


def test_the_likelihood_is_that_of_a_normal_distribution_and_of_the_weights() -> None:
    """Up to a constant, with the variance that fits best; each weight's own deviation from its first value is one."""
    search: Any = strategy_of("model", SPACE, seed=4)
    learned, ranks = np.arange(0, len(SPACE), 97), np.random.default_rng(0).normal(size=len(range(0, len(SPACE), 97)))
    results = []
    for change in (0.0, 0.3, -1.1):
        weights = search._first + change * np.arange(len(search._first))
        places = search._places(weights, learned)
        covariance = model.kernel(places, places, search._groups) + model.NOISE * np.eye(len(learned))
        surprises = ranks - model.ODD_MEAN * search._odds(learned)
        covariance *= surprises @ np.linalg.solve(covariance, surprises) / len(learned)
        exact = -np.linalg.slogdet(covariance)[1] / 2 - ((weights - search._first) ** 2).sum() / 2
        results.append((search._fit(weights, learned, ranks)[2], exact))
    differences = [likelihood - exact for likelihood, exact in results]
    assert np.allclose(differences, differences[0], atol=1e-6)


def test_lessons_are_of_ranks_and_of_values() -> None:
    """Ranks tell good results apart. Values tell a bad one from a hopeless one."""
    search: Any = strategy_of("model", SPACE)

    def lessons(*values: float | None) -> list[float]:
        for point, value in zip(SPACE, values, strict=False):
            search.tell(point, value)
        search.measured = search.measured[: len(values)]
        return list(search._lesson()[1])

    good, fair, bad, hopeless = lessons(1.0, 1.1, 2.0, 100.0)
    assert good < fair < bad < hopeless
    ranks = np.log([1, 2, 3, 4])
    steps = np.diff(lessons(1.0, 1.1, 2.0, 100.0)) / np.diff(ranks)
    assert steps[2] > 2 * steps[1]
    assert lessons(1.0, 1.1, 2.0, None)[3] > lessons(1.0, 1.1, 2.0, None)[2]  # invalid: behind the worst
    assert np.mean(lessons(3.0, 1.0, None, 2.0)) == pytest.approx(0)
    assert np.std(lessons(3.0, 1.0, None, 2.0)) == pytest.approx(1)
    worse, best, middle = lessons(2.0, -3.0, 0.0)  # of no logarithm: values as they are
    assert best < middle < worse
    assert lessons(None, None) == lessons(5.0, 5.0) == [0.0, 0.0]


def test_a_value_that_is_no_power_of_two_is_expected_to_be_worse() -> None:
    space = Space({"BLOCK": [32, 48, 64, 96, 128, 192], "STEP": [3, 5, 7]})
    search: Any = strategy_of("model", space)
    odds = {space.point(row)["BLOCK"]: number for row, number in zip(search.rows, search._odds(range(18)), strict=True)}
    assert odds == {32: 0, 64: 0, 128: 0, 48: 1, 96: 1, 192: 1}  # of STEP none is a power of two
    assert model.ODD_MEAN > 0


def test_half_of_the_kernel_is_of_each_parameter_alone() -> None:
    """A value of one parameter tells about it, however far the others are."""
    places = np.array([[1.0, 0.0, 0.0], [1.0, 90.0, 0.0]])
    groups = [np.array([True, False, False]), np.array([False, True, True])]
    assert model.kernel(places[:1], places[1:], groups)[0, 0] == pytest.approx(model.ALONE / 2)


def test_expected_improvement_is_that_of_a_normal_distribution() -> None:
    draws = np.random.default_rng(0).normal(size=200_000)
    for gain, deviation in ((0.0, 1.0), (-0.5, 0.7), (1.5, 0.4)):
        expected = np.maximum(gain + deviation * draws, 0).mean()
        assert model.improvement(np.array([gain]), np.array([deviation]))[0] == pytest.approx(expected, rel=0.02)


def test_neighbours_of_the_best_point_join_the_pool_of_a_large_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "POOL", 100)
    space = Space({f"P{number}": list(range(1, 9)) for number in range(8)})
    search = strategy_of("model", space)
    point = dict.fromkeys(space.names, 4)
    search.tell(point, 1.0)
    assert len(search.rows) == 101 + 8 * 7
    for _ in range(60):
        (point,) = search.ask()
        search.tell(point, 2.0 + sum(abs(value - 4) for value in point.values()))
    near = [space.point(search.rows[number]) for number in search.measured[11:]]
    assert sum(sum(value != 4 for value in point.values()) <= 1 for point in near) > 20


def test_a_recorded_space_has_the_recorded_points_alone() -> None:
    space = RECORDED.space
    assert space.product == len(SPACE) < SPACE.product
    assert all(point in space for point in SPACE)
    assert {"BLOCK": 256, "ITEMS": 8, "VECTOR": 1, "STAGES": 1, "SWIZZLE": False, "LAYOUT": "row"} not in space
