"""The streams of a pipeline's device stages: one on which data arrives, those that compute, one on which it leaves.

Copies of both directions and kernels run side by side, because each has its own stream, and events between the
streams put the three steps of an item in order, and nothing else.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from cudakit.errors import LaunchError, lost_context
from cudakit.places import DEVICES, place_of, stream
from cudakit.streams import devices, witnesses
from cudakit.streams.order import order
from cudakit.streams.streams import cupy_stream, handle_of, of_handle

#: Kinds of copies, as the driver numbers them.
TO_DEVICE, TO_HOST = 1, 2


class Lanes:
    """The streams, made once for a pipeline.

    Parameters
    ----------
    given : stream, list of stream, or None
        What device stages get: all streams, or the first of them; None: new ones.
    count : int
        Streams that the device stages of successive items take turns on.
    name : str
        What those are called in traces.

    Attributes
    ----------
    xp : module
        CuPy, or NumPy on the emulator.
    emulated : bool
    copy_bytes : callable
        The driver's copy, put on a stream: target, source, bytes, kind and the stream's number.
    arriving, leaving : stream
    computing : list of stream
    """

    arriving: Any
    leaving: Any
    arriving_handle: int
    leaving_handle: int

    def __init__(self, given: Any, count: int, name: str) -> None:
        shared = given if isinstance(given, list) else []
        first = shared[0] if shared else stream() if given is None else given
        place = place_of(first)
        first = place.check(first)
        self.xp: Any = place.module(first)
        self.emulated: bool = place is not DEVICES
        self.copy_bytes: Any = None if self.emulated else self.xp.cuda.runtime.memcpyAsync
        self.arriving, self.leaving = place.stream(first), place.stream(first)
        self.computing: list[Any] = shared or [first, *(place.stream(first) for _ in range(count - 1))]
        own = [self.arriving, self.leaving, *([] if shared else self.computing[given is not None :])]
        computing = [] if shared else [(lane, name) for lane in self.computing]
        self._named = []
        for lane, called in ((self.arriving, "copy in"), (self.leaving, "copy out"), *computing):
            self._named.append(place.identity(lane))
            witnesses.name_stream(self._named[-1], called)
        # The emulator's streams have done what they were given, and go by themselves.
        self._own = [] if self.emulated else own
        self.arriving_handle, self.leaving_handle = int(self.arriving.handle), int(self.leaving.handle)

    def start(self) -> None:
        """Come after all that this thread's CuPy has been given so far, on its current stream."""
        if self.emulated:
            return
        devices.make_current(self.computing[0].device.device_id)
        current = of_handle(self.xp.cuda.get_current_stream().ptr)
        for lane in self.computing:
            if handle_of(lane) != handle_of(current):
                order().join(lane, current)

    def inside(self, lane: Any) -> contextlib.AbstractContextManager[Any]:
        """A block in which CuPy works on `lane`."""
        if self.emulated:
            return contextlib.nullcontext()
        return cupy_stream(lane)

    def drain(self) -> None:
        """Wait for all the streams, as far as the device still answers."""
        for lane in (self.arriving, *self.computing, self.leaving):
            try:
                lane.sync()
            except Exception as error:
                # Whoever finds the context lost has said so; there is nothing left to wait for.
                if lost_context(error) is None and not isinstance(error, LaunchError):
                    raise

    def close(self) -> None:
        """Wait for the streams, and destroy those that were made here."""
        while self._named:
            witnesses.name_stream(self._named.pop(), None)
        own, self._own = self._own, []
        if own:
            self.drain()
        for lane in own:
            lane.close()

    def __del__(self) -> None:
        # Of the pipeline and its runs, the last to go takes the streams along.
        if getattr(self, "_named", None) and not sys.is_finalizing():
            self.close()
