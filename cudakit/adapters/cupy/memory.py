"""A stand-in for CuPy's memory: pointers, allocations, pools and allocators, pinned memory.

All device memory is host memory. A pool counts the bytes in use, in units of 512, and keeps no memory that was freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cudakit.adapters.cupy.device import USAGE, CUDARuntimeError, Device
from cudakit.adapters.emulated_device import TOTAL_BYTES
from cudakit.emulator.face import bytes_at, room
from cudakit.errors import LaunchError, shortened
from cudakit.memory.memory import empty

_UNIT = 512


class OutOfMemoryError(MemoryError):
    """Error for an allocation beyond a pool's limit."""


class BaseMemory:
    """A range of memory.

    Attributes
    ----------
    ptr : int
        Address of the first byte.
    size : int
        Number of bytes.
    device_id : int
        0, the emulator's device.
    """

    ptr: int
    size: int
    device_id: int

    def __init__(self, ptr: int, size: int, owner: Any = None) -> None:
        self.ptr, self.size, self.device_id, self._owner = int(ptr), int(size), 0, owner

    @property
    def device(self) -> Any:
        """Device of the memory."""
        return Device(0)


class Memory(BaseMemory):
    """An allocation of device memory."""

    def __init__(self, size: int) -> None:
        owner = np.empty(max(int(size), 1), np.uint8)
        room().register(owner, of_the_host=False)
        super().__init__(owner.ctypes.data, size, owner)


class ManagedMemory(Memory):
    """An allocation of memory that the host may use too."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        room().register(self._owner)


class MemoryAsync(Memory):
    """An allocation in the order of a stream's work."""

    def __init__(self, size: int, stream: Any = None) -> None:
        super().__init__(size)


class UnownedMemory(BaseMemory):
    """A range of memory that `owner` keeps alive.

    Raises
    ------
    CUDARuntimeError
        If no device memory is at the address.
    """

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        if isinstance(owner, np.ndarray):
            room().register(owner, of_the_host=room().is_of_the_host(owner))
        if size and room().at(int(ptr)) is None:
            raise CUDARuntimeError("cudaErrorInvalidValue", f"no device memory is at address {int(ptr):#x}")
        super().__init__(ptr, size, owner)


class MemoryPointer:
    """A pointer into device memory.

    Parameters
    ----------
    mem : BaseMemory
        Range of memory.
    offset : int
        Offset of the pointer, in bytes.
    """

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem: Any = mem
        self.device_id: int = 0
        self.ptr: int = mem.ptr + int(offset)

    def __repr__(self) -> str:
        return f"<MemoryPointer {self.ptr:#x} device=0 mem={self.mem!r}>"

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + int(offset))

    __radd__ = __add__
    __iadd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -int(offset)

    __isub__ = __sub__

    @property
    def device(self) -> Any:
        """Device of the memory."""
        return self.mem.device

    def bytes(self, size: int) -> np.ndarray:
        """Return `size` bytes from the pointer on as an array, which keeps the memory alive.

        Raises
        ------
        CUDARuntimeError
            Beyond the end of the memory.
        """
        end = self.mem.ptr + self.mem.size
        if size < 0 or self.ptr + size > end:
            raise CUDARuntimeError(
                "cudaErrorInvalidValue", f"{size:,} bytes at {self.ptr:#x}, and the memory ends {end - self.ptr:,} on"
            )
        return bytes_at(self.mem, self.ptr, size)

    def memset(self, value: int, size: int, stream: Any = None) -> None:
        """Set bytes to a value."""
        self.bytes(size)[...] = value

    memset_async = memset

    def copy_from_device(self, src: Any, size: int, stream: Any = None) -> None:
        """Copy bytes from another pointer."""
        self.bytes(size)[...] = src.bytes(size).copy()

    copy_from_device_async = copy_from_device

    def copy_from_host(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy bytes from host memory: an address, or a ``ctypes.c_void_p``."""
        self.bytes(size)[...] = bytes_at(mem, _address(mem), size)

    copy_from_host_async = copy_from_host

    def copy_to_host(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy bytes to host memory: an address, or a ``ctypes.c_void_p``."""
        bytes_at(mem, _address(mem), size)[...] = self.bytes(size)

    copy_to_host_async = copy_to_host

    def copy_from(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy bytes from a pointer or from host memory."""
        (self.copy_from_device if isinstance(mem, MemoryPointer) else self.copy_from_host)(mem, size)

    copy_from_async = copy_from


def _address(mem: Any) -> int:
    if isinstance(mem, np.ndarray):
        return int(mem.ctypes.data)
    return int(mem.value or 0) if isinstance(mem, ctypes.c_void_p) else int(mem)


def device_bytes(address: int, size: int) -> np.ndarray:
    """Return bytes of device memory as an array.

    Raises
    ------
    CUDARuntimeError
        If no device memory has these bytes.
    """
    owner = room().at(int(address)) if size else None
    if owner is None or int(address) + size > np.lib.array_utils.byte_bounds(owner)[1]:
        if not size:
            return np.empty(0, np.uint8)
        raise CUDARuntimeError("cudaErrorInvalidValue", f"no device memory has {size:,} bytes at {int(address):#x}")
    return bytes_at(owner, int(address), size)


class MemoryPool:
    """A stand-in for ``cupy.cuda.MemoryPool``: the bytes in use, and their limit. Freed memory is not kept."""

    def __init__(self, allocator: Callable[[int], Any] | None = None) -> None:
        self._allocator = allocator
        self._used = self._limit = 0

    def count(self, owner: Any, size: int) -> None:
        """Count bytes as in use until `owner` is freed.

        Raises
        ------
        OutOfMemoryError
            Beyond the limit.
        """
        rounded = -(-size // _UNIT) * _UNIT
        if self._limit and self._used + rounded > self._limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {rounded:,} bytes (allocated so far: {self._used:,} bytes, "
                f"limit set to: {self._limit:,} bytes)."
            )
        self._used += rounded
        USAGE.size += rounded
        weakref.finalize(owner, self._release, rounded).atexit = False

    def _release(self, size: int) -> None:
        self._used -= size
        USAGE.size -= size

    def malloc(self, size: int) -> MemoryPointer:
        """Return a pointer to new memory."""
        if self._allocator is None:
            pointer = MemoryPointer(Memory(size), 0)
        else:
            pointer = self._allocator(-(-int(size) // _UNIT) * _UNIT)
        self.count(pointer.mem, int(size))
        return pointer

    def used_bytes(self) -> int:
        """Return the bytes in use, each allocation in units of 512."""
        return self._used

    def total_bytes(self) -> int:
        """Return the bytes in use: the pool keeps no other memory."""
        return self._used

    def free_bytes(self) -> int:
        """Return 0: the pool keeps no freed memory."""
        return 0

    def n_free_blocks(self) -> int:
        """Return 0: the pool keeps no freed memory."""
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        """Do nothing: the pool keeps no freed memory."""

    def free_all_free(self) -> None:
        """Do nothing: the pool keeps no freed memory."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Limit the bytes in use: to a size, or to a part of the device's memory. 0 is no limit."""
        self._limit = int(size if size is not None else (fraction or 0) * TOTAL_BYTES)

    def get_limit(self) -> int:
        """Return the limit in bytes; 0 is no limit."""
        return self._limit


class MemoryAsyncPool(MemoryPool):
    """A stand-in for ``cupy.cuda.MemoryAsyncPool``: memory of the driver's own pool."""

    def __init__(self, pool_handles: Any = "current") -> None:
        super().__init__()


class PythonFunctionAllocator:
    """An allocator of two functions: ``malloc(size, device_id)`` returns an address, and ``free(address, device_id)``
    frees it.
    """

    def __init__(self, malloc_func: Callable[[int, int], int], free_func: Callable[[int, int], object]) -> None:
        self._malloc, self._free = malloc_func, free_func

    def malloc(self, size: int) -> MemoryPointer:
        """Return a pointer to memory of the allocator's function."""
        address = self._malloc(int(size), 0)
        memory = UnownedMemory(address, size, None, 0)
        weakref.finalize(memory, self._free, address, 0).atexit = False
        return MemoryPointer(memory, 0)


class PinnedMemoryPointer(np.ndarray):
    """A pointer to pinned host memory, whose bytes it has as a buffer.

    Attributes
    ----------
    ptr : int
        Address of the first byte.
    """

    def __new__(cls, size: int) -> PinnedMemoryPointer:
        return np.asarray(empty(int(size), np.uint8, "pinned")).view(cls)

    @property
    def ptr(self) -> int:
        """Address of the first byte."""
        return int(self.__array_interface__["data"][0])

    @property
    def mem(self) -> PinnedMemoryPointer:
        """Range of memory: the pointer itself."""
        return self

    def size(self) -> int:  # type: ignore[override]
        """Return the number of bytes."""
        return self.nbytes

    def __add__(self, offset: int) -> Any:  # type: ignore[override]
        return self[offset:]


class PinnedMemoryPool:
    """A stand-in for ``cupy.cuda.PinnedMemoryPool``. Freed memory is kept by cudakit's own pool, not by this one."""

    def __init__(self, allocator: Any = None) -> None:
        self._allocator = allocator or PinnedMemoryPointer

    def malloc(self, size: int) -> Any:
        """Return a pointer to new pinned memory."""
        return self._allocator(size)

    def n_free_blocks(self) -> int:
        """Return 0: this pool keeps no freed memory."""
        return 0

    def free_all_blocks(self) -> None:
        """Do nothing: this pool keeps no freed memory."""


class _Allocators(threading.local):
    """Allocator of this thread's innermost `using_allocator` block, or None."""

    block: Any = None


POOL, PINNED_POOL = MemoryPool(), PinnedMemoryPool()
_allocators = _Allocators()
_chosen: dict[str, Any] = {"device": POOL.malloc, "pinned": PINNED_POOL.malloc}


def get_allocator() -> Any:
    """Return the allocator in use."""
    return _allocators.block or _chosen["device"]


def set_allocator(allocator: Any = None) -> None:
    """Set the function that allocates memory: size → pointer. None allocates without a pool."""
    _chosen["device"] = allocator or malloc_unpooled


def malloc_unpooled(size: int) -> MemoryPointer:
    """Return a pointer to new memory of no pool."""
    return MemoryPointer(Memory(size), 0)


@contextlib.contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Use an allocator in the block, in this thread."""
    former, _allocators.block = _allocators.block, allocator or malloc_unpooled
    try:
        yield
    finally:
        _allocators.block = former


def set_pinned_memory_allocator(allocator: Any = None) -> None:
    """Set the function that allocates pinned memory: size → pointer."""
    _chosen["pinned"] = allocator or PinnedMemoryPointer


def alloc(size: int) -> Any:
    """Return a pointer to new memory of the allocator in use."""
    return get_allocator()(int(size))


def alloc_pinned_memory(size: int) -> Any:
    """Return a pointer to new pinned memory."""
    return _chosen["pinned"](int(size))


def malloc_managed(size: int) -> MemoryPointer:
    """Return a pointer to memory that the host may use too."""
    return MemoryPointer(ManagedMemory(size), 0)


def malloc_async(size: int) -> MemoryPointer:
    """Return a pointer to new memory, in the order of the current stream."""
    return MemoryPointer(MemoryAsync(size), 0)


def allocated(array: np.ndarray) -> Any:
    """Count a new array in the pool in use; return the pointer of the program's own allocator, if it has set one."""
    allocator = get_allocator()
    pool = getattr(allocator, "__self__", None)
    if type(pool) is MemoryPool and pool._allocator is None:
        if array.nbytes:
            pool.count(array, array.nbytes)
        return None
    if allocator is malloc_unpooled or not array.nbytes:
        return None
    pointer = allocator(array.nbytes)
    if not isinstance(pointer, MemoryPointer):
        raise LaunchError(f"an allocator returns a MemoryPointer, got {shortened(pointer)}")
    return pointer
