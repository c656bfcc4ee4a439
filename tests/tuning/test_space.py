"""Spaces: what is in them, in which order, and what is refused."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from cudakit.errors import ArgumentError
from cudakit.tuning.space import Space

VALUES = {"BLOCK": [32, 64, 128], "ITEMS": [1, 2, 4], "LAYOUT": ["row", "column"]}


def small(BLOCK: int, ITEMS: int) -> bool:
    return BLOCK * ITEMS <= 128


def test_points_are_those_that_the_restrictions_leave_in_order() -> None:
    space = Space(VALUES, where=[small, lambda LAYOUT, ITEMS: LAYOUT == "row" or ITEMS > 1])
    names = tuple(VALUES)
    points = [dict(zip(names, values, strict=True)) for values in itertools.product(*VALUES.values())]
    valid = [p for p in points if p["BLOCK"] * p["ITEMS"] <= 128 and (p["LAYOUT"] == "row" or p["ITEMS"] > 1)]
    assert list(space) == valid
    assert [space[number] for number in range(len(space))] == valid
    assert [point in space for point in points] == [point in valid for point in points]
    assert all(space.point(space.row(point)) == point for point in points)
    assert sorted(space.walk(random.Random(3))) == sorted(space.walk())
    assert list(space.walk(random.Random(3))) != list(space.walk())


def test_a_restriction_is_checked_once_its_parameters_have_values() -> None:
    calls = []

    def first(BLOCK: int) -> bool:
        calls.append(BLOCK)
        return BLOCK == 64

    assert len(Space(VALUES, where=first)) == 6
    assert calls == [32, 64, 128]


def test_points_are_made_one_at_a_time() -> None:
    space = Space({f"P{number}": range(100) for number in range(20)})
    assert space.product == 100**20
    assert next(iter(space)) == dict.fromkeys(space.names, 0)
    rows = space.sample(50, seed=1)
    assert rows.shape == (50, 20)
    assert len({tuple(row) for row in rows}) == 50
    assert np.array_equal(rows, space.sample(50, seed=1))
    assert not np.array_equal(rows, space.sample(50, seed=2))


def test_a_sample_of_a_small_space_is_valid_and_without_repetition() -> None:
    space = Space(VALUES, where=small)
    assert np.array_equal(space.sample(100), space.rows)
    rows = space.sample(5, seed=1)
    assert len({tuple(row) for row in rows}) == 5
    assert all(space.is_valid(row) for row in rows)


def test_neighbours_differ_in_one_parameter_and_are_valid() -> None:
    space = Space(VALUES, where=small)
    centre = space.row({"BLOCK": 32, "ITEMS": 2, "LAYOUT": "row"})
    neighbours = [space.point(row) for row in space.neighbours(centre)]
    assert neighbours == [
        {"BLOCK": 64, "ITEMS": 2, "LAYOUT": "row"},
        {"BLOCK": 32, "ITEMS": 1, "LAYOUT": "row"},
        {"BLOCK": 32, "ITEMS": 4, "LAYOUT": "row"},
        {"BLOCK": 32, "ITEMS": 2, "LAYOUT": "column"},
    ]
    corner = space.row({"BLOCK": 32, "ITEMS": 1, "LAYOUT": "row"})
    assert len(space.neighbours(corner)) == 5
    assert len(space.neighbours(corner, reach=1)) == 3
    middle = space.row({"BLOCK": 64, "ITEMS": 1, "LAYOUT": "row"})
    assert [space.point(row)["BLOCK"] for row in space.neighbours(middle, reach=1)] == [32, 128, 64, 64]


def test_a_space_of_one_point_is_a_space() -> None:
    space = Space({"BLOCK": [64]})
    assert list(space) == [{"BLOCK": 64}]
    assert space.neighbours((0,)) == []


def test_values_that_are_equal_and_of_other_types_stay_apart() -> None:
    space = Space({"FAST": [True, 1, 1.0, np.int64(2)]})
    assert [type(point["FAST"]) for point in space] == [bool, int, float, int]
    assert [space.row({"FAST": value}) for value in (True, 1, 1.0)] == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("values", "where", "message"),
    [
        ({}, None, "no parameters"),
        ({"BLOCK": []}, None, "'BLOCK' of the space has no values"),
        ({"BLOCK": "64"}, None, "expected a list of values, got '64'"),
        ({"BLOCK": 64}, None, "expected a list of values, got 64"),
        ({"BLOCK": [64, 32, 64]}, None, "a value twice: [64, 32, 64]"),
        ({"BLOCK": [64]}, lambda ITEMS: True, "takes 'ITEMS', and the space has BLOCK"),
    ],
)
def test_a_wrong_space_is_refused(values: Any, where: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Space(values, where)
    assert message in str(caught.value)


def test_an_empty_space_is_refused_when_its_points_are_wanted() -> None:
    space = Space({"BLOCK": [64, 128]}, where=lambda **point: point["BLOCK"] > 128)
    for use in (lambda: len(space), lambda: space.sample(3), lambda: space[0]):
        with pytest.raises(ArgumentError, match="the restrictions leave no point of 2"):
            use()
    huge = Space({f"P{number}": range(100) for number in range(20)}, where=lambda P0: False)
    with pytest.raises(ArgumentError, match="leave no point"):
        huge.sample(3)


def test_a_point_of_another_space_is_refused() -> None:
    space = Space(VALUES)
    with pytest.raises(ArgumentError, match="has BLOCK, ITEMS, LAYOUT; got BLOCK"):
        space.row({"BLOCK": 32})
    with pytest.raises(ArgumentError, match="a value that is not in the space"):
        space.row({"BLOCK": 33, "ITEMS": 1, "LAYOUT": "row"})


def test_a_space_shows_its_parameters() -> None:
    assert repr(Space({"A": [1, 2], "B": [3]}, "A > B")) == "<Space A: 2 values, B: 1 values; 1 restrictions>"
