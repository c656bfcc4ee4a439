"""Tiers of tests: each value or pair in the whole suite, the rest once a night."""

from __future__ import annotations

import itertools

import pytest
from support.tiers import chosen, in_tiers, slow

AXES = [list("abcd"), [1, 2, 3], [True, False]]


@pytest.mark.parametrize("strength", [1, 2])
def test_values_occur_together(strength: int) -> None:
    def of(positions: list[tuple[int, ...]]) -> set[object]:
        return {each for at in positions for each in itertools.combinations(enumerate(at), strength)}

    every = list(itertools.product(*(range(len(axis)) for axis in AXES)))
    few = chosen(*AXES, strength=strength)
    assert of(few) == of(every)
    assert len(few) == len(set(few)) <= (4 if strength == 1 else 14)
    more = chosen(*AXES, strength=strength, also=lambda letter, *_: letter == "c")
    assert of(more) == of(every)
    assert [at for at in every if at[0] == 2] == more[:6]


def test_marks_of_combinations() -> None:
    names, marked = in_tiers(
        "letter, number, truth", *AXES, strength=1, where=lambda *of: of[0] != "d", quick=lambda *of: of[0] == "a"
    ).args
    assert names == ("letter", "number", "truth")
    assert [each.values for each in marked] == [each for each in itertools.product(*AXES) if each[0] != "d"]
    tiers = {each.values: {mark.name for mark in each.marks} for each in marked}
    assert [values for values, marks in tiers.items() if not marks] == [("a", 1, True)]
    assert {values[0] for values, marks in tiers.items() if marks == {"slow"}} == {"b", "c"}
    assert sum(marks == {"exhaustive"} for marks in tiers.values()) == len(marked) - 3


def test_slow_values() -> None:
    assert [(each.values, [mark.name for mark in each.marks]) for each in slow(1, 2)] == [
        ((1,), ["slow"]),
        ((2,), ["slow"]),
    ]
