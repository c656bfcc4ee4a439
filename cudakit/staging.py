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

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import numpy as np

from cudakit import pinned
from cudakit.courier import ALONE, MOST_THREADS, bounds_of, copiers, courier, has_courier
from cudakit.order import order
from cudakit.streams import Known

#: Bytes of one piece: long enough that the DMA of one hides what is said about the next, short enough to overlap.
PIECE = 8 << 20
#: Pieces whose copies from the device are put on the stream before the first is waited for.
_AHEAD = 4


def is_pinned(host: np.ndarray) -> bool:
    """Whether the driver knows an array's memory as pinned, so that a device copies from and to it by itself."""
    if not host.nbytes:
        return True
    # An array that has its memory from NumPy is not; to ask the driver takes some microseconds.
    owner: Any = host
    while type(owner) is np.ndarray:
        if owner.flags.owndata:
            return False
        owner = owner.base
    if isinstance(owner, pinned.Exported | pinned.Lease):
        return True
    from cuda.bindings import driver

    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, found = driver.cuPointerGetAttribute(kind, host.__array_interface__["data"][0])
    return int(status) == 0 and int(found) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)


def is_direct(host: np.ndarray) -> bool:
    """Whether a device copies from and to the array as it is: pinned and C-contiguous."""
    return bool(host.flags.c_contiguous) and is_pinned(host)


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
    from cupy.cuda import runtime

    settle(host)
    if not host.nbytes:
        return
    kind, handle = runtime.memcpyHostToDevice, target.handle
    if is_direct(host):
        span = bounds_of(host)
        use = order().before(target, (span,), ())
        runtime.memcpyAsync(pointer, span[0], host.nbytes, kind, handle)
        order().after(use, None)
        order().hold(target.core, host)
        return
    waiting: deque[tuple[int, int, pinned.Block, Future[None] | None]] = deque()

    def send() -> None:
        offset, size, block, copied = waiting.popleft()
        if copied is not None:
            copied.result()
        runtime.memcpyAsync(pointer + offset, block.address, size, kind, handle)
        block.give_back(target.core.record())

    for offset, piece in pieces(host):
        if len(waiting) > MOST_THREADS:
            send()
        block = pinned.pool().take(piece.nbytes, patient=True)
        staged = block.view(piece.shape, piece.dtype)
        copied = None
        if host.nbytes < ALONE:
            np.copyto(staged, piece)
        else:
            copied = copiers().submit(np.copyto, staged, piece)
        waiting.append((offset, piece.nbytes, block, copied))
    while waiting:
        send()


def fetch(pointer: int, host: np.ndarray, target: Known) -> None:
    """Copy device memory, C-contiguous, to an array after what the stream has to do so far, and wait for it."""
    from cupy.cuda import runtime

    settle(host)
    if not host.nbytes:
        return
    kind, handle = runtime.memcpyDeviceToHost, target.handle
    if is_direct(host):
        _straight(pointer, host, target)
        target.core.record().sync()
        return
    coming: deque[tuple[Any, pinned.Block, np.ndarray]] = deque()
    copying: deque[tuple[pinned.Block, Future[None]]] = deque()

    def receive() -> None:
        event, block, piece = coming.popleft()
        event.sync()
        staged = block.view(piece.shape, piece.dtype)
        if host.nbytes < ALONE:
            np.copyto(piece, staged)
            block.give_back()
        else:
            copying.append((block, copiers().submit(np.copyto, piece, staged)))

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
        runtime.memcpyAsync(block.address, pointer + offset, piece.nbytes, kind, handle)
        coming.append((target.core.record(), block, piece))
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
    from cupy.cuda import runtime

    settle(host, unless=target.handle)
    if not host.nbytes:
        return
    if is_direct(host):
        _straight(pointer, host, target)
        order().hold(target.core, host)
        return
    parts = list(pieces(host))
    shipment = courier().open(host, target, len(parts))
    try:
        for offset, piece in parts:
            block = pinned.pool().take(piece.nbytes, patient=True)
            source, kind = pointer + offset, runtime.memcpyDeviceToHost
            runtime.memcpyAsync(block.address, source, piece.nbytes, kind, target.handle)
            block.give_back(courier().expect(shipment, block.view(piece.shape, piece.dtype), piece))
        courier().close(shipment)
    except BaseException:
        courier().abandon(shipment)
        raise


def _straight(pointer: int, host: np.ndarray, target: Known) -> None:
    """Put the copy of device memory to a pinned array on a stream."""
    from cupy.cuda import runtime

    span = bounds_of(host)
    use = order().before(target, (), (span,))
    runtime.memcpyAsync(span[0], pointer, host.nbytes, runtime.memcpyDeviceToHost, target.handle)
    order().after(use, None)


def settle(host: np.ndarray, unless: int | None = None) -> None:
    """Wait until what is on its way into the memory of `host` on other streams than `unless` has come."""
    if has_courier():
        courier().settle(host, unless)
