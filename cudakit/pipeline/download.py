"""Results on their way to the host: small ones by way of a slot's memory, large ones in pinned memory of their own."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory import pinned
from cudakit.pipeline import host_copy
from cudakit.pipeline.in_flight import ALONE, Outgoing, Room, Slot, mapped
from cudakit.pipeline.streams import Lanes
from cudakit.streams import witnesses

#: Results up to so many bytes are copied by the host, which takes less time than lending pinned memory.
_SMALL = 1 << 15


class Lease:
    """Pinned memory of a result, lent to whoever holds the array or a view of it; the pool's again after that."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_tally")

    def __init__(self, block: pinned.Block, tally: list[int], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._block = block
        self._tally = tally
        tally[0] += 1
        self.__array_interface__ = {"data": (block.address, False), "shape": shape, "typestr": dtype.str, "version": 3}

    def __del__(self) -> None:
        self._tally[0] -= 1
        self._block.give_back()


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

    def settle(self, slot: Slot) -> Outgoing:
        """Device arrays of a slot's result, each with what is copied in its place: which no later item changes."""
        found = self.arrays(slot.value)
        outgoing = []
        for index in range(len(found)):
            # Two refer to it: the result and the list. More are a stage's, which may change it for the next item.
            kept = sys.getrefcount(found[index]) > ALONE + 1
            array = found[index]
            base = array.base
            if base is not None:
                base = None
                kept = sys.getrefcount(array.base) > ALONE
                base = array.base
            for room in slot.rooms:
                if room.device is array:
                    source = array
                    break
                if room.device is base:
                    kept = False
            else:
                source = array.copy() if kept or not array.flags.c_contiguous else array
            outgoing.append((array, source))
        return outgoing

    def send(self, slot: Slot, outgoing: Outgoing) -> None:
        """Put the copies of a result to the host on the stream for them; it is complete once they are done."""
        slot.small = 0
        if len(outgoing) == 1 and outgoing[0][0] is slot.value:
            slot.result = self._send(slot, outgoing[0][1])
            return
        targets = {id(array): self._send(slot, source) for array, source in outgoing}
        slot.result = mapped(slot.value, lambda part: targets.get(id(part), part))

    def _send(self, slot: Slot, array: Any) -> np.ndarray:
        slot.held.append(array)
        size, lanes = array.nbytes, self._lanes
        if not size:
            return np.empty(array.shape, array.dtype)
        if lanes.emulated:
            target = np.empty(array.shape, array.dtype)
            pinned.copy_out(array, target, lanes.leaving)
            return target
        if size <= _SMALL:
            if slot.small == len(slot.leaving):
                slot.leaving.append(Room())
            room = slot.leaving[slot.small]
            slot.small += 1
            if room.key != (array.shape, array.dtype):
                room.key, room.host = (array.shape, array.dtype), None
            target = room.twin() if room.host is None else room.host
            assert room.block is not None
            address = room.block.address
        else:
            block = pinned.take(size)
            address = block.address
            target = np.asarray(Lease(block, self._lent, array.shape, array.dtype))
            if target.dtype != array.dtype:
                target = target.view(array.dtype)
        if witnesses.watched():
            pinned.copy_out(array, target, lanes.leaving)
        else:
            lanes.copy_bytes(address, array.data.ptr, size, lanes.leaving_handle, to_host=True)
        return target

    def receive(self, slot: Slot, most_lent: int) -> Any:
        """A slot's result, for the consumer to keep, once its last copy is done: waits for that.

        A consumer that keeps its results shall not pin all memory of the machine: beyond `most_lent` arrays in pinned
        memory they are copied to ordinary memory.
        """
        slot.done.sync()
        result = slot.result
        if self._lent[0] > most_lent:
            result = mapped(result, host_copy.ordinary)
        elif slot.small:
            if isinstance(result, np.ndarray):
                result = result.copy()
            else:
                own = {id(room.host) for room in slot.leaving[: slot.small]}
                result = mapped(result, lambda part: part.copy() if id(part) in own else part)
        slot.value = slot.result = None
        slot.held.clear()
        return result
