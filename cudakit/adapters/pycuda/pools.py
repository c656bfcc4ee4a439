"""Memory pools of ``pycuda.tools``: freed blocks are held, and handed out again for sizes of the same class."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np

from cudakit.adapters.pycuda.allocations import DeviceAllocation, mem_alloc
from cudakit.adapters.pycuda.errors import LogicError, MemoryError
from cudakit.adapters.pycuda.host_memory import array_of, pagelocked_empty
from cudakit.errors import ArgumentError
from cudakit.streams.order import order

_Block = TypeVar("_Block")
#: Bits of a size, after its highest bit, that tell its class: a block is at most 1/16 larger than needed.
_LEADING_BITS = 4


def _let_go_of_finished_work() -> None:
    # With several streams, arguments are held until their work is done. PyCUDA holds none.
    order().release()


def bitlog2(size: int) -> int:
    """Return ⌊log₂ size⌋; 0 for size 0."""
    return max(size.bit_length() - 1, 0)


class _Pool(Generic[_Block]):
    """A pool of blocks of memory, by classes of their sizes."""

    def __init__(self, allocate: Callable[[int], _Block], free: Callable[[_Block], object]) -> None:
        self._allocate_block, self._free_block = allocate, free
        self._bins: dict[int, list[_Block]] = {}
        self._holds = True
        self._active_blocks = self._active_bytes = self._managed_bytes = 0

    @property
    def held_blocks(self) -> int:
        """The number of unused blocks that the pool holds."""
        _let_go_of_finished_work()
        return sum(map(len, self._bins.values()))

    @property
    def active_blocks(self) -> int:
        """The number of blocks in use."""
        _let_go_of_finished_work()
        return self._active_blocks

    @property
    def managed_bytes(self) -> int:
        """The bytes of all blocks, in use or not."""
        _let_go_of_finished_work()
        return self._managed_bytes

    @property
    def active_bytes(self) -> int:
        """The requested bytes of the blocks in use."""
        _let_go_of_finished_work()
        return self._active_bytes

    def bin_number(self, size: int) -> int:
        """Return the number of the class of a size in bytes."""
        exponent = bitlog2(size)
        shift = exponent - _LEADING_BITS
        head = size >> shift if shift >= 0 else size << -shift
        return exponent << _LEADING_BITS | head & ((1 << _LEADING_BITS) - 1)

    def alloc_size(self, bin: int) -> int:
        """Return the size in bytes of the blocks of a class."""
        exponent, mantissa = bin >> _LEADING_BITS, bin & ((1 << _LEADING_BITS) - 1)
        shift = exponent - _LEADING_BITS
        head = 1 << _LEADING_BITS | mantissa
        return (head + 1 << shift) - 1 if shift >= 0 else head >> -shift

    def free_held(self) -> None:
        """Free all blocks that the pool holds."""
        _let_go_of_finished_work()
        for number in [*self._bins]:
            self._release(number, len(self._bins[number]))

    def stop_holding(self) -> None:
        """Free all blocks that the pool holds, and from now on each block that comes back."""
        self._holds = False
        self.free_held()

    def _release(self, number: int, count: int) -> None:
        for _ in range(count):
            self._managed_bytes -= self.alloc_size(number)
            self._free_block(self._bins[number].pop())

    def _take(self, size: int) -> _Block:
        """Return a block of at least `size` bytes: a held one, or a new one.

        Raises
        ------
        pycuda.MemoryError
            There is no memory for it, also after all held blocks were freed.
        """
        if size < 0:
            raise ArgumentError(f"{type(self).__name__}.allocate: expected a size of 0 or more bytes, got {size}")
        number = self.bin_number(size)
        blocks = self._bins.setdefault(number, [])
        if not blocks:
            _let_go_of_finished_work()
        block = blocks.pop() if blocks else self._new(number)
        self._active_blocks += 1
        self._active_bytes += size
        return block

    def _new(self, number: int) -> _Block:
        size = self.alloc_size(number)
        try:
            block = self._allocate_block(size)
        except MemoryError:
            gc.collect()
            self.free_held()
            block = self._allocate_block(size)
        self._managed_bytes += size
        return block

    def _give_back(self, block: _Block, size: int) -> None:
        self._active_blocks -= 1
        self._active_bytes -= size
        number = self.bin_number(size)
        self._bins.setdefault(number, []).append(block)
        if not self._holds:
            self._release(number, 1)


class _Pooled(Generic[_Block]):
    """A block of a pool, which goes back to the pool when it is freed or no longer used."""

    def __init__(self, pool: _Pool[_Block], size: int) -> None:
        self._block: _Block | None = pool._take(size)
        self._pool, self._size = pool, size

    def __len__(self) -> int:
        return self._size

    def __del__(self) -> None:
        if getattr(self, "_block", None) is not None:
            self.free()

    @property
    def block(self) -> _Block:
        """The memory.

        Raises
        ------
        LogicError
            It has gone back to the pool.
        """
        if self._block is None:
            raise LogicError(f"invalid resource handle: the {self._size} bytes went back to their pool by free()")
        return self._block

    def free(self) -> None:
        """Give the memory back to the pool.

        Raises
        ------
        LogicError
            It has gone back already.
        """
        block, self._block = self.block, None
        self._pool._give_back(block, self._size)


class PooledDeviceAllocation(_Pooled[DeviceAllocation]):
    """Device memory of a pool. ``int(allocation)`` is its address."""

    def __int__(self) -> int:
        return int(self.block)

    __index__ = __int__


class DeviceMemoryPool(_Pool[DeviceAllocation]):
    """A pool of device memory; `allocate` may be the allocator of arrays."""

    def __init__(self) -> None:
        super().__init__(lambda size: mem_alloc(max(size, 1)), DeviceAllocation.free)

    def allocate(self, size: int) -> PooledDeviceAllocation:
        """Return device memory of `size` bytes, not initialised.

        Raises
        ------
        MemoryError
            There is no memory for it, also after all held blocks were freed.
        """
        return PooledDeviceAllocation(self, int(size))


class PageLockedAllocator:
    """Flags for the memory of a `PageLockedMemoryPool`.

    Parameters
    ----------
    flags : int
        Flags of ``pycuda.driver.host_alloc_flags``.
    """

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags


class PooledHostAllocation(_Pooled[np.ndarray]):
    """Pinned host memory of a pool: the ``base`` of an array."""

    def __init__(self, pool: _Pool[np.ndarray], shape: tuple[int, ...], dtype: np.dtype, order: Any) -> None:
        super().__init__(pool, prod(shape) * dtype.itemsize)
        layout = np.ndarray(shape, dtype, self.block, order=order)
        self.__array_interface__: dict[str, Any] = layout.__array_interface__


class PageLockedMemoryPool(_Pool[np.ndarray]):
    """A pool of pinned host memory.

    Parameters
    ----------
    allocator : PageLockedAllocator, optional
        Flags of the memory.
    """

    def __init__(self, allocator: PageLockedAllocator | None = None) -> None:
        flags = (allocator or PageLockedAllocator()).flags
        super().__init__(lambda size: pagelocked_empty(max(size, 1), np.uint8, mem_flags=flags), lambda block: None)

    def allocate(self, shape: int | Sequence[int], dtype: Any, order: str = "C") -> np.ndarray:
        """Return an array in pinned host memory, not initialised; its ``base`` is a `PooledHostAllocation`.

        Raises
        ------
        ArgumentError
            The order is neither ``"C"`` nor ``"F"``.
        """
        if order not in ("C", "F"):
            raise ArgumentError(f"PageLockedMemoryPool.allocate: expected order 'C' or 'F', got {order!r}")
        extents = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
        return array_of(PooledHostAllocation(self, extents, np.dtype(dtype), order), np.dtype(dtype))
