"""Searches by a study of Optuna: ``ck.tune(…, strategy=Study)``, or ``strategy=Study(space, study)`` for your own."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from cudakit.errors import ArgumentError, CudakitError
from cudakit.tuning.space import Point, Row, Space, space_of

#: Trials in a row that bring no new point, before one is drawn at random.
_MOST_VAIN = 20


class Study:
    """A strategy of search that asks a study of Optuna for points.

    A trial that the restrictions exclude is pruned, and another one is asked for. Parameters are categorical; the study
    has the values as text.

    Parameters
    ----------
    space : Space or dict of str to list
        Space to search.
    study : optuna.Study, optional
        Study that minimizes one value. Default: a new one with Optuna's TPE sampler.
    seed : int
        Seed of the sampler and of random points.

    Raises
    ------
    CudakitError
        Optuna is not installed.
    ArgumentError
        The study does not minimize one value.
    """

    def __init__(self, space: Space | Mapping[str, Sequence[Any]], study: Any = None, seed: int = 0) -> None:
        try:
            import optuna
        except ImportError as error:
            raise CudakitError(
                f"a study is of Optuna ({error}); install it with: pip install 'cudakit[optuna]'"
            ) from error
        self.space = space_of(space)
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)) if study is None else study
        if self.study.directions != [optuna.study.StudyDirection.MINIMIZE]:
            raise ArgumentError("the study does not minimize one value, and of values of a search less is better")
        self._texts = {n: [repr(v) for v in row] for n, row in zip(self.space.names, self.space.values, strict=True)}
        self._parameters = {n: optuna.distributions.CategoricalDistribution(row) for n, row in self._texts.items()}
        self._pruned = optuna.trial.TrialState.PRUNED
        self._trials: dict[Row, Any] = {}
        self._values: dict[Row, float | None] = {}
        self._rng = random.Random(seed)

    def ask(self, count: int = 1) -> list[Point]:
        """Return up to `count` points to measure next, none of them a second time. Empty: the space is exhausted."""
        points: list[Point] = []
        while len(points) < count and (row := self._new_row()) is not None:
            points.append(self.space.point(row))
        return points

    def tell(self, point: Mapping[str, Any], value: float | None) -> None:
        """Take the value of a point: less is better, None for a point that is invalid."""
        row = self.space.row(point)
        self._values[row] = value if value is not None and math.isfinite(value) else None
        self._end(self._trials.pop(row, None) or self._trial(row), self._values[row])

    def _new_row(self) -> Row | None:
        """Return the row of a new point, which now waits for its value; None if none is left."""
        for _ in range(_MOST_VAIN):
            trial = self.study.ask(self._parameters)
            row = tuple(row.index(trial.params[name]) for name, row in self._texts.items())
            if not self._is_old(row) and self.space.is_valid(row):
                self._trials[row] = trial
                return row
            self._end(trial, self._values.get(row))
        left = next((row for row in self.space.walk(self._rng) if not self._is_old(row)), None)
        if left is not None:
            self._trials[left] = self._trial(left)
        return left

    def _is_old(self, row: Row) -> bool:
        return row in self._trials or row in self._values

    def _trial(self, row: Row) -> Any:
        """Return a new trial of a point."""
        texts = zip(self._texts.items(), row, strict=True)
        self.study.enqueue_trial({name: values[number] for (name, values), number in texts})
        return self.study.ask(self._parameters)

    def _end(self, trial: Any, value: float | None) -> None:
        """End a trial with its value; without one it is pruned."""
        if value is None:
            self.study.tell(trial, state=self._pruned)
        else:
            self.study.tell(trial, value)
