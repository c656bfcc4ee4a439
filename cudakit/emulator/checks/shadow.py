"""Shadow memory: stamps of the last accesses to each few bytes, by which races are found.

A stamp is the number of an access in the high bits and the number of a lane in the low bits. All lanes of an access
share its number. The order of a lane is a number too, the bound: accesses with lower numbers come before the lane's
access, and other accesses race. Messages name a place in shared memory ``tile[3][5]`` if the source has the array's
extents.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import plain

LANE_BITS = 32
LANE = np.int64((1 << LANE_BITS) - 1)
#: Lane number of copies that no lane does itself.
NOBODY = int(LANE)
#: Most accesses of a piece of memory recorded without stamps.
_MOST_RUNS = 32


class Places(NamedTuple):
    """Positions of stamps in the arrays of a `Shadow`: `where` is an array, or a slice if they are consecutive.

    `shape` is (lanes,) if each lane has one stamp, else (lanes, stamps of a lane).
    """

    where: slice | np.ndarray
    shape: tuple[int, ...]

    def numbers(self) -> np.ndarray:
        """Return the positions of the stamps as a flat array."""
        return np.arange(self.where.start, self.where.stop) if isinstance(self.where, slice) else self.where


class Shadow:
    """Stamps of one piece of memory: of the last writer, and of two readers since the last write.

    Parameters
    ----------
    size : int
        Bytes of the memory.
    grain : int
        Bytes that share a stamp, a power of two.
    """

    grain: int
    size: int

    __slots__ = (
        "_first", "_last", "_runs", "grain", "is_of_heap", "released", "released_by", "released_near", "size",
        "under_way", "unwritten", "written",
    )  # fmt: skip

    def __init__(self, size: int, grain: int) -> None:
        self.size, self.grain = size, grain
        self.written: np.ndarray = np.zeros(0, np.int64)
        self._first = self._last = self.written
        #: Accesses recorded without stamps, while none overlap: event, places, lanes, the amount added to lane numbers,
        #: and whether the access writes.
        self._runs: list[tuple[int, Places, np.ndarray, int, bool]] | None = []
        #: Bound that the last release at a place publishes.
        self.released: np.ndarray | None = None
        #: Block of the last release, plus one.
        self.released_by: np.ndarray | None = None
        #: Bound of the last release to threads of one block, and that block plus one.
        self.released_near: np.ndarray | None = None
        #: Of global memory: bytes that nobody has written since the allocation; None where all are written.
        self.unwritten: np.ndarray | None = None
        #: Whether the memory belongs to the device's heap, whose blocks are allocated and freed.
        self.is_of_heap = False
        #: Access number of the pending copy at each place: positive for a write, negative for a read.
        self.under_way: np.ndarray | None = None

    def defer(self, event: int, places: Places, lanes: np.ndarray, base: int, writes: bool) -> bool:
        """Record an access without making stamps, and return True, while no recorded write overlaps another access.

        `event` is the number of the access. `base` is added to the numbers of `lanes`. Once the access overlaps, or is
        not consecutive, make the stamps of all recorded accesses, and return False: the caller must record this access.
        Return False also if there are stamps already.
        """
        if self._runs is None:
            return False
        where = places.where
        if isinstance(where, slice) and len(self._runs) < _MOST_RUNS:
            for _, other, _, _, wrote in self._runs:
                of = other.where
                assert isinstance(of, slice)
                if (writes or wrote) and of.start < where.stop and where.start < of.stop:
                    break
            else:
                self._runs.append((event, places, lanes, base, writes))
                return True
        self.make()
        return False

    def make(self) -> None:
        """Make the stamps, if there are none yet."""
        if self._runs is None:
            return
        runs, self._runs = self._runs, None
        count = -(-self.size // self.grain) + 1
        self.written, self._first, self._last = (np.zeros(count, np.int64) for _ in range(3))
        for event, places, lanes, base, writes in runs:
            numbered = lanes + base
            stamps = event << LANE_BITS | (numbered if len(places.shape) == 1 else numbered[:, None])
            if writes:
                self.write(places, stamps)
            else:
                self.read(places, stamps, 0)

    def places(self, offsets: np.ndarray, size: int) -> Places:
        """Return the positions of the stamps of `size` bytes at each lane's byte offset.

        A lane has one stamp, or several.
        """
        first: np.ndarray = (offsets >> np.uint64(self.grain.bit_length() - 1)).view(np.int64)
        per_lane = 1 if size <= self.grain else size // self.grain
        shape = first.shape if per_lane == 1 else (first.size, per_lane)
        low, high = int(first[0]), int(first[-1])
        if high - low == per_lane * (first.size - 1) and (first[1:] - first[:-1] == per_lane).all():
            # Most accesses are consecutive, and a slice is many times faster than indices.
            return Places(slice(low, high + per_lane), shape)
        return Places(first if per_lane == 1 else (first[:, None] + np.arange(per_lane)).reshape(-1), shape)

    def writers(self, places: Places) -> np.ndarray:
        """Return the stamps of the last writers at places."""
        return self.written[places.where].reshape(places.shape)

    def readers(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """Return the stamps of two of the readers at places."""
        return self._first[places.where].reshape(places.shape), self._last[places.where].reshape(places.shape)

    def read(self, places: Places, stamps: np.ndarray, floor: int) -> None:
        """Record readers at places, and forget readers whose access number is below `floor`."""
        stamps = np.broadcast_to(stamps, places.shape).reshape(-1)
        where = places.where
        old = self._first[where] < max(1, floor) << LANE_BITS
        if isinstance(where, slice):
            np.copyto(self._first[where], stamps, where=old)
        elif old.all():
            # Keep the first lane, and as the last reader the last lane: the two differ where several lanes read.
            self._first[where[::-1]] = stamps[::-1]
        elif old.any():
            self._first[where[old][::-1]] = stamps[old][::-1]
        self._last[where] = stamps

    def write(self, places: Places, stamps: np.ndarray | np.int64) -> None:
        """Record writers at places."""
        self.written[places.where] = np.broadcast_to(stamps, places.shape).reshape(-1)

    def forget(self, offsets: np.ndarray, size: int) -> None:
        """Clear the stamps of `size` bytes at offsets."""
        if offsets.size and self._runs is None:
            where = self.places(offsets, size).where
            self.written[where] = self._first[where] = self._last[where] = 0

    def release(self, places: Places, upto: np.ndarray, blocks: np.ndarray) -> None:
        """Record a release at places: accesses numbered below `upto` are published to every later reader of the places.

        `upto` has one bound for each lane, `blocks` the number of each lane's block.
        """
        if self.released is None or self.released_by is None:
            self.released, self.released_by = np.zeros((2, self.written.size), np.int64)
        numbers = places.numbers().reshape(places.shape)
        many = upto if len(places.shape) == 1 else upto[:, None]
        np.maximum.at(self.released, numbers, many)
        self.released_by[numbers] = np.where(many > 0, (blocks + 1).reshape(many.shape), self.released_by[numbers])

    def release_near(self, places: Places, upto: np.ndarray, blocks: np.ndarray) -> None:
        """Record a release at places: accesses below `upto` are published to later readers of the same block.

        `upto` has one bound for each lane, `blocks` the number of each lane's block. If several blocks release at one
        place, the release counts as published to all blocks.
        """
        if self.released_near is None:
            self.released_near = np.zeros((2, self.written.size), np.int64)
        many, owners = (
            np.broadcast_to(values if len(places.shape) == 1 else values[:, None], places.shape).reshape(-1)
            for values in (upto, blocks + 1)
        )
        numbers = places.numbers()
        near, owner = self.released_near
        shared = (owner[numbers] != 0) & (owner[numbers] != owners)
        owner[numbers] = owners
        shared |= owner[numbers] != owners
        np.maximum.at(near, numbers, many)
        if shared.any():
            if self.released is None:
                self.released, self.released_by = np.zeros((2, self.written.size), np.int64)
            some = numbers[shared]
            np.maximum.at(self.released, some, near[some])

    def published(self, places: Places, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the bounds published at places, two arrays with one bound for each lane; None if nothing was released.

        `blocks` has the number of each lane's block. The first array has the bounds published by this block, the second
        array the bounds published to all blocks.
        """
        if self.released is None and self.released_near is None:
            return None
        near = wide = np.zeros(places.shape[0], np.int64)
        own = blocks[:, None] + 1
        if self.released is not None and self.released_by is not None:
            many, owner = (
                array[places.where].reshape(places.shape[0], -1) for array in (self.released, self.released_by)
            )
            wide, near = many.max(axis=1), np.where(owner == own, many, 0).max(axis=1)
        if self.released_near is not None:
            many, owner = (array[places.where].reshape(places.shape[0], -1) for array in self.released_near)
            near = np.maximum(near, np.where(owner == own, many, 0).max(axis=1))
        return near, wide

    def begin(self, where: np.ndarray, mark: int) -> None:
        """Mark the stamps at positions `where` as memory of pending copies.

        `mark` is the number of the copies' access, negative if they read. A mark of a write is not replaced by one of a
        read.
        """
        if self.under_way is None:
            self.under_way = np.zeros(-(-self.size // self.grain) + 1, np.int64)
        if mark < 0:
            where = where[self.under_way[where] <= 0]
        else:
            self.make()
        self.under_way[where] = mark

    def end(self, where: np.ndarray, mark: int) -> None:
        """Remove `mark`, the mark of completed copies, from the stamps at positions `where`. Other marks stay."""
        assert self.under_way is not None
        self.under_way[where[self.under_way[where] == mark]] = 0

    def repeated(self, size: int, times: int, threads: int) -> Shadow:
        """Return a shadow of `times` blocks, each with a copy of this shadow's stamps, in `size` bytes.

        This shadow has the stamps of the first block. Lane numbers are raised by `threads` from each block to the next.
        """
        shadow = Shadow(size * times, self.grain)
        shadow.make()
        count = size // self.grain
        shift = np.arange(times)[:, None] * threads
        for target, of in ((shadow.written, self.written), (shadow._first, self._first), (shadow._last, self._last)):
            row = of[:count]
            moved = np.where((row > 0) & (row & LANE != LANE), row + shift, row)
            target[: count * times] = moved.reshape(-1)
        if self.released is not None:
            shadow.released = np.zeros(shadow.written.size, np.int64)
            shadow.released[: count * times] = np.tile(self.released[:count], times)
            shadow.released_by = np.zeros_like(shadow.released)
        return shadow


class Accessed(NamedTuple):
    """A part of an access: the lanes that access one piece of memory, with the memory's stamps and bytes.

    `offsets` are the lanes' offsets in the memory, and `name` is the memory's name in messages; shared memory has no
    name. `chosen` has the positions of these lanes in the whole access, or None for all. `itemsize` is the size of the
    elements that messages count.
    """

    shadow: Shadow
    data: np.ndarray
    offsets: np.ndarray
    lanes: np.ndarray
    itemsize: int
    name: str = ""
    chosen: np.ndarray | None = None
    address: int = 0


_EXTENT = re.compile(r"\s*\[([^\]]*)\]")


def in_shared(launch: Launch, offset: int, size: int) -> str:
    """Return the name for messages of the element at a byte offset: ``tile[3][5] in shared memory``.

    `size` is the number of bytes of an element.
    """
    symbols = launch.shared.offsets
    before = [(start, symbol) for symbol, start in symbols.items() if start <= offset]
    if not before:
        return f"byte {offset} of shared memory"
    start, symbol = max(before)
    name, offset = plain(symbol), offset - start
    extents = _extents(launch.source[1], name, symbol)
    local_variable = next((f.variables[symbol] for f in launch.module.functions if symbol in f.variables), None)
    variable = launch.module.program.variables.get(symbol) or local_variable
    total = variable.size if variable is not None else 0
    if not extents:
        # A single element, or some bytes of a struct, a vector or a union.
        is_whole = extents is not None and total <= size
        return f"{name if is_whole else f'byte {offset} of {name}'} in shared memory"
    inner = [int(extent) for extent in extents[1:] if extent is not None]
    if len(inner) < len(extents) - 1:
        inner, extents = [], extents[:1]
    if extents[0] is not None and total:
        size = max(1, total // int(np.prod([extents[0], *inner])))
    number, indices = offset // size, list[int]()
    for extent in reversed(inner):
        number, last = divmod(number, extent)
        indices.insert(0, last)
    return f"{name}{''.join(f'[{index}]' for index in (number, *indices))} in shared memory"


def _extents(text: str, name: str, symbol: str) -> list[int | None] | None:
    """Return the extents of the shared variable `name` as the source `text` declares it.

    An extent whose value is not known is None. `symbol` is the variable's mangled name. The list is empty for a single
    element. The result is None where the source does not show the declaration.
    """
    declared = rf"__shared__\b[^;{{}}()]*?[\s*&,>]{re.escape(name)}\s*((?:\[[^\]]*\]\s*)*)\s*[;,=]"
    declaration = re.compile(declared).search(text, _begin(text, symbol)) or re.search(declared, text)
    if declaration is None:
        return None
    return [_number(text, extent) for extent in _EXTENT.findall(declaration[1])]


def _begin(text: str, symbol: str) -> int:
    """Return the position in the C++ source `text` where the function that declares a variable begins.

    `symbol` is the variable's mangled name (``_ZZ…``), which holds the function's name. The position is 0 if the
    function is not found, or if the name has another form.
    """
    length = re.match(r"_ZZ(\d+)", symbol)
    if length is None:
        return 0
    function = re.escape(symbol[length.end() : length.end() + int(length[1])])
    return max((head.start() for head in re.finditer(rf"\b{function}\s*\([^;{{}}]*\{{", text)), default=0)


def _number(text: str, extent: str) -> int | None:
    """Return the value of `extent`, an expression in the source `text`; None if it is unknown or not above 0.

    The extent may have numbers, constants with one value in the source, and ``+ - *``.
    """

    def value(match: re.Match[str]) -> str:
        values = set(re.findall(rf"\b{match[0]}\b\s*=?\s*\(?(\d+)\b", text))
        return values.pop() if len(values) == 1 else "?"

    words = re.sub(r"[A-Za-z_]\w*", value, extent)
    if re.fullmatch(r"\s*\d+(\s*[-+*]\s*\d+)*\s*", words) is None:
        return None
    total = 0
    for sign, product in re.findall(r"(^|[-+])\s*(\d+(?:\s*\*\s*\d+)*)", words.strip()):
        total += (-1 if sign == "-" else 1) * int(np.prod([int(factor) for factor in product.split("*")]))
    return total if total > 0 else None
