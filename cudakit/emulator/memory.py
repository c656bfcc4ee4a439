"""Memory of the emulated device: global allocations at their host addresses, and windows for shared and local memory.

A generic address is a plain 64-bit number. Global memory has the address that the host array has, so that pointers in
memory need no translation; shared and local memory lie in windows that no host address reaches.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

#: Lanes an instruction runs for: None for all, else their indices, ascending.
Index: TypeAlias = np.ndarray | None

SHARED_WINDOW = 0x7100_0000_0000_0000
LOCAL_WINDOW = 0x7200_0000_0000_0000
WINDOW_BYTES = 1 << 40
#: An access this near to an array was meant for it, whatever lay there in an earlier launch.
_CLOSE = 4096


class AccessError(Exception):
    """An access that memory does not have; the machine adds the instruction and its line."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of global or constant memory, as bytes at an address."""

    name: str
    address: int
    data: np.ndarray
    readonly: bool
    itemsize: int

    @property
    def end(self) -> int:
        return self.address + self.data.size


class Memory:
    """Global allocations, and shared and local memory of the lanes that run.

    Parameters
    ----------
    lanes : int
        Lanes that run at once.
    block_of : numpy.ndarray
        Block of each lane, counted from 0 among those that run.
    shared_bytes, local_bytes : int
        Shared memory a block and local memory a lane.
    """

    def __init__(self) -> None:
        self._allocations: dict[int, Allocation] = {}
        self._addresses: list[int] = []
        self._freed: dict[int, tuple[int, str]] = {}
        self.shared = np.zeros((0, 0), np.uint8)
        self.local = np.zeros((0, 0), np.uint8)
        self.block_of = np.zeros(0, np.int64)

    # ── allocations ──

    def add(self, array: np.ndarray, name: str, readonly: bool = False) -> int:
        """Make a host array's memory known; its address."""
        address = int(array.__array_interface__["data"][0])
        if array.nbytes == 0:
            return address
        flat = np.frombuffer(array, np.uint8) if array.flags.c_contiguous and not array.flags.writeable else None
        if flat is None:
            low, high = np.lib.array_utils.byte_bounds(array)
            address = low
            flat = _bytes_at(array, low, high - low)
        if address not in self._allocations:
            bisect.insort(self._addresses, address)
        known = self._allocations.get(address)
        if known is None or known.data.size < flat.size:
            self._allocations[address] = Allocation(name, address, flat, readonly, array.dtype.itemsize)
        self._freed.pop(address, None)
        return int(array.__array_interface__["data"][0])

    def remove(self, address: int) -> None:
        """Forget an allocation; an access to it is an error from now on."""
        found = self._allocations.pop(address, None)
        if found is not None:
            self._addresses.remove(address)
            self._freed[address] = (found.end, found.name)

    def _find(self, address: int) -> Allocation | None:
        place = bisect.bisect_right(self._addresses, address) - 1
        if place < 0:
            return None
        found = self._allocations[self._addresses[place]]
        return found if address < found.end else None

    # ── access ──

    def load(self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index) -> np.ndarray:
        """Values of `dtype` at `addresses`, one a lane of `index`."""
        return self._access(space, addresses, dtype, index, None)

    def store(self, space: str, addresses: np.ndarray, values: np.ndarray, index: Index) -> None:
        """Store one value a lane; where lanes name one address, the last lane's stays."""
        self._access(space, addresses, values.dtype, index, values)

    def views(
        self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index, writes: bool
    ) -> list[tuple[np.ndarray, Any, Any]]:
        """Where each lane's element lies: (flat view of `dtype`, element numbers in it, positions of the lanes).

        Positions are a slice or an array into `addresses`; each lane is in exactly one entry. This is the seam of
        everything that reads or writes memory: loads, stores, atomics, copies.
        """
        size = dtype.itemsize
        if addresses.size == 0:
            return []
        if size > 1 and np.any(addresses % np.uint64(size)):
            bad = int(np.flatnonzero(addresses % np.uint64(size))[0])
            raise AccessError(f"address {int(addresses[bad]):#x} is not aligned to {size} bytes")
        if space == "generic":
            return self._generic(addresses, dtype, index, writes)
        if space == "shared":
            return [self._window(self.shared, addresses, dtype, self._rows(self.block_of, index), "shared memory")]
        if space == "local":
            lanes = np.arange(self.local.shape[0]) if index is None else index
            return [self._window(self.local, addresses, dtype, lanes, "local memory")]
        return self._global(addresses, dtype, writes)

    @staticmethod
    def _rows(block_of: np.ndarray, index: Index) -> np.ndarray:
        return block_of if index is None else block_of[index]

    def _access(
        self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index, values: np.ndarray | None
    ) -> np.ndarray:
        pieces = self.views(space, addresses, dtype, index, values is not None)
        if values is not None:
            values = np.broadcast_to(values, addresses.shape)
            for view, elements, lanes in pieces:
                view[elements] = values[lanes]
            return values
        if len(pieces) == 1:
            view, elements, _ = pieces[0]
            result: np.ndarray = view[elements]
            return result
        out = np.empty(addresses.shape, dtype)
        for view, elements, lanes in pieces:
            out[lanes] = view[elements]
        return out

    def _generic(
        self, addresses: np.ndarray, dtype: np.dtype, index: Index, writes: bool
    ) -> list[tuple[np.ndarray, Any, Any]]:
        found = []
        lanes_of = np.arange(self.block_of.size) if index is None else index
        in_shared = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_BYTES)
        in_local = (addresses >= LOCAL_WINDOW) & (addresses < LOCAL_WINDOW + WINDOW_BYTES)
        for space, inside, base in (("shared", in_shared, SHARED_WINDOW), ("local", in_local, LOCAL_WINDOW)):
            if inside.any():
                lanes = np.flatnonzero(inside)
                offsets = addresses[lanes] - np.uint64(base)
                found += [(v, e, lanes[p]) for v, e, p in self.views(space, offsets, dtype, lanes_of[lanes], writes)]
        if not found:
            return self._global(addresses, dtype, writes)
        rest = np.flatnonzero(~(in_shared | in_local))
        if rest.size:
            found += [(v, e, rest[p]) for v, e, p in self._global(addresses[rest], dtype, writes)]
        return found

    @staticmethod
    def _window(
        rows: np.ndarray, offsets: np.ndarray, dtype: np.dtype, row: np.ndarray, what: str
    ) -> tuple[np.ndarray, Any, Any]:
        size, width = dtype.itemsize, rows.shape[1]
        if int(offsets.max()) + size > width:
            bad = int(offsets.max())
            raise AccessError(f"{what}: byte {bad} … {bad + size - 1} is outside its {width} bytes")
        elements = (row.astype(np.int64) * width + offsets.astype(np.int64)) // size
        return rows.reshape(-1).view(dtype), elements, slice(None)

    def _global(self, addresses: np.ndarray, dtype: np.dtype, writes: bool) -> list[tuple[np.ndarray, Any, Any]]:
        low, high = int(addresses.min()), int(addresses.max()) + dtype.itemsize
        found = self._find(low)
        if found is not None and high <= found.end:
            return [self._within(found, addresses, dtype, slice(None), writes)]
        starts = np.array(self._addresses, np.uint64)
        owner = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
        pieces = []
        for place in np.unique(owner):
            lanes = np.flatnonzero(owner == place)
            if place < 0:
                raise self._outside(int(addresses[lanes[0]]), dtype.itemsize)
            piece = self._allocations[self._addresses[int(place)]]
            over = addresses[lanes] + np.uint64(dtype.itemsize) > np.uint64(piece.end)
            if over.any():
                raise self._outside(int(addresses[lanes[np.flatnonzero(over)[0]]]), dtype.itemsize)
            pieces.append(self._within(piece, addresses[lanes], dtype, lanes, writes))
        return pieces

    def _within(
        self, piece: Allocation, addresses: np.ndarray, dtype: np.dtype, lanes: Any, writes: bool
    ) -> tuple[np.ndarray, Any, Any]:
        if writes and piece.readonly:
            raise AccessError(f"{piece.name} is read-only")
        # An allocation may begin at any address; its elements of this size begin at the first aligned one.
        skip = -piece.address % dtype.itemsize
        whole = (piece.data.size - skip) // dtype.itemsize * dtype.itemsize
        view = piece.data[skip : skip + whole].view(dtype)
        return view, (addresses - np.uint64(piece.address + skip)).astype(np.int64) // dtype.itemsize, lanes

    def _outside(self, address: int, size: int) -> AccessError:
        place = bisect.bisect_right(self._addresses, address) - 1
        near = [self._allocations[self._addresses[p]] for p in (place, place + 1) if 0 <= p < len(self._addresses)]
        if not near:
            return AccessError(f"address {address:#x} is in no allocation")
        nearest = min(near, key=lambda piece: max(piece.address - address, address - piece.end))
        if not nearest.address - _CLOSE <= address < nearest.end + _CLOSE:
            for start, (end, name) in self._freed.items():
                if start <= address < end:
                    return AccessError(f"address {address:#x} was in {name} of an earlier launch, and is no more")
        element = (address - nearest.address) // nearest.itemsize
        count = nearest.data.size // nearest.itemsize
        return AccessError(
            f"{size} bytes at {address:#x} are outside every array; the nearest is {nearest.name}, of which this "
            f"would be element {element} of {count}"
        )


def _bytes_at(array: np.ndarray, address: int, size: int) -> np.ndarray:
    """The `size` bytes from `address`, kept alive by `array`."""
    described = {"data": (address, not array.flags.writeable), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(_Span(array, described))


class _Span:
    """Bytes by their address, for NumPy to look at; keeps the array alive that they belong to."""

    def __init__(self, owner: np.ndarray, described: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = described
