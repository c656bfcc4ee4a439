"""Covering arrays: few combinations of parameters in which each pair of values occurs.

Source: D. M. Cohen, S. R. Dalal, M. L. Fredman, G. C. Patton, The AETG system (1997); here the greedy choice goes over
all combinations, so that the result is always the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

Combination = tuple[Any, ...]


def pairs_of(positions: Sequence[int]) -> set[tuple[tuple[int, int], ...]]:
    """Pairs of (axis, position on that axis) in one combination; of a single axis, its position alone."""
    return set(itertools.combinations(enumerate(positions), min(2, len(positions))))


def covering(*axes: Sequence[Any], where: Callable[..., bool] | None = None) -> list[Combination]:
    """Return combinations in which each pair of values of two axes occurs that `where` allows.

    Parameters
    ----------
    *axes : sequence
        Values of each parameter.
    where : callable, optional
        Says of a combination's values whether the combination exists.
    """
    product = itertools.product(*(range(len(axis)) for axis in axes))
    valued = ((positions, tuple(axis[at] for axis, at in zip(axes, positions, strict=True))) for positions in product)
    left = {positions: values for positions, values in valued if where is None or where(*values)}
    pairs = {positions: pairs_of(positions) for positions in left}
    missing = set[Any]().union(*pairs.values())
    chosen = []
    while missing:
        best = max(left, key=lambda positions: len(pairs[positions] & missing))
        missing -= pairs[best]
        chosen.append(left.pop(best))
    return chosen


def in_pairs(
    names: str,
    *axes: Sequence[Any],
    where: Callable[..., bool] | None = None,
    marks: Callable[..., Sequence[pytest.MarkDecorator]] = lambda *values: (),
) -> pytest.MarkDecorator:
    """Parametrize a test by all combinations; those beyond a covering array are marked ``exhaustive``.

    Parameters
    ----------
    names : str
        Names of the parameters, separated by commas.
    *axes : sequence
        Values of each parameter.
    where : callable, optional
        Says of a combination's values whether the combination exists.
    marks : callable, optional
        Gives a combination's own marks.
    """
    chosen = {id_of(values) for values in covering(*axes, where=where)}
    every = [values for values in itertools.product(*axes) if where is None or where(*values)]
    marked = [
        pytest.param(
            *values,
            marks=(*marks(*values), *(() if id_of(values) in chosen else (pytest.mark.exhaustive,))),
            id=id_of(values),
        )
        for values in every
    ]
    return pytest.mark.parametrize(tuple(name.strip() for name in names.split(",")), marked)


def thinned(values: Sequence[Any], every: int) -> list[Any]:
    """Parameters of which each `every`-th, the first among them, is quick; the others are marked ``slow``."""
    return [
        value if at % every == 0 else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)
    ]


def tiered(
    names: str,
    *axes: Sequence[Any],
    quick: Callable[..., bool] | None = None,
    whole: Callable[..., bool] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by all combinations; those that are not for the quick tests are marked ``slow``.

    Parameters
    ----------
    names : str
        Names of the parameters, separated by commas.
    *axes : sequence
        Values of each parameter.
    quick : callable, optional
        Says of a combination's values whether the quick tests have it. Default: all.
    whole : callable, optional
        Says of a combination's values whether the whole suite has it; one that it leaves out is marked ``exhaustive``.
        Default: all.
    """

    def marks(values: Combination) -> tuple[pytest.MarkDecorator, ...]:
        if whole is not None and not whole(*values):
            return (pytest.mark.slow, pytest.mark.exhaustive)
        return () if quick is None or quick(*values) else (pytest.mark.slow,)

    found = [pytest.param(*values, marks=marks(values), id=id_of(values)) for values in itertools.product(*axes)]
    return pytest.mark.parametrize(tuple(name.strip() for name in names.split(",")), found)


def id_of(values: Combination) -> str:
    """Name of a combination in a test's id."""
    return "-".join(getattr(value, "__name__", None) or str(value).replace(" ", "") for value in values)
