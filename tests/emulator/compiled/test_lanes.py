"""Lanes of a warp that wait for each other in different branches: machine code neither stops them nor passes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machines import agreed

import cudakit as ck
from cudakit import emulator

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

SOURCE = Path(__file__).with_name("lanes.cuh")
#: Kernels whose quick tests show each way to wait: at several places, in loops, while others poll.
QUICK = ("three_votes", "turns", "locks")
ARMS = (
    "arms",
    "nested",
    "matches",
    "elections",
    "called",
    "own_masks",
    "leaving",
    "headers",
    "adds_nothing",
    "in_a_row",
)
ACROSS = ("from_others", "block_barriers", "barriers_in_arms")
DEADLOCKS = ("other_masks", "other_names", "other_barriers", "crossed", "behind_a_poll", "behind_a_loop")


def kernel(name: str) -> Callable[[], Any]:
    return lambda: ck.Kernel.from_file(SOURCE, name)


def ran(name: str, blocks: int, threads: int) -> np.ndarray:
    """What the kernel's threads wrote, the same on both machines."""
    out, flags = np.zeros(blocks * threads, np.uint32), np.zeros(8, np.uint32)
    return agreed(kernel(name), ck.config(blocks, threads), out, flags, arch="sm_90")[0]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in ARMS)])
def test_lanes_meet_from_several_branches(name: str) -> None:
    assert ran(name, 1, 64).any()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [32, 104])
@pytest.mark.parametrize("name", [*QUICK, *ARMS])
def test_they_meet_in_warps_that_are_not_whole(name: str, threads: int) -> None:
    assert ran(name, 2, threads).any()


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ACROSS)
def test_they_meet_while_other_warps_and_blocks_are_waited_for(name: str, blocks: int) -> None:
    assert ran(name, blocks, 64).any()
    assert ran(name, blocks, 128).any()


def test_what_crosses_is_each_lanes_own_value() -> None:
    lane = np.arange(64) % 32
    votes = sum(1 << n for n in range(32) if n % 3 == (0 if n < 7 else 1 if n < 20 else 2))
    np.testing.assert_array_equal(ran("three_votes", 1, 64), votes + (lane >= 7) + (lane >= 20))


@pytest.mark.parametrize("name", [DEADLOCKS[1], *(pytest.param(name, marks=pytest.mark.slow) for name in DEADLOCKS)])
def test_a_deadlock_is_still_one(name: str) -> None:
    for machine in ("compiled", "numpy"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ck.EmulatorWarning)
            with pytest.raises(ck.EmulationError, match="deadlock"):
                kernel(name)()(
                    emulator.stream(machine=machine, arch="sm_90"),
                    ck.config(1, 64), np.zeros(64, np.uint32), np.zeros(8, np.uint32),
                )  # fmt: skip


@pytest.mark.slow
def test_barriers_of_a_part_behind_such_a_branch_run_on_the_interpreter() -> None:
    out, flags = np.zeros(128, np.uint32), np.zeros(8, np.uint32)
    with pytest.warns(ck.EmulatorWarning, match="where lanes part"):
        kernel("named_barriers")()(emulator.stream(machine="compiled", arch="sm_90"), ck.config(1, 128), out, flags)
    assert len(set(out.tolist())) == 2
