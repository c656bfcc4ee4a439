"""Who accessed memory last: stamps beside each few bytes, from which accesses that nothing orders are told.

A stamp is the number of an access (of all lanes together) above that of a lane. What a lane has been ordered after is a
number of an access too, so that a stamp is compared with one number: earlier accesses come first, later ones race.
Messages name a place in shared memory ``tile[3][5]`` where the source tells the array's extents.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import plain

LANE_BITS = 32
LANE = np.int64((1 << LANE_BITS) - 1)
#: Stands for copies that no lane does itself.
NOBODY = int(LANE)
#: Accesses of a piece of memory that are kept in mind before stamps are made.
_MOST_RUNS = 32


class Places(NamedTuple):
    """Numbers of stamps, as a slice where they follow each other, and the shape that they are asked for in."""

    where: slice | np.ndarray
    shape: tuple[int, ...]

    def numbers(self) -> np.ndarray:
        """Their numbers as an array."""
        return np.arange(self.where.start, self.where.stop) if isinstance(self.where, slice) else self.where


class Shadow:
    """Stamps of one piece of memory: its last writer, and two of those who read since.

    Parameters
    ----------
    size : int
        Bytes of the memory.
    grain : int
        Bytes that share stamps, a power of two.
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
        #: Accesses without stamps yet, while none of them meets another: event, where, lanes and
        #: what is to be added to their numbers, and whether it writes.
        self._runs: list[tuple[int, Places, np.ndarray, int, bool]] | None = []
        #: Number of the access up to which the last release at a place publishes.
        self.released: np.ndarray | None = None
        #: The block that did so last, plus one.
        self.released_by: np.ndarray | None = None
        #: The same for the threads of one block, and that block plus one.
        self.released_near: np.ndarray | None = None
        #: Of global memory, which bytes nobody has written since they were allocated; None where all are.
        self.unwritten: np.ndarray | None = None
        #: Whether it is of the device's heap, whose blocks are taken and freed.
        self.is_of_heap = False
        #: Of asynchronous copies under way, the number of the access: of those that write, negative of those that read.
        self.under_way: np.ndarray | None = None

    def defers(self, event: int, places: Places, lanes: np.ndarray, base: int, writes: bool) -> bool:
        """Keep an access in mind that meets none before; False where stamps are needed, which are made then."""
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
        """Have stamps from now on."""
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
        """Where the stamps of `size` bytes at offsets lie: one a lane, or several."""
        first: np.ndarray = (offsets >> np.uint64(self.grain.bit_length() - 1)).view(np.int64)
        each = 1 if size <= self.grain else size // self.grain
        shape = first.shape if each == 1 else (first.size, each)
        low, high = int(first[0]), int(first[-1])
        if high - low == each * (first.size - 1) and (first[1:] - first[:-1] == each).all():
            # As most are; a slice is many times faster than as many indices.
            return Places(slice(low, high + each), shape)
        return Places(first if each == 1 else (first[:, None] + np.arange(each)).reshape(-1), shape)

    def writers(self, places: Places) -> np.ndarray:
        """Stamps of who wrote."""
        return self.written[places.where].reshape(places.shape)

    def readers(self, places: Places) -> tuple[np.ndarray, np.ndarray]:
        """Stamps of two of those who read."""
        return self._first[places.where].reshape(places.shape), self._last[places.where].reshape(places.shape)

    def read(self, places: Places, stamps: np.ndarray, floor: int) -> None:
        """Note readers; who read before access `floor` is forgotten."""
        stamps = np.broadcast_to(stamps, places.shape).reshape(-1)
        where = places.where
        old = self._first[where] < max(1, floor) << LANE_BITS
        if isinstance(where, slice):
            np.copyto(self._first[where], stamps, where=old)
        elif old.all():
            # The first lane's stays, and of the others the last one's: these differ where several read.
            self._first[where[::-1]] = stamps[::-1]
        elif old.any():
            self._first[where[old][::-1]] = stamps[old][::-1]
        self._last[where] = stamps

    def write(self, places: Places, stamps: np.ndarray | np.int64) -> None:
        """Note writers."""
        self.written[places.where] = np.broadcast_to(stamps, places.shape).reshape(-1)

    def forget(self, offsets: np.ndarray, size: int) -> None:
        """Note that nobody has accessed `size` bytes at offsets."""
        if offsets.size and self._runs is None:
            where = self.places(offsets, size).where
            self.written[where] = self._first[where] = self._last[where] = 0

    def release(self, places: Places, upto: np.ndarray, blocks: np.ndarray) -> None:
        """What was published so far, by some of blocks, is known to whoever reads the places from now on."""
        if self.released is None or self.released_by is None:
            self.released, self.released_by = np.zeros((2, self.written.size), np.int64)
        numbers = places.numbers().reshape(places.shape)
        many = upto if len(places.shape) == 1 else upto[:, None]
        np.maximum.at(self.released, numbers, many)
        self.released_by[numbers] = np.where(many > 0, (blocks + 1).reshape(many.shape), self.released_by[numbers])

    def release_near(self, places: Places, upto: np.ndarray, blocks: np.ndarray) -> None:
        """What was published so far is known to those of the same block that read the places from now on.

        Where several blocks do so, it counts as published to all: it errs to that side.
        """
        if self.released_near is None:
            self.released_near = np.zeros((2, self.written.size), np.int64)
        many, owners = (
            np.broadcast_to(each if len(places.shape) == 1 else each[:, None], places.shape).reshape(-1)
            for each in (upto, blocks + 1)
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
        """Number of the access up to which what was published is known, one a lane of such blocks.

        What their own block published, and what all did whom any scope wider than a block reaches.
        """
        if self.released is None and self.released_near is None:
            return None
        near = wide = np.zeros(places.shape[0], np.int64)
        own = blocks[:, None] + 1
        if self.released is not None and self.released_by is not None:
            many, owner = (
                each[places.where].reshape(places.shape[0], -1) for each in (self.released, self.released_by)
            )
            wide, near = many.max(axis=1), np.where(owner == own, many, 0).max(axis=1)
        if self.released_near is not None:
            many, owner = (each[places.where].reshape(places.shape[0], -1) for each in self.released_near)
            near = np.maximum(near, np.where(owner == own, many, 0).max(axis=1))
        return near, wide

    def begin(self, where: np.ndarray, mark: int) -> None:
        """Copies are under way; those that write are seen before those that read."""
        if self.under_way is None:
            self.under_way = np.zeros(-(-self.size // self.grain) + 1, np.int64)
        if mark < 0:
            where = where[self.under_way[where] <= 0]
        else:
            self.make()
        self.under_way[where] = mark

    def end(self, where: np.ndarray, mark: int) -> None:
        """They are done."""
        assert self.under_way is not None
        self.under_way[where[self.under_way[where] == mark]] = 0

    def repeated(self, size: int, times: int, threads: int) -> Shadow:
        """That of several blocks, in each of which the threads did the same in their `size` bytes."""
        made = Shadow(size * times, self.grain)
        made.make()
        count = size // self.grain
        shift = np.arange(times)[:, None] * threads
        for held, of in ((made.written, self.written), (made._first, self._first), (made._last, self._last)):
            row = of[:count]
            moved = np.where((row > 0) & (row & LANE != LANE), row + shift, row)
            held[: count * times] = moved.reshape(-1)
        if self.released is not None:
            made.released = np.zeros(made.written.size, np.int64)
            made.released[: count * times] = np.tile(self.released[:count], times)
            made.released_by = np.zeros_like(made.released)
        return made


class Accessed(NamedTuple):
    """A part of what lanes access: stamps and bytes of a piece of memory, offsets there, and what messages call it.

    Without a name it is shared memory. `chosen` are the numbers of the lanes among those asked for, None for all;
    `itemsize` is of the elements that messages count.
    """

    shadow: Shadow
    held: np.ndarray
    offsets: np.ndarray
    lanes: np.ndarray
    itemsize: int
    name: str = ""
    chosen: np.ndarray | None = None
    address: int = 0


_EXTENT = re.compile(r"\s*\[([^\]]*)\]")


def in_shared(launch: Launch, offset: int, size: int) -> str:
    """Where `size` bytes at an offset in shared memory are."""
    symbols = launch.shared.offsets
    before = [(start, each) for each, start in symbols.items() if start <= offset]
    if not before:
        return f"byte {offset} of shared memory"
    start, symbol = max(before)
    name, offset = plain(symbol), offset - start
    extents = _extents(launch.source[1], name, symbol)
    held = next((f.variables[symbol] for f in launch.module.functions if symbol in f.variables), None)
    variable = launch.module.program.variables.get(symbol) or held
    total = variable.size if variable is not None else 0
    if not extents:
        # One number, or of a struct, a vector or a union some bytes.
        is_whole = extents is not None and total <= size
        return f"{name if is_whole else f'byte {offset} of {name}'} in shared memory"
    inner = [int(each) for each in extents[1:] if each is not None]
    if len(inner) < len(extents) - 1:
        inner, extents = [], extents[:1]
    if extents[0] is not None and total:
        size = max(1, total // int(np.prod([extents[0], *inner])))
    number, indices = offset // size, list[int]()
    for extent in reversed(inner):
        number, last = divmod(number, extent)
        indices.insert(0, last)
    return f"{name}{''.join(f'[{each}]' for each in (number, *indices))} in shared memory"


def _extents(text: str, name: str, symbol: str) -> list[int | None] | None:
    """Extents of a shared variable as the source declares it, None where they cannot be told; none of a single one."""
    declared = rf"__shared__\b[^;{{}}()]*?[\s*&,>]{re.escape(name)}\s*((?:\[[^\]]*\]\s*)*)\s*[;,=]"
    declaration = re.compile(declared).search(text, _begin(text, symbol)) or re.search(declared, text)
    if declaration is None:
        return None
    return [_number(text, extent) for extent in _EXTENT.findall(declaration[1])]


def _begin(text: str, symbol: str) -> int:
    """Where the function begins that a variable is in: others of the text may have one of that name."""
    length = re.match(r"_ZZ(\d+)", symbol)
    if length is None:
        return 0
    function = re.escape(symbol[length.end() : length.end() + int(length[1])])
    return max((head.start() for head in re.finditer(rf"\b{function}\s*\([^;{{}}]*\{{", text)), default=0)


def _number(text: str, given: str) -> int | None:
    """The value of an extent: of numbers, constants with one value in the text, and ``+ - *``."""

    def value(match: re.Match[str]) -> str:
        values = set(re.findall(rf"\b{match[0]}\b\s*=?\s*\(?(\d+)\b", text))
        return values.pop() if len(values) == 1 else "?"

    words = re.sub(r"[A-Za-z_]\w*", value, given)
    if re.fullmatch(r"\s*\d+(\s*[-+*]\s*\d+)*\s*", words) is None:
        return None
    total = 0
    for sign, product in re.findall(r"(^|[-+])\s*(\d+(?:\s*\*\s*\d+)*)", words.strip()):
        total += (-1 if sign == "-" else 1) * int(np.prod([int(each) for each in product.split("*")]))
    return total if total > 0 else None
