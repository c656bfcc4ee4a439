"""Tiers of tests: each value or pair in the whole suite, the rest once a night."""

from __future__ import annotations

import itertools

import pytest
from support.tiers import Combination, covering, in_tiers, slow, thinned

AXES = [list("abcde"), [1, 2, 3], [True, False], ["x", "y", "z"]]
EVERY = list(itertools.product(*AXES))


def together(combinations: list[Combination], count: int = 2) -> set[object]:
    """What occurs together: each `count` values, with their axes."""
    return {values for each in combinations for values in itertools.combinations(enumerate(each), count)}


def tiers(mark: pytest.MarkDecorator) -> dict[Combination, set[str]]:
    return {tuple(param.values): {mark.name for mark in param.marks} for param in mark.args[1]}


@pytest.mark.parametrize(("strength", "most"), [(1, 5), (2, 20), (3, 50)])
def test_values_occur_together(strength: int, most: int) -> None:
    few = covering(*AXES, strength=strength)
    assert together(few, strength) == together(EVERY, strength)
    assert len(few) == len(set(few)) <= most
    assert few == covering(*AXES, strength=strength)


def test_a_condition_is_kept_and_its_pairs_occur() -> None:
    def where(letter: str, number: int, truth: bool, last: str) -> bool:
        return not (letter == "a" and number == 2) and (truth or last != "z")

    few = covering(*AXES, where=where)
    assert all(where(*values) for values in few)
    assert together(few) == together([values for values in EVERY if where(*values)])


def test_combinations_that_are_wanted_come_first() -> None:
    few = covering(*AXES, also=lambda letter, *_: letter == "c")
    assert few[:18] == [values for values in EVERY if values[0] == "c"]
    assert together(few) == together(EVERY)


def test_one_axis_is_taken_whole() -> None:
    assert covering([1, 2, 3]) == [(1,), (2,), (3,)]


def test_the_whole_suite_has_the_pairs() -> None:
    mark = in_tiers("letter, number, truth", *AXES[:3])
    assert mark.args[0] == ("letter", "number", "truth")
    found = tiers(mark)
    assert list(found) == list(itertools.product(*AXES[:3]))
    assert {values for values, marks in found.items() if not marks} == set(covering(*AXES[:3]))
    assert {frozenset(marks) for marks in found.values()} == {frozenset(), frozenset({"exhaustive"})}


def test_each_combination_has_one_tier() -> None:
    found = tiers(
        in_tiers(
            "letter, number",
            *AXES[:2],
            strength=None,
            quick=lambda letter, number: letter == "a",
            whole=lambda letter, number: number < 3,
            where=lambda letter, number: letter != "e",
        )
    )
    assert list(found) == list(itertools.product("abcd", AXES[1]))
    for (letter, number), marks in found.items():
        assert marks == ({"exhaustive"} if number == 3 else set() if letter == "a" else {"slow"})


def test_equal_values_are_two_places() -> None:
    found = in_tiers("a, b", [1, 1], [2, 2], strength=1).args[1]
    assert [bool(param.marks) for param in found] == [False, True, True, False]


def test_own_marks_are_kept() -> None:
    found = tiers(in_tiers("number", [1, 2], marks=lambda number: [pytest.mark.gpu] if number == 2 else []))
    assert found == {(1,): set(), (2,): {"gpu"}}


def test_slow_and_thinned_values() -> None:
    assert [(param.values, [mark.name for mark in param.marks]) for param in slow(1, 2)] == [
        ((1,), ["slow"]),
        ((2,), ["slow"]),
    ]
    assert [(*param.values, *(mark.name for mark in param.marks)) for param in thinned("abcd", 3)] == [
        ("a",),
        ("b", "slow"),
        ("c", "slow"),
        ("d",),
    ]
    assert [param.values for param in thinned([(1, 2), (3, 4)], 2, several=True)] == [(1, 2), (3, 4)]
