"""The streams of a pipeline's device stages, and the memory and events of each item in flight.

One stream copies arrays to the device, one or more run the stages, one copies results to the host. Copies in both
directions and kernels run side by side, because they are on different streams. Events order the three steps of an item,
and nothing else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cudakit.errors import LaunchError, lost_context
from cudakit.memory import pinned
from cudakit.places import DEVICES, place_of, stream
from cudakit.streams import devices, witnesses
from cudakit.streams.order import order
from cudakit.streams.streams import cupy_stream, handle_of, of_handle

#: Arrays of a result with what is copied for each: itself, or a copy on the device.
Outgoing: TypeAlias = "list[tuple[Any, Any]]"


@dataclass(slots=True, eq=False)
class Room:
    """Device memory for one array of an item, and a host array of the same shape and dtype in pinned memory.

    Attributes
    ----------
    key : (shape, dtype) or None
        Shape and dtype of both arrays.
    device : array
        Array on the device, or None if the stages allocate it.
    size : int
        Bytes of `device`.
    pointer : int
        Address of `device` on a GPU; 0 on the emulator.
    host : numpy.ndarray or None
        Host array in pinned memory. None until it is needed.
    block : Block or None
        Pinned memory that contains `host`.
    address : int
        Address of `host`.
    """

    key: Any = None
    device: Any = None
    size: int = 0
    pointer: int = 0
    host: np.ndarray | None = None
    block: pinned.Block | None = None
    address: int = 0

    def twin(self) -> np.ndarray:
        """Return `host`, an array with the shape and dtype of `key`. Pinned memory that is too small is replaced."""
        shape, dtype = self.key
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self.block is None or self.block.size < size:
            self.close()
            self.block = pinned.take(size)
        self.host, self.address = self.block.view(shape, dtype), self.block.address
        return self.host

    def close(self) -> None:
        """Release the pinned memory."""
        if self.block is not None:
            self.block.give_back()
        self.block = self.host = None


@dataclass(slots=True, eq=False)
class BufferSet:
    """Memory and events of an item in flight.

    Attributes
    ----------
    lane : stream
        Stream that the item's stages work on.
    inside : context manager
        In which CuPy works on `lane`.
    rooms, leaving : list of Room
        Memory for arriving arrays, and memory for small departing arrays.
    used, others : int
        Number of rooms that the item uses, and number of its parts that are not arrays.
    arrived, computed, departed : event or None
        Events recorded after each of the three steps of a batch whose last item has this set. They are made once.
    last : BufferSet or None
        Buffer set of the last item of the batch, whose events are for this one, too. None: nothing was recorded.
    is_done : bool
        Whether `departed` is known to be done.
    outgoing : Outgoing or None
        What is still to be copied to the host.
    value : object
        Result of the stages so far.
    result : object
        Item on the host, complete once `departed` is done.
    several : list or None
        Results of the stages so far, if a stage yields.
    small : int
        Number of rooms in `leaving` that hold parts of the result, from which they must be copied.
    kept_alive : list
        Host arrays that are read, and device arrays that are copied from. They live until `departed` is done.
    graph : (Graph, object, Outgoing) or None
        Graph of the stages on the arrays of `rooms`, the result of the stages, and the arrays to copy to the host.
    """

    lane: Any
    inside: Any = contextlib.nullcontext()  # noqa: RUF009  it holds nothing
    rooms: list[Room] = field(default_factory=list)
    leaving: list[Room] = field(default_factory=list)
    used: int = 0
    others: int = 0
    small: int = 0
    arrived: Any = None
    computed: Any = None
    departed: Any = None
    last: BufferSet | None = None
    is_done: bool = False
    outgoing: Outgoing | None = None
    value: Any = None
    several: list[Any] | None = None
    result: Any = None
    kept_alive: list[Any] = field(default_factory=list)
    graph: tuple[Any, Any, Outgoing] | None = None

    def close(self) -> None:
        """Release the pinned memory of all rooms."""
        for room in (*self.rooms, *self.leaving):
            room.close()


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return `change(value)`. In a tuple, list or dict, also a nested one, change each element instead."""
    if isinstance(value, tuple):
        parts = [mapped(part, change) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, list):
        return [mapped(part, change) for part in value]
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    return change(value)


def _references_of_one() -> int:
    """Return `sys.getrefcount` of an attribute that has no other reference.

    Counting references takes 33 ns, and shows whether a stage has kept an array that was passed to it. Without
    counting, every item would need a new array over memory whose owner has a weak reference, for 1.4 µs (CuPy 14.2,
    CPython 3.11).
    """
    room = Room()
    room.device = np.empty(0)
    return sys.getrefcount(room.device)


#: That many.
ALONE = _references_of_one()


#: Kinds of copies, as the driver numbers them.
TO_DEVICE, TO_HOST = 1, 2


class Lanes:
    """The streams of a pipeline, made once.

    Parameters
    ----------
    base : stream, list of stream, or None
        Streams of the device stages: all of them (a list), or the first (a stream). None: new streams.
    count : int
        Number of streams on which the device stages of successive items take turns.
    name : str
        Name of these streams in traces.

    Attributes
    ----------
    xp : module
        CuPy, or NumPy on the emulator.
    emulated : bool
        Whether the streams are the emulator's.
    copy_bytes : callable
        Copy function of the driver. Arguments: target, source, bytes, direction and the stream's number.
    arriving, leaving : stream
        Stream of the copies to the device, and stream of the copies to the host.
    computing : list of stream
        Streams of the device stages.
    """

    arriving: Any
    leaving: Any
    arriving_handle: int
    leaving_handle: int

    def __init__(self, base: Any, count: int, name: str) -> None:
        shared = base if isinstance(base, list) else []
        first = shared[0] if shared else stream() if base is None else base
        place = place_of(first)
        first = place.check(first)
        self.xp: Any = place.module(first)
        self.emulated: bool = place is not DEVICES
        self.copy_bytes: Any = None if self.emulated else self.xp.cuda.runtime.memcpyAsync
        self.arriving, self.leaving = place.stream(first), place.stream(first)
        self.computing: list[Any] = shared or [first, *(place.stream(first) for _ in range(count - 1))]
        own = [self.arriving, self.leaving, *([] if shared else self.computing[base is not None :])]
        computing = [] if shared else [(lane, name) for lane in self.computing]
        self._identities = []
        for lane, called in ((self.arriving, "copy in"), (self.leaving, "copy out"), *computing):
            self._identities.append(place.identity(lane))
            witnesses.name_stream(self._identities[-1], called)
        # The emulator's streams have done what they were base, and go by themselves.
        self._own = [] if self.emulated else own
        self.arriving_handle, self.leaving_handle = int(self.arriving.handle), int(self.leaving.handle)

    def start(self) -> None:
        """Make the streams wait for all present work of this thread's current CuPy stream."""
        if self.emulated:
            return
        devices.make_current(self.computing[0].device.device_id)
        current = of_handle(self.xp.cuda.get_current_stream().ptr)
        for lane in self.computing:
            if handle_of(lane) != handle_of(current):
                order().join(lane, current)

    def inside(self, lane: Any) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager in which CuPy works on `lane`."""
        if self.emulated:
            return contextlib.nullcontext()
        return cupy_stream(lane)

    def drain(self) -> None:
        """Wait for all streams, as far as the device still responds."""
        for lane in (self.arriving, *self.computing, self.leaving):
            try:
                lane.sync()
            except Exception as error:
                # Whoever finds the context lost has said so; there is nothing left to wait for.
                if lost_context(error) is None and not isinstance(error, LaunchError):
                    raise

    def close(self) -> None:
        """Wait for the streams, and destroy the streams that were made here."""
        while self._identities:
            witnesses.name_stream(self._identities.pop(), None)
        own, self._own = self._own, []
        if own:
            self.drain()
        for lane in own:
            lane.close()

    def __del__(self) -> None:
        # Of the pipeline and its runs, the last to go takes the streams along.
        if getattr(self, "_identities", None) and not sys.is_finalizing():
            self.close()
