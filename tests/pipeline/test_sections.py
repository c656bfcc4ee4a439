"""Nodes of device stages by themselves, on stand-ins for their streams: what they wait for, and what they take up."""

from __future__ import annotations

import contextlib
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.pipeline import device_section, transfers
from cudakit.pipeline import device_section as spread_module
from cudakit.pipeline import streams as lanes_module
from cudakit.pipeline.device_section import Section, Spread
from cudakit.pipeline.stages import END, NOTHING, Parcel
from cudakit.pipeline.streams import Lanes
from cudakit.streams.witnesses import Witness, Work, witnessing

pytestmark = pytest.mark.emulator


class Upstream:
    """A node that gives parcels, and notes how it was asked."""

    def __init__(self, *parcels: Parcel) -> None:
        self.parcels = list(parcels)
        self.asked: list[bool] = []

    def take(self, block: bool) -> Parcel:
        self.asked.append(block)
        return self.parcels.pop(0)

    def stop(self) -> None:
        """Nothing is left running."""

    def close(self) -> None:
        """Nothing is held."""


class Emptied:
    """Lanes with memory as a test has it."""

    def __init__(self, free: int = 1000, limit: int = 0, used: int = 0, emulated: bool = False) -> None:
        runtime = SimpleNamespace(memGetInfo=lambda: (free, 2 * free))
        pool = SimpleNamespace(get_limit=lambda: limit, used_bytes=lambda: used)
        self.xp = SimpleNamespace(
            ndarray=np.ndarray, cuda=SimpleNamespace(runtime=runtime), get_default_memory_pool=lambda: pool
        )
        self.emulated = emulated
        self.computing: list[Any] = []


def section(lanes: Any, *parcels: Parcel, depth: int | None = None) -> Section:
    return Section(Upstream(*parcels), [], lanes, depth, False)


def submitting(node: Section) -> Any:
    """The buffer set of all items of a section that puts nothing on streams. Its last copy is not done."""
    buffers: Any = SimpleNamespace(departed=SimpleNamespace(is_done=False))
    buffers.last = buffers
    node._send = lambda parcel: buffers  # type: ignore[method-assign]
    node._submit = node._waiting.clear  # type: ignore[method-assign]
    return buffers


@pytest.mark.parametrize(
    ("size", "lanes", "most"),
    [
        (100, Emptied(1000), 5),
        (501, Emptied(1000), 1),
        (0, Emptied(1000), 500),
        (100, Emptied(1000, limit=900, used=500), 2),
        (100, Emptied(1000, limit=5000, used=500), 5),
        (100, Emptied(1000, limit=0, used=500), 5),
    ],
)
def test_half_of_the_free_memory_is_for_items_in_flight(size: int, lanes: Emptied, most: int) -> None:
    assert section(lanes)._most(size) == most


@pytest.mark.parametrize(
    ("incoming", "outgoing", "depth"),
    [
        ([1 << 17, 1 << 16], 1 << 16, 16),
        ([1 << 18], 1, 8),
        ([1 << 22], 0, 8),
        ([1 << 22], 1, 4),
        ([1 << 28], 0, 2),
    ],
)
def test_small_items_are_more_in_flight(incoming: list[int], outgoing: int, depth: int) -> None:
    rooms = [SimpleNamespace(device=SimpleNamespace(nbytes=size)) for size in incoming]
    value = SimpleNamespace(nbytes=outgoing) if outgoing else ()
    buffers: Any = SimpleNamespace(rooms=rooms, value=value)
    for emulated in (False, True):
        node = section(Emptied(1 << 30, emulated=emulated))
        node._measure(buffers)
        assert node._limit == (2 if emulated else depth)


def test_who_need_not_wait_does_not_wait_for_the_device() -> None:
    node = section(Emptied(), Parcel(1, 0), NOTHING, NOTHING, NOTHING, depth=2)
    finished: list[Any] = []
    buffers = submitting(node)
    node._finish = lambda parcel, buffers: finished.append(buffers) or parcel  # type: ignore[method-assign, func-returns-value]
    assert node.take(False) is NOTHING
    assert finished == []
    buffers.departed.is_done = True
    assert node.take(False).number == 0
    assert finished == [buffers]
    assert node.take(False) is NOTHING
    assert node._upstream.asked == [False] * 4  # type: ignore[attr-defined]


def test_who_waits_waits_for_the_oldest_and_never_with_something_to_deliver() -> None:
    node = section(Emptied(), Parcel(1, 0), Parcel(2, 1), Parcel(3, 2), END, depth=2)
    submitting(node)
    node._finish = lambda parcel, buffers: parcel  # type: ignore[method-assign]
    assert [node.take(True).number for _ in range(3)] == [0, 1, 2]
    assert node.take(True) is END
    assert node.take(False) is END
    assert node._upstream.asked == [True, False, False, False]  # type: ignore[attr-defined]


def test_an_item_that_failed_before_passes_by_and_ends_the_rest() -> None:
    failed = Parcel(None, 0)
    failed.fail("source", ValueError("bad"))
    node = section(Emptied(), failed, depth=3)
    node._send = lambda parcel: 1 / 0  # type: ignore[method-assign, return-value, assignment]
    assert node.take(True) is failed
    assert node.take(True) is END


@pytest.mark.parametrize(("size", "made"), [((1 << 22) + 1, 3), (1 << 22, 0), (1 << 21, 0)])
def test_buffer_sets_for_large_items_are_made_before_the_first(
    monkeypatch: pytest.MonkeyPatch, size: int, made: int
) -> None:
    current: list[int] = []
    monkeypatch.setattr(device_section.devices, "make_current", current.append)
    item = np.zeros(size, "u1")
    for emulated in (True, False):
        lanes = Emptied(2 * 4 * 3 * size + 6, emulated=emulated)
        streams = [SimpleNamespace(device=SimpleNamespace(device_id=number)) for number in (5, 6)]
        lanes.computing += streams
        lanes.inside = lambda lane: contextlib.nullcontext()  # type: ignore[attr-defined]
        node = section(lanes)
        prepared: list[Any] = []
        node._inbound.prepare = lambda buffers, item, prepared=prepared: prepared.append(buffers)  # type: ignore[method-assign]
        node._prepare(item)
        assert len(prepared) == made * (not emulated)
        assert [id(each) for each in prepared] == [id(each) for each in node._free]
    assert [buffers.lane for buffers in prepared] == [*streams, streams[0]][:made]
    assert current == [5, 6, 5][:made]


def test_no_copy_is_made_of_nothing(stream: Any) -> None:
    class Heard(Witness):
        def __init__(self) -> None:
            self.copies: list[int] = []

        def begin(self, work: Work) -> None:
            if work.kind == "copy" and work.name == "copy_in":
                self.copies.append(work.size)

    heard = Heard()
    with witnessing(heard):
        results = list(ck.Pipeline([lambda x, stream: x], stream=stream)([np.zeros((0, 3)), np.zeros((2, 3))]))
    assert [len(each) for each in results] == [0, 2]
    assert heard.copies == [48]


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stream:
    """A stream of a GPU, which can fail."""

    def __init__(self, handle: int, log: list[Any]) -> None:
        self.handle, self.log = handle, log
        self.error: Exception | None = None
        self.device = SimpleNamespace(device_id=3)

    def sync(self) -> None:
        self.log.append(("sync", self.handle))
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.log.append(("close", self.handle))


@pytest.fixture
def log() -> list[Any]:
    return []


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> Any:
    """A GPU's place: new streams have the numbers from 50 on."""
    numbers = iter(range(50, 100))
    runtime = SimpleNamespace(memcpyAsync="the driver's copy")
    current = SimpleNamespace(ptr=7)
    xp = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda: current))
    made = SimpleNamespace(
        module=lambda given: xp,
        current=current,
        check=lambda given: given,
        identity=lambda lane: lane.handle,
        stream=lambda like: Stream(next(numbers), log),
    )
    monkeypatch.setattr(lanes_module, "DEVICES", made)
    monkeypatch.setattr(lanes_module, "place_of", lambda given: made)
    monkeypatch.setattr(lanes_module, "stream", lambda: Stream(40, log))
    monkeypatch.setattr(
        lanes_module, "witnesses", SimpleNamespace(name_stream=lambda identity, name: log.append((identity, name)))
    )
    return made


@pytest.mark.parametrize("given", [True, False])
def test_a_pipelines_streams_have_names_and_its_own_are_closed(place: Any, log: list[Any], given: bool) -> None:
    lanes = Lanes(Stream(9, log) if given else None, 2, "work")
    first = 9 if given else 40
    assert (lanes.arriving.handle, lanes.leaving.handle) == (50, 51)
    assert (lanes.arriving_handle, lanes.leaving_handle) == (50, 51)
    assert [lane.handle for lane in lanes.computing] == [first, 52]
    assert log == [(50, "copy in"), (51, "copy out"), (first, "work"), (52, "work")]
    assert (lanes.emulated, lanes.copy_bytes, lanes.xp) == (False, "the driver's copy", place.module(None))
    log.clear()
    lanes.close()
    own = [50, 51, *([] if given else [40]), 52]
    assert log == [
        *[(number, None) for number in (52, first, 51, 50)],
        *[("sync", number) for number in (50, first, 52, 51)],
        *[("close", number) for number in own],
    ]
    log.clear()
    lanes.close()
    assert log == []


def test_shared_streams_keep_their_names_and_are_not_closed(place: Any, log: list[Any]) -> None:
    shared = [Stream(9, log), Stream(10, log)]
    lanes = Lanes(shared, 5, "work")
    assert lanes.computing is shared
    assert log == [(50, "copy in"), (51, "copy out")]
    log.clear()
    lanes.close()
    assert log[2:] == [*[("sync", number) for number in (50, 9, 10, 51)], ("close", 50), ("close", 51)]


def test_streams_that_are_dropped_are_closed(place: Any, log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = Lanes(None, 1, "work")
    log.clear()
    lanes.__del__()
    assert ("close", 40) in log
    other = Lanes(None, 1, "work")
    log.clear()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "is_finalizing", lambda: True)
        other.__del__()
    assert log == []
    Lanes.__new__(Lanes).__del__()


def test_a_run_comes_after_what_cupy_was_given(place: Any, log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[tuple[int, int]] = []
    monkeypatch.setattr(lanes_module.devices, "make_current", lambda number: log.append(number))
    monkeypatch.setattr(lanes_module, "of_handle", lambda handle: Stream(handle, log))
    join = SimpleNamespace(join=lambda lane, current: joined.append((lane.handle, current.handle)))
    monkeypatch.setattr(lanes_module, "order", lambda: join)
    lanes = Lanes(Stream(9, log), 3, "work")
    log.clear()
    lanes.start()
    assert log == [3]
    assert joined == [(9, 7), (52, 7), (53, 7)]
    joined.clear()
    place.current.ptr = 52
    lanes.start()
    assert joined == [(9, 52), (53, 52)]
    monkeypatch.setattr(lanes_module, "cupy_stream", lambda lane: ("inside", lane))
    assert lanes.inside(lanes.computing[0]) == ("inside", lanes.computing[0])


def test_streams_of_a_lost_device_are_left(place: Any, log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "lost_context", lambda error: error if "lost" in str(error) else None)
    lanes = Lanes(None, 1, "work")
    lanes.arriving.error, lanes.leaving.error = RuntimeError("lost"), ck.LaunchError("a kernel failed")
    log.clear()
    lanes.drain()
    assert log == [("sync", 50), ("sync", 40), ("sync", 51)]
    lanes.leaving.error = RuntimeError("other")
    with pytest.raises(RuntimeError, match="other"):
        lanes.drain()
    lanes.leaving.error = None
    lanes.close()


# ── several devices ──────────────────────────────────────────────────────────────────────────────────────────────────


class Passing:
    """A section that gives on what it takes."""

    def __init__(self, upstream: Any, error: BaseException | None = None) -> None:
        self.upstream, self.error = upstream, error
        self.closed = self.stopped = 0

    def take(self, block: bool) -> Parcel:
        found: Parcel = self.upstream.take(block)
        if self.error is not None:
            raise self.error
        return found

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed += 1


def test_each_device_has_a_section_that_is_made_and_closed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    monkeypatch.setattr(
        spread_module.devices, "on_device", lambda number: entered.append(number) or contextlib.nullcontext()
    )
    made: list[Passing] = []

    def make(upstream: Any) -> Passing:
        made.append(Passing(upstream))
        return made[-1]

    items = [Parcel(number, number) for number in range(6)]
    node = Spread(Upstream(*items, END), [(4, make), (5, make), (None, make)], False)
    names = [thread.name for thread in node._threads]
    assert names == [f"cudakit pipeline: device {number}" for number in (4, 5, 2)]
    assert [node.take(True).number for _ in range(6)] == list(range(6))
    assert node.take(True) is END
    node.stop()
    node.close()
    assert [each.closed for each in made] == [each.stopped for each in made] == [1, 1, 1]
    assert entered[:2] == [4, 5]
    assert sorted(entered) == [4, 4, 4, 5, 5, 5]
    assert not any(thread.is_alive() for thread in node._threads)


@pytest.mark.parametrize("taken", [0, 1])
def test_a_section_that_raises_is_told_in_its_turn(taken: int) -> None:
    error = KeyboardInterrupt("stop")

    def make(upstream: Any) -> Passing:
        section = Passing(upstream)
        take, count = section.take, iter(range(10))

        def failing(block: bool) -> Parcel:
            if next(count) == taken:
                raise error
            return take(block)

        section.take = failing  # type: ignore[method-assign]
        return section

    node = Spread(Upstream(Parcel(1, 0), Parcel(2, 1), END), [(None, make)], True)
    assert [node.take(True).value for _ in range(taken)] == [1] * taken
    failed = node.take(True)
    assert failed.number == taken
    assert failed.fate is not None
    assert (failed.fate.stage, failed.fate.error, failed.fate.final) == ("device", error, True)  # type: ignore[union-attr]
    assert node.over
    node.stop()
    node.close()


def test_who_need_not_wait_gets_nothing_while_another_waits() -> None:
    node = Spread.__new__(Spread)
    node.taking, node.count_taken, node.over, node.lenient = threading.Lock(), 0, False, False
    node.upstream = Upstream(Parcel(1, 0), NOTHING)
    share = spread_module._Share(node)
    node.taking.acquire()
    assert share.take(False) is NOTHING
    node.taking.release()
    assert share.take(False).number == 0
    assert share.take(True) is NOTHING
    assert [number for number, _ in share.numbers] == [0]
    assert node.count_taken == 1
    assert not node.taking.locked()


# ── copies on the host ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:, ::2], lambda x: x.T])
def test_large_copies_are_made_in_parts(monkeypatch: pytest.MonkeyPatch, view: Any) -> None:
    source = view(np.arange(2000, dtype="f4").reshape(40, 50))
    for large, parts in ((source.nbytes, transfers.MOST_THREADS), (source.nbytes + 1, 1)):
        monkeypatch.setattr(transfers, "_LARGE", large)
        target = np.zeros_like(source)
        copies = transfers.start(target, source)
        assert len(copies) == parts
        for copied in copies:
            copied.result()
        np.testing.assert_array_equal(target, source)
        target[...] = 0
        transfers.copy(target, source)
        np.testing.assert_array_equal(target, source)
    made = transfers.ordinary(source)
    np.testing.assert_array_equal(made, source)
    assert not np.shares_memory(made, source)
    assert transfers.ordinary("text") == "text"


def test_depth_of_a_run_by_its_stages() -> None:
    host, threaded = SimpleNamespace(threads=1), SimpleNamespace(threads=3)
    pipeline: Any = SimpleNamespace(devices=None)

    def depth(*groups: Any) -> int:
        return ck.Pipeline._total_depth(pipeline, list(groups))

    assert depth() == 1
    assert depth((True, [host, threaded])) == 7
    assert depth((False, [host]), (True, [host]), (False, [host, host])) == 19
    pipeline.devices = (0, 1)
    assert depth((False, [host])) == 17


def test_what_is_read_ahead_is_iterable() -> None:
    with pytest.raises(ck.ArgumentError, match="ahead: a source is an iterable of items, got int"):
        ck.pipeline.ahead(3)  # type: ignore[arg-type]
