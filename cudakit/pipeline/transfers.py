"""Copies of items to the device, and of results to the host.

NumPy arrays are copied through pinned memory to the device memory of a buffer set. Small results are copied through the
buffer set, large results to pinned memory of their own. Several threads copy large arrays on the host, because one
thread does not fill the memory bus.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory import pinned
from cudakit.memory.memory import copy_in, copy_out
from cudakit.memory.staging import MOST_THREADS, copiers
from cudakit.pipeline.streams import ALONE, TO_DEVICE, TO_HOST, BufferSet, Lanes, Outgoing, Room, mapped
from cudakit.streams import witnesses
from cudakit.types.arguments import is_page_locked, refuse_masked

_LARGE = 8 << 20


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy ``target[...] = source``. Both have the same shape and dtype."""
    if source.nbytes < _LARGE:
        np.copyto(target, source)
        return
    for copied in start(target, source):
        copied.result()


def start(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """Begin the copy ``target[...] = source`` on other threads. Return futures: it is done once all of them are."""
    if target.flags.c_contiguous and source.flags.c_contiguous:
        target, source = target.reshape(-1), source.reshape(-1)
    count = MOST_THREADS if source.nbytes >= _LARGE else 1
    bounds = [len(source) * part // count for part in range(count + 1)]
    strips = [slice(*ends) for ends in itertools.pairwise(bounds)]
    return [copiers().submit(np.copyto, target[strip], source[strip]) for strip in strips]


def ordinary(part: Any) -> Any:
    """Return a copy of an array in memory of its own; any other value as it is."""
    if not isinstance(part, np.ndarray):
        return part
    result = np.empty(part.shape, part.dtype)
    copy(result, part)
    return result


#: Arrays smaller than this are copied to pinned memory without asking the driver whether they are there: as fast.
_SMALL_UPLOAD = 1 << 16


class Inbound:
    """Copies of items to the device, on the stream for arrivals."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def send(self, buffers: BufferSet, item: Any) -> Any:
        """Return the item with its NumPy arrays replaced by device arrays, and enqueue their copies.

        The arrays are complete once the stream for arrivals has reached this point.

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
        """Allocate the memory of a buffer set for an item, before the item arrives."""
        for array in arrays_of(item):
            buffers.rooms.append(Room())
            self._furnish(buffers, buffers.rooms[-1], array)

    def _send(self, buffers: BufferSet, array: np.ndarray) -> Any:
        if type(array) is not np.ndarray:
            refuse_masked(array)
        index, rooms = buffers.used, buffers.rooms
        if index == len(rooms):
            rooms.append(Room())
        room = rooms[index]
        buffers.used = index + 1
        # Who else refers to the device memory is a stage that has kept it: that stays as it is.
        if room.key != (array.shape, array.dtype) or (buffers.graph is None and sys.getrefcount(room.device) > ALONE):
            self._furnish(buffers, room, array)
        size = room.size
        if not size:
            return room.device
        lanes = self._lanes
        if lanes.emulated or (size >= _SMALL_UPLOAD and array.flags.c_contiguous and is_page_locked(array)):
            buffers.kept_alive.append(array)
            copy_in(array, room.device, lanes.arriving)
            return room.device
        host = room.host if room.host is not None else room.twin()
        if size < _SMALL_UPLOAD:
            host[...] = array
        else:
            copy(host, array)
        if witnesses.watched():
            copy_in(host, room.device, lanes.arriving)
        else:
            lanes.copy_bytes(room.pointer, room.address, size, TO_DEVICE, lanes.arriving_handle)
        return room.device

    def _furnish(self, buffers: BufferSet, room: Room, array: np.ndarray) -> None:
        """Allocate new device memory in `room`, an array's memory in a buffer set, with shape and dtype of `array`.

        Needed for the first item, for another shape or dtype, and if a stage has kept the array that it got. The next
        copies to the device wait for the stages' stream. Raises `ArgumentError` for an array of Python objects.
        """
        if array.dtype.hasobject:
            raise ArgumentError(f"an array of dtype {array.dtype} cannot be on the device: it holds Python objects")
        room.key = room.device = room.host = None
        with buffers.inside:
            room.device = self._lanes.xp.empty(array.shape, array.dtype)
            # The memory may be some that earlier work on the stages' stream still uses.
            self._lanes.arriving.wait(buffers.lane)
        room.pointer = 0 if self._lanes.emulated else room.device.data.ptr
        room.key, room.size = (array.shape, array.dtype), array.nbytes


def arrays_of(item: Any) -> list[np.ndarray]:
    """Return the NumPy arrays of an item."""
    result: list[np.ndarray] = []
    mapped(item, lambda part: result.append(part) if isinstance(part, np.ndarray) else None)
    return result


#: Results up to so many bytes are copied by the host, which takes less time than lending pinned memory.
_SMALL_DOWNLOAD = 1 << 15


class Outbound:
    """Copies of results to the host, on the stream for departures."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._array_type = lanes.xp.ndarray
        #: Results in pinned memory that somebody still has.
        self._lent = [0]

    def arrays(self, value: Any) -> list[Any]:
        """Return the device arrays of a result.

        Raises
        ------
        ArgumentError
            If a device array is not CuPy's.
        """
        if type(value) is self._array_type:
            return [value]
        result: list[Any] = []

        def collect(part: Any) -> None:
            if isinstance(part, self._array_type):
                result.append(part)
            elif hasattr(part, "__cuda_array_interface__"):
                raise ArgumentError(
                    f"a stage returned a {type(part).__name__} on the device; return CuPy arrays, as in cupy.asarray(x)"
                )

        mapped(value, collect)
        return result

    def settle(self, buffers: BufferSet, rooms: Sequence[Room]) -> Outgoing:
        """Return pairs of a device array of an item's result and the array to copy to the host.

        Both are the same array, or the second is a copy, which no later item changes. Arrays of `rooms` need no copy:
        they are overwritten only when the buffer set is used again.
        """
        if rooms and rooms[0].device is buffers.value:
            return [(buffers.value, buffers.value)]
        arrays = self.arrays(buffers.value)
        outgoing = []
        for index in range(len(arrays)):
            # Two refer to it: the result and the list. More are a stage's, which may change it for the next item.
            is_kept = sys.getrefcount(arrays[index]) > ALONE + 1
            array = arrays[index]
            base = array.base
            if base is not None:
                # A stage may keep the view, or the array that it is of; that is counted without a name for it here.
                base = None
                is_kept = is_kept or sys.getrefcount(array.base) > ALONE
                base = array.base
            for room in rooms:
                if room.device is array:
                    source = array
                    break
                if room.device is base:
                    is_kept = False
            else:
                source = array.copy() if is_kept or not array.flags.c_contiguous else array
            outgoing.append((array, source))
        return outgoing

    def send(self, buffers: BufferSet, outgoing: Outgoing) -> None:
        """Enqueue the copies of a result to the host. The result is complete once they are done."""
        buffers.small = 0
        if len(outgoing) == 1 and outgoing[0][0] is buffers.value:
            buffers.result = self._send(buffers, outgoing[0][1])
            return
        targets = {id(array): self._send(buffers, source) for array, source in outgoing}
        buffers.result = mapped(buffers.value, lambda part: targets.get(id(part), part))

    def _send(self, buffers: BufferSet, array: Any) -> np.ndarray:
        lanes, rooms = self._lanes, buffers.rooms
        buffers.kept_alive.append(array)
        if rooms and rooms[0].device is array:
            # CuPy makes shape and address anew each time that it is asked.
            room = rooms[0]
            key, size, pointer = room.key, room.size, room.pointer
        else:
            key, size, pointer = (array.shape, array.dtype), array.nbytes, 0 if lanes.emulated else array.data.ptr
        if not size:
            return np.empty(array.shape, array.dtype)
        if lanes.emulated:
            target = np.empty(array.shape, array.dtype)
            copy_out(array, target, lanes.leaving)
            return target
        if size <= _SMALL_DOWNLOAD:
            if buffers.small == len(buffers.leaving):
                buffers.leaving.append(Room())
            room = buffers.leaving[buffers.small]
            buffers.small += 1
            if room.key != key:
                room.key, room.host = key, None
            target = room.twin() if room.host is None else room.host
            address = room.address
        else:
            block = pinned.take(size)
            address = block.address
            target = pinned.lend(block, array.shape, array.dtype, self._lent)
        if witnesses.watched():
            copy_out(array, target, lanes.leaving)
        else:
            lanes.copy_bytes(address, pointer, size, TO_HOST, lanes.leaving_handle)
        return target

    def receive(self, buffers: BufferSet, most_lent: int) -> Any:
        """Return an item's result, whose last copy is done, for the consumer to keep.

        If more than `most_lent` arrays of results are still in pinned memory, this result is copied to ordinary memory.
        So a consumer that keeps its results does not pin all memory of the machine.
        """
        result = buffers.result
        if self._lent[0] > most_lent:
            result = mapped(result, ordinary)
        elif buffers.small:
            if isinstance(result, np.ndarray):
                result = result.copy()
            else:
                own = {id(room.host) for room in buffers.leaving[: buffers.small]}
                result = mapped(result, lambda part: part.copy() if id(part) in own else part)
        return result
