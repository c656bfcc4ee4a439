"""What global memory held before it was written to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import WRITE, Allocation

#: Bytes that a write that is kept takes besides its elements.
_EACH = 400


class _Write(NamedTuple):
    """Elements of `size` bytes that were written at a tick or later, to memory at an address; what they were before."""

    tick: int
    address: int
    data: np.ndarray
    size: int
    elements: np.ndarray
    former: np.ndarray

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.elements.nbytes + self.former.nbytes + _EACH

    def undo(self) -> None:
        """Put back what was there."""
        _view(self.address, self.data, self.size)[self.elements] = self.former

    def by_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """The same as single bytes."""
        first = -self.address % self.size + self.elements.astype(np.int64) * self.size
        return (first[:, None] + np.arange(self.size)).reshape(-1), self.former.view(np.uint8)


class Undo:
    """The writes of a launch, in order; `cudakit.emulator.machine.memory.Memory.watcher`.

    Attributes
    ----------
    tick : int
        Of the writes that come now.
    bytes : int
        What they take, about.
    """

    def __init__(self) -> None:
        self.tick: int = 0
        self.bytes: int = 0
        self._held: list[_Write] = []

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """See `cudakit.emulator.machine.memory.Watcher`."""
        if use >= WRITE:
            former = _view(piece.address, piece.data, size)[elements].copy()
            self._add(_Write(self.tick, piece.address, piece.data, size, np.array(elements), former))

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """The same for what is written past `Memory`: surfaces."""
        data = array.reshape(-1).view(np.uint8)
        self._add(_Write(self.tick, 0, data, 1, np.arange(data.size), data.view("V1").copy()))
        return np.zeros(array.nbytes, np.uint8)

    def _add(self, write: _Write) -> None:
        self._held.append(write)
        self.bytes += write.bytes

    def back(self, tick: int) -> None:
        """Undo the writes of a tick and of all after it."""
        while self._held and self._held[-1].tick >= tick:
            write = self._held.pop()
            self.bytes -= write.bytes
            write.undo()

    def merge(self, ticks: Sequence[int]) -> None:
        """Keep of what was written from one of these ticks to the next what was there first, to go back to them alone.

        Parameters
        ----------
        ticks : sequence of int
            Ascending, from 0 up.
        """
        stretches = groupby(self._held, lambda write: int(np.searchsorted(ticks, write.tick, "right")) - 1)
        self._held = [each for number, writes in stretches for each in _merged(ticks[number], writes)]
        self.bytes = sum(write.bytes for write in self._held)


def _view(address: int, data: np.ndarray, size: int) -> np.ndarray:
    """Memory as its elements that are aligned."""
    skip = -address % size
    whole = (data.size - skip) // size * size
    return data[skip : skip + whole].view(f"V{size}")


def _merged(tick: int, writes: Iterable[_Write]) -> list[_Write]:
    by_memory = dict[tuple[int, int], list[_Write]]()
    for write in writes:
        by_memory.setdefault((write.data.__array_interface__["data"][0], write.data.nbytes), []).append(write)
    found = []
    for each in by_memory.values():
        size = each[0].size if all(write.size == each[0].size for write in each) else 1
        pairs = [(w.elements, w.former) if size == w.size else w.by_bytes() for w in each]
        elements, first = np.unique(np.concatenate([pair[0] for pair in pairs]), return_index=True)
        former = np.concatenate([np.ascontiguousarray(pair[1]).view(f"V{size}") for pair in pairs])
        found.append(_Write(tick, each[0].address, each[0].data, size, elements, former[first]))
    return found
