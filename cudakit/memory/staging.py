"""Copies between a device and any host array: through pinned blocks in pieces, by several threads, or straight.

Host to device: each piece is copied into a pinned block by a thread, and its copy to the device is put on the stream,
while other threads copy the next pieces. When the call returns the host array has been read.

Device to host: each piece is copied into a pinned block on the stream, which then says so by a number in pinned memory.
A `Courier` takes it from there: threads copy the pieces into the host array as they come, and the stream goes on once
the last is there. So whoever waits for the stream, or for an event recorded on it, has the result. Nothing runs in the
driver's own threads, and the courier asks the driver nothing.

Arrays that are C-contiguous and in pinned memory are copied straight.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from cudakit.memory import pinned
from cudakit.memory.delivery import MOST_THREADS, Shipment, bounds_of, copiers, courier, has_courier
from cudakit.streams.order import order
from cudakit.streams.streams import Known
from cudakit.types.arguments import is_page_locked

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
    """CuPy's functions for copies."""
    from cupy.cuda import runtime

    return runtime


def comes_soon(event: Any, size: int) -> bool:
    """Wait a moment for an event, after copies of so many bytes; whether it is done."""
    end = time.perf_counter() + _SOON + size / _LEAST_RATE
    while not event.is_done:
        if time.perf_counter() > end:
            return False
    return True


def is_direct(host: np.ndarray) -> bool:
    """Whether a device copies from and to the array as it is: pinned and C-contiguous."""
    return bool(host.flags.c_contiguous) and is_page_locked(host)


def pieces(host: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The array in pieces of about `PIECE` bytes in C order, each with its offset in bytes in a contiguous copy."""
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


def upload(host: np.ndarray, pointer: int, target: Known) -> None:
    """Put the copy of an array to device memory, C-contiguous there, on a stream.

    Parameters
    ----------
    host : numpy.ndarray
        Read before this returns, unless it is pinned and C-contiguous: then it is read when the stream comes to it.
    pointer : int
        Device address.
    target : Known
        The stream.
    """
    settle(host)
    if not host.nbytes:
        return
    copy, kind, handle = cupy_runtime().memcpyAsync, cupy_runtime().memcpyHostToDevice, target.handle
    if is_direct(host):
        span = bounds_of(host)
        use = order().before(target, (span,), ())
        copy(pointer, span[0], host.nbytes, kind, handle)
        order().after(use, None)
        order().hold(target.core, host)
        return
    if host.nbytes <= PIECE:
        # One piece: another thread would be no quicker.
        block = pinned.pool().take(host.nbytes, patient=True)
        block.view(host.shape, host.dtype)[...] = host
        copy(pointer, block.address, host.nbytes, kind, handle)
        block.give_back(block.mark(target))
        return
    waiting: deque[tuple[int, int, pinned.Block, Future[None]]] = deque()

    def send() -> None:
        offset, size, block, copied = waiting.popleft()
        copied.result()
        copy(pointer + offset, block.address, size, kind, handle)
        block.give_back(block.mark(target))

    for offset, piece in pieces(host):
        if len(waiting) > MOST_THREADS:
            send()
        block = pinned.pool().take(piece.nbytes, patient=True)
        copied = copiers().submit(np.copyto, block.view(piece.shape, piece.dtype), piece)
        waiting.append((offset, piece.nbytes, block, copied))
    while waiting:
        send()


def fetch(pointer: int, host: np.ndarray, target: Known) -> None:
    """Copy device memory, C-contiguous, to an array after what the stream has to do so far, and wait for it."""
    settle(host)
    if not host.nbytes:
        return
    copy, kind, handle = cupy_runtime().memcpyAsync, cupy_runtime().memcpyDeviceToHost, target.handle
    if is_direct(host):
        _straight(pointer, host, target)
        target.core.record().sync()
        return
    if host.nbytes <= PIECE:
        # One piece: another thread would be no quicker.
        block = pinned.pool().take(host.nbytes, patient=True)
        copy(block.address, pointer, host.nbytes, kind, handle)
        block.mark(target).sync()
        host[...] = block.view(host.shape, host.dtype)
        block.give_back()
        return
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
        copy(block.address, pointer + offset, piece.nbytes, kind, handle)
        coming.append((block.mark(target), block, piece))
    while coming:
        receive()
    while copying:
        finish()


def deliver(pointer: int, host: np.ndarray, target: Known) -> None:
    """Put the copy of device memory, C-contiguous, to an array on a stream; `host` has it once the stream is through.

    Raises
    ------
    LaunchError
        If an earlier delivery failed.
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
    copy, kind, handle = cupy_runtime().memcpyAsync, cupy_runtime().memcpyDeviceToHost, target.handle
    try:
        for offset, piece in parts:
            block = pinned.pool().take(piece.nbytes, patient=True)
            copy(block.address, pointer + offset, piece.nbytes, kind, handle)
            block.give_back(courier().expect(shipment, block.view(piece.shape, piece.dtype), piece))
        courier().close(shipment)
    except BaseException:
        courier().abandon(shipment)
        raise


def ship(parts: Sequence[tuple[np.ndarray, np.ndarray]], block: pinned.Block, target: Known) -> None:
    """Have small host arrays filled from parts of a block, whose copies are on the stream; as `deliver`.

    Parameters
    ----------
    parts : sequence of (numpy.ndarray, numpy.ndarray)
        Each host array, and the part of the block.
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


def _straight(pointer: int, host: np.ndarray, target: Known) -> None:
    """Put the copy of device memory to a pinned array on a stream."""
    span = bounds_of(host)
    use = order().before(target, (), (span,))
    cupy_runtime().memcpyAsync(span[0], pointer, host.nbytes, cupy_runtime().memcpyDeviceToHost, target.handle)
    order().after(use, None)


def settle(host: np.ndarray, unless: int | None = None) -> None:
    """Wait until what is on its way into the memory of `host` on other streams than `unless` has come."""
    if has_courier() and courier().is_busy:
        courier().settle(host, unless)
