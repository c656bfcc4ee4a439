"""Which combinations of a test's parameters run in the quick tier, in the whole suite, and once a night.

Source of covering arrays: D. M. Cohen, S. R. Dalal, M. L. Fredman, G. C. Patton, The AETG system (1997); here the
greedy choice goes over all combinations, so that the result is always the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

Combination = tuple[Any, ...]


def covering(
    *axes: Sequence[Any],
    strength: int = 2,
    where: Callable[..., bool] | None = None,
    also: Callable[..., bool] | None = None,
) -> list[Combination]:
    """Return few combinations in which each `strength` values of as many axes occur together.

    Parameters
    ----------
    *axes : sequence
        Values of each parameter.
    strength : int
        1: each value occurs. 2: each pair of values of two axes.
    where : callable, optional
        Says of a combination's values whether the combination exists.
    also : callable, optional
        Says of a combination's values whether the result has it in any case.
    """
    at = _covering(axes, strength, where, also)
    return [tuple(axis[place] for axis, place in zip(axes, places, strict=True)) for places in at]


def in_tiers(
    names: str,
    *axes: Sequence[Any],
    strength: int | None = 2,
    where: Callable[..., bool] | None = None,
    also: Callable[..., bool] | None = None,
    quick: Callable[..., bool] | None = None,
    whole: Callable[..., bool] | None = None,
    marks: Callable[..., Sequence[pytest.MarkDecorator]] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by all combinations, with the marks of their tiers.

    A combination that the whole suite leaves out is marked ``exhaustive``, another that quick leaves out ``slow``.

    Parameters
    ----------
    names : str
        Names of the parameters, separated by commas.
    *axes : sequence
        Values of each parameter.
    strength : int, optional
        The whole suite has the combinations of `covering`; all where it is None.
    where, also
        As for `covering`.
    quick : callable, optional
        Says of a combination's values whether the quick tier has it. Default: all.
    whole : callable, optional
        Says of a combination's values whether the whole suite may have it. Default: all.
    marks : callable, optional
        Gives marks of a combination's own.
    """
    chosen = None if strength is None else set(_covering(axes, strength, where, also))
    params = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = tuple(axis[place] for axis, place in zip(axes, places, strict=True))
        if where is not None and not where(*values):
            continue
        own = [] if marks is None else [*marks(*values)]
        if (chosen is not None and places not in chosen) or (whole is not None and not whole(*values)):
            own.append(pytest.mark.exhaustive)
        elif quick is not None and not quick(*values):
            own.append(pytest.mark.slow)
        params.append(pytest.param(*values, marks=own, id=id_of(values)))
    return pytest.mark.parametrize(tuple(name.strip() for name in names.split(",")), params)


def slow(*values: Any) -> list[Any]:
    """Values of a parameter that the quick tier leaves out."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def thinned(values: Sequence[Any], every: int, several: bool = False) -> list[Any]:
    """Values of a parameter, or tuples of `several`; the quick tier has each `every`-th, the first among them."""
    rows = values if several else [(value,) for value in values]
    return [pytest.param(*row, marks=() if at % every == 0 else pytest.mark.slow) for at, row in enumerate(rows)]


def id_of(values: Combination) -> str:
    """Name of a combination in a test's id."""
    return "-".join(getattr(value, "__name__", None) or str(value).replace(" ", "") for value in values)


def _covering(
    axes: Sequence[Sequence[Any]],
    strength: int,
    where: Callable[..., bool] | None,
    also: Callable[..., bool] | None,
) -> list[tuple[int, ...]]:
    """Places on the axes of the combinations of `covering`."""
    left = {}
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = tuple(axis[place] for axis, place in zip(axes, places, strict=True))
        if where is None or where(*values):
            left[places] = values
    size = min(strength, len(axes))
    together = {places: set(itertools.combinations(enumerate(places), size)) for places in left}
    missing = set[Any]().union(*together.values())
    found = [places for places, values in left.items() if also is not None and also(*values)]
    for places in found:
        missing -= together[places]
    while missing:
        best = max(left, key=lambda places: len(together[places] & missing))
        missing -= together[best]
        found.append(best)
    return found
