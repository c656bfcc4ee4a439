"""Pinned host memory, pooled, and the bare asynchronous copies between it and a device.

The driver takes about a millisecond to pin a few MiB, so blocks are kept and handed out again: sizes are powers of
two up to `LARGEST_CLASS` and multiples of it above. A block given back with an event is handed out again once the
event is done. Where there is no GPU, blocks are plain host memory, so that the same programs run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cudakit import devices
from cudakit.errors import LaunchError
from cudakit.streams import is_emulated, known
from cudakit.work import doing, watched

_LEAST = 4096
#: Sizes up to this are rounded up to a power of two, others to a multiple of it.
LARGEST_CLASS = 16 << 20
#: Free memory that the pool keeps; also what staged copies may have in flight before they wait for each other.
KEPT = 512 << 20
#: Blocks whose events are asked about before a new block is made.
_ASKED = 4
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


class Block:
    """Pinned memory that is one caller's until it is given back.

    Attributes
    ----------
    array : numpy.ndarray
        All its bytes, uint8; at least as many as were asked for.
    address : int
    size : int
        Bytes.
    """

    __slots__ = ("_out", "_pool", "address", "array", "size")

    def __init__(self, pool: Pool, array: np.ndarray) -> None:
        self._pool = pool
        self.array = array
        self.address = int(array.ctypes.data)
        self.size = array.nbytes
        self._out = True

    def view(self, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> np.ndarray:
        """The block's memory from byte `offset` on as a C-contiguous array."""
        return np.ndarray(shape, dtype, self.array, offset)

    def give_back(self, after: Any = None) -> None:
        """Hand the block to the pool: for anyone's use once the event `after` is done, or at once without one.

        Raises
        ------
        LaunchError
            If it was given back before.
        """
        self._pool._give_back(self, after)

    def __del__(self) -> None:
        if self._out:
            self._pool._lose(self.size)


class Use(NamedTuple):
    """What a pool holds, in bytes: lent out, free or soon free, and the most that it ever held."""

    used: int
    free: int
    peak: int
    limit: int | None


class Pool:
    """Blocks of host memory by size.

    Parameters
    ----------
    allocate : callable
        ``allocate(size)``: a new uint8 array of `size` bytes, freed when nobody refers to it.
    kept : int
        Bytes of free memory that are kept rather than freed.
    """

    def __init__(self, allocate: Callable[[int], np.ndarray], kept: int = KEPT) -> None:
        self._allocate = allocate
        self._kept = kept
        # Reentrant, because an array's finalizer may give a block back while this thread is in here.
        self._lock = threading.RLock()
        self._free: dict[int, list[Block]] = {}
        self._busy: dict[int, deque[tuple[Any, Block]]] = {}
        self._used = self._idle = self._peak = 0
        self.limit: int | None = None

    def take(self, nbytes: int, *, patient: bool = False) -> Block:
        """A block of at least `nbytes` bytes, not initialised.

        Parameters
        ----------
        nbytes : int
        patient : bool
            Rather wait for a block that was given back with an event than have more such blocks than the pool keeps.

        Raises
        ------
        LaunchError
            Beyond the limit, or where the driver has no more; says what was asked for and what is held.
        """
        size = _rounded(nbytes)
        while True:
            with self._lock:
                found = self._reuse(size)
                waits_for = None
                if found is None and patient and self._idle + size > self._kept:
                    waits_for = self._oldest(size)
                if found is None and waits_for is None:
                    found = self._make(size)
                if found is not None:
                    self._used += size
                    found._out = True
                    self._peak = max(self._peak, self._used + self._idle)
                    return found
            # Without the lock: what is waited for may end in another thread that needs it.
            waits_for.sync()  # type: ignore[union-attr]  # there is one wherever nothing was found

    def _reuse(self, size: int) -> Block | None:
        free, busy = self._free.get(size), self._busy.get(size)
        if not free and busy:
            for _ in range(min(len(busy), _ASKED)):
                event, block = busy.popleft()
                if event.is_done:
                    self._idle -= size
                    return block
                busy.append((event, block))
        if not free:
            return None
        self._idle -= size
        return free.pop()

    def _oldest(self, size: int) -> Any:
        """The event after which a block of the size can be had; None where none is in use."""
        busy = self._busy.get(size)
        return busy[0][0] if busy else None

    def _make(self, size: int) -> Block:
        if self.limit is not None and self._used + self._idle + size > self.limit:
            self.trim()
        held = self._used + self._idle
        if self.limit is not None and held + size > self.limit:
            raise LaunchError(
                f"{size:,} bytes of pinned memory were asked for and {held:,} are held: ck.memory.limit allows "
                f"{self.limit:,}; raise it, or let go of arrays"
            )
        try:
            return Block(self, self._allocate(size))
        except Exception as first:
            if not is_out_of_memory(first):
                raise
            self.trim()
            try:
                return Block(self, self._allocate(size))
            except Exception as error:
                raise LaunchError(
                    f"the driver has no {size:,} bytes of pinned memory left ({error}); cudakit holds {held:,}; let "
                    "go of pinned arrays, or use smaller ones"
                ) from error

    def _give_back(self, block: Block, after: Any) -> None:
        with self._lock:
            if not block._out:
                raise LaunchError("the pinned block was given back already; take another")
            block._out = False
            self._used -= block.size
            if after is None or after.is_done:
                if block.size <= self._kept < self._idle + block.size:
                    self.trim(self._kept - block.size)
                if self._idle + block.size <= self._kept:
                    self._free.setdefault(block.size, []).append(block)
                    self._idle += block.size
                return
            self._busy.setdefault(block.size, deque()).append((after, block))
            self._idle += block.size

    def _lose(self, size: int) -> None:
        """A block was dropped rather than given back: its memory is the interpreter's to free."""
        with self._lock:
            self._used -= size

    def trim(self, to: int = 0) -> int:
        """Free blocks that nobody uses until at most `to` bytes are idle; the bytes freed."""
        with self._lock:
            before = self._idle
            for size, busy in self._busy.items():
                for event, block in [busy.popleft() for _ in range(len(busy))]:
                    if event.is_done:
                        self._free.setdefault(size, []).append(block)
                    else:
                        busy.append((event, block))
            for size in sorted(self._free, reverse=True):
                while self._free[size] and self._idle > to:
                    self._free[size].pop()
                    self._idle -= size
            return before - self._idle

    def use(self) -> Use:
        """What the pool holds now."""
        with self._lock:
            return Use(self._used, self._idle, self._peak, self.limit)


def _rounded(nbytes: int) -> int:
    if nbytes > LARGEST_CLASS:
        return -(-nbytes // LARGEST_CLASS) * LARGEST_CLASS
    return max(_LEAST, 1 << (nbytes - 1).bit_length())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed for want of memory, whoever says so."""
    return isinstance(error, MemoryError) or "OUT_OF_MEMORY" in str(error) or "MemoryAllocation" in str(error)


class Exported:
    """Memory of a cuda.core Buffer as NumPy reads it; the arrays made of it keep the buffer."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        address, size = int(buffer.handle), int(buffer.size)
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


class Lease:
    """A pinned block that an array and its views own together; given back when they are gone.

    Attributes
    ----------
    after : event or None
        What must be done before it is used again.
    """

    def __init__(self, block: Block, size: int) -> None:
        self._block = block
        self.after: Any = None
        self.__array_interface__ = {"data": (block.address, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._block.give_back(self.after)


def _allocate(size: int) -> np.ndarray:
    if not devices.has_gpu():
        return np.empty(size, np.uint8)
    from cuda.core import LegacyPinnedMemoryResource

    devices.current_device()
    return np.asarray(Exported(LegacyPinnedMemoryResource().allocate(size)))


_pool = Pool(_allocate)


def pool() -> Pool:
    """The process's pool of pinned memory."""
    return _pool


def take(nbytes: int) -> Block:
    """A block of the process's pool; see `Pool.take`."""
    return pool().take(nbytes)


def copy_in(host: np.ndarray, device: Any, stream: Any) -> None:
    """Put the copy ``device = host`` on `stream`, which alone orders it; both C-contiguous, of the same size.

    Parameters
    ----------
    host : numpy.ndarray
        In pinned memory; of other memory the copy is right, but the call waits for it. On the emulator, any.
    device : cupy.ndarray
        On the emulator, a NumPy array.
    stream : stream
    """
    _copy(host, device, host, device, stream, _HOST_TO_DEVICE, "copy_in")


def copy_out(device: Any, host: np.ndarray, stream: Any) -> None:
    """Put the copy ``host = device`` on `stream`, which alone orders it; as `copy_in`."""
    _copy(device, host, host, device, stream, _DEVICE_TO_HOST, "copy_out")


def _copy(source: Any, target: Any, host: np.ndarray, device: Any, stream: Any, kind: int, name: str) -> None:
    if watched() or is_emulated(stream):
        with doing("copy", name, stream, (source,), (target,), host.nbytes):
            _bare_copy(source, target, host, device, stream, kind)
    else:
        _bare_copy(source, target, host, device, stream, kind)


def _bare_copy(source: Any, target: Any, host: np.ndarray, device: Any, stream: Any, kind: int) -> None:
    if is_emulated(stream):
        np.copyto(target, source.reshape(target.shape))
        return
    from cupy.cuda import runtime

    address, pointer = host.__array_interface__["data"][0], device.data.ptr
    source_address, target_address = (address, pointer) if kind == _HOST_TO_DEVICE else (pointer, address)
    runtime.memcpyAsync(target_address, source_address, host.nbytes, kind, known(stream).handle)
