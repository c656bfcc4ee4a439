"""``ck.trace()`` and ``ck.Timer``: when work on the streams began and was done, without waiting for any of it.

On a GPU, timing events are recorded on the stream before and after each piece of work. The host's work is timed by the
host's clock. Both clocks are aligned by an event with a known time on the host, because the driver only gives the time
between two events. An event costs the stream no measurable time, and the host a microsecond or two. On the emulator,
steps are counted. Work that other libraries put on the streams, such as kernels of CuPy and torch, is not traced. It
shows as idle time, or as a longer wait.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, CudakitError, EmulatorWarning, raise_launch_error, shortened
from cudakit.places import place_of, refuse_capture
from cudakit.profile.timeline import (
    COLOURS,
    EMULATOR,
    HOST,
    Lane,
    Span,
    Stage,
    Timeline,
    by_clock,
    save_json,
    save_picture,
    timelines,
)
from cudakit.streams import devices
from cudakit.streams.streams import handle_of, is_captured, timing_event
from cudakit.streams.witnesses import Kind, Witness, Work, name_of_stream, witnessing
from cudakit.types.checked import flag, text_of, whole
from cudakit.types.shown import Drawing, html

if TYPE_CHECKING:
    from cuda.core import Event, Stream


#: Works that wait for the GPU before finished ones are looked for, so that their events can be used again.
_MOST_PENDING = 2048
#: The driver's times are float32: beyond a second they are no longer good to a tenth of a microsecond.
_FAR_MS = 1000.0
_DEFAULT_STREAMS = {1: "default stream", 2: "per-thread default stream"}


@dataclass(slots=True)
class _Record:
    """A piece of work in a trace, and when it began and ended.

    On a GPU, `begun` and `ended` are events until the device has passed them. Then they are milliseconds.
    """

    kind: Kind
    name: str
    size: int
    lane: _Lane
    begun: Any
    ended: Any
    read: list[int | None]
    written: list[int | None]

    def resolve(self) -> None:
        """Replace the events `begun` and `ended` by their times. The device must have passed both."""
        assert self.lane.clock is not None
        self.begun, self.ended = self.lane.clock.times(self.begun, self.ended)


@dataclass(slots=True)
class _Lane:
    """A stream or a thread. For a GPU's stream, `clock` is the device's clock, and `handle` the driver's number."""

    name: str
    place: str
    stream: Any = None
    clock: _Clock | None = None
    handle: int = 0

    def is_capturing(self) -> bool:
        """Return whether work put on the stream goes into a graph now. Such work has no time."""
        if self.clock is None:
            return False  # the emulator tells of nothing that it does not run
        return is_captured(self.handle)

    def mark(self) -> Any:
        """Return the present time: milliseconds of the host, a step of the emulator, or an event on a GPU's stream."""
        if self.clock is not None:
            return self.clock.record(self.stream)
        return 1000 * time.perf_counter() if self.stream is None else self.stream.clock


class _Clock:
    """The clock of a device, tied to the host's clock by an event with a known time on both.

    It also owns the device's events that can be reused.
    """

    def __init__(self, device_id: int) -> None:
        from cuda.core import Device

        self.device_id = device_id
        with devices.on_device(device_id):
            self._stream: Stream = Device(device_id).create_stream()
            first, self._host_ms = self._anchor()
        self._base, self._base_ms = first, 0.0
        self._free: list[Event] = []

    def _anchor(self) -> tuple[Event, float]:
        """Return an event and its time on the host's clock: of three attempts, the one with the least uncertainty."""
        anchors = []
        for _ in range(3):
            before = time.perf_counter()
            event = timing_event(self._stream)
            event.sync()
            after = time.perf_counter()
            anchors.append((after - before, 500 * (before + after), event))
        _, host_ms, event = min(anchors, key=lambda anchor: anchor[0])
        return event, host_ms

    def record(self, stream: Stream) -> Event:
        """Record an event with a time on `stream`, and return the event."""
        try:
            event = self._free.pop()
        except IndexError:
            event = None
        with devices.on_device(self.device_id):
            return timing_event(stream, event)

    def times(self, begun: Event, ended: Event) -> tuple[float, float]:
        """Return the times of two events that the device has passed, in milliseconds since the clock's first event.

        Both events may then be reused.
        """
        start_ms = self._base_ms + (begun - self._base)
        end_ms = start_ms + (ended - begun)
        if start_ms - self._base_ms > _FAR_MS:
            begun, self._base, self._base_ms = self._base, begun, start_ms
        self._free += begun, ended
        return start_ms, end_ms

    def on_host(self) -> tuple[float, float]:
        """Return offset and rate that convert this clock's times to the host's milliseconds.

        The rate is needed because both clocks drift apart over seconds.
        """
        with devices.on_device(self.device_id):
            last, host_ms = self._anchor()
        host_now = self._base_ms + (last - self._base)
        drift = host_ms - self._host_ms - host_now
        return self._host_ms, drift / host_now if host_now > _FAR_MS else 0.0


class Recorder(Witness):
    """A witness that records all work and waits for none."""

    def __init__(self, streams: Mapping[str, Any], ranges: Any, max_spans: int) -> None:
        self.max_spans, self.dropped = max_spans, 0
        self._ranges = ranges
        self._streams = dict(streams)
        self._names = {_identity(name, stream): name for name, stream in streams.items()}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._lanes: dict[Any, _Lane] = {}
        self._clocks: dict[int, _Clock] = {}
        self._records: list[_Record] = []
        self._pending: deque[_Record] = deque()
        self._start_ms = 0.0

    def begin_trace(self) -> None:
        """Tie the current device's clock to the host's, before any work."""
        self._start_ms = 1000 * time.perf_counter()
        if devices.has_gpu() and not devices.is_forked():
            from cuda.bindings import driver  # only with a GPU

            status, context = driver.cuCtxGetCurrent()
            if int(status) == 0 and int(context) != 0:
                self._clock(devices.current_device().device_id)

    # ── a work ──

    def begin(self, work: Work) -> tuple[Any, Any, Any]:
        note = self._ranges.start(work) if self._ranges else None
        if len(self._records) >= self.max_spans:
            self.dropped += 1
            return note, None, None
        lane = self._lane(work.stream, work.lane)
        return (note, None, None) if lane.is_capturing() else (note, lane, lane.mark())

    def end(self, work: Work, begun: tuple[Any, Any, Any]) -> None:
        note, lane, mark = begun
        if lane is not None:
            ended = lane.mark()
            read, written = [_address(array) for array in work.reads], [_address(array) for array in work.writes]
            self._keep(_Record(work.kind, work.name, work.size, lane, mark, ended, read, written))
        if self._ranges:
            self._ranges.end(note)

    def _lane(self, stream: Any, host_lane: str) -> _Lane:
        host_lane = host_lane or threading.current_thread().name.removeprefix("cudakit pipeline: ")
        key = id(stream) if stream is not None else host_lane
        entry = self._lanes.get(key)
        if entry is None:
            with self._lock:
                entry = self._lanes.get(key) or self._lanes.setdefault(key, self._new_lane(stream, host_lane))
        return entry

    def _new_lane(self, stream: Any, host_lane: str) -> _Lane:
        if stream is None:
            return _Lane(host_lane, HOST)
        identity = _identity("", stream)
        # Two objects of one stream are one lane: the name tells.
        name = self._names.get(identity) or _DEFAULT_STREAMS.get(identity)
        if name is None:
            name = self._names[identity] = self._free_name(name_of_stream(identity))
        place = place_of(stream)
        core = place.check(stream)
        if place.unit == "steps":
            return _Lane(name, EMULATOR, core)
        device_id = core.device.device_id
        return _Lane(name, f"GPU {device_id}", core, self._clock(device_id), handle_of(core))

    def _free_name(self, called: str | None) -> str:
        """Return an unused name for a row of the timeline.

        It is the stream's own name `called`, with a number if another row has it. If `called` is None, it is ``stream``
        and a number.
        """
        if called is None:
            return f"stream {next(self._numbers)}"
        used_names, name = set(self._names.values()), called
        for number in itertools.count(2):
            if name not in used_names:
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
        """Read the times of finished work, so that its events can be reused."""
        with _relaxed():
            while self._pending and self._pending[0].ended.is_done:
                self._pending.popleft().resolve()

    def finish(self) -> tuple[Span, ...]:
        """Wait for the recorded work, and return its spans in the host's milliseconds since the trace began.

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
            for table in (self._records, self._lanes, self._clocks, self._streams):
                table.clear()
            return tuple(spans)


def _identity(name: str, stream: Any) -> int:
    """Return the identity that all objects of one stream share."""
    try:
        return place_of(stream).identity(stream)
    except ArgumentError:
        raise ArgumentError(f"trace: streams[{shortened(name)}] is {type(stream).__name__}, not a stream") from None


def _address(array: Any) -> int | None:
    """Return the address of an array's first element; None for other objects."""
    library = type(array).__module__.partition(".")[0]
    if library == "cupy":
        # CuPy's array interface says the same, for ten times as long.
        return int(array.data.ptr) if hasattr(array, "data") else None
    if library == "torch":
        return int(array.data_ptr())
    if library == "numpy":
        return int(array.__array_interface__["data"][0])
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    return int(array.handle) if type(array).__name__ == "Buffer" else None


@contextlib.contextmanager
def _relaxed() -> Iterator[None]:
    """Allow this thread to query events while a stream is captured, inside a ``with`` block."""
    from cuda.bindings import driver  # only with a GPU

    _, former = driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(former)


#: Spans that a trace keeps unless told otherwise: some 50 MB.
MOST_SPANS = 100_000


def trace(streams: Mapping[str, Any] | None = None, *, nvtx: bool | None = None, max_spans: int = MOST_SPANS) -> Trace:
    """Trace everything that cudakit does inside a ``with`` block, in all threads.

    Parameters
    ----------
    streams : mapping of str to stream, optional
        Names of streams, for the timeline; others are numbered in the order of first use.
    nvtx : bool, optional
        Whether to mark each work as a range for Nsight, with the ``nvtx`` package. Default: if the package is
        installed.
    max_spans : int
        Most pieces of work to record. A warning says if there are more. 100 000 take some 50 MB.

    Returns
    -------
    Trace
        Context manager of the block, which holds the result after the block.

    Raises
    ------
    ArgumentError
        If `max_spans` is not positive, or `streams` holds something else than streams.
    CudakitError
        If `nvtx` is True and the package is not installed.

    Notes
    -----
    A span begins when its stream reaches the work, and ends when the work is done. The span of a kernel that waited in
    its stream is a microsecond or two too long. If the stream had to wait for the host, the span contains the launch,
    some 8 µs. While a trace runs, a launch takes the host about 30 µs (H200): programs of many short kernels show more
    idle time than they have.

    The trace contains work that cudakit puts on streams, not the kernels of CuPy and torch. Work captured into a graph
    does not run, and has no span. The graph's launches have spans, and on the emulator the kernels in them, too. On the
    emulator times are steps.

    Examples
    --------
    >>> with ck.trace() as t:
    ...     kernel(stream, ck.cover(x.size), x, y, x.size)
    >>> print(t)
    >>> t.save("trace.json")  # for https://ui.perfetto.dev
    """
    return Trace({} if streams is None else streams, nvtx, max_spans)


class Trace:
    """The result of a `trace` block, to be read after the block. Reading waits for the streams' work."""

    def __init__(self, streams: Mapping[str, Any], nvtx: bool | None, max_spans: int) -> None:
        whole("trace: max_spans", max_spans, 1)
        if not isinstance(streams, Mapping):
            raise ArgumentError(f"trace: streams maps names to streams, got {type(streams).__name__}")
        for name in streams:
            text_of("trace: each name in streams", name)
        self._recorder = Recorder(streams, _ranges(nvtx), max_spans)
        self._max_spans = max_spans
        self._stack = contextlib.ExitStack()
        self._state = "new"
        self._spans: tuple[Span, ...] | None = None

    def __enter__(self) -> Trace:
        if self._state != "new":
            raise CudakitError("a trace is of one block; make another with ck.trace()")
        self._state = "running"
        self._recorder.begin_trace()
        self._stack.enter_context(witnessing(self._recorder))
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        self._stack.close()
        self._state = "done"
        if self._recorder.dropped:
            warnings.warn(
                f"the trace kept its first {self._max_spans} works and dropped {self._recorder.dropped}; "
                "give ck.trace(max_spans=...) a larger number, or trace less",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def spans(self) -> tuple[Span, ...]:
        """All recorded work, in the order in which it was put on its stream. Work of the host is ordered by its ends.

        Raises
        ------
        CudakitError
            If the block has not ended.
        """
        if self._state != "done":
            raise CudakitError("a trace is read after its block: the work is still being put on the streams")
        if self._spans is None:
            self._spans = self._recorder.finish()
        return self._spans

    @property
    def dropped(self) -> int:
        """Number of pieces of work beyond `max_spans`, which were not recorded."""
        return self._recorder.dropped

    def timeline(self) -> Timeline:
        """Return the spans by stream and stage: the emulator's, in steps, if there are any, else all."""
        return (*by_clock(self.spans), Timeline(()))[0]

    @property
    def critical(self) -> Stage | Lane | None:
        """The stage or stream that bounds the total time; see `Timeline.critical`."""
        return self.timeline().critical

    def summary(self) -> str:
        """Return busy time and gaps of each stream, totals of each stage, and the bound of the total time."""
        return "\n\n".join(part.summary() for part in by_clock(self.spans)) or Timeline(()).summary()

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON in the trace-event format, for https://ui.perfetto.dev and ``chrome://tracing``."""
        save_json(self.spans, path)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw a PNG: a row for each stream, a colour for each kind, idle gaps marked, the bound in the title.

        Raises
        ------
        CudakitError
            matplotlib is not installed.
        """
        save_picture(self.spans, path)

    def __repr__(self) -> str:
        """Return a summary without waiting for the streams' work, as reading the spans does."""
        state = self._state if self._spans is None else f"of {len(self._spans)} spans"
        return f"<cudakit.trace {state}{f'; dropped: {self.dropped}' if self.dropped else ''}>"

    def _repr_html_(self) -> str:
        """Return the timeline, for a notebook."""
        if self._state != "done":
            return html(repr(self))
        return html("cudakit.trace", Drawing(lambda: timelines(self.spans)))

    def __str__(self) -> str:
        return self.summary() if self._state == "done" else f"a trace, {self._state}"


class _Ranges:
    """Ranges of the ``nvtx`` package, one for each piece of work, in the domain ``cudakit``."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def start(self, work: Work) -> Any:
        return self._nvtx.start_range(
            work.name, color=int(COLOURS[work.kind][1:], 16), domain="cudakit", category=work.kind
        )

    def end(self, note: Any) -> None:
        self._nvtx.end_range(note)


def _ranges(is_requested: bool | None) -> _Ranges | None:
    if is_requested is not None and not flag("trace: nvtx", is_requested):
        return None
    try:
        import nvtx
    except ImportError as error:
        if is_requested:
            raise CudakitError("ranges for Nsight need the nvtx package; install it with: pip install nvtx") from error
        return None
    return _Ranges(nvtx)


@functools.cache
def _warn_of_steps() -> None:
    """Warn, once in a process, that the emulator's milliseconds are no time."""
    warnings.warn(
        "ck.Timer: the emulator counts steps and measures no time. elapsed_ms takes a step for a microsecond, and says "
        "nothing about a GPU; elapsed_steps has the count",
        EmulatorWarning,
        stacklevel=4,
    )


class Timer:
    """A timer between two points of a stream: ``with ck.Timer(stream) as timer: …``, then ``timer.elapsed_ms``.

    A timer may be used again; the last measurement counts. The time runs from the stream's arrival at the start to its
    arrival at the stop. If the stream is idle at the start, the time includes the host's time until the first launch.

    Parameters
    ----------
    stream : stream
        ``ck.stream()``, a cuda.core, CuPy or torch stream, or the emulator's.

    Raises
    ------
    ArgumentError
        `stream` is not a stream.

    Notes
    -----
    The emulator measures no time. It counts steps: `elapsed_steps` is their number. `elapsed_ms` counts a step as a
    microsecond and warns once, with an `EmulatorWarning`. Such numbers can be compared with each other. They say
    nothing about a GPU. ``print(timer)`` shows the unit.

    Examples
    --------
    >>> with ck.Timer(stream) as timer:
    ...     kernel(stream, config, x, y, n)
    ...     timer.lap()
    ...     kernel(stream, config, y, x, n)
    >>> timer.elapsed_ms, timer.laps_ms
    """

    def __init__(self, stream: Any) -> None:
        self._place = place_of(stream)
        self.stream: Any = self._place.check(stream)
        self._marks: list[Any] = []
        self._free: list[Any] = []
        self._running = False

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            # What the block raised says more than what a second look at a broken stream would.
            self._running, self._marks = False, []

    def start(self) -> None:
        """Begin a measurement at the stream's present point. An earlier measurement is forgotten.

        Raises
        ------
        LaunchError
            If the stream is being captured into a graph.
        """
        self._free, self._marks = self._marks + self._free, []
        self._mark()
        self._running = True

    def lap(self) -> None:
        """End a lap at the stream's present point, and begin the next.

        Raises
        ------
        CudakitError
            If the timer was not started.
        """
        if not self._running:
            raise CudakitError("the timer is not running: lap() and stop() come after start(), or inside its block")
        self._mark()

    def stop(self) -> None:
        """End the measurement at the stream's present point.

        Raises
        ------
        CudakitError
            If the timer was not started.
        """
        self.lap()
        self._running = False

    def _mark(self) -> None:
        refuse_capture(self.stream, "a timer's mark", "what is captured does not run yet", "time the graph's launches")
        self._marks.append(self._place.mark(self.stream, self._free.pop() if self._free else None))

    @property
    def is_done(self) -> bool:
        """True once the stream has reached the stop, so that reading does not wait."""
        return bool(self._measured()[-1].is_done)

    @property
    def laps_ms(self) -> tuple[float, ...]:
        """Milliseconds of each lap; the last lap ends at the stop. Waits until the stream reaches the stop."""
        self._warn_of_steps()
        return self._laps()

    def _warn_of_steps(self) -> None:
        if self._place.unit == "steps":
            _warn_of_steps()

    def _laps(self) -> tuple[float, ...]:
        marks = self._measured()
        try:
            marks[-1].sync()
            return tuple(self._place.elapsed_ms(*ends) for ends in pairwise(marks))
        except Exception as error:
            raise_launch_error(error)
            raise

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds from start to stop. Waits until the stream reaches the stop. An emulator's step counts as 1 µs.

        Raises
        ------
        CudakitError
            If the timer has not been stopped.
        LaunchError
            If the driver reports an error of the stream's work.
        """
        self._warn_of_steps()
        return sum(self._laps())

    @property
    def laps_steps(self) -> tuple[int, ...]:
        """Number of the emulator's steps in each lap."""
        if self._place.unit != "steps":
            raise CudakitError("steps are the emulator's; a GPU's stream has elapsed_ms and laps_ms")
        marks = self._measured()
        return tuple(end - start for start, end in pairwise(marks))

    @property
    def elapsed_steps(self) -> int:
        """Number of the emulator's steps from start to stop.

        Raises
        ------
        CudakitError
            If the stream is a GPU's, or the timer has not been stopped.
        """
        return sum(self.laps_steps)

    def _measured(self) -> Sequence[Any]:
        if self._running or not self._marks:
            state = "still running" if self._running else "not started"
            raise CudakitError(f"the timer is {state}: read it after stop(), or after its block")
        return self._marks

    def __repr__(self) -> str:
        """Return a description without the time, which would need a wait."""
        if self._running or not self._marks:
            return f"<cudakit.Timer {'running' if self._running else 'not started'}>"
        return f"<cudakit.Timer stopped; laps: {len(self._marks) - 1}>"

    def __str__(self) -> str:
        if self._running or not self._marks:
            return "a timer, running" if self._running else "a timer, not started"
        return f"{self.elapsed_steps} steps" if self._place.unit == "steps" else f"{self.elapsed_ms:.4f} ms"
