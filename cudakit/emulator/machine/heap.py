"""The device's heap, from which kernels take memory, and the limits that a device has for kernels' own memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from cudakit.errors import EmulationError, LaunchError

#: What a device has where nothing else was set, in bytes: CUDA programming guide, cudaDeviceGetLimit.
_STACK_BYTES, _HEAP_BYTES = 1024, 8 << 20
#: Blocks begin at multiples of this, and so much lies between two.
_UNIT = 16
_NEVER, _LIVE, _FREED = 0, 1, 2


class Heap:
    """Memory that kernels take with ``malloc`` and ``new``, in blocks; it outlives the launch, as on a GPU.

    Attributes
    ----------
    data : numpy.ndarray, dtype uint8
    states : numpy.ndarray, dtype uint8
        Of each byte: whether it is in a block, was in one, or never.
    unwritten : numpy.ndarray, dtype bool
        Of each byte: whether it was taken, and not written, since the launch began; only checks note what is written.
    address : int
    renewed : dict of int to int
        Where blocks begin and end that were taken since somebody last emptied it: whoever takes one comes after all who
        had it before.
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
        """Whether there is a block that was not given back."""
        return bool(self._blocks)

    def saved(self) -> dict[str, Any]:
        """A copy of which blocks there are, for `restore`; of what is in them it has nothing."""
        return {name: copy.deepcopy(value) for name, value in vars(self).items() if name not in ("data", "address")}

    def restore(self, saved: dict[str, Any]) -> None:
        """Have the blocks again that there were."""
        vars(self).update(copy.deepcopy(saved))

    def take(self, size: int, align: int = _UNIT) -> int:
        """Address of a new block; 0 where there is none of that size."""
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
        start = self._top + -(self.address + self._top) % align
        if start + room <= self.data.size:
            self._top = start + room
            return start
        # Blocks of other sizes may have left enough between them.
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

    def give_back(self, address: int) -> None:
        """Free a block; nothing for a null pointer.

        Raises
        ------
        EmulationError
            For an address that is no block's.
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
        """Return the bytes between an offset and the nearest block, live or freed; infinity where there is none."""
        if self.states[offset] == _FREED:
            return 0
        return min(
            (max(start - offset, offset - start - size + 1) for start, size in self._blocks.items()), default=inf
        )

    def explain(self, offset: int, size: int) -> str:
        """Why `size` bytes at an offset are in no block."""
        problem = f"{size} bytes at {self.address + offset:#x} are in no block of the device's heap"
        if self.states[offset] == _FREED:
            return f"{problem}: it was freed"
        before = max((start for start in self._blocks if start <= offset), default=None)
        if before is None:
            return problem
        return (
            f"{problem}; the nearest is one of {self._blocks[before]} bytes, of which this would be byte "
            f"{offset - before}"
        )

    def lacks(self, offsets: np.ndarray, size: int) -> int | None:
        """The first of the offsets whose `size` bytes are not all in a block; None where all are."""
        last = offsets + np.uint64(size - 1)
        bad = np.flatnonzero((self.states[offsets] != _LIVE) | (self.states[last] != _LIVE))
        return int(offsets[bad[0]]) if bad.size else None


@dataclass
class DeviceLimits:
    """What kernels may take of the device's memory beside the arrays that they are given, in bytes.

    Attributes
    ----------
    stack_bytes : int
        Stack of a thread in kernels whose depth of calls only their run shows.
    heap_bytes : int
        All that they have by ``malloc`` and ``new``; see `set_heap_bytes`.
    """

    stack_bytes: int = _STACK_BYTES
    heap_bytes: int = _HEAP_BYTES
    _heap: Heap | None = None

    @staticmethod
    def default_of(limit: str) -> int:
        """The limit on ``"stack"`` or ``"heap"`` of a device where nothing else was set."""
        return _STACK_BYTES if limit == "stack" else _HEAP_BYTES

    @property
    def heap(self) -> Heap:
        """The device's heap, made when it is first asked for."""
        if self._heap is None:
            self._heap = Heap(self.heap_bytes)
        return self._heap

    @property
    def has_heap(self) -> bool:
        """Whether any kernel has asked for memory."""
        return self._heap is not None

    def set_heap_bytes(self, size: int) -> None:
        """Set the heap's size.

        Raises
        ------
        LaunchError
            Where kernels hold memory of it.
        """
        if self._heap is not None and self._heap.is_used:
            raise LaunchError("the heap's size cannot change while kernels hold memory of it; free it first")
        self._heap, self.heap_bytes = None, size


_limits = DeviceLimits()


def device_limits() -> DeviceLimits:
    """The limits of the process's emulated device."""
    return _limits
