"""Strategies draw what kernels must bear, and arrays and launches that kernels take."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from support.tiers import thinned

import cudakit as ck
from cudakit import testing

QUICK = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
USUAL_SIDES = (0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000)


def drawn(strategy: st.SearchStrategy[Any], count: int = 200, at_once: int = 10) -> list[Any]:
    """The same examples each time; some at once, for Hypothesis takes as long to run a test as to draw them."""
    examples: list[Any] = []
    at_once = min(at_once, max(1, count // 5))

    @settings(QUICK, max_examples=count // at_once, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.tuples(*[strategy] * at_once))
    def keep(some: tuple[Any, ...]) -> None:
        examples.extend(some)

    keep()
    return examples


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
    thinned(
        [
            lambda x: np.isnan(x).any(),
            lambda x: ((x != 0) & (np.abs(x) < np.finfo(np.float32).tiny)).any(),
            lambda x: (np.signbit(x) & (x == 0)).any(),
            lambda x: x.size == 0,
            lambda x: x.size == 257,
        ],
        2,
    ),
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


def test_strided_arrays_lie_in_memory_that_just_holds_them() -> None:
    layouts = set()
    for x in drawn(testing.arrays("u1", (3,), strided=True)):
        memory = x
        while memory.base is not None:
            memory = memory.base
        first = min(x[:1].ctypes.data, x[2:].ctypes.data) - memory.ctypes.data
        assert x.shape == (3,)
        assert memory.size == first + 2 * abs(x.strides[0]) + 1
        layouts.add((first, x.strides[0]))
    assert layouts == {(first, step) for first in range(3) for step in (1, 2, 3, -1, -2)}


def test_strided_arrays_have_their_axes_in_any_order() -> None:
    arrays = drawn(testing.arrays("u1", (2, 3), strided=True), 100)
    assert {x.shape for x in arrays} == {(2, 3)}
    assert {abs(x.strides[0]) > abs(x.strides[1]) for x in arrays} == {False, True}
    assert {x.shape for x in drawn(testing.arrays("u1", (), strided=True), 3)} == {()}
    assert {x.shape for x in drawn(testing.arrays("u1", (0, 2), strided=True), 10)} == {(0, 2)}


def test_arrays_without_strides_keep_the_order_of_their_axes() -> None:
    assert all(x.flags.c_contiguous and x.shape == (2, 3) for x in drawn(testing.arrays("u1", (2, 3)), 50))


def test_dtypes_are_integers_and_floats_of_all_sizes() -> None:
    every = {np.dtype(each) for each in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")}
    assert set(drawn(testing.dtypes())) == every
    assert {x.dtype for x in drawn(testing.arrays(shape=(1,)))} == every
    assert {x.dtype for x in drawn(testing.arrays(st.just(np.dtype("i2")), st.just((2,))), 5)} == {np.dtype("i2")}
    assert {x.dtype for x in drawn(testing.arrays("f8", (1,)), 5)} == {np.dtype("f8")}


def test_shapes_have_sides_around_a_warp_and_a_block() -> None:
    sides = [side for (side,) in drawn(testing.shapes(1, 1), 500)]
    assert set(USUAL_SIDES) <= set(sides)
    assert 200 < max(set(sides) - set(USUAL_SIDES)) <= 300


def test_shapes_keep_to_their_bounds() -> None:
    shapes = drawn(testing.shapes(0, 2, 40, 2), at_once=1)
    assert {len(shape) for shape in shapes} == {0, 1, 2}
    assert all(math.prod(shape) <= 40 for shape in shapes)
    assert {min(shape) for shape in shapes if shape} >= {2, 3}
    assert min(side for shape in shapes for side in shape) == 2
    assert max(side for shape in shapes for side in shape) > 33
    assert {len(shape) for shape in drawn(testing.shapes())} == {1, 2, 3}
    assert drawn(testing.shapes(1, 1, 1, 1), 2)[0] == (1,)


def test_values_have_the_extremes_of_their_dtype() -> None:
    numbers = drawn(testing.values("f2"), 500)
    limits = np.finfo(np.float16)
    seen = {number.tobytes() for number in numbers}
    small = limits.smallest_subnormal
    special = [0.0, -0.0, 1.0, -1.0, limits.tiny, small, -small, limits.max, limits.min, np.inf, -np.inf]
    assert {np.float16(number).tobytes() for number in special} <= seen
    assert any(np.isnan(number) for number in numbers)
    assert np.isfinite(drawn(testing.values("f2", finite=True))).all()
    assert {-128, 0, 1, 127} <= {int(number) for number in drawn(testing.values("i1"))}
    assert {0, 1, 65535} <= {int(number) for number in drawn(testing.values("u2"))}
    assert set(drawn(testing.values(bool), 20)) == {False, True}


def test_configs_have_the_blocks_and_axes_that_were_asked_for() -> None:
    configs = drawn(testing.configs(most_blocks=3), 500)
    assert {config.grid for config in configs} == {(1, 1, 1), (2, 1, 1), (3, 1, 1)}
    assert {1, 31, 32, 33, 64, 96, 128, 256, 1024} <= {config.block[0] for config in configs}
    assert {config.block[1:] for config in configs} == {(1, 1)}
    configs = drawn(testing.configs(dims=2, threads=(64, 96)), 500)
    assert {math.prod(config.block) for config in configs} == {64, 96}
    assert {config.block[1] for config in configs} >= {1, 2, 32}
    assert {config.block[2] for config in configs} == {1}
    assert 32 < max(math.prod(config.grid) for config in configs) <= 64
    configs = drawn(testing.configs(dims=3, threads=(1024,)), 50)
    assert {math.prod(config.block) for config in configs} == {1024}
    assert all(config.block[1] <= 32 and config.block[2] <= 32 for config in configs)
    assert any(config.block[2] > 1 for config in configs)


def test_without_hypothesis_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis.extra", None)
    monkeypatch.delitem(sys.modules, "hypothesis.extra.numpy", raising=False)
    with pytest.raises(ModuleNotFoundError, match="pip install hypothesis") as raised:
        testing.dtypes()
    assert raised.value.name == "hypothesis.extra"
