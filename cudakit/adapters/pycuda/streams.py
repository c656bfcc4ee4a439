"""PyCUDA's streams and events."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from cudakit import places
from cudakit.adapters.pycuda.contexts import finish_all, require_context
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.errors import ArgumentError, shortened
from cudakit.streams import devices, streams


def default_stream() -> Any:
    """Return the stream of work that names none: the driver's default stream, or one of the emulator.

    Raises
    ------
    LogicError
        If no context is current.
    """
    require_context("the call")
    return streams.of_handle(0) if devices.has_gpu() else _emulated_default()


@functools.cache
def _emulated_default() -> Any:
    from cudakit.emulator.face import strict

    with strict():
        return places.stream()


def stream_of(stream: Any) -> Any:
    """Return cudakit's stream for a stream of PyCUDA's, of cudakit or of another library; None is the default stream.

    Raises
    ------
    ArgumentError
        For another object.
    """
    if stream is None:
        return default_stream()
    if isinstance(stream, Stream):
        return stream.stream
    if hasattr(stream, "__cuda_stream__") or hasattr(stream, "record"):
        return places.place_of(stream).check(stream)
    raise ArgumentError(f"stream is a pycuda.driver.Stream or None, got {shortened(stream)}")


class Stream:
    """A stream of work.

    Parameters
    ----------
    flags : int
        1: a stream that does not wait for the default stream.

    Attributes
    ----------
    stream : stream
        cudakit's stream.
    """

    def __init__(self, flags: int = 0) -> None:
        require_context("cuStreamCreate")
        with translated():
            self.stream: Any = _create(not flags & 1)

    def __repr__(self) -> str:
        return f"<pycuda.driver.Stream {self.handle:#x}>"

    @property
    def handle(self) -> int:
        """The driver's number of the stream; on the emulator a small number."""
        return int(self.stream.handle)

    def synchronize(self) -> None:
        """Wait for all work of the stream."""
        with translated():
            self.stream.sync()

    def is_done(self) -> bool:
        """Return whether all work of the stream is done."""
        with translated():
            return bool(self.stream.record().is_done)

    def wait_for_event(self, event: Event) -> None:
        """Let later work of the stream wait for an event."""
        if event.event is not None:
            self.stream.wait(event.event)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _create(blocking: bool) -> Any:
    """Return a new stream; a `blocking` one waits for the default stream, and that one for it."""
    if not devices.has_gpu():
        return default_stream().alike()
    from cuda.core import StreamOptions

    return devices.current_device().create_stream(options=StreamOptions(nonblocking=not blocking))


#: Milliseconds of a step of the emulator.
_STEP = 0.001


class Event:
    """A position in a stream's work.

    Parameters
    ----------
    flags : int
        Flags of `event_flags`. Every event has a time unless DISABLE_TIMING is set.

    Attributes
    ----------
    event : event or None
        cudakit's event; None before it is recorded.
    """

    def __init__(self, flags: int = 0) -> None:
        self.event: Any = None
        self._timed = not int(flags) & 2

    def record(self, stream: Any = None) -> Event:
        """Record all work that a stream has so far."""
        target = stream_of(stream)
        with translated():
            place = places.place_of(target)
            self.event = place.mark(target) if self._timed or place.unit == "steps" else target.record()
        return self

    def synchronize(self) -> Event:
        """Wait for the recorded work."""
        if self.event is not None:
            with translated():
                self.event.sync()
        return self

    def query(self) -> bool:
        """Return whether the recorded work is done."""
        return self.event is None or bool(self.event.is_done)

    def time_since(self, event: Event) -> float:
        """Return the milliseconds from another event to this one.

        On the emulator they are at least those of a step, since programs divide by them: work of the host takes none.
        """
        if self.event is None or event.event is None:
            raise LogicError("cuEventElapsedTime failed: invalid resource handle: record both events first")
        if not (self._timed and event._timed):
            raise LogicError("cuEventElapsedTime failed: invalid resource handle: an event has DISABLE_TIMING")
        with translated():
            place = places.default_place()
            milliseconds = float(place.elapsed_ms(event.event, self.event))
        return _STEP if not milliseconds and event is not self and place.unit == "steps" else milliseconds

    def ipc_handle(self) -> NoReturn:
        """Raise: events are not shared between processes."""
        raise LogicError("Event.ipc_handle is not in cudakit: cuda.core.Event has ipc_descriptor")

    @staticmethod
    def from_ipc_handle(handle: Any) -> NoReturn:
        """Raise: events are not shared between processes."""
        raise LogicError("Event.from_ipc_handle is not in cudakit: cuda.core.Event has from_ipc_descriptor")

    def time_till(self, event: Event) -> float:
        """Return the milliseconds from this event to another one."""
        return event.time_since(self)


__all__ = ["Event", "Stream", "default_stream", "finish_all", "stream_of"]
