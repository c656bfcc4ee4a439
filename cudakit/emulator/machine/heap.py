"""Heap of the device, from which kernels allocate, and the device's limits on memory of kernels beyond their arrays."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from cudakit.errors import EmulationError, LaunchError

#: Default limits of a device in bytes: CUDA programming guide, cudaDeviceGetLimit.
_STACK_BYTES, _HEAP_BYTES = 1024, 8 << 20
#: Alignment of blocks, and the gap between two blocks, in bytes.
_UNIT = 16
_NEVER, _LIVE, _FREED = 0, 1, 2


def outside(noun: str, index: int, count: int) -> str:
    """Return the message for an index that is not in 0 … `count` − 1; `noun` names the indexed thing.

    An example is ``byte 12 is past the end (valid: 0 to 9)``, for the noun ``byte``.
    """
    side = "before the beginning" if index < 0 else "past the end"
    return f"{noun} {index} is {side} (valid: {f'0 to {count - 1}' if count else 'none'})"


class Heap:
    """Memory for ``malloc`` and ``new`` in kernels, in blocks. The heap outlives the launch, as on a GPU.

    Attributes
    ----------
    data : numpy.ndarray, dtype uint8
        Bytes of the heap.
    states : numpy.ndarray, dtype uint8
        State of each byte: in a block, in a freed block, or never allocated.
    unwritten : numpy.ndarray, dtype bool
        Whether each byte was allocated since the launch began and is not written. Only checks note writes.
    address : int
        Address of the first byte.
    renewed : dict of int to int
        End address by start address of the blocks allocated since a reader emptied `renewed`. A thread that gets a
        block comes after all threads that had the block before.
    """

    def __init__(self, size: int) -> None:
        padded = np.zeros(size + _UNIT, np.uint8)
        start = -int(padded.__array_interface__["data"][0]) % _UNIT
        self.data: np.ndarray = padded[start : start + size]
        self.states: np.ndarray = np.zeros(size, np.uint8)
        self.unwritten: np.ndarray = np.zeros(size, bool)
        self.address: int = int(self.data.__array_interface__["data"][0])
        self._blocks: dict[int, int] = {}
        self._spare: dict[int, list[int]] = {}
        self._top = 0
        self.renewed: dict[int, int] = {}

    @property
    def is_used(self) -> bool:
        """True if a block is allocated."""
        return bool(self._blocks)

    @property
    def block_count(self) -> int:
        """The number of allocated blocks."""
        return len(self._blocks)

    def saved(self) -> dict[str, Any]:
        """Return a copy of the allocation state, for `restore`; the content of blocks is not copied."""
        return {name: copy.deepcopy(value) for name, value in vars(self).items() if name not in ("data", "address")}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the allocation state from the result of `saved`; the content of blocks is not restored."""
        vars(self).update(copy.deepcopy(saved))

    def allocate(self, size: int, align: int = _UNIT) -> int:
        """Allocate a block; return its address, or 0 if no space of this size is free."""
        align = max(align, _UNIT)
        room = (size // _UNIT + 2) * _UNIT
        spare = self._spare.get(room) if align == _UNIT else None
        start = spare.pop() if spare else self._place(room, align)
        if start is None:
            return 0
        self._blocks[start] = size
        self.states[start : start + size] = _LIVE
        self.unwritten[start : start + size] = True
        self.renewed[self.address + start] = self.address + start + size
        return self.address + start

    def _place(self, room: int, align: int) -> int | None:
        """Find `room` free bytes for a block, at a multiple of `align`; return their offset in the heap, or None.

        The space behind the last block is tried first, then gaps between blocks. The caller records the block.
        """
        start = self._top + -(self.address + self._top) % align
        if start + room <= self.data.size:
            self._top = start + room
            return start
        # Freed blocks of other sizes may leave a gap that is large enough.
        self._spare.clear()
        end = 0
        for block, size in sorted(self._blocks.items()):
            start = end + -(self.address + end) % align
            if start + room <= block:
                return start
            end = block + (size // _UNIT + 2) * _UNIT
        self._top = end
        start = end + -(self.address + end) % align
        if start + room > self.data.size:
            return None
        self._top = start + room
        return start

    def free(self, address: int) -> None:
        """Free the block at an address; do nothing for a null pointer.

        Raises
        ------
        EmulationError
            For an address where no block begins.
        """
        if address == 0:
            return
        start = address - self.address
        size = self._blocks.pop(start, None)
        if size is None:
            freed = 0 <= start < self.data.size and self.states[start] == _FREED
            why = "was freed before" if freed else "is no block that malloc or new gave"
            raise EmulationError(f"{address:#x} {why}, and cannot be freed")
        self.states[start : start + size] = _FREED
        self._spare.setdefault((size // _UNIT + 2) * _UNIT, []).append(start)

    def distance(self, offset: int) -> float:
        """Return the bytes between an offset and the nearest block, live or freed; infinity if there is no block."""
        if self.states[offset] == _FREED:
            return 0
        return min(
            (max(start - offset, offset - start - size + 1) for start, size in self._blocks.items()), default=inf
        )

    def explain(self, offset: int, size: int) -> str:
        """Return the reason, for a message, why `size` bytes at an offset are in no block."""
        problem = f"{size} bytes at {self.address + offset:#x} are in no block of the device's heap"
        if self.states[offset] == _FREED:
            return f"{problem}: it was freed"
        before = max((start for start in self._blocks if start <= offset), default=None)
        if before is None:
            return problem
        size = self._blocks[before]
        return f"{problem}; the nearest is one of {size} bytes: {outside('byte', offset - before, size)}"

    def first_invalid(self, offsets: np.ndarray, size: int) -> int | None:
        """Return the first offset whose `size` bytes are not all in a block, or None."""
        last = offsets + np.uint64(size - 1)
        invalid = np.flatnonzero((self.states[offsets] != _LIVE) | (self.states[last] != _LIVE))
        return int(offsets[invalid[0]]) if invalid.size else None


@dataclass
class DeviceLimits:
    """Limits on the device memory that kernels use beyond their arrays, in bytes.

    Attributes
    ----------
    stack_bytes : int
        Stack of a thread in kernels whose call depth is known only at run time.
    heap_bytes : int
        Size of the heap for ``malloc`` and ``new``; see `set_heap_bytes`.
    """

    stack_bytes: int = _STACK_BYTES
    heap_bytes: int = _HEAP_BYTES
    _heap: Heap | None = None

    @staticmethod
    def default_of(limit: str) -> int:
        """Return the default limit on ``"stack"`` or ``"heap"``."""
        return _STACK_BYTES if limit == "stack" else _HEAP_BYTES

    @property
    def heap(self) -> Heap:
        """The device's heap, made at the first use."""
        if self._heap is None:
            self._heap = Heap(self.heap_bytes)
        return self._heap

    @property
    def has_heap(self) -> bool:
        """True if any kernel has used the heap."""
        return self._heap is not None

    def set_heap_bytes(self, size: int) -> None:
        """Set the heap's size.

        Raises
        ------
        LaunchError
            While kernels hold blocks of the heap.
        """
        if self._heap is not None and self._heap.is_used:
            raise LaunchError("the heap's size cannot change while kernels hold memory of it; free it first")
        self._heap, self.heap_bytes = None, size


_limits = DeviceLimits()


def device_limits() -> DeviceLimits:
    """Return the limits of the process's emulated device."""
    return _limits
