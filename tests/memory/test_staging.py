"""Copies between a device and host arrays, on a stand-in whose streams do their work when they are waited for."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.device_memory import TO_DEVICE, TO_HOST, Gpu, Stream, seen, stand_in

from cudakit.memory import on_device, pinned, staging
from cudakit.memory.staging import Courier

pytestmark = pytest.mark.emulator

_gpus: list[Gpu] = []


def write(handle: int, address: int, number: int) -> int:
    _gpus[-1].streams[handle].put(lambda: ctypes.c_uint32.from_address(address).__setattr__("value", number))
    return 0


def wait(handle: int, address: int, serial: int) -> int:
    def until() -> None:
        end = time.monotonic() + 20
        while ctypes.c_uint32.from_address(address).value < serial and time.monotonic() < end:
            time.sleep(0.0002)

    _gpus[-1].streams[handle].put(until)
    return 0


@pytest.fixture(scope="module")
def courier() -> Courier:
    return Courier(write, wait)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, courier: Courier) -> Iterator[Gpu]:
    found = stand_in(monkeypatch)
    _gpus.append(found)
    for module in (staging, on_device):
        monkeypatch.setattr(module, "courier", lambda: courier)
        monkeypatch.setattr(module, "has_courier", lambda: True)
    yield found
    _gpus.remove(found)


@pytest.fixture
def stream(gpu: Gpu) -> Stream:
    return gpu.stream()


def known(stream: Stream) -> Any:
    return stream


def numbers(count: int = 100) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def pinned_numbers(count: int = 100) -> np.ndarray:
    made = pinned.lend(pinned.pool().take(4 * count), (count,), np.dtype(np.int32))
    made[:] = numbers(count)
    return made


VIEWS = {
    "whole": lambda x: x,
    "rows": lambda x: x[::2],
    "columns": lambda x: x[:, 3:40],
    "transposed": lambda x: x.T,
    "backwards": lambda x: x[::-1],
}


def two_rows_of_pieces() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1000, (30, 50)).astype(np.int32)


# ── to the device ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pageable_array_has_been_read_when_the_call_returns(gpu: Gpu, stream: Stream) -> None:
    host, device = numbers(), gpu.array(np.zeros(100, np.int32))
    staging.upload(host, device.data.ptr, known(stream))
    host[:] = -1
    assert not seen(device).any(), "it is the stream's work"
    stream.sync()
    np.testing.assert_array_equal(seen(device), numbers())
    assert gpu.runtime.calls == [("copy", TO_DEVICE, 400, stream.handle)]


def test_a_pinned_array_is_read_when_the_stream_comes_to_it(gpu: Gpu, stream: Stream) -> None:
    host, device = pinned_numbers(), gpu.array(np.zeros(100, np.int32))
    held = pinned.pool().use().used
    staging.upload(host, device.data.ptr, known(stream))
    host[0] = 77
    stream.sync()
    assert seen(device)[0] == 77
    assert pinned.pool().use().used == held, "no other pinned memory is taken"
    start = host.ctypes.data
    assert gpu.order.of("before") == [(stream.handle, ((start, start + 400),), ())], "it is read"
    assert gpu.order.of("after") == [(1, None)], "as the use that began"
    (handle, kept) = gpu.order.of("hold")[0]
    assert handle == stream.handle
    assert kept is host, "it lives until then"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("piece", [128, 1024, 1 << 20])
def test_arrays_go_in_pieces_and_come_back(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch, view: str, piece: int
) -> None:
    monkeypatch.setattr(staging, "PIECE", piece)
    host = VIEWS[view](two_rows_of_pieces())
    device = gpu.array(np.zeros(host.shape, np.int32))
    staging.upload(host, device.data.ptr, known(stream))
    stream.sync()
    np.testing.assert_array_equal(seen(device), host)
    assert max(size for _, _, size, _ in gpu.runtime.calls) <= max(piece, 4 * 50)
    back = VIEWS[view](np.zeros((30, 50), np.int32))
    staging.fetch(device.data.ptr, back, known(stream))
    np.testing.assert_array_equal(back, host)
    later = VIEWS[view](np.zeros((30, 50), np.int32))
    staging.deliver(device.data.ptr, later, known(stream))
    assert not later.any()
    stream.sync()
    np.testing.assert_array_equal(later, host)
    assert pinned.pool().use().used <= 4096, "all blocks come back"  # the courier has one


def test_a_block_is_used_again_once_its_copy_is_done_and_not_before(gpu: Gpu, stream: Stream) -> None:
    device = gpu.array(np.zeros((3, 100), np.int32))
    for row in range(2):
        staging.upload(numbers() + row, device.data.ptr + 400 * row, known(stream))
    assert pinned.pool().use().free == 2 * 4096
    stream.sync()
    np.testing.assert_array_equal(seen(device)[:2], [numbers(), numbers() + 1])
    staging.upload(numbers() + 2, device.data.ptr + 800, known(stream))
    assert pinned.pool().use().free == 2 * 4096
    stream.sync()
    np.testing.assert_array_equal(seen(device)[2], numbers() + 2)


def test_few_pieces_are_on_their_way_at_once(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that has come back is taken again, rather than as many blocks as there are pieces."""
    monkeypatch.setattr(staging, "PIECE", 4096)
    host, device = numbers(200 * 1024), gpu.array(np.zeros(200 * 1024, np.int32))
    staging.upload(host, device.data.ptr, known(stream))
    stream.sync()
    before = pinned.pool().use().peak
    back = np.zeros_like(host)
    staging.fetch(device.data.ptr, back, known(stream))
    np.testing.assert_array_equal(back, host)
    assert pinned.pool().use().peak == before
    gpu.runtime.calls.clear()


# ── to the host ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_fetch_waits_for_what_came_before_and_nothing_that_comes_after(
    gpu: Gpu, stream: Stream, is_pinned: bool
) -> None:
    device = gpu.array(np.zeros(100, np.int32))
    later: list[int] = []
    stream.put(lambda: np.copyto(seen(device), numbers()))
    host = pinned_numbers() if is_pinned else np.zeros(100, np.int32)
    host[:] = 0
    fetched: list[np.ndarray] = []
    record = stream.record

    def recorded(*event: Any) -> Any:
        made = record(*event)
        stream.put(lambda: later.append(1))
        return made

    stream.record = recorded  # type: ignore[method-assign]
    staging.fetch(device.data.ptr, host, known(stream))
    fetched.append(host.copy())
    np.testing.assert_array_equal(fetched[0], numbers())
    assert not later
    (span,) = [span for _, reads, (span,) in gpu.order.of("before") if not reads] if is_pinned else [None]
    assert span is None or span == (host.ctypes.data, host.ctypes.data + 400), "it is written"


def test_a_result_in_pinned_memory_comes_straight(gpu: Gpu, stream: Stream) -> None:
    device, host = gpu.array(numbers()), pinned_numbers()
    host[:] = 0
    staging.deliver(device.data.ptr, host, known(stream))
    assert not host.any()
    stream.sync()
    np.testing.assert_array_equal(host, numbers())
    assert gpu.runtime.calls == [("copy", TO_HOST, 400, stream.handle)]
    assert gpu.order.of("hold")[0][1] is host


def test_of_nothing_nothing_is_copied(gpu: Gpu, stream: Stream) -> None:
    nothing = np.zeros((0, 3), np.int32)
    staging.upload(nothing, 1, known(stream))
    staging.fetch(1, nothing, known(stream))
    staging.deliver(1, nothing, known(stream))
    assert not gpu.runtime.calls
    assert not stream.work


def test_what_is_on_its_way_into_an_array_comes_before_it_is_read_or_written_anew(gpu: Gpu) -> None:
    first, second = gpu.stream(), gpu.stream()
    device, other = gpu.array(numbers()), gpu.array(np.zeros(100, np.int32))
    host = np.zeros(100, np.int32)
    staging.deliver(device.data.ptr, host, known(first))
    working = threading.Timer(0.02, first.sync)  # as a device does, whether anyone waits or not
    working.start()
    staging.upload(host, other.data.ptr, known(second))
    working.join()
    second.sync()
    np.testing.assert_array_equal(seen(other), numbers(), "the first stream's result, not zeros")


def test_a_delivery_that_fails_is_taken_back(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    device, host = gpu.array(numbers()), np.zeros(100, np.int32)

    def refuse(*given: Any) -> None:
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as patched:
        patched.setattr(gpu.runtime, "memcpyAsync", refuse)
        with pytest.raises(RuntimeError, match="lost"):
            staging.deliver(device.data.ptr, host, known(stream))
    staging.settle(host)  # nobody waits for it for ever
    staging.deliver(device.data.ptr, host, known(stream))
    stream.sync()
    np.testing.assert_array_equal(host, numbers())


def test_small_results_are_shipped_from_parts_of_a_block(gpu: Gpu, stream: Stream) -> None:
    block = pinned.pool().take(800)
    first, second = (block.view((100,), np.int32, offset) for offset in (0, 400))
    stream.put(lambda: np.copyto(first, numbers()))
    stream.put(lambda: np.copyto(second, numbers() + 1))
    hosts = [np.zeros(100, np.int32) for _ in range(2)]
    staging.ship([(hosts[0], first), (hosts[1], second)], block, known(stream))
    assert not hosts[0].any()
    assert pinned.pool().take(800) is not block, "it is in use until both have come"
    stream.sync()
    np.testing.assert_array_equal(hosts, [numbers(), numbers() + 1])
    assert pinned.pool().take(800) is block


def test_how_long_an_event_is_waited_for_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow:
        asked = 0

        @property
        def is_done(self) -> bool:
            self.asked += 1
            now[0] += 1e-5
            return self.asked > self.after

        def __init__(self, after: int) -> None:
            self.after = after

    monkeypatch.setattr(staging.time, "perf_counter", lambda: now[0])
    assert staging.comes_soon(Slow(0), 0)
    assert staging.comes_soon(Slow(4), 0)
    assert not staging.comes_soon(Slow(9), 0)
    assert staging.comes_soon(Slow(9), 2_000_000), "two megabytes take 100 µs"


def test_which_arrays_are_copied_as_they_are(gpu: Gpu) -> None:
    x = pinned_numbers()
    assert staging.is_direct(x)
    assert staging.is_direct(x[10:])
    assert not staging.is_direct(x[::2])
    assert not staging.is_direct(numbers())
