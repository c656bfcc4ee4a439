"""The courier with streams that are threads: results come into host arrays, and the streams wait for them."""

from __future__ import annotations

import ctypes
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.memory import staging as courier
from cudakit.memory.staging import Courier

#: The streams by their numbers, for the driver's functions.
STREAMS: dict[int, ThreadStream] = {}


class Event(threading.Event):
    """As cuda.core's."""

    broken = False

    @property
    def is_done(self) -> bool:
        if self.broken:
            raise RuntimeError("the device is lost")
        return self.is_set()

    def sync(self) -> None:
        assert self.wait(20)
        if self.broken:
            raise RuntimeError("the device is lost")


class ThreadStream:
    """Does what it is given in a thread of its own; as a stream, and as what is known of one."""

    device_id = 0

    def __init__(self) -> None:
        self.handle = len(STREAMS) + 1000
        STREAMS[self.handle] = self
        self.core = self
        self.work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.work.get()()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.clear()
        self.work.put(event.set)
        return event

    def sync(self) -> None:
        self.record().sync()


def write(stream: int, address: int, number: int) -> int:
    def put() -> None:
        if not Event.broken:
            ctypes.c_uint32.from_address(address).value = number

    STREAMS[stream].work.put(put)
    return 0


def wait(stream: int, address: int, serial: int) -> int:
    def until() -> None:
        end = time.monotonic() + 20
        while ctypes.c_uint32.from_address(address).value < serial and time.monotonic() < end:
            time.sleep(0.0002)

    STREAMS[stream].work.put(until)
    return 0


@pytest.fixture(scope="module")
def made() -> Courier:
    return Courier(write, wait)


def ship(
    made: Courier, stream: Any, host: np.ndarray, value: Any, pieces: int = 1, gate: threading.Event | None = None
) -> None:
    """What `staging.deliver` does with a device array full of `value`; the stream waits for the gate."""
    shipment = made.open(host, stream, pieces)
    for piece in np.array_split(host, pieces):
        staged = np.zeros_like(piece)

        def copy(staged: np.ndarray = staged) -> None:
            assert gate is None or gate.wait(20)
            staged[...] = value

        stream.work.put(copy)
        made.expect(shipment, staged, piece)
    made.close(shipment)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 1000, 3 << 20])
def test_results_are_there_after_the_stream(made: Courier, size: int, pieces: int) -> None:
    stream, host = ThreadStream(), np.zeros(size, np.uint8)
    if size < pieces:
        return
    gate = threading.Event()
    ship(made, stream, host, 5, pieces, gate)
    assert not host.any()
    gate.set()
    stream.sync()
    assert np.all(host == 5)


def test_pieces_that_come_before_the_call_is_through(made: Courier) -> None:
    stream, host = ThreadStream(), np.zeros(8, np.uint8)
    shipment = made.open(host, stream, 1)  # type: ignore[arg-type]
    made.expect(shipment, np.ones(8, np.uint8), host).sync()
    time.sleep(0.05)
    made.close(shipment)
    assert stream.record().wait(5)
    assert np.all(host == 1)


@pytest.mark.slow
def test_many_shipments_on_many_streams(made: Courier) -> None:
    def work(seed: int) -> bool:
        rng, stream = random.Random(seed), ThreadStream()
        arrays = [np.zeros(rng.choice([1, 100, 2 << 20]), np.uint8) for _ in range(100)]
        for index, host in enumerate(arrays):
            ship(made, stream, host, index + 1, rng.choice([1, 1, 3]) if host.size > 3 else 1)
        stream.sync()
        return all(np.all(host == index + 1) for index, host in enumerate(arrays))

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Threads take turns often, also between two calls of the driver."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(former)


def test_many_threads_on_one_stream(made: Courier, short_turns: None) -> None:
    stream = ThreadStream()

    def work(seed: int) -> bool:
        rng, right = random.Random(seed), True
        for step in range(1, 60):
            host = np.zeros(rng.choice([1, 100, 3 << 20]) if step % 10 == 0 else 10, np.uint8)
            ship(made, stream, host, step, rng.choice([1, 1, 2]) if host.size > 3 else 1)
            stream.record().sync()
            right = right and bool(np.all(host == step))
        return right

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


def test_a_shipment_is_not_said_to_have_come_before_the_one_that_was_closed_before_it(
    made: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, gate, copyto = ThreadStream(), threading.Event(), np.copyto

    def copy(to: np.ndarray, source: np.ndarray) -> None:
        assert to.size < courier.ALONE or gate.wait(20)
        copyto(to, source)

    monkeypatch.setattr(np, "copyto", copy)
    large, small = np.zeros(courier.ALONE, np.uint8), np.zeros(10, np.uint8)
    first, second = made.open(large, stream, 1), made.open(small, stream, 1)  # type: ignore[arg-type]
    # As of two threads, whose work is put on the stream in turns.
    made.expect(first, np.ones_like(large), large)
    made.expect(second, np.ones_like(small), small)
    made.close(first)
    made.close(second)
    second.sync()
    done = stream.record()
    assert not done.wait(0.1)
    gate.set()
    assert done.wait(20)
    assert np.all(large == 1)
    assert np.all(small == 1)


def test_a_slow_stream_does_not_keep_another_waiting(made: Courier) -> None:
    slow, quick = ThreadStream(), ThreadStream()
    late, soon, gate = np.zeros(10, np.uint8), np.zeros(10, np.uint8), threading.Event()
    ship(made, slow, late, 1, gate=gate)
    ship(made, quick, soon, 2)
    quick.sync()
    assert np.all(soon == 2)
    assert not late.any()
    gate.set()
    slow.sync()
    assert np.all(late == 1)


def test_settle_waits_for_the_same_memory_only(made: Courier) -> None:
    stream, host, other = ThreadStream(), np.zeros(100, np.uint8), np.zeros(100, np.uint8)
    gate = threading.Event()
    ship(made, stream, host[50:], 1, gate=gate)
    made.settle(other, None)
    made.settle(host[:50], None)
    made.settle(host, stream.handle)  # in order by itself
    assert not host.any()
    threading.Timer(0.05, gate.set).start()
    made.settle(host[40:60], None)
    assert np.all(host[50:] == 1)


def test_events_end_in_no_thread_of_the_courier(made: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    """For that asks the driver, which may keep the courier out as long as a stream waits for the courier."""
    ended: list[str] = []

    class Mortal(Event):
        def __del__(self) -> None:
            ended.append(threading.current_thread().name)

    monkeypatch.setitem(globals(), "Event", Mortal)
    stream, host = ThreadStream(), np.zeros(10, np.uint8)
    made._events.clear()
    for value in range(1, 20):
        ship(made, stream, host, value, 2)
    stream.sync()
    assert np.all(host == 19)
    made._events.clear()
    assert ended
    assert "cudakit-courier" not in ended


def test_shipments_on_their_way_are_bounded(made: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "_MOST_OPEN", 4)
    stream, arrays, gate = ThreadStream(), [np.zeros(4, np.uint8) for _ in range(12)], threading.Event()

    def work() -> None:
        for host in arrays:
            ship(made, stream, host, 1, gate=gate)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    gate.set()
    thread.join(20)
    stream.sync()
    assert all(np.all(host == 1) for host in arrays)


def test_drain_waits_for_everything(made: Courier) -> None:
    stream, host, gate = ThreadStream(), np.zeros(4, np.uint8), threading.Event()
    ship(made, stream, host, 1, gate=gate)
    threading.Timer(0.05, gate.set).start()
    made.drain()
    assert np.all(host == 1)


def test_abandoned_shipments_leave_nobody_waiting(made: Courier) -> None:
    stream, host = ThreadStream(), np.zeros(4 << 20, np.uint8)
    made.abandon(made.open(host, stream, 3))  # type: ignore[arg-type]
    shipment = made.open(host, stream, 3)  # type: ignore[arg-type]
    made.expect(shipment, np.ones(10, np.uint8), host[:10])
    made.abandon(shipment)
    shipment.sync()
    assert np.all(host[:10] == 1)
    made.settle(host, None)
    ship(made, stream, host, 2)
    stream.sync()
    assert np.all(host == 2)


def test_failures_are_told_at_once_and_at_the_next_call(made: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    stream, host = ThreadStream(), np.zeros(4, np.uint8)
    shipment = made.open(host, stream, 1)  # type: ignore[arg-type]
    arrival = made.expect(shipment, np.ones(3, np.uint8), host)  # does not fit
    made.close(shipment)
    stream.sync()
    assert arrival.is_done
    assert isinstance(told[0].exc_value, ValueError)
    with pytest.raises(ck.LaunchError, match="results on their way to a host array were lost"):
        made.open(host, stream, 1)  # type: ignore[arg-type]
    ship(made, stream, host, 3)
    stream.sync()
    assert np.all(host == 3)


def test_a_lost_device_leaves_the_array(made: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    monkeypatch.setattr(Event, "broken", True)
    monkeypatch.setattr(courier, "_PATIENCE", 0.05)
    stream, host = ThreadStream(), np.zeros(2 << 20, np.uint8)
    ship(made, stream, host, 1, 2)
    with pytest.raises(RuntimeError, match="lost"):
        made.settle(host, None)
    assert stream.record().wait(20)  # is not left waiting
    assert not host.any()
    assert told
    with pytest.raises(ck.LaunchError, match="the device is lost"):
        made.open(host, stream, 1)  # type: ignore[arg-type]
    made._failure = None
