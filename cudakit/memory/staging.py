"""Copies between a device and any host array: through pinned blocks in pieces, by several threads, or straight.

Host to device: a thread copies each piece into a pinned block, and enqueues the copy to the device, while other threads
copy the next pieces. When the call returns, the host array has been read.

Device to host: the stream copies each piece into a pinned block, then writes a number to pinned memory. A `Courier`
polls this number: threads copy the pieces into the host array as they arrive, and the stream goes on after the last
piece. A program that waits for the stream, or for an event recorded on it, has the result. Nothing runs in the driver's
own threads, and the courier makes no driver calls.

C-contiguous arrays in pinned memory are copied directly.

Why a courier: a result in pageable memory must be there after any wait for the stream: ``sync`` of cuda.core, CuPy or
torch, an event, or the whole device. The stream must therefore wait for the copy on the host, and a thread must make
this copy meanwhile. The alternatives fail:

- The driver's copies to pageable memory are not asynchronous; the call waits until all before them is done.
- A host function on the stream (``cuLaunchHostFunc``) runs in a thread of the driver's that would need the
  interpreter's lock, which may be held by one that waits in the driver.
- A host function of C would need none, and no library that is here has one that copies.
- To pin the user's array for a call takes longer than to copy it; kernels that write to pageable memory need a machine
  whose device reads the host's page tables.

The remaining alternative is to wait in the call itself. Its time over the courier's time (NVIDIA H200, driver 580.159,
2026-11-22):

- 256 calls of 4 KiB with kernels of 0.5 ms on two streams: 1.98.
- 32 calls of 4 MiB: 1.12 to 1.86.
- A call beside 5 ms of the host's own work: 1.28.
- One call alone with nothing else to do: 0.83 to 0.99.
- ``to_host(wait=False)`` of 4 KiB: 0.36 (100 µs here).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from cudakit import system
from cudakit.errors import LaunchError
from cudakit.memory import pinned
from cudakit.streams.order import order
from cudakit.streams.streams import DeviceStream
from cudakit.types.arguments import is_page_locked

MOST_THREADS = 12
#: Shipments on their way before the oldest is waited for: a stream that waits for many fills the driver's queue, and
#: whoever then waits in the driver with the interpreter's lock keeps the courier from its work.
_MOST_OPEN = 64
#: Seconds without a piece after which the driver is asked whether the device is lost.
_PATIENCE = 1.0
#: Below that many bytes, handing a copy to another thread takes as long as the copy.
ALONE = 2 << 20
#: Nanoseconds by which the system may wake the courier late; threads have 50,000 as a rule.
_SLACK_NS = 1_000


@cache
def copiers() -> ThreadPoolExecutor:
    """Return the threads that copy between pageable and pinned memory.

    NumPy releases the interpreter's lock meanwhile.
    """
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "cudakit-copy")


class Arrival:
    """A part of a host array that the courier will fill. It works as an event, which is done once the part is full."""

    __slots__ = ("copied", "event", "piece", "staged")

    def __init__(self, event: Any, staged: np.ndarray, piece: np.ndarray) -> None:
        self.event: Any = event
        self.staged: Any = staged
        self.piece: Any = piece
        self.copied: threading.Event = threading.Event()

    @property
    def is_done(self) -> bool:
        """True once the piece is in the host array."""
        return self.copied.is_set()

    def sync(self) -> None:
        """Wait until the piece is in the host array."""
        if not self.copied.is_set():
            # An error of the device shows here; after one, nothing would ever come.
            self.event.sync()
            self.copied.wait()


class Shipment:
    """A host array that the courier fills from pinned memory, piece by piece, for one stream."""

    missing: int

    def __init__(self, host: np.ndarray, target: DeviceStream, pieces: int) -> None:
        self.bounds: tuple[int, int] = bounds_of(host)
        self.target = target
        self.pieces = self.missing = pieces
        self.expected = 0
        self.is_large: bool = host.nbytes >= ALONE
        self.serial = 0
        self.last: Any = None
        self.copied: threading.Event = threading.Event()

    def sync(self) -> None:
        """Wait until all pieces are in the host array."""
        if self.last is not None:
            self.last.sync()
        self.copied.wait()


class _Numbers:
    """Counters in pinned memory by which a stream and the courier signal each other without the driver."""

    def __init__(self, arrived: np.ndarray, brought: np.ndarray) -> None:
        #: Pieces that the stream has copied to pinned memory, which it writes; uint32.
        self.arrived = arrived
        #: Serial up to which all shipments are in their host arrays, which the courier writes and the stream waits for.
        self.brought = brought
        self.expected = self.closed = 0
        self.coming: deque[tuple[int, Shipment, Arrival]] = deque()
        #: Of the threads that put work on the stream: numbers are given out and put on it in one order. The courier's
        #: thread never takes it, for they may wait in the driver meanwhile.
        self.turn = threading.Lock()
        self._finished: set[int] = set()

    def take(self) -> list[tuple[Shipment, Arrival]]:
        """Remove and return the pieces that the stream has copied to pinned memory, each with its shipment."""
        ready = []
        while self.coming and ((int(self.arrived) - self.coming[0][0]) & 0xFFFFFFFF) < 1 << 31:
            ready.append(self.coming.popleft()[1:])
        return ready

    def finish(self, serial: int) -> None:
        """Mark the shipment with number `serial` as complete. The stream goes on after it and all earlier shipments."""
        self._finished.add(serial)
        following = (int(self.brought) + 1) & 0xFFFFFFFF
        while following in self._finished:
            self._finished.remove(following)
            self.brought[...] = following
            following = (following + 1) & 0xFFFFFFFF


class Courier:
    """A thread that copies results from pinned memory to host arrays.

    It polls memory, and makes no driver call: the driver may block all callers while one waits for room in a stream's
    queue. That stream may wait for the courier.

    Parameters
    ----------
    write, wait : callable
        ``write(stream, address, number)`` enqueues the write of a uint32 on a stream. ``wait(stream, address, number)``
        enqueues a wait until the uint32 is at least `number`. Both return 0 on success. Streams and addresses are ints.
    """

    def __init__(self, write: Callable[[int, int, int], int], wait: Callable[[int, int, int], int]) -> None:
        self._write, self._wait = write, wait
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._streams: dict[int, _Numbers] = {}
        self._open: list[Shipment] = []
        self._free_numbers: list[np.ndarray] = []
        self._failure: BaseException | None = None
        #: Of what has come; the courier's thread must not be the one that drops them, for that asks the driver.
        self._events: dict[int, list[Any]] = {}
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cudakit-courier", daemon=True)
        self._thread.start()
        atexit.register(self.drain)

    # ── the caller's side ────────────────────────────────────────────────────────────────────────────────────────

    def open(self, host: np.ndarray, target: DeviceStream, pieces: int) -> Shipment:
        """Return a new shipment: `host` will be filled on the stream in this number of pieces.

        If too many shipments are open, wait for the oldest.

        Raises
        ------
        LaunchError
            An earlier shipment failed and no call has reported it.
        """
        self.raise_failure()
        with self._lock:
            oldest = self._open[0] if len(self._open) >= _MOST_OPEN else None
        if oldest is not None:
            oldest.sync()
        shipment = Shipment(host, target, pieces)
        with self._lock:
            self._open.append(shipment)
        return shipment

    def raise_failure(self) -> None:
        """Raise if an earlier shipment failed and no call has reported it.

        Raises
        ------
        LaunchError
            An earlier shipment failed and no call has reported it.
        """
        if self._failure is not None:
            with self._lock:
                failure, self._failure = self._failure, None
            if failure is not None:
                raise LaunchError(f"results on their way to a host array were lost: {failure}") from failure

    def expect(self, shipment: Shipment, staged: np.ndarray, piece: np.ndarray) -> Arrival:
        """Have the courier fill `piece`, a part of the host array, from `staged` once `staged` has its elements.

        The caller has just enqueued the copy from the device to `staged` as the last work on the stream.
        """
        target = shipment.target
        events = self._events.setdefault(target.device_id, [])
        try:
            event = target.core.record(events.pop())
        except IndexError:
            event = target.core.record()
        arrival = Arrival(event, staged, piece)
        shipment.last = arrival
        numbers = self._numbers(target.handle)
        with numbers.turn:
            with self._lock:
                numbers.expected += 1
                number = numbers.expected & 0xFFFFFFFF
                shipment.expected += 1
                numbers.coming.append((number, shipment, arrival))
            check(self._write(target.handle, int(numbers.arrived.ctypes.data), number))
        if not self._wake.is_set():
            self._wake.set()
        return arrival

    def close(self, shipment: Shipment) -> None:
        """Enqueue a wait on the stream until the courier has filled all pieces of the shipment. The host goes on."""
        handle = shipment.target.handle
        numbers = self._numbers(handle)
        with numbers.turn:
            with self._lock:
                numbers.closed += 1
                shipment.serial = numbers.closed & 0xFFFFFFFF
                if not shipment.missing:
                    numbers.finish(shipment.serial)
            check(self._wait(handle, int(numbers.brought.ctypes.data), shipment.serial))

    def abandon(self, shipment: Shipment) -> None:
        """Cancel the pieces of a shipment for which `expect` was not called yet, after an error."""
        self._less(shipment, shipment.pieces - shipment.expected)

    def _numbers(self, handle: int) -> _Numbers:
        numbers = self._streams.get(handle)
        if numbers is None:
            # Pinned memory is the driver's to give, for which the courier's thread must not have to wait.
            with self._making:
                if len(self._free_numbers) < 2:
                    words = pinned.take(4096).view((1024,), np.uint32)
                    words[...] = 0
                    self._free_numbers = [words[index : index + 1].reshape(()) for index in range(1024)]
                with self._lock:
                    numbers = self._streams.get(handle)
                    if numbers is None:
                        numbers = _Numbers(self._free_numbers.pop(), self._free_numbers.pop())
                        self._streams[handle] = numbers
        return numbers

    def settle(self, host: np.ndarray, unless: int | None) -> None:
        """Wait until the courier has filled all arrays that overlap `host`.

        Arrays on the stream with the handle `unless` are not waited for.
        """
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
        """Wait for all pieces on their way, so that no stream waits when the interpreter exits."""
        with self._lock:
            shipments = list(self._open)
        for shipment in shipments:
            # After an error of the device nothing comes any more, and no stream waits.
            with contextlib.suppress(Exception):
                shipment.sync()

    # ── the threads' side ────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        system.be_woken_in_time(_SLACK_NS)
        since, doubt = time.monotonic(), None
        while True:
            with self._lock:
                ready = [arrival for numbers in self._streams.values() for arrival in numbers.take()]
                waiting = [numbers.coming[0][2] for numbers in self._streams.values() if numbers.coming]
                if not ready and not waiting:
                    self._wake.clear()
            for shipment, arrival in ready:
                self._let(shipment.is_large, self._bring, shipment, arrival)
            if not waiting:
                self._wake.wait()
            elif not ready:
                doubt = self._ask(doubt, time.monotonic() - since, waiting)
                # A twentieth of the wait so far: seldom, where it is long.
                time.sleep(min(max((time.monotonic() - since) / 20, 2e-5), 1e-3))
                continue
            since, doubt = time.monotonic(), None

    def _ask(
        self, doubt: Future[list[bool]] | None, seconds: float, waiting: list[Arrival]
    ) -> Future[list[bool]] | None:
        """Ask the driver in another thread whether the device is lost, if nothing has arrived for long.

        If it is lost, report the error, and end the wait for all pieces without copying them.

        Parameters
        ----------
        doubt : future or None
            Question that was asked before.
        seconds : float
            Time since the last piece arrived.
        waiting : list of Arrival
            Next piece of each stream.

        Returns
        -------
        future or None
            The question that is open.
        """
        if doubt is None and seconds > _PATIENCE:
            with contextlib.suppress(RuntimeError):  # no more threads: the interpreter is on its way out
                doubt = copiers().submit(lambda: [arrival.event.is_done for arrival in waiting])
        if doubt is not None and doubt.done() and (error := doubt.exception()) is not None:
            self._fail(error)
            with self._lock:
                lost = [arrival[1:] for numbers in self._streams.values() for arrival in numbers.coming]
                for numbers in self._streams.values():
                    numbers.coming.clear()
            for shipment, arrival in lost:
                arrival.piece = arrival.staged  # nothing is copied
                self._bring(shipment, arrival)
        return doubt

    def _let(self, elsewhere: bool, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act(*arguments)``: with `elsewhere` in another thread if one can start, else in this thread."""
        if elsewhere:
            try:
                copiers().submit(act, *arguments)
                return
            except RuntimeError:
                pass  # no more threads: it is done here
        act(*arguments)

    def _bring(self, shipment: Shipment, arrival: Arrival) -> None:
        try:
            np.copyto(arrival.piece, arrival.staged)
        except Exception as error:
            self._fail(error)
        arrival.piece = arrival.staged = None
        arrival.copied.set()
        self._events[shipment.target.device_id].append(arrival.event)
        self._less(shipment, 1)

    def _less(self, shipment: Shipment, pieces: int) -> None:
        """Count `pieces` pieces of a shipment as done or cancelled. After the last piece the stream goes on."""
        with self._lock:
            shipment.missing -= pieces
            if shipment.missing or not pieces:
                return
            if shipment.serial:
                self._streams[shipment.target.handle].finish(shipment.serial)
            if shipment in self._open:
                self._open.remove(shipment)
        shipment.copied.set()

    def _fail(self, error: BaseException) -> None:
        """Report `error` now, by `threading.excepthook`, and keep it for `raise_failure` to raise."""
        self._failure = error
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))


def bounds_of(host: np.ndarray) -> tuple[int, int]:
    """Return the first address of an array's memory, and the first address after it."""
    if host.flags.c_contiguous:
        start = host.__array_interface__["data"][0]
        return start, start + host.nbytes
    from numpy.lib.array_utils import byte_bounds

    start, end = byte_bounds(host)
    return int(start), int(end)


def check(status: int) -> None:
    """Raise if the driver's return code `status` is not 0.

    Raises
    ------
    LaunchError
    """
    if status != 0:
        raise LaunchError(f"the driver refused a copy between device and host: CUDA error {status}")


class _Only:
    """The process's courier, once it exists."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.courier: Courier | None = None


_only = _Only()


def has_courier() -> bool:
    """Return whether a courier exists."""
    return _only.courier is not None


def courier() -> Courier:
    """Return the process's courier. Its thread starts with it."""
    if _only.courier is None:
        with _only.lock:
            _only.courier = _only.courier or _make()
    return _only.courier


def _make() -> Courier:
    from cuda.bindings import driver

    at_least = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)

    def write(stream: int, address: int, number: int) -> int:
        return int(driver.cuStreamWriteValue32(stream, address, number, 0)[0])

    def wait(stream: int, address: int, number: int) -> int:
        return int(driver.cuStreamWaitValue32(stream, address, number, at_least)[0])

    return Courier(write, wait)


#: Bytes of one piece: long enough that the DMA of one hides what is said about the next, short enough to overlap.
PIECE = 8 << 20
#: Pieces whose copies from the device are put on the stream before the first is waited for.
_AHEAD = 4
#: Seconds for which what a stream does is worth waiting for awake: about what it takes to tell another thread.
_SOON = 5e-5
#: Bytes a second that copies make at least, where nothing is in their way.
_LEAST_RATE = 2e10


@cache
def cupy_runtime() -> Any:
    """Return CuPy's functions for copies."""
    from cupy.cuda import runtime

    return runtime


def comes_soon(event: Any, size: int) -> bool:
    """Wait a moment for an event after copies of `size` bytes. Return whether the event is done."""
    end = time.perf_counter() + _SOON + size / _LEAST_RATE
    while not event.is_done:
        if time.perf_counter() > end:
            return False
    return True


def is_direct(host: np.ndarray) -> bool:
    """Return whether a device copies from and to the array directly: it is pinned and C-contiguous."""
    return bool(host.flags.c_contiguous) and is_page_locked(host)


def pieces(host: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the array in pieces of about `PIECE` bytes in C order, each with its byte offset in a contiguous copy."""
    if host.nbytes <= PIECE:
        yield 0, host
        return
    if host.flags.c_contiguous:
        host = host.reshape(-1)
    row = host.nbytes // len(host)
    if row > PIECE and host.ndim > 1:
        for index, part in enumerate(host):
            for offset, piece in pieces(part):
                yield index * row + offset, piece
        return
    step = max(1, PIECE // row)
    bounds = [*range(0, len(host), step), len(host)]
    for start, end in pairwise(bounds):
        yield start * row, host[start:end]


def upload(host: np.ndarray, pointer: int, target: DeviceStream) -> None:
    """Enqueue the copy of an array to C-contiguous device memory.

    Parameters
    ----------
    host : numpy.ndarray
        Host array, read before the call returns. A pinned C-contiguous array is read when the stream reaches the copy.
    pointer : int
        Device address.
    target : DeviceStream
        The stream.
    """
    settle(host)
    if not host.nbytes:
        return
    copy, direction, handle = cupy_runtime().memcpyAsync, cupy_runtime().memcpyHostToDevice, target.handle
    if is_direct(host):
        span = bounds_of(host)
        use = order().before(target, (span,), ())
        copy(pointer, span[0], host.nbytes, direction, handle)
        order().after(use, None)
        order().hold(target.core, host)
        return
    if host.nbytes <= PIECE:
        # One piece: another thread would be no quicker.
        block = pinned.pool().take(host.nbytes, patient=True)
        block.view(host.shape, host.dtype)[...] = host
        copy(pointer, block.address, host.nbytes, direction, handle)
        block.give_back(block.mark(target))
        return
    waiting: deque[tuple[int, int, pinned.Block, Future[None]]] = deque()

    def send() -> None:
        offset, size, block, copied = waiting.popleft()
        copied.result()
        copy(pointer + offset, block.address, size, direction, handle)
        block.give_back(block.mark(target))

    for offset, piece in pieces(host):
        if len(waiting) > MOST_THREADS:
            send()
        block = pinned.pool().take(piece.nbytes, patient=True)
        copied = copiers().submit(np.copyto, block.view(piece.shape, piece.dtype), piece)
        waiting.append((offset, piece.nbytes, block, copied))
    while waiting:
        send()


def fetched(pointer: int, shape: tuple[int, ...], dtype: np.dtype, size: int, target: DeviceStream) -> np.ndarray:
    """Return a new host array with the `size` bytes of device memory, 1 to `PIECE`, at the address `pointer`.

    The copy follows the stream's present work. The new array's memory is NumPy's: nothing else can be on its way to it.
    """
    block = _arrived(pointer, size, target)
    result = block.view(shape, dtype).copy()
    block.give_back()
    return result


def _arrived(pointer: int, size: int, target: DeviceStream) -> pinned.Block:
    """Copy `size` bytes of device memory at the address `pointer` to a block, wait for the copy, return the block."""
    runtime = cupy_runtime()
    block = pinned.pool().take(size, patient=True)
    runtime.memcpyAsync(block.address, pointer, size, runtime.memcpyDeviceToHost, target.handle)
    block.mark(target).sync()
    return block


def fetch(pointer: int, host: np.ndarray, target: DeviceStream) -> None:
    """Copy C-contiguous device memory at the address `pointer` to a host array, and wait for the copy.

    The copy follows the stream's present work.
    """
    if _only.courier is not None:
        settle(host)
    size = host.nbytes
    if not size:
        return
    if is_direct(host):
        _straight(pointer, host, target)
        target.core.record().sync()
        return
    if size <= PIECE:
        # One piece: another thread would be no quicker.
        block = _arrived(pointer, size, target)
        host[...] = block.view(host.shape, host.dtype)
        block.give_back()
        return
    runtime, handle = cupy_runtime(), target.handle
    copy, direction = runtime.memcpyAsync, runtime.memcpyDeviceToHost
    coming: deque[tuple[Any, pinned.Block, np.ndarray]] = deque()
    copying: deque[tuple[pinned.Block, Future[None]]] = deque()

    def receive() -> None:
        event, block, piece = coming.popleft()
        event.sync()
        copying.append((block, copiers().submit(np.copyto, piece, block.view(piece.shape, piece.dtype))))

    def finish() -> None:
        block, copied = copying.popleft()
        copied.result()
        block.give_back()

    for offset, piece in pieces(host):
        if len(coming) >= _AHEAD:
            receive()
        if len(copying) >= MOST_THREADS:
            finish()
        block = pinned.pool().take(piece.nbytes, patient=True)
        copy(block.address, pointer + offset, piece.nbytes, direction, handle)
        coming.append((block.mark(target), block, piece))
    while coming:
        receive()
    while copying:
        finish()


def deliver(pointer: int, host: np.ndarray, target: DeviceStream) -> None:
    """Enqueue the copy of C-contiguous device memory at the address `pointer` to a host array.

    `host` has the elements once the stream is done.

    Raises
    ------
    LaunchError
        An earlier delivery failed.
    """
    settle(host, unless=target.handle)
    if not host.nbytes:
        return
    if is_direct(host):
        _straight(pointer, host, target)
        order().hold(target.core, host)
        return
    parts = list(pieces(host))
    shipment = courier().open(host, target, len(parts))
    copy, direction, handle = cupy_runtime().memcpyAsync, cupy_runtime().memcpyDeviceToHost, target.handle
    try:
        for offset, piece in parts:
            block = pinned.pool().take(piece.nbytes, patient=True)
            copy(block.address, pointer + offset, piece.nbytes, direction, handle)
            block.give_back(courier().expect(shipment, block.view(piece.shape, piece.dtype), piece))
        courier().close(shipment)
    except BaseException:
        courier().abandon(shipment)
        raise


def ship(parts: Sequence[tuple[np.ndarray, np.ndarray]], block: pinned.Block, target: DeviceStream) -> None:
    """Fill small host arrays from parts of a block whose copies are on the stream. As `deliver`.

    Parameters
    ----------
    parts : sequence of (numpy.ndarray, numpy.ndarray)
        Each host array, with the part of the block to copy to it.
    """
    shipments: list[Shipment] = []
    try:
        for host, staged in parts:
            shipments.append(courier().open(host, target, 1))
            arrival = courier().expect(shipments[-1], staged, host)
        for shipment in shipments:
            courier().close(shipment)
    except BaseException:
        for shipment in shipments:
            courier().abandon(shipment)
        raise
    block.give_back(arrival)  # the courier brings small ones in turn


def _straight(pointer: int, host: np.ndarray, target: DeviceStream) -> None:
    """Enqueue the copy of device memory, from the address `pointer` on, to a pinned C-contiguous array.

    The copy is ordered between streams. The host does not wait.
    """
    span = bounds_of(host)
    use = order().before(target, (), (span,))
    cupy_runtime().memcpyAsync(span[0], pointer, host.nbytes, cupy_runtime().memcpyDeviceToHost, target.handle)
    order().after(use, None)


def settle(host: np.ndarray, unless: int | None = None) -> None:
    """Wait until the courier has filled all arrays that overlap `host`. Return at once if there is no courier.

    Arrays on the stream with the handle `unless` are not waited for.
    """
    if has_courier():
        courier().settle(host, unless)
