"""A stand-in for CuPy's streams, events and graphs.

Work runs at its call. No time between two events would say anything of a GPU, so it is NaN.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.cupy.device import CUDARuntimeError
from cudakit.emulator.face import order
from cudakit.errors import LaunchError


class _Chosen(threading.local):
    """Streams that this thread uses, the innermost last."""

    def __init__(self) -> None:
        self.streams: list[BaseStream] = []


_chosen = _Chosen()
_numbers = itertools.count(16)


class BaseStream:
    """A stream. All streams of the stand-in are one stream of the emulator, so no work of two streams overlaps.

    Attributes
    ----------
    ptr : int
        Number of the stream: 0, 1 and 2 are the null stream and the default streams.
    """

    #: All work is done at its call.
    done = True
    device_id: int

    def __init__(self, ptr: int, priority: int = 0, non_blocking: bool = False) -> None:
        self.ptr: int = ptr
        self.priority: int = priority
        self.is_non_blocking: bool = non_blocking
        self.device_id = 0 if ptr > 2 else -1  # CuPy's default streams are of no device

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseStream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> BaseStream:
        _chosen.streams.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _chosen.streams.pop()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    @property
    def is_capturing(self) -> bool:
        """Whether work of the stream is recorded for a graph."""
        return CAPTURE.actions is not None

    def use(self) -> BaseStream:
        """Make the stream the current one of this thread, and return it."""
        _chosen.streams[-1:] = [self]
        return self

    def synchronize(self) -> None:
        """Wait for the stream's work."""
        CAPTURE.forbid("synchronize()")
        order().finish_all()

    def record(self, event: Any = None) -> Any:
        """Return `event`, or a new event if it is None, recorded on this stream."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Do nothing: all work is done at its call."""

    def launch_host_func(self, callback: Callable[[Any], object], arg: Any) -> None:
        """Call a function of one argument, in the order of the stream's work."""
        CAPTURE.do(lambda: callback(arg))

    def add_callback(self, callback: Callable[[Any, int, Any], object], arg: Any) -> None:
        """Call a function of the stream, a status of 0 and an argument."""
        callback(self, 0, arg)

    def begin_capture(self, mode: Any = None) -> None:
        """Record the work from here on; nothing of it changes an array that exists."""
        if CAPTURE.actions is not None:
            raise LaunchError("begin_capture: the stream is recorded already; call end_capture() first")
        CAPTURE.actions = []

    def end_capture(self) -> Graph:
        """Return the recorded work."""
        if CAPTURE.actions is None:
            raise CUDARuntimeError("cudaErrorIllegalState", "end_capture: no capture has begun")
        graph, CAPTURE.actions = Graph(CAPTURE.actions), None
        return graph


class Stream(BaseStream):
    """A stand-in for ``cupy.cuda.Stream``.

    Parameters
    ----------
    null, non_blocking, ptds : bool
        Whether this is the null stream, whether it ignores that stream, and whether it is the thread's default stream.
    priority : int, optional
        Priority.
    """

    null: Stream
    ptds: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        super().__init__(0 if null else 2 if ptds else next(_numbers), priority or 0, non_blocking)

    @staticmethod
    def from_external(stream: Any) -> BaseStream:
        """Return a stream of another library's object that has ``__cuda_stream__``."""
        return ExternalStream(stream.__cuda_stream__()[1])


class ExternalStream(BaseStream):
    """A stand-in for ``cupy.cuda.ExternalStream``: a stream by its number."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(int(ptr))


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)


def get_current_stream(device_id: int = -1) -> BaseStream:
    """Return the stream that this thread uses."""
    return _chosen.streams[-1] if _chosen.streams else Stream.null


class Event:
    """A stand-in for ``cupy.cuda.Event``.

    Parameters
    ----------
    block, disable_timing, interprocess : bool
        Options of CUDA's events, which change nothing here.
    """

    #: All work is done at its call.
    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.ptr: int = next(_numbers)
        self.is_timed: bool = not disable_timing
        self.is_recorded: bool = False

    def record(self, stream: Any = None) -> None:
        """Mark a point of a stream."""
        self.is_recorded = True

    def synchronize(self) -> None:
        """Wait for all work."""
        CAPTURE.forbid("synchronize()")
        order().finish_all()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return NaN: the emulator's time is not a GPU's.

    Raises
    ------
    CUDARuntimeError
        If an event was not recorded, or has no time.
    """
    for event in (start_event, end_event):
        if not event.is_recorded or not event.is_timed:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle", "an event was not recorded, or has no time")
    return math.nan


class Graph:
    """A stand-in for ``cupy.cuda.Graph``: recorded work, which `launch` runs."""

    def __init__(self, actions: Sequence[Callable[[], object]]) -> None:
        self._actions = tuple(actions)

    def launch(self, stream: Any = None) -> None:
        """Run the recorded work."""
        for action in self._actions:
            action()

    def upload(self, stream: Any = None) -> None:
        """Do nothing: the work is here already."""

    def debug_dot_str(self, flags: int = 0) -> str:
        """Return the order of the work in the language of Graphviz."""
        arrows = "".join(f" {number} -> {number + 1};" for number in range(len(self._actions) - 1))
        return f"digraph {{{arrows} }}"
