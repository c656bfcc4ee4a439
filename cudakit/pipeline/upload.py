"""Items on their way to the device: NumPy arrays through pinned memory into the memory of a buffer set."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory.memory import copy_in
from cudakit.pipeline import host_copy
from cudakit.pipeline.in_flight import ALONE, BufferSet, Room, mapped
from cudakit.pipeline.streams import TO_DEVICE, Lanes
from cudakit.streams import witnesses
from cudakit.types.arguments import is_page_locked, refuse_masked

#: Arrays smaller than this are copied to pinned memory without asking the driver whether they are there: as fast.
_SMALL_UPLOAD = 1 << 16


class Inbound:
    """Copies items in, on the stream for what arrives."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def send(self, buffers: BufferSet, item: Any) -> Any:
        """The item with its NumPy arrays on the device, once the stream for what arrives has come so far.

        Raises
        ------
        ArgumentError
            For an item without arrays, and for an array of Python objects.
        """
        buffers.used = buffers.others = 0
        if isinstance(item, np.ndarray):
            return self._send(buffers, item)

        def send(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return self._send(buffers, part)
            buffers.others += 1
            return part

        value = mapped(item, send)
        if not buffers.used:
            on_device = hasattr(item, "__cuda_array_interface__")
            raise ArgumentError(
                f"device stages work on NumPy arrays, or tuples, lists and dicts with some; got {type(item).__name__}"
                + (" on the device" if on_device else "")
                + ": put a pipeline.host(function) before that makes NumPy arrays of it"
            )
        return value

    def prepare(self, buffers: BufferSet, item: Any) -> None:
        """Give a buffer set the memory for an item, before it comes."""
        for array in arrays_of(item):
            buffers.rooms.append(Room())
            self._furnish(buffers, buffers.rooms[-1], array)

    def _send(self, buffers: BufferSet, array: np.ndarray) -> Any:
        if type(array) is not np.ndarray:
            refuse_masked(array)
        if buffers.used == len(buffers.rooms):
            buffers.rooms.append(Room())
        room = buffers.rooms[buffers.used]
        buffers.used += 1
        # Who else refers to the device memory is a stage that has kept it: that stays as it is.
        if room.key != (array.shape, array.dtype) or (buffers.graph is None and sys.getrefcount(room.device) > ALONE):
            self._furnish(buffers, room, array)
        size = array.nbytes
        if not size:
            return room.device
        lanes = self._lanes
        if lanes.emulated or (size >= _SMALL_UPLOAD and array.flags.c_contiguous and is_page_locked(array)):
            buffers.held.append(array)
            copy_in(array, room.device, lanes.arriving)
            return room.device
        host = room.host if room.host is not None else room.twin()
        host_copy.copy(host, array)
        if witnesses.watched():
            copy_in(host, room.device, lanes.arriving)
        else:
            assert room.block is not None
            lanes.copy_bytes(room.pointer, room.block.address, size, TO_DEVICE, lanes.arriving_handle)
        return room.device

    def _furnish(self, buffers: BufferSet, room: Room, array: np.ndarray) -> None:
        """New device memory: the item is the first, has another shape, or a stage has kept the array it was given."""
        if array.dtype.hasobject:
            raise ArgumentError(f"an array of dtype {array.dtype} cannot be on the device: it holds Python objects")
        room.key = room.device = room.host = None
        room.device = self._lanes.xp.empty(array.shape, array.dtype)
        room.pointer = 0 if self._lanes.emulated else room.device.data.ptr
        room.key = (array.shape, array.dtype)
        # The memory may be some that earlier work on the stages' stream still uses.
        self._lanes.arriving.wait(buffers.lane)


def arrays_of(item: Any) -> list[np.ndarray]:
    """The NumPy arrays of an item."""
    found: list[np.ndarray] = []
    mapped(item, lambda part: found.append(part) if isinstance(part, np.ndarray) else None)
    return found
