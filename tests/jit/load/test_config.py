"""Launch configurations as records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.errors import LaunchError
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.load import config as load_config
from cudakit.jit.load.config import Config, Cover, as_config, as_launch_config, is_empty, spread


def test_config_normalises_to_three_directions() -> None:
    made = ck.config(4, (8, 2), shared_bytes=16)
    assert (made.grid, made.block, made.shared_bytes) == ((4, 1, 1), (8, 2, 1), 16)
    assert as_config(made) is made


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((-1, 1), "grid must be 0 or more"),
        ((1, 0), "block must be 1 or more"),
        ((1.5, 1), "whole numbers"),
        ((True, 1), "grid must be"),
        (((1, 1, 1, 1), 1), "one to three"),
        ((1, 1, -5), "shared_bytes"),
        ((6, 1, 0, 4), "does not divide"),
    ],
)
def test_wrong_numbers_are_named(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ck.LaunchError, match=why):
        ck.config(*arguments)


def test_cover_spreads_the_last_axis_along_x() -> None:
    bounds = LaunchBounds()
    assert spread(ck.cover(1000), 256, bounds).grid == (4, 1, 1)
    made = spread(ck.cover((100, 70)), 256, bounds)
    assert made.block == (32, 8, 1)
    assert made.grid == (3, 13, 1)
    assert spread(ck.cover((5, 6, 7), block=(2, 2, 2)), 0, bounds).grid == (4, 3, 3)
    with pytest.raises(ck.LaunchError, match="one to three extents"):
        ck.cover((1, 2, 3, 4))
    with pytest.raises(ck.LaunchError, match="got an array; give its "):
        ck.cover(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ck.LaunchError, match="shape must be whole numbers"):
        ck.cover(1.5)  # type: ignore[arg-type]


def test_cover_takes_the_block_and_whole_clusters_of_the_source() -> None:
    bounds = LaunchBounds(block=(16, 4, 1), cluster=(2, 3, 1))
    made = spread(ck.cover((20, 70)), 256, bounds)
    assert (made.block, made.grid) == ((16, 4, 1), (6, 6, 1))
    made = spread(ck.cover((24, 64), block=(32, 8)), 256, bounds)
    assert (made.block, made.grid) == ((32, 8, 1), (2, 3, 1))


def test_empty_grids() -> None:
    assert is_empty(ck.cover((0, 5)))
    assert is_empty(ck.config((1, 0), 32))
    assert not is_empty(ck.config(1, 32))


def test_cuda_core_configs_round_trip() -> None:
    made = ck.config((2, 3), 32, shared_bytes=5)
    assert as_config(as_launch_config(made)) == made
    with pytest.raises(ck.LaunchError, match="got int"):
        as_config(5)


def test_what_is_made_again_is_the_same_object_and_checked_all_the_same() -> None:
    for kept in (load_config._same, load_config._config_of_numbers, load_config._cover_of_numbers):
        kept.cache_clear()  # of which some may be gone, and not the others
    assert ck.cover(1) is ck.cover(1) is ck.cover(np.int64(1)) is ck.cover((1,))
    assert ck.cover((3, 4), (32, 2)) is ck.cover([3, 4], (32, 2))
    assert ck.cover((3, 4), tile=(2, 2)) is ck.cover([3, 4], tile=[2, 2])
    assert ck.cover(4, tile=2) is ck.cover(4, tile=2) is not ck.cover(4, tile=4)
    assert ck.config(2) is ck.config((2, 1)) is not ck.config(2, 1)
    assert ck.config(2, 32) is ck.config((2, 1), (32,)) is ck.config(2, 32, 0)
    assert ck.config(1, 32, cooperative=True) is not ck.config(1, 32)
    for wrong in (True, 1.0, (True,), -1, "1"):
        with pytest.raises(ck.LaunchError):
            ck.cover(wrong)
        with pytest.raises(ck.LaunchError):
            ck.cover(1, tile=wrong)
    for wrong in (True, (1, True), 1.0, (1.0, 1)):
        with pytest.raises(ck.LaunchError):
            ck.config(wrong)
        with pytest.raises(ck.LaunchError):
            ck.config(wrong, 1)


@pytest.mark.parametrize("made", [
    Config((1, 1, 1), (0, 1, 1)),
    Config((1, 1, 1), (1, 1, 0)),
    Config((-1, 1, 1), (1, 1, 1)),
    Config((1, 1, 1), (1.0, 1, 1)),  # type: ignore[arg-type]
    Config((1, 1, 1), (32, 1, 1), -4),
    Config((3, 1, 1), (32, 1, 1), 0, (2, 1, 1)),
    Config((1, 1, 1), (32, 1, 1), 0, None, "no"),  # type: ignore[arg-type]
    Cover((-1,)),
    Cover((4,), (0, 1, 1)),
    Cover((1, 1, 1, 1)),
    None,
])  # fmt: skip
def test_a_configuration_made_by_hand_is_checked(made: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(int* x) { x[threadIdx.x] = 1; }")
    with pytest.raises(LaunchError):
        kernel(stream, made, xp.zeros(32, np.int32))
    with pytest.raises(LaunchError):
        as_config(made)


def test_a_configuration_made_by_hand_is_taken(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(int* x) { x[threadIdx.x] = 1; }")
    for made in (Config((1, 1, 1), (32, 1, 1)), Cover((32,), (32, 1, 1))):
        x = xp.zeros(32, np.int32)
        for _ in range(3):
            kernel(stream, made, x)
        assert to_host(x).all()
    assert as_config(Config((1, 1, 1), (32, 1, 1))) == ck.config(1, 32)


def test_flags_are_true_or_false() -> None:
    for name in ("cooperative", "programmatic"):
        assert getattr(ck.config(1, 1, **{name: np.True_}), name) is True
        with pytest.raises(LaunchError, match=f"config: {name} is True or False, got 'no'"):
            ck.config(1, 1, **{name: "no"})
