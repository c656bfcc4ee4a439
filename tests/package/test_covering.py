"""Covering arrays hold each pair and little more."""

from __future__ import annotations

import itertools

import pytest
from support.covering import covering, in_pairs, tiered

AXES = [list("abcde"), [1, 2, 3], [True, False], ["x", "y", "z"]]


def all_pairs(combinations: list[tuple[object, ...]]) -> set[object]:
    return {pair for values in combinations for pair in itertools.combinations(enumerate(values), 2)}


def test_each_pair_occurs() -> None:
    chosen = covering(*AXES)
    assert all_pairs(chosen) == all_pairs(list(itertools.product(*AXES)))
    assert len(chosen) <= 20 < 5 * 3 * 2 * 3
    assert chosen == covering(*AXES)


def test_a_condition_is_kept_and_its_pairs_occur() -> None:
    def where(letter: str, number: int, truth: bool, last: str) -> bool:
        return not (letter == "a" and number == 2) and (truth or last != "z")

    chosen = covering(*AXES, where=where)
    every = [values for values in itertools.product(*AXES) if where(*values)]
    assert all(where(*values) for values in chosen)
    assert all_pairs(chosen) == all_pairs(every)


def test_one_axis_is_taken_whole() -> None:
    assert covering([1, 2, 3]) == [(1,), (2,), (3,)]


def test_what_is_beyond_the_pairs_is_marked_exhaustive() -> None:
    mark = in_pairs("letter, number, truth", *AXES[:3])
    names, marked = mark.args
    assert names == ("letter", "number", "truth")
    assert [values.values for values in marked] == list(itertools.product(*AXES[:3]))
    plain = [values.values for values in marked if pytest.mark.exhaustive not in values.marks]
    assert plain == [values for values in itertools.product(*AXES[:3]) if values in covering(*AXES[:3])]
    assert 15 <= len(plain) < 30


def test_tiers_are_marked() -> None:
    mark = tiered(
        "letter, number",
        *AXES[:2],
        quick=lambda letter, number: letter == "a",
        whole=lambda letter, number: number < 3,
        where=lambda letter, number: letter != "e",
    )
    marks = {params.values: {mark.name for mark in params.marks} for params in mark.args[1]}
    assert list(marks) == list(itertools.product("abcd", AXES[1]))
    assert marks["a", 1] == set()
    assert all(("exhaustive" in found) == (number == 3) for (_, number), found in marks.items())
    assert all(("slow" in found) == (letter != "a") for (letter, _), found in marks.items())
