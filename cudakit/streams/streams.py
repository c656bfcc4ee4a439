"""Streams of GPUs: accepted stream objects, their counterparts in other libraries, and captures.

Without an open capture, the question whether a stream is captured costs a test of an empty dictionary. For the
emulator's streams, `cudakit.places.Place.capture` answers it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, LaunchError, raise_launch_error
from cudakit.records import NamedTuple
from cudakit.streams import devices, process

if TYPE_CHECKING:
    from cuda.core import Device, Event, EventOptions, Stream


#: The driver's own numbers of the two default streams; CuPy and torch write 0 for the legacy one.
_LEGACY, _PER_THREAD = 1, 2
#: Most streams in the cache of stream objects. Beyond this number the cache is cleared.
_MOST_KNOWN = 256


def handle_of(stream: Stream) -> int:
    """Return the driver's number of a stream, unique among streams."""
    return int(stream.handle) or _LEGACY


class DeviceStream(NamedTuple):
    """A stream passed to a launch, with the data that each launch on it needs."""

    stream: Any
    core: Stream
    handle: int
    device_id: int


def as_stream(stream: Any) -> Stream:
    """Return the cuda.core stream of a cuda.core stream, or of any object with ``__cuda_stream__`` (CuPy, torch).

    Raises
    ------
    ArgumentError
        If `stream` is not a stream.
    """
    from cuda.core import Stream

    require_stream(stream)
    devices.require_gpu()
    devices.make_current()  # all that is asked of a stream from here on needs a context
    return stream if isinstance(stream, Stream) else _objects.adopt(stream)


def require_stream(stream: Any) -> None:
    """Raise if `stream` is not a stream of a GPU.

    Raises
    ------
    ArgumentError
    """
    if not hasattr(stream, "__cuda_stream__"):
        raise ArgumentError.of(
            "expected",
            "a stream (ck.stream(), a cuda.core, CuPy or torch stream)",
            type(stream).__name__,
            "a kernel is called as kernel(stream, config, *arguments)",
        )


def device_stream(stream: Any) -> DeviceStream:
    """Return the `DeviceStream` of a stream: cuda.core's stream, number and device.

    Looked up by identity after the first time.
    """
    entry = _device_streams.get(id(stream))
    if entry is None or entry.stream is not stream or entry.core.is_closed:
        core = as_stream(stream)
        if core.is_closed:
            raise LaunchError("the stream was closed; give another, ck.stream()")
        entry = DeviceStream(stream, core, handle_of(core), core.device.device_id)
        if len(_device_streams) >= _MOST_KNOWN:
            _device_streams.clear()
        _device_streams[id(stream)] = entry
    return entry


def cupy_module() -> ModuleType:
    """Return CuPy.

    Raises
    ------
    CudakitError
        If CuPy is not installed.
    """
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise
        raise CudakitError(
            "CuPy is not installed, which makes arrays on GPUs here: pip install 'cudakit[cu13]' (or [cu12]). "
            "Without it kernels take arrays of torch and of every library with DLPack or __cuda_array_interface__"
        ) from error
    return cupy  # type: ignore[no-any-return]


def cupy_stream(core: Stream) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager in which CuPy works on a stream and its device, also in several threads."""
    stream: contextlib.AbstractContextManager[Any] = _objects.of_cupy(core)
    return stream if devices.device_count() < 2 else _OnDevice(core.device.device_id, stream)


class _OnDevice:
    """A context manager in which CuPy works on a device and one of its streams."""

    def __init__(self, device_id: int, stream: contextlib.AbstractContextManager[Any]) -> None:
        self._device_id = device_id
        self._stream = stream
        self._entered = threading.local()

    def __enter__(self) -> None:
        device = devices.on_device(self._device_id)
        device.__enter__()
        self._entered.device = device
        self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self._stream.__exit__(*error)
        finally:
            self._entered.device.__exit__(*error)


def create(device: Device) -> Stream:
    """Return a new stream of a device. Its `sync` raises `LaunchError` for failed work."""
    stream: Stream = _checked()._init(device.create_stream())  # as foreign streams are adopted
    return stream


@functools.cache
def _checked() -> Any:
    from cuda.core import Stream

    class CheckedStream(Stream):  # type: ignore[misc]
        """cuda.core's `Stream`, whose `sync` raises cudakit's errors."""

        def sync(self) -> None:
            """Wait until all work of the stream is done.

            Raises
            ------
            LaunchError
                If a kernel has failed: the driver's error is its cause. If the stream is being captured into a graph.
            """
            try:
                super().sync()
            except Exception as error:
                raise_launch_error(error)
                raise

        def __getattr__(self, name: str) -> NoReturn:
            from cudakit import foreign_names  # late: most programs look up no missing name

            raise foreign_names.missing_attribute("stream", self, "'Stream' object", name)

    return CheckedStream


def wait_for(core: Stream, source: Stream) -> None:
    """Make `core` wait for the present work of `source`. The two streams may be on different devices."""
    if devices.device_count() < 2 or handle_of(source) in (_LEGACY, _PER_THREAD):
        core.wait(source)
        return
    # An event belongs to the context that is current when it is made, and must be of the stream that it is recorded on.
    with devices.on_device(source.device.device_id):
        event = source.record()
    core.wait(event)


class EventCalls(NamedTuple):
    """The calls that record events and wait for them.

    Attributes
    ----------
    wait, record : callable
        ``wait(stream, event)`` and ``record(event, stream)``.
    by_number : bool
        Whether the calls take the driver's numbers of streams and events; else they take the objects.
    """

    wait: Callable[[Any, Any], object]
    record: Callable[[Any, Any], object]
    by_number: bool


def event_calls(core: Any) -> EventCalls:
    """Return CuPy's calls for a GPU's stream if CuPy is loaded, else the methods of streams. CuPy's cost less."""
    runtime = getattr(getattr(sys.modules.get("cupy"), "cuda", None), "runtime", None)
    # Streams of cudakit are a subclass of cuda.core's.
    if runtime is not None and any(base.__module__.startswith("cuda.core") for base in type(core).__mro__):
        return EventCalls(runtime.streamWaitEvent, runtime.eventRecord, True)
    return EventCalls(lambda stream, event: stream.wait(event), lambda event, stream: stream.record(event), False)


def timing_event(stream: Stream, event: Event | None = None) -> Event:
    """Record an event with a time on `stream`, and return it. `event` is reused if it is not None."""
    return stream.record(event) if event is not None else stream.record(options=_timed())


@functools.cache
def _timed() -> EventOptions:
    from cuda.core import EventOptions

    return EventOptions(timing_enabled=True)


def of_handle(handle: int) -> Stream:
    """Return cuda.core's stream object for a driver's number. The caller keeps the stream alive."""
    from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

    if handle in (0, _LEGACY):
        return LEGACY_DEFAULT_STREAM
    return PER_THREAD_DEFAULT_STREAM if handle == _PER_THREAD else Stream.from_handle(handle)


def current_streams(libraries: Iterable[str], device_id: int) -> list[int]:
    """Return the numbers of the current streams of the named libraries (``cupy``, ``torch``) in this thread."""
    result = []
    for library in libraries:
        if library == "cupy":
            result.append(sys.modules["cupy"].cuda.get_current_stream().ptr or _LEGACY)
        else:
            result.append(sys.modules["torch"]._C._cuda_getCurrentRawStream(device_id) or _LEGACY)
    return result


class _Objects:
    """The objects that cuda.core and CuPy have for each other's streams, cached up to a limit."""

    def __init__(self) -> None:
        self._lock = process.renewed(self, "_lock", threading.Lock)
        self._adopted: dict[int, tuple[Any, Stream]] = {}
        self._cupy: dict[int, tuple[Stream, Any]] = {}

    def adopt(self, foreign: Any) -> Stream:
        """Return cuda.core's stream of another library's stream object."""
        handle = int(foreign.__cuda_stream__()[1]) or _LEGACY
        with self._lock:
            entry = self._adopted.get(handle)
            if entry is None or entry[0] is not foreign:
                if handle in (_LEGACY, _PER_THREAD):
                    core = of_handle(handle)
                else:
                    core = devices.current_device().create_stream(foreign)
                if len(self._adopted) >= _MOST_KNOWN:
                    self._adopted.clear()
                entry = self._adopted[handle] = (foreign, core)
            return entry[1]

    def of_cupy(self, core: Stream) -> Any:
        """Return CuPy's stream object for a cuda.core stream.

        Each call returns the same object. So a comparison by identity shows whether the stream is current.
        """
        import cupy

        handle = handle_of(core)
        with self._lock:
            entry = self._cupy.get(handle)
            if entry is None or entry[0] is not core:
                null = handle == _LEGACY
                stream = cupy.cuda.Stream.null if null else cupy.cuda.Stream.from_external(core)
                if len(self._cupy) >= _MOST_KNOWN:
                    self._cupy.clear()
                entry = self._cupy[handle] = (core, stream)
            return entry[1]


_objects = _Objects()
_device_streams: dict[int, DeviceStream] = {}


class Capture(Protocol):
    """Operations of a capture for code that puts work on its streams."""

    def kept_by(self, owner: object) -> dict[Any, Any]:
        """Return a dict, which `owner` fills with the objects that it keeps for each stream, for this graph only."""

    def keep(self, thing: Any) -> None:
        """Keep `thing` alive as long as the graph exists."""

    def is_named(self, address: int) -> bool:
        """Return whether a launch of the graph may put another array in the place of the one at `address`."""

    def clear(self, array: Any) -> None:
        """Zero a device array once, now, outside the graph."""

    def upload(self, array: np.ndarray) -> Any:
        """Return a copy of a host array in device memory, made once, now, outside the graph."""


#: Open captures, by the driver's number.
_open: dict[int, Capture] = {}


def is_any_open() -> bool:
    """Return whether cudakit has an open capture."""
    return bool(_open)


def current(stream: Any) -> Any | None:
    """Return the capture that `stream` is a part of, if cudakit began it, or None."""
    return capture_and_number(stream)[0] if _open else None


def capture_and_number(stream: Any) -> tuple[Any | None, int]:
    """Return the capture that `stream` is a part of, or None, and the driver's number for the capture.

    The body of a loop or branch has a number of its own.
    """
    if not _open:
        return None, 0
    from cuda.bindings import driver

    status, _, number, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(_number(stream)))
    return (_open.get(int(number)), int(number)) if int(status) == 0 else (None, 0)


def is_capturing(stream: Any) -> bool:
    """Return whether work put on `stream` goes into a graph instead of running, in any program's capture."""
    return is_captured(_number(stream))


def is_captured(handle: int) -> bool:
    """Return whether work put on a stream of a GPU goes into a graph. `handle` is the driver's number of the stream."""
    ask, refusal = _question()
    try:
        return bool(ask(handle))
    except refusal:
        # The legacy default stream, while another that waits for it by itself is captured.
        return False


@functools.cache
def _question() -> tuple[Any, Any]:
    """Return CuPy's function that queries captures, and the class of the error that it raises.

    CuPy's query takes a tenth of the time of the query in the CUDA bindings.
    """
    try:
        from cupy.cuda import runtime
    except ImportError:  # a program of torch's or cuda.core's own memory
        from cuda.bindings import driver

        return lambda handle: int(driver.cuStreamIsCapturing(driver.CUstream(handle))[1] or 0), ()
    return runtime.streamIsCapturing, runtime.CUDARuntimeError


def begin(capture: Capture, number: int) -> None:
    """Register an open capture under the driver's number `number`."""
    _open[number] = capture


def end(capture: Capture) -> None:
    """Remove a capture from the open captures."""
    for number in [number for number, candidate in list(_open.items()) if candidate is capture]:
        _open.pop(number, None)


def _number(stream: Any) -> int:
    return int(stream.__cuda_stream__()[1])
