"""Stand-ins for cuda.core's streams and events: streams of the emulator, with cuda.core's methods."""

from __future__ import annotations

import math
import weakref
from typing import Any

from cuda.core import EventOptions, StreamOptions

from cudakit.adapters.cuda_core.faults import Closeable, CoreError, MadeByOthers, of_options, raising
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cupy.streams import BaseStream, ExternalStream
from cudakit.emulator.face import EmulatedEvent, EmulatedStream, EmulatorPlace
from cudakit.errors import shortened

_LOWEST, _HIGHEST = 0, -5
_streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()


class Event(MadeByOthers, Closeable, EmulatedEvent):
    """A stand-in for ``cuda.core.Event``. Two events have no time between them: subtraction gives NaN."""

    __slots__ = ("_options", "is_recorded")

    def __init__(self, stream: Stream, options: EventOptions | None = None, is_recorded: bool = True) -> None:
        self._options = of_options(EventOptions, options, "Event options")
        if self._options.ipc_enabled:
            raise CoreError("an event for other processes (ipc_enabled) needs a GPU's driver")
        super().__init__(stream)
        self.is_recorded: bool = is_recorded

    def record_on(self, stream: EmulatedStream) -> None:
        """Record the event again, for all work that `stream` has so far."""
        super().record_on(stream)
        self.is_recorded = True

    def __sub__(self, other: Any) -> float:  # type: ignore[override]  # no steps, as no milliseconds
        if not isinstance(other, Event):
            return NotImplemented
        for event in (self, other):
            if not event.is_timing_enabled:
                raise RuntimeError(
                    "Both Events must be created with timing enabled to be subtracted: "
                    "stream.record(options=EventOptions(timing_enabled=True))"
                )
            if not event.is_recorded:
                raise RuntimeError("Both Events must be recorded before they are subtracted: stream.record(event)")
        return math.nan

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<Event handle={self.handle:#x} on the emulator>"

    @property
    def is_timing_enabled(self) -> bool:
        """Whether the event was made with ``timing_enabled``."""
        return bool(self._options.timing_enabled)

    @property
    def is_blocking_sync(self) -> bool:
        """Whether the event was made with ``blocking_sync``."""
        return bool(self._options.blocking_sync)

    is_ipc_enabled = False
    ipc_descriptor: Any = property(raising("Event is not IPC-enabled", RuntimeError))
    from_ipc_descriptor: Any = staticmethod(
        raising("Event.from_ipc_descriptor needs a GPU's driver: events stay in a process")
    )

    @property
    def device(self) -> Any:
        """The one device."""
        return parts.Device(0)

    @property
    def context(self) -> Any:
        """Context of the one device."""
        return parts.CONTEXT


class Stream(MadeByOthers, EmulatedStream):
    """A stand-in for ``cuda.core.Stream``."""

    is_closed: bool

    __slots__ = ("_context", "_options", "is_closed")

    def __init__(self, options: StreamOptions | None = None, context: Any = None) -> None:
        self._options = of_options(StreamOptions, options, "Stream options")
        priority = self._options.priority
        if priority is not None and not _HIGHEST <= priority <= _LOWEST:
            raise ValueError(f"priority={priority} is out of range: {_HIGHEST} (first) to {_LOWEST}")
        alike = EmulatorPlace().current()
        super().__init__(alike.arch, output=alike.output, machine=alike.machine, strict=alike.strict)
        self._context, self.is_closed = context, False
        _streams[self.handle] = self

    @classmethod
    def _init(cls, obj: Any = None, options: Any = None, device_id: int | None = None, ctx: Any = None) -> Stream:
        return cls(options, ctx) if obj is None else stream_of(obj)

    def __repr__(self) -> str:
        return f"<Stream handle={self.handle:#x} on the emulator>"

    def __hash__(self) -> int:
        return hash((Stream, self.handle))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.handle == other.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    @property
    def is_nonblocking(self) -> bool:
        """Whether the stream was made with ``nonblocking``."""
        return bool(self._options.nonblocking)

    @property
    def priority(self) -> int:
        """Priority of the stream. The emulator runs work in the order of the calls."""
        return self._options.priority or 0

    @property
    def device(self) -> Any:
        """The one device."""
        return parts.Device(0)

    @property
    def context(self) -> Any:
        """Context of the stream."""
        return self._context or parts.CONTEXT

    @property
    def resources(self) -> Any:
        """Resources of the one device."""
        return self.device.resources

    def record(self, event: Any = None, options: EventOptions | None = None) -> Any:
        """Record `event`, or a new event with `options`, and return it."""
        if event is None:
            return Event(self, options)
        if not isinstance(event, Event):
            raise TypeError(f"record takes an Event, got {shortened(event)}")
        event.record_on(self)
        return event

    def wait(self, event_or_stream: Any) -> None:
        """Order later work of the stream after an event, or after all work that another stream has so far."""
        if isinstance(event_or_stream, EmulatedEvent):
            if getattr(event_or_stream, "is_recorded", True):
                super().wait(event_or_stream)
            return
        try:
            other = stream_of(event_or_stream)
        except TypeError as error:
            raise ValueError(f"wait takes an Event or a Stream, got {shortened(event_or_stream)}") from error
        super().wait(other.record())

    def close(self) -> None:
        """Close the stream, after its work is done."""
        self.is_closed = True

    @staticmethod
    def from_handle(handle: Any) -> Stream:
        """Return the stream with a handle; 0 is the default stream.

        Raises
        ------
        CoreError
            If no living stream has the handle.
        """
        return stream_of_handle(int(handle))

    def create_graph_builder(self) -> Any:
        """Return a builder of graphs that records launches on this stream."""
        return parts.GraphBuilder(self)


def stream_of_handle(handle: int) -> Stream:
    """Return the stream with a handle: 0 is the default stream.

    Raises
    ------
    CoreError
        If no living stream has the handle.
    """
    stream = _streams.get(handle)
    if stream is None and handle in (0, 1, 2):
        return PER_THREAD_DEFAULT_STREAM if handle == 2 else LEGACY_DEFAULT_STREAM
    if stream is None:
        raise CoreError(f"no stream of the emulator has the handle {handle:#x}: keep the stream while it is used")
    return stream


def stream_of(value: Any, what_takes_it: str = "launch") -> Any:
    """Return the stream of the emulator that an object is, or names by ``__cuda_stream__``.

    Raises
    ------
    TypeError
        For another object.
    """
    if isinstance(value, EmulatedStream):
        return value
    recorded = getattr(value, "recorded_stream", None)  # a graph builder's
    if recorded is not None:
        return recorded()
    protocol = getattr(value, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(
            f"{what_takes_it} takes a Stream, a GraphBuilder or an object with __cuda_stream__, got {shortened(value)}"
        )
    if isinstance(value, BaseStream) and not isinstance(value, ExternalStream):
        return LEGACY_DEFAULT_STREAM  # CuPy's own streams are one
    answer = protocol() if callable(protocol) else protocol
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise RuntimeError(f"__cuda_stream__ returns (0, handle), got {shortened(answer)}")
    return stream_of_handle(int(answer[1]))


LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM = Stream(), Stream()
