"""What a trace takes note of: events before and after each work on a GPU's stream, steps on the emulator's.

An event costs the stream nothing that can be seen and the host a microsecond or two. The driver gives the time between
two events only; one whose time on the host is known ties a device's time to the host's.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudakit.errors import ArgumentError, raise_launch_error, shortened
from cudakit.places import place_of
from cudakit.profile.timeline import EMULATOR, HOST, Span
from cudakit.streams import devices
from cudakit.streams.capture_state import is_captured
from cudakit.streams.streams import handle_of, timing_event
from cudakit.streams.witnesses import Kind, Witness, Work, name_of_stream

if TYPE_CHECKING:
    from cuda.core import Event, Stream

#: Works that wait for the GPU before finished ones are looked for, so that their events can be used again.
_MOST_PENDING = 2048
#: The driver's times are float32: beyond a second they are no longer good to a tenth of a microsecond.
_FAR_MS = 1000.0
_DEFAULT_STREAMS = {1: "default stream", 2: "per-thread default stream"}


@dataclass(slots=True)
class _Record:
    """A work that was seen; `begun` and `ended` are events until the GPU has passed them, then milliseconds."""

    kind: Kind
    name: str
    size: int
    lane: _Lane
    begun: Any
    ended: Any
    read: list[int | None]
    written: list[int | None]

    def resolve(self) -> None:
        """Put times for the events, which the device has passed."""
        assert self.lane.clock is not None
        self.begun, self.ended = self.lane.clock.times(self.begun, self.ended)


@dataclass(slots=True)
class _Lane:
    """A stream or a thread; `clock` is the device's and `handle` the driver's, for a GPU's stream."""

    name: str
    place: str
    stream: Any = None
    clock: _Clock | None = None
    handle: int = 0

    def is_capturing(self) -> bool:
        """Whether what it is given goes into a graph, and does not run now: it has no time."""
        if self.clock is None:
            return False  # the emulator tells of nothing that it does not run
        return is_captured(self.handle)

    def mark(self) -> Any:
        """Now: milliseconds of the host, a step of the emulator, or an event."""
        if self.clock is not None:
            return self.clock.record(self.stream)
        return 1000 * time.perf_counter() if self.stream is None else self.stream.clock


class _Clock:
    """A device's time on the host's clock, from an event whose time on both is known; and its events, used again."""

    def __init__(self, device_id: int) -> None:
        from cuda.core import Device

        self.device_id = device_id
        with devices.on_device(device_id):
            self._stream: Stream = Device(device_id).create_stream()
            first, self._host_ms = self._anchor()
        self._base, self._base_ms = first, 0.0
        self._free: list[Event] = []

    def _anchor(self) -> tuple[Event, float]:
        """An event, and when it was on the host's clock: of three, the one with the least doubt."""
        found = []
        for _ in range(3):
            before = time.perf_counter()
            event = timing_event(self._stream)
            event.sync()
            after = time.perf_counter()
            found.append((after - before, 500 * (before + after), event))
        _, host_ms, event = min(found, key=lambda one: one[0])
        return event, host_ms

    def record(self, stream: Stream) -> Event:
        """An event with the time at which `stream` comes to it."""
        try:
            event = self._free.pop()
        except IndexError:
            event = None
        with devices.on_device(self.device_id):
            return timing_event(stream, event)

    def times(self, begun: Event, ended: Event) -> tuple[float, float]:
        """Milliseconds since the first event of two that the device has passed, which may then be used again."""
        start_ms = self._base_ms + (begun - self._base)
        end_ms = start_ms + (ended - begun)
        if start_ms - self._base_ms > _FAR_MS:
            begun, self._base, self._base_ms = self._base, begun, start_ms
        self._free += begun, ended
        return start_ms, end_ms

    def on_host(self) -> tuple[float, float]:
        """Offset and rate that make the host's milliseconds of this clock's: over seconds the two drift apart."""
        with devices.on_device(self.device_id):
            last, host_ms = self._anchor()
        passed = self._base_ms + (last - self._base)
        drift = host_ms - self._host_ms - passed
        return self._host_ms, drift / passed if passed > _FAR_MS else 0.0


class Recorder(Witness):
    """Takes note of all work; waits for nothing."""

    def __init__(self, streams: Mapping[str, Any], ranges: Any, max_spans: int) -> None:
        self.max_spans, self.dropped = max_spans, 0
        self._ranges = ranges
        self._streams = dict(streams)
        self._given = {_identity(name, given): name for name, given in streams.items()}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._lanes: dict[Any, _Lane] = {}
        self._clocks: dict[int, _Clock] = {}
        self._records: list[_Record] = []
        self._pending: deque[_Record] = deque()
        self._start_ms = 0.0

    def begin_trace(self) -> None:
        """Tie the current device's clock to the host's, before there is any work to see."""
        self._start_ms = 1000 * time.perf_counter()
        if devices.has_gpu() and not devices.is_forked():
            status, context = driver.cuCtxGetCurrent()
            if int(status) == 0 and int(context) != 0:
                self._clock(devices.current_device().device_id)

    # ── a work ──

    def begin(self, work: Work) -> tuple[Any, Any, Any]:
        note = self._ranges.start(work) if self._ranges else None
        if len(self._records) >= self.max_spans:
            self.dropped += 1
            return note, None, None
        lane = self._lane(work.stream)
        return (note, None, None) if lane.is_capturing() else (note, lane, lane.mark())

    def end(self, work: Work, begun: tuple[Any, Any, Any]) -> None:
        note, lane, mark = begun
        if lane is not None:
            ended = lane.mark()
            read, written = [_address(array) for array in work.reads], [_address(array) for array in work.writes]
            self._keep(_Record(work.kind, work.name, work.size, lane, mark, ended, read, written))
        if self._ranges:
            self._ranges.end(note)

    def _lane(self, stream: Any) -> _Lane:
        key = id(stream) if stream is not None else threading.current_thread().name
        found = self._lanes.get(key)
        if found is None:
            with self._lock:
                found = self._lanes.get(key) or self._lanes.setdefault(key, self._new_lane(stream))
        return found

    def _new_lane(self, stream: Any) -> _Lane:
        if stream is None:
            return _Lane(threading.current_thread().name.removeprefix("cudakit pipeline: "), HOST)
        identity = _identity("", stream)
        # Two objects of one stream are one lane: the name tells.
        name = self._given.get(identity) or _DEFAULT_STREAMS.get(identity)
        if name is None:
            name = self._given[identity] = self._free_name(name_of_stream(identity))
        place = place_of(stream)
        core = place.check(stream)
        if place.unit == "steps":
            return _Lane(name, EMULATOR, core)
        device_id = core.device.device_id
        return _Lane(name, f"GPU {device_id}", core, self._clock(device_id), handle_of(core))

    def _free_name(self, called: str | None) -> str:
        """A lane's name: what the stream is called, with a number where another is called so; else a number."""
        if called is None:
            return f"stream {next(self._numbers)}"
        taken, name = set(self._given.values()), called
        for number in itertools.count(2):
            if name not in taken:
                break
            name = f"{called} {number}"
        return name

    def _clock(self, device_id: int) -> _Clock:
        with self._lock:
            if device_id not in self._clocks:
                self._clocks[device_id] = _Clock(device_id)
            return self._clocks[device_id]

    def _keep(self, record: _Record) -> None:
        with self._lock:
            if len(self._records) >= self.max_spans:
                self.dropped += 1
                return
            self._records.append(record)
            if record.lane.clock is not None:
                self._pending.append(record)
                if len(self._pending) >= _MOST_PENDING and not len(self._records) % (_MOST_PENDING // 4):
                    self._resolve_done()

    # ── the times ──

    def _resolve_done(self) -> None:
        """Take the times of what is done already, so that its events can be used again."""
        with _relaxed():
            while self._pending and self._pending[0].ended.is_done:
                self._pending.popleft().resolve()

    def finish(self) -> tuple[Span, ...]:
        """Wait for what was seen, and give it in the host's milliseconds since the trace began.

        Raises
        ------
        LaunchError
            The driver reports an error of the work.
        """
        with self._lock:
            try:
                while self._pending:
                    self._pending[0].ended.sync()
                    self._pending.popleft().resolve()
                offsets = {clock: clock.on_host() for clock in self._clocks.values()} if self._records else {}
            except Exception as error:
                raise_launch_error(error)
                raise
            first_step = min((r.begun for r in self._records if r.lane.place == EMULATOR), default=0)
            writers: dict[int | None, int] = {}
            spans = []
            for number, record in enumerate(self._records):
                lane = record.lane
                sources = {writers[array] for array in (*record.read, *record.written) if array in writers}
                after = tuple(sorted(n for n in sources if self._records[n].lane.name != lane.name))
                writers.update((array, number) for array in record.written if array)
                begun, ended = record.begun, record.ended
                if lane.clock is not None:
                    offset, rate = offsets[lane.clock]
                    # Each by its own time, so that what came later stays later however wrong the rate is.
                    begun, ended = ((1 + rate) * time_ms + offset - self._start_ms for time_ms in (begun, ended))
                elif lane.place == HOST:
                    begun, ended = begun - self._start_ms, ended - self._start_ms
                else:
                    begun, ended = (begun - first_step) / 1000, (ended - first_step) / 1000
                spans.append(Span(record.kind, record.name, lane.name, begun, ended, record.size, lane.place, after))
            # Streams and events are let go; what another thread is in the middle of comes too late.
            self.max_spans = 0
            for held in (self._records, self._lanes, self._clocks, self._streams):
                held.clear()
            return tuple(spans)


def _identity(name: str, given: Any) -> int:
    """What is the same for all objects of one stream."""
    try:
        return place_of(given).identity(given)
    except ArgumentError:
        raise ArgumentError(f"trace: streams[{shortened(name)}] is {type(given).__name__}, not a stream") from None


def _address(array: Any) -> int | None:
    """Where an array's elements begin; None for what is no array."""
    library = type(array).__module__.partition(".")[0]
    if library == "cupy":
        # CuPy's array interface says the same, for ten times as long.
        return int(array.data.ptr) if hasattr(array, "data") else None
    if library == "torch":
        return int(array.data_ptr())
    if library == "numpy":
        return int(array.__array_interface__["data"][0])
    found = getattr(array, "__cuda_array_interface__", None)
    if found is not None:
        return int(found["data"][0])
    return int(array.handle) if type(array).__name__ == "Buffer" else None


@contextlib.contextmanager
def _relaxed() -> Iterator[None]:
    """A block in which this thread may ask for events while some stream is captured."""
    _, former = driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(former)
