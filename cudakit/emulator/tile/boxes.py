"""Boxes: elements of an array that stand in memory at a fixed step in each dimension, taken as one NumPy view."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import Allocation, Memory


class Box(NamedTuple):
    """Elements in one allocation.

    Attributes
    ----------
    piece : Allocation
    offset : int
        Bytes from its beginning to the first element.
    shape : tuple of int
    strides : tuple of int
        In bytes.
    low, high : int
        Bytes to the first byte in memory, and to the one after the last.
    """

    piece: Allocation
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    def array(self, dtype: np.dtype) -> np.ndarray:
        """The elements, as a view of memory."""
        return np.ndarray(self.shape, dtype, self.piece.data, self.offset, self.strides)

    def elements(self, size: int) -> np.ndarray:
        """Their numbers, counted from the first aligned element of the allocation, as watchers take them."""
        found: Any = np.int64(self.offset)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            shape = [1] * len(self.shape)
            shape[axis] = -1
            found = found + (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
        return np.asarray((found - -self.piece.address % size) // size).reshape(-1)


def box_of(
    memory: Memory, address: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int, use: int
) -> Box | None:
    """The box of elements of `size` bytes from `address` on; None where each has to be looked at by itself."""
    low = high = address
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    if low < 0 or address % size:
        return None
    piece = memory.piece(low, high + size - low, use)
    if piece is None:
        return None
    start = piece.address
    return Box(piece, address - start, shape, strides, low - start, high + size - start)
