"""``ck.trace()`` and ``ck.Timer``: when work on the streams began and was done, without waiting for any of it.

On a GPU a timing event is recorded on the work's stream before and after it; the host's work is timed by its own clock,
and the two are laid over each other by an event whose time on the host is known: the driver gives the time between
two events only. An event costs the stream nothing that can be seen, and the host a microsecond or two. On the emulator
steps are counted. Work that cudakit does not put on the streams itself, such as CuPy's and torch's kernels, is not
seen: it shows as idle time, or as a longer wait.
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

from cuda.bindings import driver

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
        found = self._lanes.get(key)
        if found is None:
            with self._lock:
                found = self._lanes.get(key) or self._lanes.setdefault(key, self._new_lane(stream, host_lane))
        return found

    def _new_lane(self, stream: Any, host_lane: str) -> _Lane:
        if stream is None:
            return _Lane(host_lane, HOST)
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


#: Spans that a trace keeps unless told otherwise: some 50 MB.
MOST_SPANS = 100_000


def trace(streams: Mapping[str, Any] | None = None, *, nvtx: bool | None = None, max_spans: int = MOST_SPANS) -> Trace:
    """A trace of everything that cudakit does inside a ``with`` block, in all threads.

    Parameters
    ----------
    streams : mapping of str to stream, optional
        Names of streams, for the timeline; others are numbered in the order of first use.
    nvtx : bool, optional
        Whether to mark each work as a range for Nsight, with the ``nvtx`` package; default: where it is installed.
    max_spans : int
        Works after which no more are kept, which is warned of; 100 000 take some 50 MB.

    Returns
    -------
    Trace

    Raises
    ------
    ArgumentError
        `max_spans` is not positive, or a stream is none.
    CudakitError
        `nvtx` is asked for and not installed.

    Notes
    -----
    A span begins when its stream comes to the work, and ends when the work is done. A kernel that was waiting in its
    stream shows a microsecond or two longer than it is; where the stream had to wait for the host, the launch itself is
    in the span, some 8 µs. While a trace runs, a launch takes the host about 30 µs (H200): programs of many short
    kernels show more idle time than they have.

    Seen is what cudakit puts on streams, not the kernels of CuPy and torch. Work that is captured into a graph is not
    run, and has no span; the graph's launches have, and on the emulator the kernels in them. There times are steps.

    Examples
    --------
    >>> with ck.trace() as t:
    ...     kernel(stream, ck.cover(x.size), x, y, x.size)
    >>> print(t)
    >>> t.save("trace.json")  # for https://ui.perfetto.dev
    """
    return Trace({} if streams is None else streams, nvtx, max_spans)


class Trace:
    """What a `trace` block saw; to be read after the block, which waits for the streams' work then."""

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
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
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
        """Every work that was seen, in the order in which it was put on its stream; of the host, was done.

        Raises
        ------
        CudakitError
            The block has not ended.
        """
        if self._state != "done":
            raise CudakitError("a trace is read after its block: the work is still being put on the streams")
        if self._spans is None:
            self._spans = self._recorder.finish()
        return self._spans

    @property
    def dropped(self) -> int:
        """Works beyond `max_spans`, which were not kept."""
        return self._recorder.dropped

    def timeline(self) -> Timeline:
        """The spans by stream and stage: those of the emulator, in steps, where there are any, else all."""
        return (*by_clock(self.spans), Timeline(()))[0]

    @property
    def critical(self) -> Stage | Lane | None:
        """The stage or stream that bounds the whole; see `Timeline.critical`."""
        return self.timeline().critical

    def summary(self) -> str:
        """By stream how busy it was and its gaps, by stage its totals, and what bounds the whole."""
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
        """Without waiting for the streams' work, as reading the spans does."""
        state = self._state if self._spans is None else f"of {len(self._spans)} spans"
        return f"<cudakit.trace {state}{f'; dropped: {self.dropped}' if self.dropped else ''}>"

    def _repr_html_(self) -> str:
        """The timeline, in a notebook."""
        if self._state != "done":
            return html(repr(self))
        return html("cudakit.trace", Drawing(lambda: timelines(self.spans)))

    def __str__(self) -> str:
        return self.summary() if self._state == "done" else f"a trace, {self._state}"


class _Ranges:
    """Ranges of the ``nvtx`` package, one for each work, in the domain ``cudakit``."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def start(self, work: Work) -> Any:
        return self._nvtx.start_range(
            work.name, color=int(COLOURS[work.kind][1:], 16), domain="cudakit", category=work.kind
        )

    def end(self, note: Any) -> None:
        self._nvtx.end_range(note)


def _ranges(wanted: bool | None) -> _Ranges | None:
    if wanted is not None and not flag("trace: nvtx", wanted):
        return None
    try:
        import nvtx
    except ImportError as error:
        if wanted:
            raise CudakitError("ranges for Nsight need the nvtx package; install it with: pip install nvtx") from error
        return None
    return _Ranges(nvtx)


@functools.cache
def _warn_of_steps() -> None:
    """Warn, once in a process, that milliseconds of the emulator are none."""
    warnings.warn(
        "ck.Timer: the emulator counts steps and measures no time. elapsed_ms takes a step for a microsecond, and says "
        "nothing about a GPU; elapsed_steps has the count",
        EmulatorWarning,
        stacklevel=4,
    )


class Timer:
    """Time between two points of a stream: ``with ck.Timer(stream) as timer: …``, then ``timer.elapsed_ms``.

    It may be used again; the last measurement counts. It measures from when the stream comes to the start until it
    comes to the stop: where the stream is idle at the start, the host's way to the first launch is in it.

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
    The emulator measures no time. It counts steps: `elapsed_steps` gives their number. `elapsed_ms` takes a step for a
    microsecond and warns once, with an `EmulatorWarning`: such numbers compare with each other, and say nothing about a
    GPU. ``print(timer)`` has the unit.

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
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            # What the block raised says more than what a second look at a broken stream would.
            self._running, self._marks = False, []

    def start(self) -> None:
        """Begin to measure where the stream is now; what was measured before is forgotten.

        Raises
        ------
        LaunchError
            The stream is being captured into a graph.
        """
        self._free, self._marks = self._marks + self._free, []
        self._mark()
        self._running = True

    def lap(self) -> None:
        """End a lap where the stream is now, and begin the next.

        Raises
        ------
        CudakitError
            The timer was not started.
        """
        if not self._running:
            raise CudakitError("the timer is not running: lap() and stop() come after start(), or inside its block")
        self._mark()

    def stop(self) -> None:
        """End the measurement where the stream is now.

        Raises
        ------
        CudakitError
            The timer was not started.
        """
        self.lap()
        self._running = False

    def _mark(self) -> None:
        refuse_capture(self.stream, "a timer's mark", "what is captured does not run yet", "time the graph's launches")
        self._marks.append(self._place.mark(self.stream, self._free.pop() if self._free else None))

    @property
    def is_done(self) -> bool:
        """Whether the stream has come to the stop, so that reading does not wait."""
        return bool(self._measured()[-1].is_done)

    @property
    def laps_ms(self) -> tuple[float, ...]:
        """Milliseconds of each lap, the last one until the stop; waits for the stream to come there."""
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
        """Milliseconds from start to stop; waits for the stream to come there. On the emulator, see the notes.

        Raises
        ------
        CudakitError
            The timer has not been stopped.
        LaunchError
            The driver reports an error of the stream's work.
        """
        self._warn_of_steps()
        return sum(self._laps())

    @property
    def laps_steps(self) -> tuple[int, ...]:
        """Steps of each lap on the emulator."""
        if self._place.unit != "steps":
            raise CudakitError("steps are the emulator's; a GPU's stream has elapsed_ms and laps_ms")
        marks = self._measured()
        return tuple(end - start for start, end in pairwise(marks))

    @property
    def elapsed_steps(self) -> int:
        """Steps from start to stop on the emulator.

        Raises
        ------
        CudakitError
            The stream is a GPU's, or the timer has not been stopped.
        """
        return sum(self.laps_steps)

    def _measured(self) -> Sequence[Any]:
        if self._running or not self._marks:
            state = "still running" if self._running else "not started"
            raise CudakitError(f"the timer is {state}: read it after stop(), or after its block")
        return self._marks

    def __repr__(self) -> str:
        """Without the time, for which it would have to wait."""
        if self._running or not self._marks:
            return f"<cudakit.Timer {'running' if self._running else 'not started'}>"
        return f"<cudakit.Timer stopped; laps: {len(self._marks) - 1}>"

    def __str__(self) -> str:
        if self._running or not self._marks:
            return "a timer, running" if self._running else "a timer, not started"
        return f"{self.elapsed_steps} steps" if self._place.unit == "steps" else f"{self.elapsed_ms:.4f} ms"
