"""Strategies draw what kernels must bear, and arrays and launches that kernels take."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import cudakit as ck
from cudakit import testing

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))


@QUICK
@given(x=testing.arrays(["f4", "f8", "i2"], strided=True), data=st.data())
def test_arrays_are_of_what_was_asked_for(x: np.ndarray, data: st.DataObject) -> None:
    assert x.dtype in (np.float32, np.float64, np.int16)
    assert x.size <= 4096
    y = data.draw(testing.arrays("f4", (3, 5), finite=True))
    assert (y.dtype, y.shape) == (np.float32, (3, 5))
    assert np.isfinite(y).all()


@pytest.mark.parametrize(
    "wanted",
    [
        lambda x: np.isnan(x).any(),
        lambda x: ((x != 0) & (np.abs(x) < np.finfo(np.float32).tiny)).any(),
        lambda x: (np.signbit(x) & (x == 0)).any(),
        lambda x: x.size == 0,
        lambda x: x.size == 257,
    ],
)
def test_what_is_seldom_is_drawn(wanted: object) -> None:
    find(testing.arrays("f4", testing.shapes(1, 1)), wanted, settings=settings(max_examples=4000, database=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda x: x.ndim > 1 and not x.flags.c_contiguous and x.flags.f_contiguous,
        lambda x: any(step < 0 for step in x.strides),
        lambda x: x.ndim == 1 and x.size > 1 and x.strides[0] == 2 * x.itemsize,
    ],
)
@pytest.mark.slow
def test_strides_are_drawn(wanted: object) -> None:
    kept = settings(max_examples=4000, database=None, suppress_health_check=list(HealthCheck))
    find(testing.arrays("i4", testing.shapes(1, 2, 64, 1), strided=True), wanted, settings=kept)  # type: ignore[arg-type]


@QUICK
@given(config=testing.configs(most_blocks=4, dims=3))
def test_configs_can_be_launched(config: ck.Config) -> None:
    kernel = ck.Kernel("__global__ void count(int* n) { atomicAdd(n, 1); }")
    n = np.zeros(1, np.int32)
    kernel(ck.emulator.stream(), config, n)
    assert n[0] == math.prod(config.grid) * math.prod(config.block)
    assert math.prod(config.block) <= 1024
    assert math.prod(config.grid) <= 4


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ck.ArgumentError, match="dims is 1, 2 or 3, got 4"):
        testing.configs(dims=4)
    with pytest.raises(ck.ArgumentError, match="shape is a tuple"):
        find(testing.arrays("f4", 3), lambda x: True)  # type: ignore[arg-type]


@given(testing.arrays(["f4", "i2"], testing.shapes(0, 3), strided=False))
@QUICK
def test_arrays_that_are_not_strided_are_contiguous(x: np.ndarray) -> None:
    assert x.flags.c_contiguous
