"""A small battery over the numbers: frequency, runs, collisions, correlation in a stream and between streams.

Seeds are fixed, so that a test passes or fails for good; each bound is at five standard deviations or so.
"""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
from support.places import to_host

from cudakit.random import Generator

# What the numbers are is tested bit for bit elsewhere.
pytestmark = pytest.mark.slow

SIZE = 1 << 17


def chi_squared(found: np.ndarray, expected: Any) -> float:
    """How many standard deviations χ² lies from its mean."""
    expected = np.broadcast_to(np.asarray(expected, float), found.shape)
    free = found.size - 1
    return float((((found - expected) ** 2 / expected).sum() - free) / np.sqrt(2 * free))


@pytest.fixture
def generator() -> Generator:
    return Generator(20260101)


def test_frequency_of_values(stream: Any, generator: Generator) -> None:
    for dtype in ("f4", "f8", "f2"):
        x = to_host(generator.random(SIZE, dtype, stream=stream)).astype("f8")
        assert abs(chi_squared(np.histogram(x, 256, (0, 1))[0], SIZE / 256)) < 5
        assert abs(x.mean() - 0.5) < 5 / np.sqrt(12 * SIZE)
    x = to_host(generator.integers(0, 1000, SIZE, "i4", stream=stream))
    assert abs(chi_squared(np.bincount(x, minlength=1000), SIZE / 1000)) < 5
    x = to_host(generator.bernoulli(0.3, SIZE, stream=stream))
    assert abs(x.mean() - 0.3) < 5 * np.sqrt(0.21 / SIZE)


def test_frequency_of_bits_and_of_pairs(stream: Any, generator: Generator) -> None:
    words = to_host(generator.integers(0, 2**32, SIZE, "u4", stream=stream))
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1).sum(0)
    assert (abs(ones - SIZE / 2) < 5 * np.sqrt(SIZE) / 2).all()
    pairs = (words[0::2] >> 27).astype(int) * 32 + (words[1::2] >> 27)
    assert abs(chi_squared(np.bincount(pairs, minlength=1024), SIZE / 2048)) < 5


def test_range_that_rejects_most_is_even(stream: Any, generator: Generator) -> None:
    x = to_host(generator.integers(0, 3 << 62, SIZE, "u8", stream=stream))
    assert abs(chi_squared(np.bincount((x >> np.uint64(56)).astype(int), minlength=192), SIZE / 192)) < 5


def test_numbers_of_one_word_are_even_and_independent(stream: Any, generator: Generator) -> None:
    for extent, dtype in ((31, "u1"), (6, "u1"), (100, "u1"), (1000, "i2")):
        x = to_host(generator.integers(0, extent, SIZE, dtype, stream=stream)).astype(int)
        assert abs(chi_squared(np.bincount(x, minlength=extent), SIZE / extent)) < 5
        for lag in (1, 2, 3):
            pairs = x[:-lag] * 31 // extent * 31 + x[lag:] * 31 // extent
            expected = np.bincount(np.arange(extent) * 31 // extent, minlength=31) / extent
            likely = (np.outer(expected, expected) * pairs.size).reshape(-1)
            found = np.bincount(pairs, minlength=31 * 31)
            assert abs(chi_squared(found[likely > 0], likely[likely > 0])) < 5


def test_runs_up_and_down(stream: Any, generator: Generator) -> None:
    x = to_host(generator.random(SIZE, "f8", stream=stream))
    turns = (np.diff(np.sign(np.diff(x))) != 0).sum() + 1
    assert abs(turns - (2 * SIZE - 1) / 3) < 5 * np.sqrt((16 * SIZE - 29) / 90)
    above = x > 0.5
    runs = (np.diff(above.astype(int)) != 0).sum() + 1
    assert abs(runs - SIZE / 2) < 5 * np.sqrt(SIZE) / 2


def test_collisions_are_as_many_as_chance_has_them(stream: Any, generator: Generator) -> None:
    words = to_host(generator.integers(0, 2**32, SIZE, "u4", stream=stream))
    collisions = SIZE - np.unique(words >> 4).size  # of 2^28 urns
    expected = comb(SIZE, 2) / 2**28
    assert abs(collisions - expected) < 5 * np.sqrt(expected)
    wide = to_host(generator.integers(0, 2**64, SIZE, "u8", stream=stream))
    assert np.unique(wide).size == SIZE


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 256, 1024])
def test_no_serial_correlation(stream: Any, generator: Generator, lag: int) -> None:
    x = to_host(generator.random(SIZE, "f4", stream=stream)).astype("f8")
    assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 5 / np.sqrt(SIZE - lag)


def test_streams_are_independent(stream: Any, generator: Generator) -> None:
    others = [*generator.spawn(3), generator.jumped(), Generator(20260102)]
    drawn = [to_host(each.random(SIZE // 4, "f8", stream=stream)) for each in (generator, *others)]
    correlations = np.corrcoef(drawn)[np.triu_indices(len(drawn), 1)]
    assert (abs(correlations) < 5 / np.sqrt(SIZE // 4)).all()
    words = np.concatenate(drawn)
    assert words.size - np.unique(words).size < 2
    between = np.histogram2d(drawn[0], drawn[1], 16, ((0, 1), (0, 1)))[0].reshape(-1)
    assert abs(chi_squared(between, SIZE / 4 / 256)) < 5


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_normal_has_its_moments_and_tails(stream: Any, generator: Generator, dtype: str) -> None:
    x = to_host(generator.standard_normal(SIZE, dtype, stream=stream)).astype("f8")
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 5 * np.sqrt(variance / SIZE)
    for bound, chance in ((1, 0.31731050786), (2, 0.04550026390), (3, 0.00269979606), (4, 6.334248e-5)):
        found = (abs(x) > bound).sum()
        assert abs(found - SIZE * chance) < 5 * np.sqrt(SIZE * chance) + 3
    # The two of a pair.
    assert abs(np.corrcoef(x[0::2], x[1::2])[0, 1]) < 5 / np.sqrt(SIZE / 2)
    assert abs(np.corrcoef(x[0::2] ** 2, x[1::2] ** 2)[0, 1]) < 5 / np.sqrt(SIZE / 2)


def test_exponential_has_its_moments(stream: Any, generator: Generator) -> None:
    x = to_host(generator.exponential(2.0, SIZE, "f8", stream=stream))
    assert abs(x.mean() - 2) < 10 / np.sqrt(SIZE)
    edges = -2 * np.log1p(-np.arange(65) / 65)
    assert abs(chi_squared(np.histogram(x, [*edges, np.inf])[0], SIZE / 65)) < 5


def test_choice_follows_its_weights(stream: Any, generator: Generator) -> None:
    p = np.arange(1, 21) / 210
    found = np.bincount(to_host(generator.choice(20, SIZE, p=p, stream=stream)), minlength=20)
    assert abs(chi_squared(found, SIZE * p)) < 5


def test_permutation_leaves_as_many_where_they_were_as_chance(stream: Any, generator: Generator) -> None:
    fixed = sum(int((to_host(generator.permutation(4096, stream=stream)) == np.arange(4096)).sum()) for _ in range(20))
    assert abs(fixed - 20) < 5 * np.sqrt(20)
