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
    quick: Callable[..., bool] | None = None,
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
    quick : callable, optional
        Says of a combination's values whether the quick tests have it; one that they do not is marked ``slow``.
        Default: all.
    """
    chosen = {id_of(values) for values in covering(*axes, where=where)}
    every = [values for values in itertools.product(*axes) if where is None or where(*values)]
    return marked(names, every, quick, lambda *values: id_of(values) in chosen)


def tiered(
    names: str,
    *axes: Sequence[Any],
    quick: Callable[..., bool] | None = None,
    whole: Callable[..., bool] | None = None,
    where: Callable[..., bool] | None = None,
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
    where : callable, optional
        Says of a combination's values whether the combination exists.
    """
    every = [values for values in itertools.product(*axes) if where is None or where(*values)]
    return marked(names, every, quick, whole)


def marked(
    names: str,
    every: Sequence[Combination],
    quick: Callable[..., bool] | None,
    whole: Callable[..., bool] | None,
) -> pytest.MarkDecorator:
    """Parametrize a test by combinations with the marks of their tiers."""

    def marks(values: Combination) -> tuple[pytest.MarkDecorator, ...]:
        is_slow = quick is not None and not quick(*values)
        is_beyond = whole is not None and not whole(*values)
        return (*[pytest.mark.slow] * is_slow, *[pytest.mark.exhaustive] * is_beyond)

    params = [pytest.param(*values, marks=marks(values), id=id_of(values)) for values in every]
    return pytest.mark.parametrize(tuple(name.strip() for name in names.split(",")), params)


def id_of(values: Combination) -> str:
    """Name of a combination in a test's id."""
    return "-".join(getattr(value, "__name__", None) or str(value).replace(" ", "") for value in values)
