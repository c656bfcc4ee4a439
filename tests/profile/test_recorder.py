"""What a trace notes of a GPU's streams, on a stand-in for events: clocks, lanes, and how long events are kept."""

from __future__ import annotations

import contextlib
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.errors import LaunchError
from cudakit.profile import trace
from cudakit.profile.trace import Recorder
from cudakit.streams.witnesses import Work

pytestmark = pytest.mark.emulator


class Event:
    """A time on the device, in its own milliseconds, known once the device has come there."""

    passed = 0

    def __init__(self, at: float = 0.0, number: int = 0) -> None:
        self.at, self.number = at, number

    @property
    def is_done(self) -> bool:
        return Event.passed >= self.number

    def sync(self) -> None:
        Event.passed = max(Event.passed, self.number)

    def __sub__(self, other: Event) -> float:
        assert self.is_done
        assert other.is_done
        return self.at - other.at


class Stream:
    def __init__(self, handle: int = 7, device_id: int = 0, steps: bool = False) -> None:
        self.handle, self.steps, self.clock = handle, steps, 0
        self.device = SimpleNamespace(device_id=device_id)


class Gpu:
    """The host's clock in seconds, and the device's, which runs `rate` times as fast."""

    def __init__(self) -> None:
        self.now, self.rate, self.offset_ms, self.tick = 100.0, 1.0, 5000.0, 0.0
        self.made: list[Event] = []
        self.numbers = itertools.count(1)
        self.captured: set[int] = set()
        self.devices: list[int] = []

    @property
    def device_ms(self) -> float:
        return 1000 * self.rate * (self.now - 100) + self.offset_ms

    def perf_counter(self) -> float:
        self.now += self.tick
        return self.now

    def pass_ms(self, ms: float) -> None:
        self.now += ms / 1000

    def record(self, stream: Any, event: Event | None = None) -> Event:
        if event is None:
            event = Event()
            self.made.append(event)
        event.at, event.number = self.device_ms, next(self.numbers)
        return event

    def on_device(self, device_id: int) -> contextlib.AbstractContextManager[None]:
        self.devices.append(device_id)
        return contextlib.nullcontext()

    def place_of(self, stream: Stream) -> Any:
        return SimpleNamespace(
            unit="steps" if stream.steps else "ms", check=lambda given: given, identity=lambda given: given.handle
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    import cuda.core

    made = Gpu()
    monkeypatch.setattr(Event, "passed", 0)
    monkeypatch.setattr(trace, "timing_event", made.record)
    monkeypatch.setattr(trace.devices, "on_device", made.on_device)
    monkeypatch.setattr(trace, "time", made)
    monkeypatch.setattr(trace, "place_of", made.place_of)
    monkeypatch.setattr(trace, "handle_of", lambda core: core.handle)
    monkeypatch.setattr(trace, "is_captured", made.captured.__contains__)
    monkeypatch.setattr(cuda.core, "Device", lambda device_id: SimpleNamespace(create_stream=lambda: Stream()))
    monkeypatch.setattr(trace, "_relaxed", contextlib.nullcontext)
    return made


def note(seen: Recorder, gpu: Gpu, stream: Any, ms: float, name: str = "k", **work: Any) -> None:
    """Let the recorder see a kernel that takes so long."""
    given = Work("kernel", name, stream, **work)
    begun = seen.begin(given)
    gpu.pass_ms(ms)
    seen.end(given, begun)


def times(seen: Recorder) -> list[tuple[float, float]]:
    return [(round(span.start_ms, 6), round(span.end_ms, 6)) for span in seen.finish()]


def test_a_gpus_work_is_timed_by_its_events_on_the_hosts_clock(gpu: Gpu) -> None:
    stream = Stream()
    seen = Recorder({"mine": stream}, None, 10)
    seen.begin_trace()
    gpu.pass_ms(5)
    note(seen, gpu, stream, 2, "first")
    gpu.pass_ms(1)
    note(seen, gpu, None, 4, "read")
    note(seen, gpu, stream, 3, "second", size=12)
    spans = seen.finish()
    assert [(s.kind, s.name, s.stream, s.place, s.size) for s in spans] == [
        ("kernel", "first", "mine", "GPU 0", 0),
        ("kernel", "read", threading.current_thread().name, "host", 0),
        ("kernel", "second", "mine", "GPU 0", 12),
    ]
    assert [round(s.start_ms, 6) for s in spans] == [5, 8, 12]
    assert [round(s.end_ms, 6) for s in spans] == [7, 12, 15]


def test_events_are_used_again_once_their_times_are_taken(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST_PENDING", 8)
    stream = Stream()
    seen = Recorder({}, None, 1000)
    for number in range(40):
        note(seen, gpu, stream, 1)
        if number % 8 == 3:
            max(gpu.made, key=lambda event: event.number).sync()
    anchors = 3
    assert len(gpu.made) - anchors < 2 * 24
    result = times(seen)
    assert result == [(each + result[0][0], each + 1 + result[0][0]) for each in range(40)]


def test_every_work_is_waited_for_that_has_not_ended(gpu: Gpu) -> None:
    seen = Recorder({}, None, 10)
    for number in range(3):
        note(seen, gpu, Stream(20 + number), 1)
    synced: list[int] = []
    for event in gpu.made[3:]:
        event.sync = lambda event=event: synced.append(event.number) or Event.sync(event)  # type: ignore[method-assign]
    first = gpu.made[3 + 1].number
    assert len(seen.finish()) == 3
    assert synced[0] == first, "the oldest first: streams end in any order"
    assert len(synced) == 3


def test_works_that_are_not_done_keep_their_events(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST_PENDING", 4)
    stream = Stream()
    seen = Recorder({}, None, 1000)
    for _ in range(6):
        note(seen, gpu, stream, 1)
    gpu.made[3].sync()  # where the first work begins
    note(seen, gpu, stream, 1)
    note(seen, gpu, stream, 1)
    assert len(gpu.made) == 3 + 2 * 8
    assert len(times(seen)) == 8


def test_what_is_far_from_the_base_is_the_new_base(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = trace._Clock(0)
    base = clock._base
    for start_ms, moves in ((1000.0, False), (1000.5, True), (2000.5, False), (2001.0, True)):
        begun, ended = Event(base.at + start_ms), Event(base.at + start_ms + 2)
        former = clock._base
        assert clock.times(begun, ended) == (start_ms, start_ms + 2)
        assert (clock._base is begun) is moves
        assert ended in clock._free
        assert (former if moves else begun) in clock._free
        assert clock._base not in clock._free


@pytest.mark.parametrize(("passed_ms", "rate"), [(1000, 0.0), (2000, 0.25)])
def test_a_clock_that_drifts_is_set_right_once_it_tells(gpu: Gpu, passed_ms: float, rate: float) -> None:
    gpu.rate = 0.8
    clock = trace._Clock(3)
    assert gpu.devices == [3]
    began_ms = 1000 * gpu.now
    gpu.pass_ms(passed_ms / 0.8)
    assert clock.on_host() == pytest.approx((began_ms, rate))
    assert gpu.devices == [3, 3]


def test_of_three_looks_at_the_hosts_clock_the_quickest_counts(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0.0, 9.0, 20.0, 22.0, 30.0, 35.0])
    monkeypatch.setattr(trace, "time", SimpleNamespace(perf_counter=lambda: next(looks)))
    clock = trace._Clock(0)
    assert clock._host_ms == 21_000
    assert clock._base is gpu.made[1]
    assert all(event.is_done for event in gpu.made)


def test_the_rate_of_a_clock_moves_all_its_times(gpu: Gpu) -> None:
    gpu.rate = 0.5
    stream = Stream()
    seen = Recorder({}, None, 10)
    seen.begin_trace()
    note(seen, gpu, stream, 4000)
    note(seen, gpu, stream, 2000)
    assert times(seen) == [(0, 4000), (4000, 6000)]


def test_the_emulators_time_begins_with_its_first_step(gpu: Gpu) -> None:
    stream = Stream(steps=True)
    gpu.captured.add(0)  # no driver is asked about it
    seen = Recorder({}, None, 10)
    stream.clock = 500
    for steps in (20, 3):
        given = Work("kernel", "k", stream)
        begun = seen.begin(given)
        stream.clock += steps
        seen.end(given, begun)
        stream.clock += 7
    spans = seen.finish()
    assert {(span.place, span.stream) for span in spans} == {("emulator", "stream 1")}
    assert [(span.start_ms, span.end_ms) for span in spans] == [(0, 0.02), (0.027, 0.03)]


def test_streams_are_called_as_they_are_given_named_or_numbered(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    called = {30: "mine", 31: "mine", 32: "mine", 33: "given"}
    monkeypatch.setattr(trace, "name_of_stream", called.get)
    given = Stream(10)
    seen = Recorder({"given": given, "other": Stream(11)}, None, 100)
    same = Stream(20), Stream(20)
    streams = [given, Stream(10), *same, Stream(1), Stream(2), *map(Stream, called), Stream(21), Stream(11)]
    for stream in streams:
        note(seen, gpu, stream, 1)
    assert [span.stream for span in seen.finish()] == [
        *("given", "given", "stream 1", "stream 1", "default stream", "per-thread default stream"),
        *("mine", "mine 2", "mine 3", "given 2", "stream 2", "other"),
    ]


def test_lanes_of_several_devices_have_their_own_clocks(gpu: Gpu) -> None:
    seen = Recorder({}, None, 10)
    for device_id in (0, 1, 0):
        note(seen, gpu, Stream(20 + device_id, device_id), 1)
    assert gpu.devices.count(1) == 3  # the clock's first look, and two events
    assert [span.place for span in seen.finish()] == ["GPU 0", "GPU 1", "GPU 0"]
    assert gpu.devices.count(1) == 4


def test_what_is_captured_is_not_seen(gpu: Gpu) -> None:
    stream = Stream(9)
    seen = Recorder({}, None, 10)
    gpu.captured.add(9)
    note(seen, gpu, stream, 1)
    gpu.captured.clear()
    note(seen, gpu, stream, 1, "later")
    assert [span.name for span in seen.finish()] == ["later"]


def test_threads_of_a_pipeline_are_called_by_their_stage(gpu: Gpu) -> None:
    seen = Recorder({}, None, 10)
    thread = threading.Thread(target=note, args=(seen, gpu, None, 1), name="cudakit pipeline: read")
    thread.start()
    thread.join()
    assert [span.stream for span in seen.finish()] == ["read"]


def array(address: int) -> Any:
    """Another library's array."""
    return SimpleNamespace(__cuda_array_interface__={"data": (address, False)})


def test_a_span_comes_after_those_of_other_streams_that_wrote_what_it_uses(gpu: Gpu) -> None:
    first, second = Stream(20), Stream(21)
    seen = Recorder({}, None, 20)
    x, y, z = array(100), array(200), array(300)
    note(seen, gpu, first, 1, writes=(x,))
    note(seen, gpu, first, 1, reads=(x,), writes=(y, "no array"))
    note(seen, gpu, second, 1, reads=(x, y), writes=(z,))
    note(seen, gpu, second, 1, reads=(z,), writes=(x,))
    note(seen, gpu, first, 1, reads=(z, x, "no array"))
    assert [span.after for span in seen.finish()] == [(), (), (0, 1), (0,), (2, 3)]


def test_the_most_spans_hold_in_every_thread(gpu: Gpu) -> None:
    seen = Recorder({}, None, 2)
    stream = Stream()
    outer, inner = Work("kernel", "outer", stream), Work("kernel", "inner", stream)
    note(seen, gpu, stream, 1)
    begun = [seen.begin(outer), seen.begin(inner)]
    seen.end(inner, begun[1])
    seen.end(outer, begun[0])
    assert seen.dropped == 1
    note(seen, gpu, stream, 1)
    assert seen.dropped == 2
    assert [span.name for span in seen.finish()] == ["k", "inner"]
    # What comes after the end is not kept, and nothing is held.
    note(seen, gpu, stream, 1)
    assert (seen.finish(), seen._lanes, seen._clocks) == ((), {}, {})


def test_ranges_are_begun_and_ended_for_works_that_are_not_kept_too(gpu: Gpu) -> None:
    calls: list[Any] = []
    numbers = itertools.count(5)
    ranges = SimpleNamespace(start=lambda work: calls.append(work.name) or next(numbers), end=calls.append)
    seen = Recorder({}, ranges, 1)
    for name in ("first", "second"):
        note(seen, gpu, Stream(), 1, name)
    assert calls == ["first", 5, "second", 6]


def test_the_drivers_error_is_told_when_the_trace_is_read(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder({}, None, 2)
    note(seen, gpu, Stream(), 1)

    def fail(event: Event) -> None:
        raise RuntimeError("other")

    monkeypatch.setattr(Event, "sync", fail)
    monkeypatch.setattr(trace, "raise_launch_error", lambda error: None)
    with pytest.raises(RuntimeError, match="other"):
        seen.finish()

    def raised(error: BaseException) -> None:
        raise LaunchError("a kernel failed") from error

    monkeypatch.setattr(trace, "raise_launch_error", raised)
    with pytest.raises(LaunchError, match="a kernel failed"):
        seen.finish()


def test_a_trace_ties_the_current_devices_clock_first(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace.devices, "current_device", lambda: SimpleNamespace(device_id=4))
    cases = [(False, False, (0, 1)), (True, True, (0, 1)), (True, False, (3, 1)), (True, False, (0, 0))]
    for has_gpu, is_forked, context in (*cases, (True, False, (0, 1))):
        driver = SimpleNamespace(cuCtxGetCurrent=lambda context=context: context)
        monkeypatch.setattr("cuda.bindings.driver", driver)
        monkeypatch.setattr(trace.devices, "has_gpu", lambda has_gpu=has_gpu: has_gpu)
        monkeypatch.setattr(trace.devices, "is_forked", lambda is_forked=is_forked: is_forked)
        seen = Recorder({}, None, 2)
        seen.begin_trace()
        assert list(seen._clocks) == ([] if (has_gpu, is_forked, context) in cases else [4])


def test_addresses_of_arrays_of_all_libraries() -> None:
    def of(module: str, **given: Any) -> Any:
        return type("Array", (), {"__module__": module, **given})()

    x = np.zeros(4, "f4")
    pointer = SimpleNamespace(ptr=64)
    found = [
        *[of("cupy", data=pointer), of("cupy.cuda"), of("torch", data_ptr=lambda self: 80), x[1:], array(96)],
        *[type("Buffer", (), {"handle": 112})(), 3, "text", None],
    ]
    expected = [64, None, 80, x.ctypes.data + 4, 96, 112, None, None, None]
    assert [trace._address(each) for each in found] == expected


def test_events_are_asked_for_in_a_thread_whose_captures_do_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    mode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    fake = SimpleNamespace(
        CUstreamCaptureMode=mode, cuThreadExchangeStreamCaptureMode=lambda mode: calls.append(mode) or (0, "former")
    )
    monkeypatch.setattr("cuda.bindings.driver", fake)

    def failing() -> None:
        with trace._relaxed():
            assert calls == ["relaxed"]
            1 / 0

    with pytest.raises(ZeroDivisionError):
        failing()
    assert calls == ["relaxed", "former"]
