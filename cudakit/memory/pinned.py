"""Pinned host memory, pooled, and the bare asynchronous copies between it and a device.

The driver takes about a millisecond to pin a few MiB, so blocks are kept for reuse. Sizes are powers of two up to
`LARGEST_CLASS` and multiples of `LARGEST_CLASS` above. A block returned with an event is reused once the event is
done. Without a GPU, blocks are plain host memory, so the same programs run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cudakit import system
from cudakit.errors import LaunchError
from cudakit.streams import devices, process
from cudakit.streams.streams import DeviceStream
from cudakit.types.arguments import Exported

_LEAST = 4096
#: Sizes up to this are rounded up to a power of two, others to a multiple of it.
LARGEST_CLASS = 16 << 20
#: Free memory that a pool keeps; also what staged copies may have in flight before they wait for each other.
KEPT = 512 << 20
#: The part of the host's memory that the driver's pool keeps where that is more: pinning 64 MiB anew takes as long as
#: many copies of them, and a pipeline over two devices has more than a GiB of blocks.
_SHARE = 16
#: Blocks whose events are asked about before a new block is made.
_ASKED = 4
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


class Block:
    """Pinned memory that one caller owns until it returns the block.

    Attributes
    ----------
    array : numpy.ndarray
        All bytes of the block, uint8; at least as many as requested.
    address : int
        Address of the first byte.
    size : int
        Size in bytes.
    """

    __slots__ = ("_marks", "_out", "_pool", "address", "array", "size")

    def __init__(self, pool: Pool, array: np.ndarray) -> None:
        self._pool = pool
        self._marks: dict[int, Any] = {}
        self.array: np.ndarray = array
        self.address: int = int(array.ctypes.data)
        self.size: int = array.nbytes
        self._out = True

    def view(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> np.ndarray:
        """Return the block's memory from byte `offset` on as a C-contiguous array."""
        return np.ndarray(shape, dtype, self.array, offset)

    def mark(self, target: DeviceStream) -> Any:
        """Record the block's own event of this device after the stream's present work, and return it.

        The event is done when the pool hands the block to another caller.
        """
        event = self._marks[target.device_id] = target.core.record(self._marks.get(target.device_id))
        return event

    def give_back(self, after: Any = None) -> None:
        """Return the block to the pool. It is free once the event `after` is done, or at once without an event.

        Raises
        ------
        LaunchError
            The block was returned before.
        """
        pool = self._pool
        if after is None and self._out and pool._total_bytes <= pool._keep_bytes:
            self._out = False
            pool._free.setdefault(self.size, []).append(self)
        else:
            pool._give_back(self, after)

    def __del__(self) -> None:
        if self._out:
            self._pool._lose(self.size)


class Use(NamedTuple):
    """Use of a pool in bytes: blocks that callers own, blocks free or soon free, greatest use, and limit (or None)."""

    used: int
    free: int
    peak: int
    limit: int | None


class Pool:
    """Blocks of host memory by size.

    Parameters
    ----------
    allocate : callable
        Function ``allocate(size)``, which returns a new uint8 array of `size` bytes, freed with its last reference.
    keep_bytes : int
        Greatest number of free bytes that the pool keeps.
    """

    def __init__(self, allocate: Callable[[int], np.ndarray], keep_bytes: int = KEPT) -> None:
        self._allocate = allocate
        self._keep_bytes = keep_bytes
        # Reentrant, because an array's finalizer may give a block back while this thread is in here. Where a block is
        # free, and where there is room for one, it is not needed: lists and deques give each thing to one thread.
        self._lock = process.renewed(self, "_lock", threading.RLock)
        self._free: dict[int, list[Block]] = {}
        self._busy: dict[int, deque[tuple[Any, Block]]] = {}
        #: Bytes of all blocks there are.
        self._total_bytes = self._peak = 0
        self.limit: int | None = None

    def take(self, nbytes: int, *, patient: bool = False) -> Block:
        """Return a block of at least `nbytes` bytes, not initialised.

        Parameters
        ----------
        nbytes : int
            Least size of the block in bytes.
        patient : bool
            Whether to wait for a block that was returned with an event, rather than exceed the bytes that the pool
            keeps.

        Raises
        ------
        LaunchError
            The limit would be exceeded, or the driver has no more memory. The error names the bytes requested and
            in use.
        """
        size = _LEAST if nbytes <= _LEAST else _rounded(nbytes)
        block = self._pop(size)
        while block is None:
            waits_for = None
            with self._lock:
                block = self._pop(size) or self._reuse(size)
                if block is None and patient and self._idle() + size > self._keep_bytes:
                    waits_for = self._oldest(size)
                if block is None and waits_for is None:
                    block = self._make(size)
            if waits_for is not None:
                # Without the lock: what is waited for may end in another thread that needs it.
                waits_for.sync()
        block._out = True
        return block

    def _pop(self, size: int) -> Block | None:
        free = self._free.get(size)
        try:
            return free.pop() if free else None
        except IndexError:
            return None  # another thread was first

    def _reuse(self, size: int) -> Block | None:
        busy = self._busy.get(size)
        if busy:
            for _ in range(min(len(busy), _ASKED)):
                event, block = busy.popleft()
                if event.is_done:
                    return block
                busy.append((event, block))
        return None

    def _oldest(self, size: int) -> Any:
        """Return the event that must be done before the block of `size` bytes that was returned first is free.

        None if the pool holds no such block that waits for an event.
        """
        busy = self._busy.get(size)
        return busy[0][0] if busy else None

    def _idle(self) -> int:
        """Return the bytes of blocks that are free, or soon free."""
        free = sum(size * len(blocks) for size, blocks in list(self._free.items()))
        return free + sum(size * len(blocks) for size, blocks in list(self._busy.items()))

    def _make(self, size: int) -> Block:
        if self.limit is not None and self._total_bytes + size > self.limit:
            self.trim()
        if self.limit is not None and self._total_bytes + size > self.limit:
            raise LaunchError(
                f"{size:,} bytes of pinned memory were asked for and {self._total_bytes:,} are held: ck.memory.limit "
                f"allows {self.limit:,}; raise it, or free arrays"
            )
        try:
            array = self._allocate(size)
        except Exception as first:
            if not is_out_of_memory(first):
                raise
            self.trim()
            try:
                array = self._allocate(size)
            except Exception as error:
                raise LaunchError(
                    f"the driver has no {size:,} bytes of pinned memory left ({error}); cudakit holds "
                    f"{self._total_bytes:,}; free pinned arrays, or use smaller ones"
                ) from error
        self._total_bytes += size
        self._peak = max(self._peak, self._total_bytes)
        return Block(self, array)

    def _give_back(self, block: Block, after: Any) -> None:
        if not block._out:
            raise LaunchError("the pinned block was given back already; take another")
        block._out = False
        is_full = self._total_bytes > self._keep_bytes and self._idle() + block.size > self._keep_bytes
        if after is not None and not (is_full and after.is_done):
            self._busy.setdefault(block.size, deque()).append((after, block))
        elif not is_full:
            self._free.setdefault(block.size, []).append(block)
        else:
            with self._lock:
                if block.size <= self._keep_bytes:
                    self.trim(self._keep_bytes - block.size)
                if self._idle() + block.size <= self._keep_bytes:
                    self._free.setdefault(block.size, []).append(block)
                else:
                    self._total_bytes -= block.size

    def _lose(self, size: int) -> None:
        """Subtract the `size` bytes of a block that was dropped without `give_back`. The interpreter frees its memory.

        Nothing is returned to the pool.
        """
        with self._lock:
            self._total_bytes -= size

    def trim(self, to: int = 0) -> int:
        """Free unused blocks until at most `to` bytes are idle. Return the bytes freed."""
        freed = 0
        with self._lock:
            for size, busy in list(self._busy.items()):
                for event, block in [busy.popleft() for _ in range(len(busy))]:
                    if event.is_done:
                        self._free.setdefault(size, []).append(block)
                    else:
                        busy.append((event, block))
            idle = self._idle()
            for size in sorted(self._free, reverse=True):
                while idle - freed > to and self._pop(size) is not None:
                    freed += size
            self._total_bytes -= freed
        return freed

    def use(self) -> Use:
        """Return the pool's present use."""
        with self._lock:
            idle = self._idle()
            return Use(self._total_bytes - idle, idle, self._peak, self.limit)


def _rounded(nbytes: int) -> int:
    if nbytes > LARGEST_CLASS:
        return -(-nbytes // LARGEST_CLASS) * LARGEST_CLASS
    return 1 << (nbytes - 1).bit_length() if nbytes > _LEAST else _LEAST


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed for lack of memory, by any library's error."""
    return isinstance(error, MemoryError) or "OUT_OF_MEMORY" in str(error) or "MemoryAllocation" in str(error)


class _PageLocked(Exported):
    """Memory of a cuda.core Buffer as NumPy reads it. Arrays made of it keep the buffer."""

    is_page_locked = True


class Lease:
    """A pinned block owned by an array and its views. It is returned to the pool with the last of them.

    Attributes
    ----------
    after : event or None
        Event that must be done before the block is used again.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_tally", "after")
    is_page_locked = True

    def __init__(self, block: Block, shape: tuple[int, ...], dtype: np.dtype, tally: list[int]) -> None:
        self._block, self._tally = block, tally
        self.after: Any = None
        tally[0] += 1
        interface = {"data": (block.address, False), "shape": shape, "typestr": dtype.str, "version": 3}
        self.__array_interface__: dict[str, Any] = interface

    def __del__(self) -> None:
        self._tally[0] -= 1
        self._block.give_back(self.after)


def lend(block: Block, shape: tuple[int, ...], dtype: np.dtype, tally: list[int] | None = None) -> np.ndarray:
    """Return an array in the memory of a block. The block returns to its pool with the array's last view.

    `tally[0]` counts the arrays that have not returned their block.
    """
    array = np.asarray(Lease(block, shape, dtype, [0] if tally is None else tally))
    # A dtype that NumPy has no letters for is bytes so far.
    return array if array.dtype == dtype else array.view(dtype)


def _allocate(size: int) -> np.ndarray:
    if not devices.has_gpu():
        return np.empty(size, np.uint8)
    from cuda.core import LegacyPinnedMemoryResource

    devices.current_device()
    buffer = LegacyPinnedMemoryResource().allocate(size)
    interface = {"data": (int(buffer.handle), False), "shape": (int(buffer.size),), "typestr": "|u1", "version": 3}
    return np.asarray(_PageLocked(buffer, interface))


_pool = Pool(_allocate, max(KEPT, system.memory_bytes() // _SHARE))


def pool() -> Pool:
    """Return the process's pool of pinned memory."""
    return _pool


def take(nbytes: int) -> Block:
    """Return a block of the process's pool. See `Pool.take`."""
    if devices.is_forked():
        devices.require_gpu()
    return pool().take(nbytes)
