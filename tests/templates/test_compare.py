"""The kernel that compares the results of tuned candidates, beside NumPy's comparison of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.tuning.arrays import close, scale_of, tolerance_of

DIFFERENCES = ck.Kernel.from_template("compare/differences")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 3001])
def test_the_kernel_counts_what_numpy_does(stream: Any, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    expected = rng.normal(0, 100, size).astype(dtype)
    result = expected.copy()
    for element in (np.nan, np.inf, -np.inf, 0):
        places = rng.integers(0, max(size, 1), size // 16)
        result[places] = element
        expected[places[::2]] = element
    factor = 1 + rng.uniform(0, 3) * tolerance_of(np.dtype(dtype))
    result[rng.integers(0, max(size, 1), size // 8)] *= np.array(factor, dtype)
    outcome = ck.to_device(np.array([0, size], np.uint64), stream)
    a, b = ck.to_device(expected, stream), ck.to_device(result, stream)
    bound, scale = tolerance_of(np.dtype(dtype)), scale_of(expected)
    DIFFERENCES(stream, ck.cover(max(size, 1)), a, b, size, bound, scale, outcome)
    right = close(expected, result)
    first = int(np.argmin(right)) if not right.all() else size
    assert ck.to_host(outcome, stream).tolist() == [(~right).sum(), first]
