"""Barriers of a part of a block, barriers in shared memory, and copies in bulk, as machine code and with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machines import agreed, failed

import cudakit as ck
from cudakit import emulator

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

SOURCE = Path(__file__).with_name("barriers.cuh")


def kernel(name: str) -> Callable[[], Any]:
    return lambda: ck.Kernel.from_file(SOURCE, name)


def ran(name: str, config: Any, *arguments: Any) -> np.ndarray:
    """The first array after a kernel ran, on both machines."""
    return agreed(kernel(name), config, *arguments, arch="sm_90")[0]


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def test_teams_of_a_block() -> None:
    want = np.arange(128)
    for k in range(5):
        want[:64] = np.roll(want[:64], -1) + k
    for _ in range(2):
        want[64:] = np.roll(want[64:], -3) * 3
    np.testing.assert_array_equal(ran("teams", ck.config(3, 128), ints(384)), np.tile(want[::-1], 3))


def test_who_waits_goes_on_with_its_own_barrier() -> None:
    found = ran("met_elsewhere", ck.config(2, 96), ints(192)).reshape(2, 3, 32)
    np.testing.assert_array_equal(found, np.broadcast_to(np.arange(32) * [[7], [1], [1]], (2, 3, 32)))


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_who_arrives_does_not_wait(rounds: int) -> None:
    found = ran("filled_and_used", ck.config(2, 96), ints(192), rounds).reshape(2, 3, 32)
    want = np.zeros(32, np.int32)
    for k in range(rounds):
        want = want * 7 + k * 100 + np.arange(32, dtype=np.int32)
    assert (found[:, 0] == 0).all()
    np.testing.assert_array_equal(found[:, 1:], np.broadcast_to(want, (2, 2, 32)))


@pytest.mark.parametrize("name", ["left_alone", "one_too_few"])
def test_barriers_that_nobody_else_comes_to(name: str) -> None:
    assert "deadlock" in failed(kernel(name), ck.config(1, 64), ints(64), arch="sm_90")


@pytest.mark.parametrize("threads", [32, 128, 40])
@pytest.mark.parametrize("many", [1, 4])
def test_rounds(threads: int, many: int) -> None:
    want = np.arange(threads)
    for k in range(many):
        want = np.roll(want, -5) + k
    np.testing.assert_array_equal(ran("rounds", ck.config(2, threads), ints(2 * threads), many), np.tile(want, 2))


def test_the_words_that_arrivals_find() -> None:
    found = ran("words", ck.config(2, 32), np.zeros((64, 8), np.uint64))
    assert found[1, 2] > found[4, 2] > 0  # fewer are waited for, one after the other


def test_a_phase_waits_for_the_bytes_that_are_owed() -> None:
    assert (ran("owing", ck.config(2, 32), ints(64)) == 110000).all()


@pytest.mark.parametrize("tiles", [1, 2, 5, 8])
def test_a_ring_of_copies(tiles: int) -> None:
    x = np.random.default_rng(1).integers(-(2**31), 2**31, (3, tiles, 64)).astype(np.int32)
    want = np.zeros((3, 64), np.int32)
    for tile in range(tiles):
        want = want * np.int32(3) + x[:, tile, ::-1]
    np.testing.assert_array_equal(ran("ring", ck.config(3, 96), ints(3, 64), x.ravel(), tiles), want)


def test_copies_to_global_memory() -> None:
    x = np.arange(2 * 32 * 8, dtype=np.int32).reshape(2, 32, 8)
    want = np.zeros_like(x)
    for t in range(32):
        if t % 3:
            many = 8 if t % 2 else 4
            want[:, 31 - t, :many] = (x[:, t] + np.arange(8))[:, :many]
    np.testing.assert_array_equal(ran("stored", ck.config(2, 32), ints(2, 32, 8), x), want)


def test_one_of_those_that_are_there() -> None:
    for warp, found in enumerate(ran("elected", ck.config(2, 64), ints(128)).reshape(4, 32)):
        there = [lane for lane in range(32) if (warp % 2 * 32 + lane) % 5 > 1]
        leaders = {int(found[lane]) // 10 - 10 for lane in there}
        assert len(leaders) == 1
        assert leaders < set(there)
        assert [int(found[lane]) % 10 for lane in there] == [lane in leaders for lane in there]


ERRORS = {
    "never_made": "that mbarrier.init has not made",
    "waited_for_none": "that mbarrier.init has not made",
    "for_nobody": "an mbarrier for 0 arrivals",
    "too_many": "more arrivals at an mbarrier than its phase expects",
    "gone": "that mbarrier.init has not made",
    "beside_it": "aligned to 8 bytes",
    "far_from_it": "shared memory",
    "owing_too_much": "copies of 1048576 bytes",
    "bulk_from_outside": "outside",
    "bulk_too_far": "shared memory",
    "bulk_beside": "16 bytes",
    "bulk_to_beside": "16 bytes",
    "bulk_of_a_part": "16 bytes",
    "bulk_on_none": "that mbarrier.init has not made",
    "bulk_out": "outside",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_the_same(name: str) -> None:
    assert ERRORS[name] in failed(kernel(name), ck.config(1, 32), ints(64), arch="sm_90")


def test_races_of_copies_between_streams_are_seen() -> None:
    x, o, other = (np.zeros(3 * 64, np.int32) for _ in range(3))
    read = ck.Kernel.from_file(SOURCE, "ring")
    write = ck.Kernel("__global__ void fill(int* x) { x[threadIdx.x] = 1; }")
    first, second = (emulator.stream(arch="sm_90", machine="compiled") for _ in range(2))
    with ck.hazards.manual():
        read(first, ck.config(3, 96), o, x, 1)
        with pytest.raises(ck.EmulationError, match="race"):
            write(second, ck.config(1, 64), x)
        write(second, ck.config(1, 64), other)


def test_copies_from_what_is_freed_say_so() -> None:
    stream = emulator.stream(arch="sm_90", machine="compiled")
    x, o = ck.to_device(np.zeros(1 << 20, np.int32), stream), np.zeros(64, np.int32)  # goes back to the system
    keep = ck.Kernel("__global__ void keep(const int* x, const int** o) { o[0] = x; }")
    take = ck.Kernel(
        SOURCE.read_text()
        + "__global__ void take(int** p, int* o) { __shared__ alignas(16) int s[64]; __shared__ u64 bar;"
        " if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, 64); BULK(s, p[0], 64, &bar); }"
        " __syncwarp(); wait(&bar, 0); o[threadIdx.x] = s[threadIdx.x % 16]; }",
        "take",
    )
    kept = np.zeros(1, np.uint64)
    keep(stream, ck.config(1, 1), x, kept)
    take(stream, ck.config(1, 32), kept, o)
    del x
    with pytest.raises(ck.EmulationError, match="of an earlier launch"):
        take(stream, ck.config(1, 32), kept, o)
