"""Which combinations of a test's parameters run in the quick tier, in the whole suite, and once a night."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.covering import id_of


def slow(*values: Any) -> list[Any]:
    """Values of a parameter that the quick tier leaves out."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def chosen(
    *axes: Sequence[Any],
    strength: int,
    where: Callable[..., bool] | None = None,
    also: Callable[..., bool] | None = None,
) -> list[tuple[int, ...]]:
    """Return positions of few combinations in which each `strength` values of as many axes occur together.

    Parameters
    ----------
    *axes : sequence
        Values of each parameter.
    strength : int
        1: each value occurs; 2: each pair of values of two axes.
    where : callable, optional
        Says of a combination's values whether the combination exists.
    also : callable, optional
        Says of a combination's values whether it is one of the result in any case.
    """
    left = {}
    for positions in itertools.product(*(range(len(axis)) for axis in axes)):
        values = tuple(axis[at] for axis, at in zip(axes, positions, strict=True))
        if where is None or where(*values):
            left[positions] = values
    together = {
        positions: set(itertools.combinations(enumerate(positions), min(strength, len(axes)))) for positions in left
    }
    missing = set[Any]().union(*together.values())
    found = [positions for positions, values in left.items() if also is not None and also(*values)]
    for positions in found:
        missing -= together[positions]
    while missing:
        best = max(left, key=lambda positions: len(together[positions] & missing))
        missing -= together[best]
        found.append(best)
    return found


def in_tiers(
    names: str,
    *axes: Sequence[Any],
    strength: int = 2,
    where: Callable[..., bool] | None = None,
    also: Callable[..., bool] | None = None,
    quick: Callable[..., bool] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by all combinations, of which `chosen` ones belong to the whole suite.

    The others are marked ``exhaustive``. Of the chosen ones those that `quick` does not admit are marked ``slow``.

    Parameters
    ----------
    names : str
        Names of the parameters, separated by commas.
    *axes, strength, where, also
        As for `chosen`.
    quick : callable, optional
        Says of a combination's values whether it is for the quick tier. Default: all are.
    """
    whole = set(chosen(*axes, strength=strength, where=where, also=also))
    marked = []
    for positions in itertools.product(*(range(len(axis)) for axis in axes)):
        values = tuple(axis[at] for axis, at in zip(axes, positions, strict=True))
        if where is not None and not where(*values):
            continue
        if positions not in whole:
            marks: Any = pytest.mark.exhaustive
        else:
            marks = () if quick is None or quick(*values) else pytest.mark.slow
        marked.append(pytest.param(*values, marks=marks, id=id_of(values)))
    return pytest.mark.parametrize(tuple(name.strip() for name in names.split(",")), marked)
