"""Results on their way to the host: small ones by way of the buffer set, large ones in pinned memory of their own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory import pinned
from cudakit.memory.memory import copy_out
from cudakit.pipeline import host_copy
from cudakit.pipeline.in_flight import ALONE, BufferSet, Outgoing, Room, mapped
from cudakit.pipeline.streams import TO_HOST, Lanes
from cudakit.streams import witnesses

#: Results up to so many bytes are copied by the host, which takes less time than lending pinned memory.
_SMALL_DOWNLOAD = 1 << 15


class Outbound:
    """Copies results out, on the stream for what leaves."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._kind = lanes.xp.ndarray
        #: Results in pinned memory that somebody still has.
        self._lent = [0]

    def arrays(self, value: Any) -> list[Any]:
        """The device arrays of a result.

        Raises
        ------
        ArgumentError
            For device arrays that are not CuPy's.
        """
        if type(value) is self._kind:
            return [value]
        found: list[Any] = []

        def collect(part: Any) -> None:
            if isinstance(part, self._kind):
                found.append(part)
            elif hasattr(part, "__cuda_array_interface__"):
                raise ArgumentError(
                    f"a stage returned a {type(part).__name__} on the device; return CuPy arrays, as in cupy.asarray(x)"
                )

        mapped(value, collect)
        return found

    def settle(self, buffers: BufferSet, rooms: Sequence[Room]) -> Outgoing:
        """Device arrays of an item's result, each with what is copied in its place: which no later item changes.

        Nobody changes the arrays of `rooms` before that.
        """
        if rooms and rooms[0].device is buffers.value:
            return [(buffers.value, buffers.value)]
        found = self.arrays(buffers.value)
        outgoing = []
        for index in range(len(found)):
            # Two refer to it: the result and the list. More are a stage's, which may change it for the next item.
            kept = sys.getrefcount(found[index]) > ALONE + 1
            array = found[index]
            base = array.base
            if base is not None:
                # A stage may keep the view, or the array that it is of; that is counted without a name for it here.
                base = None
                kept = kept or sys.getrefcount(array.base) > ALONE
                base = array.base
            for room in rooms:
                if room.device is array:
                    source = array
                    break
                if room.device is base:
                    kept = False
            else:
                source = array.copy() if kept or not array.flags.c_contiguous else array
            outgoing.append((array, source))
        return outgoing

    def send(self, buffers: BufferSet, outgoing: Outgoing) -> None:
        """Put the copies of a result to the host on the stream for them; it is complete once they are done."""
        buffers.small = 0
        if len(outgoing) == 1 and outgoing[0][0] is buffers.value:
            buffers.result = self._send(buffers, outgoing[0][1])
            return
        targets = {id(array): self._send(buffers, source) for array, source in outgoing}
        buffers.result = mapped(buffers.value, lambda part: targets.get(id(part), part))

    def _send(self, buffers: BufferSet, array: Any) -> np.ndarray:
        buffers.held.append(array)
        size, lanes = array.nbytes, self._lanes
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
            if room.key != (array.shape, array.dtype):
                room.key, room.host = (array.shape, array.dtype), None
            target = room.twin() if room.host is None else room.host
            assert room.block is not None
            address = room.block.address
        else:
            block = pinned.take(size)
            address = block.address
            target = pinned.lend(block, array.shape, array.dtype, self._lent)
        if witnesses.watched():
            copy_out(array, target, lanes.leaving)
        else:
            lanes.copy_bytes(address, array.data.ptr, size, TO_HOST, lanes.leaving_handle)
        return target

    def receive(self, buffers: BufferSet, most_lent: int) -> Any:
        """An item's result, for the consumer to keep, once its last copy is done: waits for that.

        A consumer that keeps its results shall not pin all memory of the machine: beyond `most_lent` arrays in pinned
        memory they are copied to ordinary memory.
        """
        buffers.done.sync()
        result = buffers.result
        if self._lent[0] > most_lent:
            result = mapped(result, host_copy.ordinary)
        elif buffers.small:
            if isinstance(result, np.ndarray):
                result = result.copy()
            else:
                own = {id(room.host) for room in buffers.leaving[: buffers.small]}
                result = mapped(result, lambda part: part.copy() if id(part) in own else part)
        return result
