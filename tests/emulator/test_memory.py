"""Memory that cudakit allocates on the emulator: counted, and held to the limits that hold on a GPU."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator

KINDS = ["device", "managed", "pinned"]
MIB = 1 << 20
TWICE = ck.Kernel("__global__ void twice(const float* x, float* y, int n) { if (threadIdx.x < n) y[0] = 2 * x[0]; }")


@pytest.fixture
def here() -> emulator.EmulatedStream:
    """A stream of the emulator, under --gpu too."""
    gc.collect()
    ck.memory.trim()
    return emulator.stream()


def held(kind: str) -> int:
    gc.collect()
    # Of the emulator's own: a GPU that is here too may hold what other tests left.
    rows = [row for row in ck.memory.report().held if row.kind == kind and row.device in ("emulator", None)]
    return sum(row.used + (row.free if kind == "pinned" else 0) for row in rows)


def refused(size: int, kind: str, limit: int) -> Any:
    """The error of `size` bytes over a limit, in the words that a GPU has."""
    words = rf"{size:,} bytes of {kind} memory were asked for.* ck.memory.limit allows {limit:,}.* free arrays"
    return pytest.raises(ck.LaunchError, match=words)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_is_counted_until_the_last_view_is_gone(here: Any, kind: Any) -> None:
    before = ck.memory.report().of(kind).used
    x = ck.empty((MIB, 4), np.float32, kind, here)
    view = x[5:7].T
    del x
    assert ck.memory.report().of(kind).used == before + 16 * MIB
    del view
    assert ck.memory.report().of(kind).used == before
    assert ck.memory.report().of(kind).peak >= before + 16 * MIB


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_holds_and_leaves_room_again(here: Any, kind: Any) -> None:
    limit = held(kind) + 3 * MIB
    with ck.memory.limit(limit, kind):
        first = ck.empty(2 * MIB, np.uint8, kind, here)
        with refused(2 * MIB, kind, limit):
            ck.empty(2 * MIB, np.uint8, kind, here)
        assert ck.empty(MIB, np.uint8, kind, here).size == MIB
        del first
        ck.memory.trim()
        assert ck.empty(2 * MIB, np.uint8, kind, here).size == 2 * MIB
    assert ck.empty(8 * MIB, np.uint8, kind, here).size == 8 * MIB


def test_a_limit_on_one_kind_leaves_the_others_alone(here: Any) -> None:
    with ck.memory.limit(held("device") + 1):
        ck.empty(MIB, np.uint8, "managed", here)
        with pytest.raises(ck.LaunchError, match="bytes of device memory"):
            ck.empty(MIB, np.uint8, stream=here)


def test_a_block_with_an_array_of_its_own_gives_it_back(here: Any) -> None:
    before = held("device")
    with ck.memory.limit(before + MIB):
        for _ in range(3):
            with ck.allocated(MIB, np.uint8, stream=here) as x:
                assert held("device") == before + MIB
            assert (x.size, held("device")) == (0, before)


def test_copies_to_the_device_count(here: Any) -> None:
    host = np.arange(MIB // 4, dtype=np.float32)
    limit = held("device") + MIB
    with ck.memory.limit(limit):
        x = ck.to_device(host, here)
        with refused(MIB, "device", limit):
            ck.to_device(host, here)
    np.testing.assert_array_equal(ck.to_host(x, here), host)


def test_host_arrays_in_a_call_count_for_its_time(here: Any) -> None:
    x, y = np.ones(MIB, np.float32), np.zeros(MIB, np.float32)
    before = held("device")
    with ck.memory.limit(before + 8 * MIB):
        TWICE(here, ck.config(1, 32), ck.In(x), ck.Out(y), 1)
        assert held("device") == before
        here.sync()
        assert y[0] == 2
    limit = before + 6 * MIB
    with ck.memory.limit(limit), refused(4 * MIB, "device", limit):
        TWICE(here, ck.config(1, 32), ck.In(x), ck.Out(y), 1)
    assert held("device") == before


def test_garbage_is_collected_before_an_array_is_refused(here: Any) -> None:
    limit = held("device") + 3 * MIB
    gc.disable()
    try:
        with ck.memory.limit(limit):
            cycle: list[Any] = [ck.empty(2 * MIB, np.uint8, stream=here)]
            cycle.append(cycle)
            del cycle
            assert ck.empty(2 * MIB, np.uint8, stream=here).size == 2 * MIB
    finally:
        gc.enable()


def test_more_than_the_host_has_is_named(here: Any) -> None:
    before = held("device")
    with pytest.raises(ck.LaunchError, match=rf"{1 << 60:,} bytes of device memory .* work in chunks"):
        ck.empty(1 << 60, np.uint8, stream=here)
    assert held("device") == before


def test_the_report_names_the_emulator(here: Any) -> None:
    limit = held("managed") + MIB
    with ck.memory.limit(limit, "managed"):
        kept = ck.empty(1000, np.uint8, "managed", here)
        (row,) = (row for row in ck.memory.report().held if (row.kind, row.device) == ("managed", "emulator"))
        assert (row.used >= kept.nbytes, row.free, row.limit) == (True, 0, limit)
        assert "managed emulator" in str(ck.memory.report())


@pytest.mark.skipif(ck.has_gpu(), reason="for machines without a GPU")
def test_where_there_is_no_gpu_no_stream_is_needed() -> None:
    limit = held("device") + MIB
    with ck.memory.limit(limit), refused(2 * MIB, "device", limit):
        ck.empty(2 * MIB, np.uint8)


def test_a_report_does_not_load_the_emulator() -> None:
    code = "import sys, cudakit as ck; ck.memory.report(); sys.exit('cudakit.emulator' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_failed_before_a_copy_is_a_launch_error(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the driver says it, of which only the class's name is public."""

    def fail(*_: Any) -> None:
        raise type("CUDAError", (Exception,), {})("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")

    monkeypatch.setattr("cudakit.memory.on_emulator.OnEmulator.to_host", fail)
    with pytest.raises(ck.LaunchError, match="a kernel has failed, and this process's CUDA context is lost"):
        ck.to_host(np.zeros(3), here)
