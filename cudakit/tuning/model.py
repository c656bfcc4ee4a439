"""The default strategy: a model, learned from the measured points, says where an improvement is likely.

The model is a Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and
5.4). It learns the logarithms of results and of their ranks. The next point has the greatest expected improvement
(Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998). A point without a result counts as measured with
its expected value, so several can be asked for at a time.

Half of the variance is of each parameter alone (Duvenaud, Nickisch and Rasmussen, NeurIPS 2011), half of all together.

A value's features are general: a number's logarithm, whether it is a power of two, and which value it is. Names mean
nothing. The first weights of the features fit recorded kernels well; they are adapted to the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudakit.tuning.space import Space
from cudakit.tuning.strategy import Strategy, latin_order

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Points of the Latin hypercube that is measured first.
FIRST = 20
#: How much farther a point of the hypercube is for each value that is no power of two, of a parameter that has some.
ODD = 0.3
#: How much worse such a value is expected to be before the first result, in standard deviations of the results.
ODD_MEAN = 0.6
#: Share of the logarithm of a result beside that of its rank: ranks tell good points apart, values show the bad ones.
VALUES = 0.5
#: Results that the model learns from: the best half of them, and the latest.
MEMORY = 200
#: Random candidates, beside the neighbours of the best points.
CANDIDATES = 600
#: The best points whose neighbours are candidates.
CENTRES = 5
#: Changes of the weights that are tried after a result.
TRIALS = 3
#: Share of the variance that is of each parameter alone: few results then tell what a value is worth anywhere.
ALONE = 0.5
#: Variance of a result's rank by noise, as a share of all variance.
NOISE = 1e-3
#: Values of a parameter, up to which each value is a feature by itself.
LONGEST = 64
#: Logarithms of the first weights.
LOGARITHM, POWER_OF_TWO, VALUE, VALUE_OF_TWO = -0.9, -0.5, -2.5, -2.25


class Model(Strategy):
    """Expected improvement by a Gaussian process: the default."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        #: Which values of a parameter are no power of two, if it has some.
        self._odd = [~powers & powers.any() for powers in map(are_powers, space.values)]
        self._order = latin_order(space, self.rows, seed, FIRST, ODD * self._odds(np.arange(len(self.rows))))
        features = [(axis, *feature) for axis, row in enumerate(space.values) for feature in features_of(row)]
        self._axes = [axis for axis, _, _ in features]
        self._features = [feature for _, feature, _ in features]
        self._first = np.array([weight for _, _, weight in features])
        axes = np.repeat(self._axes, [feature.shape[1] for feature in self._features])
        #: Which columns of `_places` are of a parameter.
        self._groups = [axes == axis for axis in dict.fromkeys(self._axes)]
        self._weights = self._first

    def _next(self, count: int) -> Numbers:
        first = max(FIRST - int((~self.is_open).sum()), 0)
        opens = self._order[self.is_open[self._order]]
        if first >= count or len(self.measured) < 2 or not self._features:
            return opens[:count]
        numbers = self._improving(list(opens[:first]), count)
        return np.array((numbers + [number for number in opens[: 2 * count] if number not in numbers])[:count], np.intp)

    def _improving(self, numbers: list[int], count: int) -> list[int]:
        """Return numbers of points: `numbers`, then those with the greatest expected improvement, up to `count`."""
        learned, lessons = self._lesson()
        factor, scores, _ = self._fit(self._weights, learned, lessons)
        candidates = self._candidates(learned[np.argsort(lessons, kind="stable")])
        pending = np.flatnonzero(~self.is_open & np.isnan(self.results))
        points = np.concatenate([candidates, pending, numbers]).astype(np.intp)
        places = self._places(self._weights, points)
        parts = kernel(places, self._places(self._weights, learned), self._groups) @ np.linalg.inv(factor).T
        means = ODD_MEAN * self._odds(points) + parts @ scores
        variances = 1 - np.einsum("ij,ij->i", parts, parts)
        scale = scores @ scores / len(learned) or 1.0
        is_left = np.arange(len(points)) < len(candidates)
        numbers = list(numbers)
        expected = np.flatnonzero(~is_left).tolist()
        while True:
            for index in expected:  # its result will be learned: less is left to learn near it
                column = kernel(places, places[index : index + 1], self._groups)[:, 0] - parts @ parts[index]
                column /= math.sqrt(max(variances[index], 0) + NOISE)
                parts, variances = np.column_stack([parts, column]), variances - column**2
            is_left[np.isin(points, numbers)] = False
            if len(numbers) >= count or not is_left.any():
                return numbers
            gains = improvement(lessons.min() - means, np.sqrt(np.maximum(variances, 1e-9) * scale))
            expected = [int(np.argmax(np.where(is_left, gains, -1)))]
            numbers.append(int(points[expected[0]]))

    def _learn(self, number: int) -> None:
        if len(self.measured) < FIRST or not self._features:
            return
        rng = np.random.default_rng([self.seed, len(self.measured)])
        learned, lessons = self._lesson()
        likelihood = self._fit(self._weights, learned, lessons)[2]
        for _ in range(TRIALS):
            weights = self._weights.copy()
            if rng.random() < 0.6:
                feature = rng.integers(len(weights))
                weights[feature] = (weights[feature] + self._first[feature]) / 2 + rng.normal()
            else:
                weights += 0.3 * rng.normal(size=len(weights))
            if (other := self._fit(weights, learned, lessons)[2]) > likelihood:
                self._weights, likelihood = weights, other

    def _lesson(self) -> tuple[Numbers, Floats]:
        """Return the numbers of the results to learn from, and logarithms of their ranks and values, normalized."""
        learned = np.array(self.measured, np.intp)
        if len(learned) > MEMORY:
            best = learned[np.argsort(self.results[learned], kind="stable")[: MEMORY // 2]]
            learned = np.union1d(best, learned[-MEMORY // 2 :])
        values = self.results[learned]
        ranks = np.log(np.searchsorted(np.sort(values), values) + 1.0)
        worst = np.max(values, where=np.isfinite(values), initial=-np.inf)
        values = np.minimum(values, worst) if np.isfinite(worst) else np.zeros(len(values))
        scale = np.log(values) if values.min() > 0 else values
        return learned, normalized(normalized(ranks) + VALUES * normalized(scale))

    def _odds(self, numbers: Numbers) -> Floats:
        """Return how many values of points are no power of two, of parameters that have some."""
        odds = [values[self.rows[numbers, axis]] for axis, values in enumerate(self._odd)]
        return np.asarray(np.sum(odds, axis=0, dtype=np.float64))

    def _candidates(self, best: Numbers) -> Numbers:
        """Return numbers of open points: all, or neighbours of the best points and random ones."""
        opens = np.flatnonzero(self.is_open)
        if len(opens) <= CANDIDATES:
            return opens
        near = [near for number in best[:CENTRES] for near in self.neighbours(number) if self.is_open[near]]
        rng = np.random.default_rng([self.seed, len(self.measured), 1])
        return np.union1d(np.array(near, np.intp), rng.choice(opens, CANDIDATES, replace=False))

    def _places(self, weights: Floats, numbers: Numbers) -> Floats:
        """Return the features of points, each times the root of its weight, of shape (points, columns)."""
        roots = np.exp(weights / 2)
        rows = self.rows[numbers]
        parts = zip(self._axes, self._features, roots, strict=True)
        return np.concatenate([root * feature[rows[:, axis]] for axis, feature, root in parts], axis=1)

    def _fit(self, weights: Floats, learned: Numbers, lessons: Floats) -> tuple[Floats, Floats, float]:
        """Return the Cholesky factor, its inverse times the unexpected part of the lessons, and the log-likelihood."""
        places = self._places(weights, learned)
        noisy = kernel(places, places, self._groups) + NOISE * np.eye(len(learned))
        factor: Floats = np.linalg.cholesky(noisy).astype(np.float64)
        scores: Floats = np.linalg.solve(factor, lessons - ODD_MEAN * self._odds(learned)).astype(np.float64)
        fit = len(learned) * math.log(scores @ scores / len(learned) + 1e-12) / 2 + np.log(np.diag(factor)).sum()
        return (
            np.asarray(factor, np.float64),
            np.asarray(scores, np.float64),
            -float(fit + ((weights - self._first) ** 2).sum() / 2),
        )


def features_of(values: Sequence[Any]) -> Iterator[tuple[Floats, float]]:
    """Yield the features of a parameter's values, of shape (values, columns), and the logarithm of their weight."""
    count = len(values)
    if count < 2:
        return
    are_numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    if are_numbers and count > 2:
        numbers = np.array(values, np.float64)
        yield scaled(np.log2(numbers) if numbers.min() > 0 else np.argsort(np.argsort(numbers))), LOGARITHM
        if 0 < (powers := are_powers(values)).sum() < count:
            yield powers.astype(np.float64).reshape(-1, 1), POWER_OF_TWO
    if count <= LONGEST or not are_numbers:
        yield np.eye(count) / math.sqrt(2), VALUE if count > 2 else VALUE_OF_TWO


def are_powers(values: Sequence[Any]) -> NDArray[np.bool_]:
    """Return which values are powers of two, or zero."""
    numbers = [float(value) if isinstance(value, Real) else -1.0 for value in values]
    whole = [int(number) if number.is_integer() else -1 for number in numbers]
    return np.array([value >= 0 and value & (value - 1) == 0 for value in whole])


def normalized(numbers: Floats) -> Floats:
    """Return numbers with mean 0 and standard deviation 1; of equal ones all are 0."""
    return np.asarray((numbers - numbers.mean()) / (numbers.std() or 1))


def scaled(numbers: NDArray[Any]) -> Floats:
    """Return numbers as a column from 0 to 1."""
    column: Floats = (numbers.astype(np.float64) - numbers.min()) / (numbers.max() - numbers.min())
    return column.reshape(-1, 1)


def kernel(places: Floats, others: Floats, groups: Sequence[NDArray[np.bool_]]) -> Floats:
    """Return the correlation of places: a part of each group of columns alone, and a part of all columns together."""
    squares = [distances(places[:, group], others[:, group]) for group in groups]
    alone = np.mean([matern(part) for part in squares], axis=0)
    return np.asarray(ALONE * alone + (1 - ALONE) * matern(np.sum(squares, axis=0)))


def distances(places: Floats, others: Floats) -> Floats:
    """Return the squares of the distances between places."""
    squares = (places**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * places @ others.T
    return np.asarray(np.maximum(squares, 0))


def matern(squares: Floats) -> Floats:
    """Return Matérn's correlation with ν = 3/2 at squares of distances."""
    roots = np.sqrt(3 * squares)
    return np.asarray((1 + roots) * np.exp(-roots))


def improvement(gains: Floats, deviations: Floats) -> Floats:
    """Return the expected improvement, of normal distributions of gains."""
    shares = gains / deviations
    normal = np.array([math.erfc(share) for share in -shares / math.sqrt(2)]) / 2
    return np.asarray(gains * normal + deviations * np.exp(-(shares**2) / 2) / math.sqrt(2 * math.pi))
