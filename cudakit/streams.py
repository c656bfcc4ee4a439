"""Streams: what may be given as one, CuPy's current one, and the order between streams that touch the same memory.

The order has two cases. While the process has launched on one stream only, and CuPy and torch work on that stream
too, launches are in order by themselves: nothing is recorded and nothing waits. From the second stream on, the last
stream that used each allocation is remembered; a launch on another stream waits for it first, and holds what it was
given until it is done, so that no allocator hands the memory out again too early. The epoch counts the moves of
allocations between streams: while it stands still, a launch that repeats an earlier one needs no look at the record.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cudakit import devices
from cudakit.errors import ArgumentError, EmulatorWarning

if TYPE_CHECKING:
    from cuda.core import Event, Stream

    from cudakit.emulator.stream import EmulatedStream

#: Arch that the emulator's streams have where none is named.
EMULATED_ARCH = "sm_90"

#: The driver's own numbers of the two default streams; CuPy and torch write 0 for the legacy one.
_LEGACY, _PER_THREAD = 1, 2
_MOST_REMEMBERED = 65_536
#: Streams looked up by identity; beyond that many, all are looked up anew.
_MOST_KNOWN = 256


class FastPath(Protocol):
    """Something that skips the ordering while nothing moves between streams, and must stop when something does."""

    def unsettle(self) -> None:
        """Forget what needed no ordering."""


def handle_of(stream: Stream) -> int:
    """The driver's number of a stream, one for each stream."""
    return int(stream.handle) or _LEGACY


@dataclass(frozen=True)
class Known:
    """A stream that was given to a launch, with what each launch on it must know."""

    given: Any
    core: Stream
    handle: int
    device_id: int


def is_emulated(given: Any) -> bool:
    """Whether a stream is the emulator's; asked without loading the emulator."""
    module = sys.modules.get("cudakit.emulator.stream")
    return module is not None and isinstance(given, module.EmulatedStream)


def as_stream(given: Any) -> Stream:
    """cuda.core's stream for `given`: one of its own, or any object with ``__cuda_stream__`` (CuPy, torch).

    Raises
    ------
    ArgumentError
        If `given` is not a stream.
    """
    from cuda.core import Stream

    require_stream(given)
    devices.require_gpu()
    return given if isinstance(given, Stream) else _order.adopt(given)


def require_stream(given: Any) -> None:
    """Raise where `given` is no stream of a GPU.

    Raises
    ------
    ArgumentError
    """
    if not hasattr(given, "__cuda_stream__"):
        raise ArgumentError(
            f"expected a stream (ck.stream(), a cuda.core, CuPy or torch stream), got {type(given).__name__}; the "
            "order is kernel(stream, config, *arguments)"
        )


def known(given: Any) -> Known:
    """`given` as cuda.core's stream, with its number and device; looked up by identity after the first time."""
    found = _known.get(id(given))
    if found is None or found.given is not given or found.core.is_closed:
        core = as_stream(given)
        found = Known(given, core, handle_of(core), core.device.device_id)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[id(given)] = found
    return found


def stream() -> Stream | EmulatedStream:
    """A new stream of the current device; the emulator's where there is no GPU, which is said once.

    Returns
    -------
    cuda.core.Stream or cudakit.emulator.EmulatedStream

    Warns
    -----
    EmulatorWarning
        The first time that there is no GPU and kernels will run on the emulator.

    Raises
    ------
    LaunchError
        In the forked child of a process that has used the GPU.
    """
    if devices.has_gpu() or devices.is_forked():
        return devices.current_device().create_stream()
    _say_emulated()
    from cudakit.emulator.stream import stream as emulated_stream

    return emulated_stream(EMULATED_ARCH)


@functools.cache
def _say_emulated() -> None:
    warnings.warn(
        f"there is no CUDA driver or no GPU here: kernels run on the emulator, as {EMULATED_ARCH}, on NumPy arrays "
        "(ask for it with ck.emulator.stream() and nothing is said)",
        EmulatorWarning,
        stacklevel=3,
    )


@contextlib.contextmanager
def using(given: Any) -> Iterator[Any]:
    """Make `given` CuPy's current stream inside the block, in order with CuPy's work before and after it.

    Parameters
    ----------
    given : stream

    Yields
    ------
    module
        ``cupy``, whose arrays and operations inside the block live on the stream; ``numpy`` for the emulator's.
    """
    if is_emulated(given):
        import numpy

        yield numpy
        return
    import cupy

    core = as_stream(given)
    outer = _of_handle(cupy.cuda.get_current_stream().ptr)
    inner = _order.cupy_stream(core)
    apart = handle_of(outer) != handle_of(core)
    if apart:
        wait_for(core, outer)
    try:
        with cupy.cuda.Device(core.device.device_id), inner:
            yield cupy
    finally:
        if apart:
            wait_for(outer, core)


def wait_for(core: Stream, source: Stream) -> None:
    """Make `core` wait for what `source` has to do so far; they may be of two devices."""
    if devices.device_count() < 2 or handle_of(source) in (_LEGACY, _PER_THREAD):
        core.wait(source)
        return
    # An event belongs to the context that is current when it is made, and must be of the stream that it is recorded on.
    with devices.on_device(source.device.device_id):
        event = source.record()
    core.wait(event)


def _of_handle(handle: int) -> Stream:
    from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

    if handle in (0, _LEGACY):
        return LEGACY_DEFAULT_STREAM
    return PER_THREAD_DEFAULT_STREAM if handle == _PER_THREAD else Stream.from_handle(handle)


def current_streams(libraries: Iterable[str], device_id: int) -> list[int]:
    """Numbers of the streams on which the named libraries (``cupy``, ``torch``) work now, in this thread."""
    found = []
    for library in libraries:
        if library == "cupy":
            found.append(sys.modules["cupy"].cuda.get_current_stream().ptr or _LEGACY)
        else:
            found.append(sys.modules["torch"]._C._cuda_getCurrentRawStream(device_id) or _LEGACY)
    return found


class Order:
    """Which stream used which allocation last, and what is held until a launch is done."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._streams: dict[int, Stream] = {}
        self._adopted: dict[int, tuple[Any, Stream]] = {}
        self._cupy: dict[int, tuple[Stream, Any]] = {}
        self._last: dict[int, int] = {}
        self._held: dict[int, deque[tuple[Event, Any]]] = {}
        self._sticky: list[Any] = []
        self._fast_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self._single = True
        self._epoch = 0

    @property
    def single(self) -> bool:
        """Whether all launches so far were on one stream."""
        return self._single

    def settle(self, epoch: int, act: Callable[[], None]) -> None:
        """Do `act` if no allocation has moved between streams since `epoch`; none can while it is done."""
        with self._lock:
            if epoch == self._epoch:
                act()

    def adopt(self, foreign: Any) -> Stream:
        """cuda.core's stream of another library's stream object, made once."""
        handle = int(foreign.__cuda_stream__()[1]) or _LEGACY
        with self._lock:
            known = self._adopted.get(handle)
            if known is None or known[0] is not foreign:
                if handle in (_LEGACY, _PER_THREAD):
                    core = _of_handle(handle)
                else:
                    core = devices.current_device().create_stream(foreign)
                known = self._adopted[handle] = (foreign, core)
            return known[1]

    def cupy_stream(self, core: Stream) -> Any:
        """CuPy's object for a cuda.core stream, the same one each time, so that identity tells it is current."""
        import cupy

        handle = handle_of(core)
        with self._lock:
            known = self._cupy.get(handle)
            if known is None or known[0] is not core:
                null = handle == _LEGACY
                made = cupy.cuda.Stream.null if null else cupy.cuda.Stream.from_external(core)
                known = self._cupy[handle] = (core, made)
            return known[1]

    def watch(self, path: FastPath) -> None:
        """Tell `path` when a second stream appears."""
        self._fast_paths.add(path)

    def before(self, target: Known, allocations: Sequence[int], producers: Iterable[int]) -> int | None:
        """Make a stream wait for whatever must come first.

        Parameters
        ----------
        target : Known
            The stream to be launched on.
        allocations : iterable of int
            Base address of each allocation that is touched.
        producers : iterable of int
            Streams on which the libraries that gave the arrays work now.

        Returns
        -------
        int or None
            The epoch in which nothing had to be waited for; None where something had, so that what is given must be
            held until the launch is done.
        """
        handle, core, last = target.handle, target.core, self._last
        with self._lock:
            if self._streams.get(handle) is not core:
                self._appear(handle, core)
            first = {other for other in producers if other != handle}
            if not self._single:
                if len(last) > _MOST_REMEMBERED:
                    self._forget()
                for base in allocations:
                    other = last.get(base)
                    if other != handle:
                        last[base] = handle
                        if other is not None:
                            first.add(other)
            for other in first:
                source = self._streams.get(other)
                if source is not None and source.is_closed:
                    # What a closed stream was given goes on, but nothing can wait for it except the host.
                    core.device.sync()
                else:
                    wait_for(core, source or _of_handle(other))
            if not first:
                return self._epoch
            if not self._single:
                self._moved()
            return None

    def _moved(self) -> None:
        """Allocations have moved between streams: no launch may skip the record on the strength of an earlier one."""
        self._epoch += 1
        for path in list(self._fast_paths):
            path.unsettle()

    def _appear(self, handle: int, core: Stream) -> None:
        """A stream launches for the first time: it comes after everything that was launched unrecorded."""
        others = [other for number, other in self._streams.items() if number != handle and not other.is_closed]
        self._streams[handle] = core
        if others:
            for other in others:
                wait_for(core, other)
            self._single = False
            self._moved()

    def _forget(self) -> None:
        """Wait on the host for all streams, after which no allocation's history matters."""
        for known in self._streams.values():
            if not known.is_closed:
                known.sync()
        self._last.clear()

    def hold(self, core: Stream, things: Any) -> None:
        """Keep `things` alive until what was launched on `core` so far is done."""
        with self._lock:
            queue = self._held.setdefault(handle_of(core), deque())
            queue.append((core.record(), things))
            self.release()

    def release(self) -> None:
        """Drop what is held for launches that are done."""
        with self._lock:
            for queue in self._held.values():
                while queue and queue[0][0].is_done:
                    queue.popleft()

    def after_fork(self) -> None:
        """In a forked child: the parent's streams mean nothing, and no launch may skip the check for that."""
        self._lock = threading.RLock()
        if self._streams:
            self._single = False
            self._moved()


_order = Order()
os.register_at_fork(after_in_child=_order.after_fork)
_known: dict[int, Known] = {}


def order() -> Order:
    """The process's order between streams."""
    return _order
