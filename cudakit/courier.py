"""Who brings what a stream has copied to pinned memory into host arrays, while the stream waits for it."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from cudakit import pinned
from cudakit.errors import LaunchError
from cudakit.streams import Known

MOST_THREADS = 12
#: Shipments on their way before the oldest is waited for: a stream that waits for many fills the driver's queue, and
#: whoever then waits in the driver with the interpreter's lock keeps the courier from its work.
_MOST_OPEN = 64
#: Below that many bytes, handing a copy to another thread takes as long as the copy.
ALONE = 1 << 20


@cache
def copiers() -> ThreadPoolExecutor:
    """The threads that copy between pageable and pinned memory; NumPy lets go of the interpreter's lock for that."""
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "cudakit-copy")


class Arrival:
    """A piece on its way; like an event, it is done once the piece is in the host array."""

    __slots__ = ("come", "event", "piece", "staged")

    def __init__(self, event: Any, staged: np.ndarray, piece: np.ndarray) -> None:
        self.event = event
        self.staged: Any = staged
        self.piece: Any = piece
        self.come = threading.Event()

    @property
    def is_done(self) -> bool:
        """Whether the piece has come."""
        return self.come.is_set()

    def sync(self) -> None:
        """Wait until the piece has come."""
        # An error of the device shows here; after one, nothing would ever come.
        self.event.sync()
        self.come.wait()


class Shipment:
    """A host array to which so many pieces are on their way on one stream."""

    def __init__(self, host: np.ndarray, target: Known, pieces: int) -> None:
        self.bounds = bounds_of(host)
        self.target = target
        self.pieces = self.missing = pieces
        self.is_large = host.nbytes >= ALONE
        self.serial = 0
        self.first: Any = None
        self.last: Any = None
        self.arrivals: SimpleQueue[Arrival | None] = SimpleQueue()
        self.come = threading.Event()

    def sync(self) -> None:
        """Wait until all of it has come."""
        if self.last is not None:
            self.last.sync()
        self.come.wait()


class Courier:
    """A thread that streams wake when they have brought the first piece of a shipment; it sees to the copies.

    Each stream has a number in pinned memory, and waits until that has grown to the shipment's serial.

    Parameters
    ----------
    call : callable
        ``call(stream, function, argument)``: put a call of a C function on a stream; 0 where that went well. All are
        addresses.
    wait : callable
        ``wait(stream, address, serial)``: let a stream wait until the number at an address, uint32, is as large; 0
        where that went well.
    """

    def __init__(self, call: Callable[[int, int, int], int], wait: Callable[[int, int, int], int]) -> None:
        self._call, self._wait = call, wait
        self._lock = threading.Lock()
        self._coming: dict[int, deque[Shipment]] = {}
        self._open: list[Shipment] = []
        self._numbers: dict[int, tuple[np.ndarray, int]] = {}
        self._serials: dict[int, int] = {}
        self._free_numbers: list[np.ndarray] = []
        self._failure: BaseException | None = None
        library = ctypes.CDLL(None, use_errno=True)
        self._ready = ctypes.create_string_buffer(64)  # a sem_t is 32 bytes at most
        library.sem_init(self._ready, 0, 0)
        self._sleep = library.sem_wait
        self._post = ctypes.cast(library.sem_post, ctypes.c_void_p).value or 0
        self._ready_address = ctypes.addressof(self._ready)
        self._thread = threading.Thread(target=self._work, name="cudakit-courier", daemon=True)
        self._thread.start()
        atexit.register(self.drain)

    # ── the caller's side ────────────────────────────────────────────────────────────────────────────────────────

    def open(self, host: np.ndarray, target: Known, pieces: int) -> Shipment:
        """Announce a shipment of so many pieces.

        Raises
        ------
        LaunchError
            If an earlier one failed, which nobody was told by a call.
        """
        with self._lock:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise LaunchError(f"results on their way to a host array were lost: {failure}") from failure
            oldest = self._open[0] if len(self._open) >= _MOST_OPEN else None
        if oldest is not None:
            oldest.sync()
        shipment = Shipment(host, target, pieces)
        with self._lock:
            self._open.append(shipment)
        return shipment

    def expect(self, shipment: Shipment, staged: np.ndarray, piece: np.ndarray) -> Arrival:
        """Have `piece` filled from `staged`, whose copy from the device is the last thing put on the stream."""
        arrival = Arrival(shipment.target.core.record(), staged, piece)
        shipment.last = arrival.event
        shipment.arrivals.put(arrival)
        if shipment.first is None:
            shipment.first = arrival.event
            handle = shipment.target.handle
            with self._lock:
                self._coming.setdefault(handle, deque()).append(shipment)
            check(self._call(handle, self._post, self._ready_address))
        return arrival

    def close(self, shipment: Shipment) -> None:
        """Make the stream wait until all pieces have come."""
        handle = shipment.target.handle
        with self._lock:
            shipment.serial = self._serials[handle] = self._serials.get(handle, 0) + 1
            number, address = self._number(handle)
            if not shipment.missing:
                number[...] = max(int(number), shipment.serial)
        check(self._wait(handle, address, shipment.serial))

    def abandon(self, shipment: Shipment) -> None:
        """No more pieces come."""
        shipment.arrivals.put(None)
        if shipment.first is None:
            self._finish(shipment)

    def _number(self, handle: int) -> tuple[np.ndarray, int]:
        found = self._numbers.get(handle)
        if found is None:
            if not self._free_numbers:
                numbers = pinned.take(4096).view((1024,), np.uint32)
                numbers[...] = 0
                self._free_numbers = [numbers[index : index + 1].reshape(()) for index in range(1024)]
            number = self._free_numbers.pop()
            found = self._numbers[handle] = number, int(number.ctypes.data)
        return found

    def settle(self, host: np.ndarray, unless: int | None) -> None:
        """Wait for all that comes into the memory of `host` on other streams than `unless`."""
        if not self._open:
            return
        start, end = bounds_of(host)
        with self._lock:
            shipments = list(self._open)
        for shipment in shipments:
            other_start, other_end = shipment.bounds
            if start < other_end and other_start < end and shipment.target.handle != unless:
                shipment.sync()

    def drain(self) -> None:
        """Wait for all that is on its way, so that no stream is left waiting when the interpreter goes."""
        with self._lock:
            shipments = list(self._open)
        for shipment in shipments:
            # After an error of the device nothing comes any more, and no stream waits.
            with contextlib.suppress(Exception):
                shipment.sync()

    # ── the threads' side ────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while True:
            if self._sleep(self._ready):
                continue  # a signal came
            shipment = self._take()
            if shipment is not None:
                self._let(shipment.is_large, self._carry, shipment)

    def _let(self, elsewhere: bool, act: Callable[..., None], *given: Any) -> None:
        """Do something, in another thread if it takes long and the interpreter is not on its way out."""
        if elsewhere:
            try:
                copiers().submit(act, *given)
                return
            except RuntimeError:
                pass  # no more threads: it is done here
        act(*given)

    def _take(self) -> Shipment | None:
        """A shipment whose first piece its stream has copied to pinned memory."""
        with self._lock:
            for handle, coming in list(self._coming.items()):
                try:
                    is_done = coming[0].first.is_done
                except Exception:  # the device is lost, which `_carry` finds too, and tells
                    is_done = True
                if is_done:
                    shipment = coming.popleft()
                    if not coming:
                        del self._coming[handle]
                    return shipment
        return None

    def _carry(self, shipment: Shipment) -> None:
        """Copy the pieces of a shipment as they come."""
        for index in range(shipment.pieces):
            arrival = shipment.arrivals.get()
            if arrival is None:
                self._finish(shipment)
                return
            try:
                arrival.event.sync()
            except Exception as error:
                self._fail(error)
                arrival.piece = arrival.staged  # nothing is copied
            self._let(index + 1 < shipment.pieces, self._bring, shipment, arrival)

    def _bring(self, shipment: Shipment, arrival: Arrival) -> None:
        try:
            np.copyto(arrival.piece, arrival.staged)
        except Exception as error:
            self._fail(error)
        arrival.piece = arrival.staged = None
        arrival.come.set()
        with self._lock:
            shipment.missing -= 1
            is_last = not shipment.missing
        if is_last:
            self._finish(shipment)

    def _finish(self, shipment: Shipment) -> None:
        with self._lock:
            if shipment.serial:
                number, _ = self._number(shipment.target.handle)
                number[...] = max(int(number), shipment.serial)
            if shipment in self._open:
                self._open.remove(shipment)
        shipment.come.set()

    def _fail(self, error: BaseException) -> None:
        """Tell at once, and at the next call."""
        self._failure = error
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))


def bounds_of(host: np.ndarray) -> tuple[int, int]:
    """First address of an array's memory, and the first after it."""
    if host.flags.c_contiguous:
        start = host.__array_interface__["data"][0]
        return start, start + host.nbytes
    from numpy.lib.array_utils import byte_bounds

    start, end = byte_bounds(host)
    return int(start), int(end)


def check(status: int) -> None:
    """Raise where the driver refused.

    Raises
    ------
    LaunchError
    """
    if status != 0:
        raise LaunchError(f"the driver refused a copy between device and host: CUDA error {status}")


class _Only:
    """The process's courier, once there is one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.courier: Courier | None = None


_only = _Only()


def has_courier() -> bool:
    """Whether anything was ever on its way."""
    return _only.courier is not None


def courier() -> Courier:
    """The process's courier, whose thread starts with it."""
    if _only.courier is None:
        with _only.lock:
            _only.courier = _only.courier or _make()
    return _only.courier


def _make() -> Courier:
    from cuda.bindings import driver

    # The driver's own function: that of cuda.bindings takes the interpreter's lock in the driver's thread.
    status, address, *_ = driver.cuGetProcAddress(b"cuLaunchHostFunc", 12000, 0)
    check(int(status))
    pointer = ctypes.c_void_p
    call = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)(int(address))
    at_least = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)

    def wait(stream: int, address: int, serial: int) -> int:
        return int(driver.cuStreamWaitValue32(stream, address, serial, at_least)[0])

    return Courier(call, wait)
