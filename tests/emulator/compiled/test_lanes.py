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


#: Votes in both arms of a branch: with a guard of odd lanes alone, and of all lanes or none; of the arm's own lanes.
GUARDED = """.version 8.4
.target sm_90
.address_size 64
.visible .entry guarded(.param .u64 out, .param .u32 all) {
    .reg .pred %p<6>; .reg .b32 %r<10>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [all];
    mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31;
    and.b32 %r4, %r3, 1; setp.eq.u32 %p1, %r4, 0;
    setp.ne.u32 %p2, %r1, 0;
    setp.lt.u32 %p3, %r3, 20;
    and.b32 %r5, %r3, 2; setp.ne.u32 %p4, %r5, 0;
    not.pred %p5, %p4; selp.b32 %r8, 0xfffff, 0xfff00000, %p3;
    mov.u32 %r6, 7; mov.u32 %r7, 9;
    @%p3 bra low;
    @!%p1 vote.sync.ballot.b32 %r6, %p4, 0xaaaaaaaa;
    @%p2 vote.sync.ballot.b32 %r7, %p4, 0xffffffff;
    vote.sync.ballot.b32 %r9, %p5, %r8;
    bra end;
low:
    add.u32 %r6, %r6, 1;
    @!%p1 vote.sync.ballot.b32 %r6, %p4, 0xaaaaaaaa;
    add.u32 %r7, %r7, 1;
    @%p2 vote.sync.ballot.b32 %r7, %p4, 0xffffffff;
    vote.sync.ballot.b32 %r9, %p5, %r8;
end:
    mad.wide.u32 %rd2, %r2, 16, %rd1; st.global.v4.u32 [%rd2], {%r6, %r7, %r9, %r8}; ret;
}
"""


@pytest.mark.parametrize("all_vote", [False, True])
def test_lanes_whose_guard_does_not_hold_neither_wait_nor_take_others_along(all_vote: bool) -> None:
    def make() -> Any:
        return ck.Kernel.from_ptx(GUARDED, signature="void guarded(unsigned* out, unsigned all)")

    out = agreed(make, ck.config(1, 64), np.zeros(256, np.uint32), int(all_vote), arch="sm_90")[0].reshape(64, 4)
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(out[:, 0], np.where(lane % 2, 0x88888888, 7 + (lane < 20)))
    np.testing.assert_array_equal(out[:, 1], 0xCCCCCCCC if all_vote else 9 + (lane < 20))
    np.testing.assert_array_equal(out[:, 2], 0x33333333 & out[:, 3])


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
