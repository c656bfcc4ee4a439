"""Memory of the emulated device: global allocations at their host addresses, windows for the other state spaces.

A generic address is a plain 64-bit number. Global memory has the host array's address, so that pointers in memory need
no translation. Shared memory, local memory and kernel parameters are in windows that no host address reaches.

Above its lowest 24 bits, an address in shared memory has the rank of a block in its cluster, plus one. A zero in the
bits above means the thread's own block.

`Reach` finds memory that a launch did not get as an argument but reaches through a pointer in a struct, an array or a
variable.
"""

from __future__ import annotations

import bisect
from array import array as numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.machine.former import Former
from cudakit.emulator.machine.heap import Heap, device_limits, outside
from cudakit.errors import TemplateError
from cudakit.jit.compile.mangled import demangle
from cudakit.types.arguments import pointer_of

#: Returns the live arrays of the device's memory.
Arrays = Callable[[], Iterable[np.ndarray]]


class Reach:
    """Arrays that a launch may reach beyond its arguments.

    An array of the device counts once memory of the launch holds an address in the array. An argument's neighbour is
    therefore still out of bounds. Memory is searched for pointers only if an access is in no argument.

    Parameters
    ----------
    arrays : callable
        Function that returns the device's arrays.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._looked_through: set[int] = set()
        self._reached: dict[int, np.ndarray] = {}

    def find(self, address: int, size: int, memory: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays that become reachable by pointers in `memory`, if the array at `address` is reachable.

        The list is empty if no array has `size` bytes at `address`, or if no pointer leads to this array.
        Pointers are followed from array to array.

        Parameters
        ----------
        address : int
            First address of the bytes.
        size : int
            Number of bytes.
        memory : iterable of numpy.ndarray
            Memory of the launch, in which pointers are looked for, as arrays of bytes.
        """
        target = next((array for array in self._arrays() if _has(array, address, size)), None)
        if target is None:
            return []
        before, (start, _) = set(self._reached), _bounds(target)
        self._look_through(memory)
        if start not in self._reached:
            # Memory searched before may have been written since.
            self._looked_through.clear()
            self._look_through(memory)
        return (
            [array for place, array in self._reached.items() if place not in before] if start in self._reached else []
        )

    def _look_through(self, memory: Iterable[np.ndarray]) -> None:
        """Find the arrays that pointers in memory lead to, and the arrays that pointers in the new arrays lead to."""
        arrays = sorted((array for array in self._arrays() if array.nbytes), key=lambda array: _bounds(array)[0])
        starts, ends = np.array([_bounds(array) for array in arrays], np.uint64).T
        open_ = [*memory, *(bytes_of(array) for array in self._reached.values())]
        while open_:
            data = open_.pop()
            place = _bounds(data)[0]
            if place in self._looked_through:
                continue
            self._looked_through.add(place)
            words = _words(data)
            words = np.unique(words[(words >= starts[0]) & (words <= ends[-1])])
            inside = np.searchsorted(starts, words, "right") - 1
            for number in np.unique(inside[words <= ends[inside]]):
                array = arrays[number]
                if self._reached.setdefault(int(starts[number]), array) is array:
                    open_.append(bytes_of(array))


def points_near(address: int, most: int, memory: Iterable[np.ndarray]) -> bool:
    """Return whether `memory` holds a pointer to `address`, or to less than `most` bytes before `address`.

    `memory` has arrays of bytes.
    """
    for data in memory:
        words = _words(data)
        if ((words <= address) & (words > max(0, address - most))).any():
            return True
    return False


def _words(data: np.ndarray) -> np.ndarray:
    """Return the aligned 8-byte words in an array of bytes, as uint64."""
    skip = -_bounds(data)[0] % 8
    return data[skip : skip + max(0, data.size - skip) // 8 * 8].view(np.uint64)


def base_arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the arrays that an array is a view of, from its direct base to the base of all."""
    while isinstance(array.base, np.ndarray):
        array = array.base
        yield array


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the first address of an array's memory, and the address behind it."""
    start = int(array.__array_interface__["data"][0])
    return start, start + array.nbytes


def _has(array: np.ndarray, address: int, size: int) -> bool:
    """Return whether an array has `size` bytes at an address."""
    start, end = _bounds(array)
    return start <= address and address + size <= end


#: Lanes an instruction runs for: None for all, else their indices, ascending.
Index: TypeAlias = np.ndarray | None

SHARED_WINDOW = 0x7100_0000_0000_0000
LOCAL_WINDOW = 0x7200_0000_0000_0000
PARAM_WINDOW = 0x7400_0000_0000_0000
WINDOW_BITS = 40
#: Bits of a shared memory address below the rank of its block.
RANK_SHIFT = 24
_OFFSET = np.uint64((1 << RANK_SHIFT) - 1)
_WINDOWS = {"cluster": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
#: Bytes of the widest element.
WIDEST = 64
#: Rows of shared memory begin at multiples of this, the widest that an access is aligned to.
_ROW = 16
#: Byte that fills unwritten shared memory. On a GPU former content is there, seldom zeros.
_UNSET = 0xA5
#: Bytes: an access this near to an array is reported as an access to it, not to an earlier launch's array.
_CLOSE = 4096
#: Bytes: an access this far from every array is reported without a nearest array.
_FAR = 1 << 36

#: Access modes. A strong access does not race with strong accesses of other kernels: atomic operations, and volatile,
#: relaxed, acquire and release accesses whose scope is wider than a block or cluster (PTX ISA 8.7.1, 8.8).
READ, STRONG_READ, WRITE, STRONG_WRITE = 1, 2, 4, 8


class AccessError(Exception):
    """An invalid memory access; the interpreter adds the instruction and its line.

    Attributes
    ----------
    address : int or None
        Address at fault, in its space.
    lane : int or None
        Lane that accesses it.
    parts : dict
        Details of the error: what was expected, and what came.
    """

    lane: int | None = None

    def __init__(self, message: str, address: int | None = None, **parts: str) -> None:
        super().__init__(message)
        self.address, self.parts = address, parts


class Watcher(Protocol):
    """Observer of accesses to global memory during a launch; see `cudakit.emulator.streams.watch`."""

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """Note an access of type `use` to elements of `size` bytes in the allocation `piece`.

        `elements` has their numbers, counted from the first aligned element of `piece`.
        """

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the flags of the bytes of a C-contiguous array called `name`, one a byte.

        Texture lookups set these flags, as they do not access the array through `Memory`.
        """


#: Memory of lanes while nothing runs.
_NO_BYTES, _NO_LANES = np.zeros((0, 0), np.uint8), np.zeros(0, np.int64)
_NO_PARAMETERS = np.zeros((1, WIDEST), np.uint8)
_NO_PARAMETERS.flags.writeable = False


@dataclass(slots=True, eq=False)
class Allocation:
    """A piece of global or constant memory: bytes at an address, and the array that keeps them alive."""

    name: str
    address: int
    size: int
    readonly: bool
    itemsize: int
    owner: np.ndarray
    #: The device's heap, where the bytes are it: only its blocks may be accessed.
    heap: Heap | None = None
    _data: np.ndarray | None = None

    @property
    def end(self) -> int:
        """Address behind the last byte."""
        return self.address + self.size

    @property
    def data(self) -> np.ndarray:
        """Bytes of the allocation as an array, which is made at the first use: machine code does not need it."""
        if self._data is None:
            self._data = bytes_at(self.owner, self.address, self.size)
        return self._data


class Memory:
    """Global allocations, and during a run the shared and local memory of the running lanes.

    Attributes
    ----------
    shared : numpy.ndarray
        Bytes of shared memory, a row a block.
    local : numpy.ndarray
        Bytes of local memory, a row a lane.
    parameters : numpy.ndarray
        Bytes of the launch's parameters, one row.
    shared_bytes : int
        Bytes of a block's row in `shared` that belong to the kernel; the rest is padding.
    shared_offsets : mapping of str to int
        Offset of each shared variable, by its name in the PTX.
    block_of : numpy.ndarray
        Block of each lane, counted from 0 among the running blocks.
    cluster : int
        Number of blocks in a cluster; the blocks of a cluster are adjacent.
    exited : callable
        Function that takes numbers of blocks and returns which of them have exited.
    watcher : Watcher or None
        Observer of accesses to global memory.
    former : Former or None
        Record of contents that are written over.

    Parameters
    ----------
    arrays : callable, optional
        Function that returns the device's live arrays, which pointers in memory may lead to.
    """

    shared: np.ndarray
    shared_bytes: int

    def __init__(self, arrays: Arrays = tuple) -> None:
        self._arrays = arrays
        self._allocations: dict[int, Allocation] = {}
        self._addresses: list[int] = []
        #: For each allocation but the heap, by ascending address: start, end, whether it is read-only, and 0.
        self.table: numbers[int] = numbers("q")
        self._heap_at: int | None = None
        self._freed: dict[int, tuple[int, str]] = {}
        self.watcher: Watcher | None = None
        self.former: Former | None = None
        #: Addresses that the code of kernels contains as numbers, as Numba's code does for global device arrays.
        self.literals: np.ndarray = np.zeros(0, np.uint64)
        self._reached: list[int] = []
        self.clear_lanes()

    def clear_lanes(self) -> None:
        """Drop the shared and local memory once no lanes run, and everything that kept the former launch alive."""
        self.shared = self._starts_of = self._starts = _NO_BYTES
        self.shared_bytes = 0
        self.shared_offsets: Mapping[str, int] = {}
        self.local: np.ndarray = _NO_BYTES
        self.parameters: np.ndarray = _NO_PARAMETERS
        self._reach = Reach(self._arrays)
        while self._reached:
            self.remove(self._reached.pop())
        self.block_of: np.ndarray = _NO_LANES
        self.cluster = 1
        self.exited: Callable[[np.ndarray], np.ndarray] = lambda blocks: np.zeros(blocks.shape, bool)

    def set_shared(self, blocks: int, size: int) -> None:
        """Give each block new shared memory of `size` bytes."""
        self.shared, self.shared_bytes = np.full((blocks, -(-size // _ROW) * _ROW), _UNSET, np.uint8), size

    def shared_offset(self, name: str) -> int:
        """Return the offset of a variable in a block's shared memory.

        Raises
        ------
        AccessError
            If the running kernel has no memory for the variable.
        """
        if name not in self.shared_offsets:
            raise AccessError(
                f"{plain(name)} is in shared memory, and the kernel's blocks have none for it: its function was called "
                "through a pointer that other code took; let the kernel name the function"
            )
        return self.shared_offsets[name]

    def set_parameters(self, data: bytes) -> None:
        """Copy the bytes of a launch's parameters to memory with an address."""
        self.parameters = np.zeros((1, -(-len(data) // WIDEST) * WIDEST), np.uint8)
        self.parameters[0, : len(data)] = np.frombuffer(data, np.uint8)

    # ── allocations ──

    def add(self, array: np.ndarray, name: str, readonly: bool = False) -> int:
        """Add a host array's memory as an allocation; return its lowest address."""
        address, size = pointer_of(array), array.nbytes
        if size == 0:
            return address
        if not array.flags.c_contiguous:
            address, high = np.lib.array_utils.byte_bounds(array)
            size = high - address
        former, allocation = (
            self._allocations.get(address),
            Allocation(name, address, size, readonly, array.itemsize, array),
        )
        place = bisect.bisect_left(self._addresses, address)
        if former is None:
            self._addresses.insert(place, address)
        else:
            allocation = _united(former, allocation)
        self._allocations[address] = allocation
        if allocation.heap is None:
            row = self._row(place, address)
            self.table[row : row if former is None else row + 4] = numbers(
                "q", (address, allocation.end, allocation.readonly, 0)
            )
        self._freed.pop(address, None)
        return address

    def _row(self, place: int, address: int) -> int:
        """Return the index in `table` of the first of an allocation's four numbers.

        `place` is the index of the allocation's `address` among the sorted addresses. The heap has no numbers in
        `table`.
        """
        return 4 * (place if self._heap_at is None or self._heap_at >= address else place - 1)

    def flagged(self, flags_from: Callable[[Allocation], int]) -> numbers[int]:
        """Return a copy of `table` in which each allocation's fourth number is the distance to its flags.

        `flags_from` takes an allocation, and returns the address of the flags.
        """
        table = self.table[:]
        for row in range(0, len(table), 4):
            table[row + 3] = flags_from(self._allocations[table[row]]) - table[row]
        return table

    def writable(self) -> list[np.ndarray]:
        """Return all bytes that a launch may write, as arrays.

        They are its arguments, the arrays that the arguments are views of, and the device's memory.
        """
        allocations = [piece for piece in self._allocations.values() if not piece.readonly]
        owners = [
            whole for piece in allocations if isinstance(piece.owner, np.ndarray) for whole in base_arrays(piece.owner)
        ]
        arrays = {id(piece): piece for piece in (*owners, *self._arrays()) if piece.flags.writeable and piece.nbytes}
        return [piece.data for piece in allocations] + [
            bytes_of(piece) for piece in arrays.values() if piece.flags.c_contiguous and not piece.dtype.hasobject
        ]

    def remove(self, address: int) -> None:
        """Remove the allocation at an address; later accesses to its memory are errors."""
        allocation = self._allocations.pop(address, None)
        if allocation is not None:
            place = bisect.bisect_left(self._addresses, address)
            del self._addresses[place]
            if allocation.heap is not None:
                self._heap_at = None
            else:
                row = self._row(place, address)
                del self.table[row : row + 4]
            self._freed[address] = (allocation.end, allocation.name)

    def _covering(self, address: int, size: int) -> Allocation | None:
        """Return the allocation that has `size` bytes at an address, or None.

        Of several allocations, such as an array and a part of it, return the one that begins last.
        """
        for place in range(bisect.bisect_right(self._addresses, address) - 1, -1, -1):
            allocation = self._allocations[self._addresses[place]]
            if address + size <= allocation.end:
                return allocation
        return None

    def piece(self, address: int, size: int, use: int) -> Allocation | None:
        """Return the one allocation that has all `size` bytes at an address, if accesses within it need no other check.

        Return None if there is none, for the heap, and for a write (`use`) to a read-only allocation.
        """
        allocation = self._covering(address, size)
        if allocation is None or allocation.heap is not None or (allocation.readonly and use >= WRITE):
            return None
        return allocation

    def piece_or_heap(self, address: int, size: int) -> Allocation | None:
        """Return the allocation that covers a range of bytes, which may be the heap, or None; for observers."""
        if self._covering(address, size) is None and device_limits().has_heap:
            self.add_heap(device_limits().heap)
        return self._covering(address, size)

    def _reached_at(self, address: int, size: int) -> Allocation | None:
        """Return the allocation that has `size` bytes at an address outside all arguments, or None.

        A launch reaches the bytes in the heap, in an argument's base array, or through a pointer in memory. The memory
        is also added to the allocations.
        """
        if device_limits().has_heap:
            self.add_heap(device_limits().heap)
            if (allocation := self._covering(address, size)) is not None:
                return allocation
        pieces = list(self._allocations.values())
        for piece in pieces:
            if isinstance(piece.owner, np.ndarray):
                for whole in base_arrays(piece.owner):
                    low, high = np.lib.array_utils.byte_bounds(whole)
                    if low <= address and address + size <= high:
                        name = f"the memory that {piece.name} is a part of"
                        self._add_reached(whole, name, piece.readonly or not whole.flags.writeable)
                        return self._covering(address, size)
        for array in self._reach.find(address, size, [self.literals.view(np.uint8), *self._readable()]):
            name = f"the {array.dtype} array of shape {array.shape} that a pointer leads to"
            self._add_reached(array, name, not array.flags.writeable)
        return self._covering(address, size)

    def _readable(self) -> list[np.ndarray]:
        """Return all bytes of the launch that may hold pointers, as arrays: its parameters and its allocations."""
        return [self.parameters[0], *(piece.data for piece in self._allocations.values())]

    def add_heap(self, heap: Heap) -> None:
        """Let the launch access the blocks of the device's heap."""
        if heap.address not in self._allocations:
            self._add_reached(heap.data, "the device's heap", False)
            self._allocations[heap.address] = replace(self._allocations[heap.address], heap=heap)
            row = self._row(bisect.bisect_left(self._addresses, heap.address), heap.address)
            del self.table[row : row + 4]
            self._heap_at = heap.address

    def _add_reached(self, array: np.ndarray, name: str, readonly: bool) -> None:
        """Add an array that a launch has reached as an allocation, which is removed after the launch."""
        self._reached.append(self.add(array, name, readonly))

    # ── access ──

    def load(
        self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index, strong: bool = False
    ) -> np.ndarray:
        """Load values of `dtype` at `addresses`, one a lane of `index`."""
        pieces = self.views(space, addresses, dtype, index, STRONG_READ if strong else READ)
        if len(pieces) == 1:
            view, elements, _ = pieces[0]
            # All elements are inside, so NumPy need not check the indices.
            result: np.ndarray = view.take(elements, mode="clip")
            return result
        out = np.empty(addresses.shape, dtype)
        for view, elements, lanes in pieces:
            out[lanes] = view[elements]
        return out

    def store(self, space: str, addresses: np.ndarray, values: np.ndarray, index: Index, strong: bool = False) -> None:
        """Store one value a lane; if lanes have the same address, the last lane's value stays."""
        pieces = self.views(space, addresses, values.dtype, index, STRONG_WRITE if strong else WRITE)
        if values.shape != addresses.shape:
            values = np.broadcast_to(values, addresses.shape)
        for view, elements, lanes in pieces:
            view[elements] = values[lanes]

    def views(
        self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index, use: int
    ) -> list[tuple[np.ndarray, Any, Any]]:
        """Return each lane's element as (flat view of `dtype`, element numbers in the view, positions of the lanes).

        Positions are a slice of `addresses` or indices into it; each lane is in exactly one entry. Loads, stores,
        atomics and copies all access memory through this method. Spaces are PTX's; ``cluster`` is ``shared::cluster``.
        `use` is `READ`, `WRITE`, or the strong form of either.
        """
        if addresses.size == 0:
            return []
        try:
            return self._views(space, addresses, dtype, index, use)
        except AccessError as error:
            if error.lane is None and error.address is not None:
                places = np.flatnonzero(addresses.reshape(addresses.shape[0], -1)[:, 0] == np.uint64(error.address))
                place = int(places[0]) if places.size else 0
                error.lane = int(index[place]) if isinstance(index, np.ndarray) else place
            raise

    def _views(
        self, space: str, addresses: np.ndarray, dtype: np.dtype, index: Index, use: int
    ) -> list[tuple[np.ndarray, Any, Any]]:
        check_aligned(addresses, dtype.itemsize)
        if space == "generic":
            return self._generic(addresses, dtype, index, use)
        if space == "shared":
            start = self._rows(self._shared_starts(), index)
            return [self._window(self.shared, start, addresses, dtype, "shared memory")]
        if space == "cluster":
            row = self.blocks_at(addresses, index)
            return [self._window(self.shared, _starts(self.shared, row), addresses & _OFFSET, dtype, "shared memory")]
        if space == "local":
            row = self._rows(np.arange(self.local.shape[0]), index)
            return [self._window(self.local, _starts(self.local, row), addresses, dtype, "local memory")]
        if space == "param":
            if use >= WRITE:
                raise AccessError("a kernel's parameters are read-only")
            start = np.zeros(1, np.uint64)
            return [self._window(self.parameters, start, addresses, dtype, "the kernel's parameters")]
        return self._global(addresses, dtype, use)

    def _shared_starts(self) -> np.ndarray:
        """Return the byte offset in `shared` of each lane's block, cached for the many shared accesses."""
        if self._starts_of is not self.shared:
            self._starts_of, self._starts = self.shared, _starts(self.shared, self.block_of)
        return self._starts

    def blocks_at(self, addresses: np.ndarray, index: Index) -> np.ndarray:
        """Return the block, among the running ones, whose shared memory each address of a lane of `index` is in."""
        own = self._rows(self.block_of, index)
        rank = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64) - 1
        if (rank < 0).all():
            return own
        if int(rank.max()) >= self.cluster:
            raise AccessError(f"shared memory of block {int(rank.max())} of a cluster, which has {self.cluster} blocks")
        blocks = np.where(rank < 0, own, own - own % self.cluster + rank)
        if (exited := self.exited(blocks)).any():
            raise AccessError(
                f"shared memory of block {int(rank[exited][0])} of the cluster, which has exited; let it wait, with "
                "cluster.sync(), until the others are done with it"
            )
        return blocks

    @staticmethod
    def _rows(block_of: np.ndarray, index: Index) -> np.ndarray:
        """Return the blocks of the lanes of `index`; of all lanes if `index` is None."""
        return block_of if index is None else block_of[index]

    def _generic(
        self, addresses: np.ndarray, dtype: np.dtype, index: Index, use: int
    ) -> list[tuple[np.ndarray, Any, Any]]:
        """Return the elements at generic addresses, as `views` does, by the window that each address is in."""
        if int(addresses.max()) < SHARED_WINDOW:
            return self._global(addresses, dtype, use)
        pieces = []
        lanes_of = np.arange(self.block_of.size) if index is None else index
        window = addresses >> np.uint64(WINDOW_BITS)
        rest = np.ones(addresses.shape, bool)
        for space, base in _WINDOWS.items():
            inside = window == base >> WINDOW_BITS
            lanes = np.flatnonzero(inside)
            if lanes.size == addresses.size:
                return self.views(space, addresses - np.uint64(base), dtype, index, use)
            if lanes.size:
                offsets = addresses[lanes] - np.uint64(base)
                pieces += [(v, e, lanes[p]) for v, e, p in self.views(space, offsets, dtype, lanes_of[lanes], use)]
                rest &= ~inside
        lanes = np.flatnonzero(rest)
        if lanes.size:
            pieces += [(v, e, lanes[p]) for v, e, p in self._global(addresses[lanes], dtype, use)]
        return pieces

    def _window(
        self, rows: np.ndarray, start: np.ndarray, offsets: np.ndarray, dtype: np.dtype, description: str
    ) -> tuple[np.ndarray, Any, Any]:
        """Return the elements at byte offsets in rows of shared or local memory, as an entry of `views`.

        `start` is the byte at which the row of each lane begins in `rows`. `description` names the memory in messages.

        Raises
        ------
        AccessError
            For an offset outside a row.
        """
        is_shared = rows is self.shared
        size, width, bad = dtype.itemsize, self.shared_bytes if is_shared else rows.shape[1], int(offsets.max())
        if bad + size > width:
            if is_shared:
                raise self._outside_shared(bad, size)
            raise AccessError(f"{description}: byte {bad} … {bad + size - 1} is outside its {width} bytes", bad)
        return rows.reshape(-1).view(dtype), _elements(start + offsets, size), slice(None)

    def _outside_shared(self, offset: int, size: int) -> AccessError:
        """Return the error for an access outside a block's shared memory."""
        # Below the first byte it wraps around, as an address of 32 bits or of 64.
        address, bits = offset, 32 if offset < 1 << 32 else 64
        if offset >= 1 << bits - 1:
            offset -= 1 << bits
        elif offset >> RANK_SHIFT:
            return AccessError(
                "shared memory of another block, which .shared::cta does not reach: .shared::cluster", address
            )
        where, parts = "", dict[str, str]()
        if self.shared_offsets:
            pick = min if offset < 0 else max
            name, start = pick(self.shared_offsets.items(), key=lambda item: item[1])
            count = (self.shared_bytes - start) // size
            index, parts = outside("element", (offset - start) // size, count), _range((offset - start) // size, count)
            where = f"; the nearest is {plain(name)} with {count} elements: {index}"
        return AccessError(
            f"shared memory: byte {offset} … {offset + size - 1} is outside its {self.shared_bytes} bytes{where}",
            address,
            **parts,
        )

    def _global(self, addresses: np.ndarray, dtype: np.dtype, use: int) -> list[tuple[np.ndarray, Any, Any]]:
        """Return the elements at global addresses, as `views` does, one entry an allocation."""
        size = dtype.itemsize
        lanes: Any = slice(None)
        pieces: list[tuple[np.ndarray, Any, Any]] = []
        while True:
            first = int(addresses[0])
            allocation = self._covering(first, size) or self._reached_at(first, size)
            if allocation is None:
                raise self._outside(int(addresses[0]), size)
            # An address below the allocation wraps around to a huge offset.
            offsets = addresses - np.uint64(allocation.address)
            if int(offsets.max()) + size <= allocation.size:
                return [*pieces, self._within(allocation, offsets, dtype, lanes, use)]
            inside = offsets <= np.uint64(allocation.size - size)
            if isinstance(lanes, slice):
                lanes = np.arange(addresses.size)
            pieces.append(self._within(allocation, offsets[inside], dtype, lanes[inside], use))
            addresses, lanes = addresses[~inside], lanes[~inside]

    def _within(
        self, piece: Allocation, offsets: np.ndarray, dtype: np.dtype, lanes: Any, use: int
    ) -> tuple[np.ndarray, Any, Any]:
        """Return the elements at byte offsets in an allocation as an entry of `views`; notify the watcher.

        `lanes` becomes the entry's positions.

        Raises
        ------
        AccessError
            For a write to a read-only allocation, or bytes in no block of the heap.
        """
        if use >= WRITE and piece.readonly:
            raise AccessError(f"{piece.name} is read-only", piece.address + int(offsets.flat[0]))
        if piece.heap is not None and (bad := piece.heap.first_invalid(offsets, dtype.itemsize)) is not None:
            raise self._outside_blocks(piece.heap, bad, dtype.itemsize)
        # An allocation may begin at any address; its elements of this size begin at the first aligned one.
        skip = -piece.address % dtype.itemsize
        whole = (piece.size - skip) // dtype.itemsize * dtype.itemsize
        view = piece.data[skip : skip + whole].view(dtype)
        elements = _elements(offsets, dtype.itemsize)
        if self.watcher is not None:
            self.watcher.note(piece, elements, dtype.itemsize, use)
        if self.former is not None and use >= WRITE:
            self.former.keep(piece.data, view, elements)
        return view, elements, lanes

    def _outside_blocks(self, heap: Heap, offset: int, size: int) -> AccessError:
        """Return the error for bytes in no block of the heap, which names an array that is nearer than every block."""
        address = heap.address + offset
        nearest = self._nearest(address)
        if nearest is None or heap.distance(offset) <= max(nearest.address - address, address - nearest.end + 1):
            return AccessError(heap.explain(offset, size), address)
        return self._outside(address, size)

    def _nearest(self, address: int) -> Allocation | None:
        """Return the allocation, other than the heap, that begins or ends nearest to an address."""
        place = bisect.bisect_right(self._addresses, address)
        near = (self._allocations[start] for start in self._addresses[max(0, place - 2) : place + 1])
        arrays = (piece for piece in near if piece.heap is None)
        return min(arrays, key=lambda piece: max(piece.address - address, address - piece.end), default=None)

    def _outside(self, address: int, size: int) -> AccessError:
        """Return the error for an access outside all allocations."""
        nearest = self._nearest(address)
        if address < _CLOSE:
            return AccessError(f"{size} bytes at {address:#x}: a null pointer", address)
        if nearest is None or not nearest.address - _CLOSE <= address < nearest.end + _CLOSE:
            for start, (end, name) in self._freed.items():
                if start <= address < end:
                    return AccessError(
                        f"address {address:#x} is in {name} of an earlier launch, which no longer exists", address
                    )
            if points_near(address, _CLOSE, self._readable()):
                return AccessError(
                    f"{size} bytes at {address:#x} are outside every array of the call. A pointer in memory must point "
                    "into an array of ck.empty or ck.to_device",
                    address,
                )
        if nearest is None or not nearest.address - _FAR <= address < nearest.end + _FAR:
            return AccessError(f"address {address:#x} is in no allocation", address)
        element = (address - nearest.address) // nearest.itemsize
        count = nearest.size // nearest.itemsize
        return AccessError(
            f"{size} bytes at {address:#x} are outside every array; the nearest is {nearest.name} with {count} "
            f"elements: {outside('element', element, count)}",
            address,
            **_range(element, count),
        )


def _range(element: int, count: int) -> dict[str, str]:
    """Return the details of an access to an element outside an array of `count` elements."""
    return {"expected": f"element 0 to {count - 1}", "got": f"element {element}"}


def _united(first: Allocation, second: Allocation) -> Allocation:
    """Return one allocation for two at one address: as long as the longer, writable if either is."""
    larger, other = (
        (first, second) if (not first.readonly, first.end) >= (not second.readonly, second.end) else (second, first)
    )
    if other.end <= larger.end:
        return larger
    return replace(larger, size=other.size, _data=bytes_at(larger.data, larger.address, other.size))


def plain(name: str) -> str:
    """Return a variable's name as the source has it: demangled, without the function's name."""
    if not name.startswith("_Z"):
        return name
    try:
        return demangle(name).rpartition("::")[2]
    except TemplateError:
        return name


def check_aligned(addresses: np.ndarray, size: int) -> None:
    """Check that every address is a multiple of `size`, a power of two.

    Raises
    ------
    AccessError
    """
    # One pass without an array of remainders, since every access is checked.
    if size > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (size - 1):
        bad = int(addresses.flat[np.flatnonzero(addresses & np.uint64(size - 1))[0]])
        raise AccessError(f"address {bad:#x} is not aligned to {size} bytes", bad)


def _starts(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the byte offset at which each row begins in an array of bytes; `row` has the numbers of the rows."""
    return np.asarray(row * rows.shape[1]).astype(np.uint64)


def _elements(offsets: np.ndarray, size: int) -> np.ndarray:
    """Convert byte offsets to element numbers, for elements of `size` bytes, a power of two.

    The array `offsets` is overwritten.
    """
    # A shift is much faster than a division. It works in place, since the caller does not use `offsets` again.
    offsets >>= np.uint64(size.bit_length() - 1)
    return offsets.view(np.int64)


def bytes_at(owner: Any, address: int, size: int) -> np.ndarray:
    """Return a view of `size` bytes from `address`, kept alive by `owner`. That of read-only arrays is read-only."""
    is_read_only = isinstance(owner, np.ndarray) and not owner.flags.writeable
    described = {"data": (address, is_read_only), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(SimpleNamespace(owner=owner, __array_interface__=described))
