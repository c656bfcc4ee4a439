"""Where accesses of lanes lie: in one array or the next, and in the shared memory of which block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.emulator.checks.checker import Barriers
from cudakit.emulator.checks.order import Clusters, Order, Warps
from cudakit.emulator.checks.shadow import LANE_BITS
from cudakit.emulator.checks.spaces import Spaces
from cudakit.emulator.machine.memory import SHARED_WINDOW, Memory
from cudakit.emulator.machine.state import DONE, RUNNING

THREADS, ROW = 4, 64


def spaces(blocks: int = 2, memory: Any = None) -> tuple[Spaces, list[str]]:
    """Spaces of blocks of four threads; the list notes when blocks are told apart."""
    parted: list[str] = []
    machine: Any = SimpleNamespace(
        lanes=blocks * THREADS,
        blocks=blocks,
        threads=THREADS,
        memory=memory or SimpleNamespace(cluster=1, shared=np.zeros((blocks, ROW), np.uint8)),
        block_of=np.arange(blocks * THREADS) // THREADS,
    )
    races: Any = SimpleNamespace(row=ROW, order=SimpleNamespace(split_blocks=lambda: parted.append("part")))
    reporter: Any = None
    return Spaces(machine, reporter, races, {}, 4), parted


def global_memory(*arrays: np.ndarray) -> tuple[Memory, list[int]]:
    memory = Memory()
    memory.cluster = 1
    return memory, [memory.add(each, f"x{number}") for number, each in enumerate(arrays)]


def test_accesses_of_one_array() -> None:
    memory, (first,) = global_memory(np.zeros(16, "f4"))
    made, _ = spaces(1, memory)
    lanes = np.array([3, 1])
    (found,) = made.places("global", np.array([first + 8, first], np.uint64), 4, lanes)
    assert (found.offsets.tolist(), found.lanes.tolist(), found.chosen) == ([8, 0], [3, 1], None)
    assert (found.name, found.itemsize, found.address) == ("x0[{}], which has 16 elements", 4, first)
    assert found.data.size == found.shadow.size == 64
    (again,) = made.places("global", np.array([first + 60], np.uint64), 4, lanes[:1])
    assert again.shadow is found.shadow


def test_accesses_of_several_arrays_come_in_the_order_of_their_first_lanes() -> None:
    memory, (first, second) = global_memory(np.zeros(8, "f4"), np.zeros(16, "f8"))
    made, _ = spaces(1, memory)
    addresses = np.array([second + 8, first + 4, second, first + 28], np.uint64)
    one, other = made.places("global", addresses, 4, np.array([0, 1, 2, 3]))
    assert (one.name, other.name) == ("x1[{}], which has 16 elements", "x0[{}], which has 8 elements")
    assert (one.offsets.tolist(), one.lanes.tolist()) == ([8, 0], [0, 2])
    assert (other.offsets.tolist(), other.lanes.tolist()) == ([4, 28], [1, 3])
    assert one.chosen is not None
    assert other.chosen is not None
    assert (one.chosen.tolist(), other.chosen.tolist()) == ([0, 2], [1, 3])
    outside = np.array([first + 4, second + 500], np.uint64)
    (one,) = made.places("global", outside, 4, np.array([0, 1]))
    assert one.offsets.tolist() == [4]


def test_reads_of_an_array_that_nobody_may_write() -> None:
    memory = Memory()
    memory.cluster = 1
    address = memory.add(np.zeros(8, "f4"), "x", True)
    made, _ = spaces(1, memory)
    (found,) = made.places("global", np.array([address + 28], np.uint64), 4, np.array([0]))
    assert found.offsets.tolist() == [28]
    assert list(made.places("global", np.array([address + 30], np.uint64), 4, np.array([0]))) == []


def test_blocks_that_do_the_same_share_what_is_known_of_one() -> None:
    made, parted = spaces()
    lanes, offsets = np.array([0, 2, 4, 6]), np.array([8, 16, 8, 16], np.uint64)
    (found,) = made.places("shared", offsets + np.uint64(SHARED_WINDOW), 4, lanes)
    assert (found.offsets.tolist(), found.lanes.tolist(), found.name) == ([8, 16], [0, 2], "")
    assert found.chosen is not None
    assert found.chosen.tolist() == [0, 1]
    assert not parted


@pytest.mark.parametrize(
    ("lanes", "offsets"),
    [
        ([0, 2, 4, 6], [8, 16, 8, 20]),
        ([0, 2, 4, 5], [8, 16, 8, 16]),
        ([0, 2, 4], [8, 16, 8]),
    ],
)
def test_blocks_that_do_not_do_the_same_are_told_apart(lanes: list[int], offsets: list[int]) -> None:
    made, parted = spaces()
    (found,) = made.places("shared", np.array(offsets, np.uint64), 4, np.array(lanes))
    assert found.offsets.tolist() == [o + lane // THREADS * ROW for o, lane in zip(offsets, lanes, strict=True)]
    assert (found.lanes.tolist(), found.chosen) == (lanes, None)
    assert parted == ["part"]
    assert found.shadow.size == 2 * ROW
    (again,) = made.places("shared", np.array([4, 4], np.uint64), 4, np.array([1, 5]))
    assert again.offsets.tolist() == [4, 4 + ROW]
    assert parted == ["part"]


def test_a_lane_that_a_mask_names_and_that_is_gone() -> None:
    machine: Any = SimpleNamespace(
        lanes=96,
        alive=94,
        status=np.full(96, RUNNING),
        warp_of=np.arange(96) // 32,
        lane_id=np.arange(96) % 32,
        name_of=lambda lane: f"thread {lane}",
        thread_of=lambda lane: ((0, 0, 0), (lane, 0, 0)),
    )
    machine.status[[37, 41]] = DONE
    told: list[tuple[str, Any, str]] = []
    reporter: Any = SimpleNamespace(report=lambda *given, threads: told.append(given))
    plan: Any = SimpleNamespace()
    barriers = Barriers(machine, reporter, {}, Warps(machine, np.zeros(96, np.int64)))
    for active, mask, lane in (
        (np.array([33, 34]), 1 << 9, "thread 33: its mask names lane 9"),
        (np.array([33, 34]), 1 << 5 | 1, "thread 33: its mask names lane 5"),
        (np.array([3, 64]), 1 << 5, ""),
        (None, 1 << 9, "thread 32: its mask names lane 9"),
        (np.array([33, 34]), 1 << 8, ""),
    ):
        told.clear()
        barriers.collective(plan, np.asarray(np.uint32(mask)), active)
        assert [each[2].partition(" of its warp")[0] for each in told] == ([lane] if lane else [])
    each = np.array([0, 1 << 9], np.uint32)
    told.clear()
    barriers.collective(plan, each, np.array([33, 34]))
    assert told == [("mask", plan, "thread 34: its mask names lane 9 of its warp, which exits before")]


def test_what_blocks_of_a_cluster_know_of_each_other() -> None:
    clusters = Clusters(np.arange(16) // 4, 2)  # two clusters of two blocks of four threads
    lanes, others = np.array([0, 4, 8]), np.array([5, 1, 5])
    assert clusters.ordered_before(others, lanes).tolist() == [0, 0, 0]
    clusters.waited(np.array([2]), 7)  # a thread of the first block
    assert clusters.ordered_before(others, lanes).tolist() == [7, 0, 0]
    clusters.waited(None, 9)
    assert clusters.ordered_before(others, lanes).tolist() == [9, 9, 0]
    clusters.arrive(None, 20)
    assert clusters.ordered_before(others, lanes).tolist() == [9, 9, 0]
    clusters.join(np.arange(4))
    assert clusters.ordered_before(others, lanes).tolist() == [20, 9, 0]
    assert clusters.floor == 0
    clusters.join(None)
    assert clusters.ordered_before(others, lanes).tolist() == [20, 20, 0]
    assert clusters.floor == 20
    clusters.arrive(np.arange(8), np.arange(30, 38))
    clusters.join(np.arange(4))
    assert clusters.ordered_before(others, lanes).tolist() == [35, 20, 0]
    clusters.exit(np.array([5]), 50)
    assert clusters.ordered_before(np.array([5, 6]), np.array([0, 0])).tolist() == [50, 36]


@pytest.mark.parametrize(("releases", "known"), [(True, 40), (False, 30)])
def test_a_relaxed_arrival_publishes_what_came_before_a_fence_of_the_device(releases: bool, known: int) -> None:
    machine: Any = SimpleNamespace(
        lanes=8, blocks=2, block_of=np.arange(8) // 4, warp_of=np.arange(8) // 4, memory=SimpleNamespace(cluster=2)
    )
    order = Order(machine, 0)
    order.fenced[:] = [[35, 36], [30, 30]]  # of any scope, and of the whole device
    order.arrive(None, 40, releases)
    order.join(None)
    assert order.floor == known
    stamps = np.array([event << LANE_BITS | 5 for event in (known - 1, known)])
    assert order.unordered(stamps, np.array([0, 0])).tolist() == [False, True]
