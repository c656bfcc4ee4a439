"""Byte ranges that each piece of work touches, with flags for each byte, while later work may race with it.

Two pieces of work race if all of these hold:

- both touch a byte, and at least one of them writes the byte;
- nothing orders the two pieces;
- at least one of the accesses is not strong. Strong accesses may meet at an address: atomic operations, and volatile or
  relaxed accesses of a scope that has both kernels (PTX ISA 8.7.1, "data race").
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Allocation
from cudakit.errors import EmulationError
from cudakit.streams.segments import Use, host_span

#: All flags of a byte.
ALL = READ | STRONG_READ | WRITE | STRONG_WRITE
#: For each combination of flags: the flags of other work that race with it.
CONFLICTS = np.array(
    [
        (WRITE | STRONG_WRITE if flags & READ else 0)
        | (WRITE if flags & STRONG_READ else 0)
        | (READ | STRONG_READ | WRITE | STRONG_WRITE if flags & WRITE else 0)
        | (READ | WRITE if flags & STRONG_WRITE else 0)
        for flags in range(16)
    ],
    np.uint8,
)
#: For each combination of flags: the flags of earlier work that it makes superfluous. Work that races with the earlier
#: work races with this work too.
COVERS = np.array(
    [sum(f for f in (1, 2, 4, 8) if not CONFLICTS[f] & ~CONFLICTS[flags]) if flags else 0 for flags in range(16)],
    np.uint8,
)
_PATTERN = 0x0101_0101_0101_0101


@dataclass(slots=True, eq=False)
class Touch:
    """Bytes of one array or variable that pieces of work touch.

    Attributes
    ----------
    name : str
        Name of the parameter or variable.
    address : int
        Address of the array's lowest byte.
    itemsize : int
        Bytes of an element, to count elements.
    start, stop : int
        Address of the first byte with flags, and the address after the last byte with flags.
    flags : numpy.ndarray, dtype uint8, or int
        Accesses of each byte, by `cudakit.emulator.machine.memory`'s flags; a number if all bytes have the same flags.
    owner : object
        The array, or the owner of its memory; None if the owner is tracked already.
    uses : dict of stream to (Use, Doer)
        Last work of each stream with this touch. A touch that only reads may have several streams. See `History`.
    """

    name: str
    address: int
    itemsize: int
    start: int
    stop: int
    flags: np.ndarray | int
    owner: Any = None
    uses: dict[Any, Any] = field(default_factory=dict)

    def within(self, start: int, stop: int) -> Any:
        """Return the flags of the bytes from address `start` to `stop`: an array, or one number if all are the same."""
        flags = self.flags
        return flags if isinstance(flags, int) else flags[start - self.start : stop - self.start]

    def simplify(self) -> None:
        """Replace flags that are all the same, as most are, by one number, which is much faster to compare."""
        flags = np.asarray(self.flags)
        if (flags == flags[0]).all():
            self.flags = int(flags[0])

    def cover(self, start: int, stop: int, covered: Any) -> bool:
        """Clear flags of the bytes from address `start` to `stop`; return whether the touch has no flag left.

        `covered` has the flags to clear: one number for all bytes, or an array with one for each.
        """
        if isinstance(self.flags, int):
            if start == self.start and stop == self.stop and not isinstance(covered, np.ndarray):
                self.flags &= ALL ^ int(covered)
                return not self.flags
            self.flags = np.full(self.stop - self.start, self.flags, np.uint8)
        self.flags[start - self.start : stop - self.start] &= ALL ^ covered
        return not self.flags.any()


class _Footprint:
    """The footprint of a launch in one allocation: flags of the bytes, and the range of the bytes that have flags."""

    __slots__ = ("flags", "high", "is_open", "low", "piece")

    def __init__(self, piece: Allocation) -> None:
        self.piece = piece
        self.flags = np.zeros(piece.data.size, np.uint8)
        self.low, self.high = piece.data.size, 0
        #: Whether flags may be set outside `low` and `high`.
        self.is_open = False

    def close(self) -> None:
        """Update `low` and `high`, the range of bytes that have flags, if other code may have set flags.

        `high` is the index after the last such byte. Both are 0 if there are none.
        """
        if self.is_open:
            is_flagged = self.flags != 0
            self.low, self.high = (
                (int(is_flagged.argmax()), is_flagged.size - int(is_flagged[::-1].argmax()))
                if is_flagged.any()
                else (0, 0)
            )


class Watch:
    """The watcher of a launch, which records the bytes that the launch touches.

    It is `cudakit.emulator.machine.memory.Memory.watcher`.
    """

    def __init__(self) -> None:
        self._footprints: dict[int, _Footprint] = {}
        self._textures: dict[int, _Footprint] = {}
        #: Footprints of allocations that have grown since: their flags may still be set.
        self._former: list[_Footprint] = []

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """Record an access to elements of `size` bytes.

        `elements` has their numbers, counted from the first aligned element of `piece`.
        """
        footprint = self._footprints.get(piece.address)
        if footprint is None:
            footprint = self._footprints[piece.address] = _Footprint(piece)
        skip = -piece.address % size
        whole = footprint.flags[skip : skip + (footprint.flags.size - skip) // size * size]
        first, last = int(elements[0]), int(elements[-1])
        where: Any = elements
        if last - first + 1 == elements.size and (elements[1:] - elements[:-1] == 1).all():
            # Most accesses are consecutive, and a slice is many times faster than indices.
            where = slice(first, last + 1)
        else:
            first, last = int(elements.min()), int(elements.max())
        footprint.low, footprint.high = (
            min(footprint.low, skip + first * size),
            max(footprint.high, skip + (last + 1) * size),
        )
        if size <= 8:
            words = whole.view(f"u{size}")
            words[where] |= words.dtype.type(use * _PATTERN & (1 << 8 * size) - 1)
        else:
            whole.view("u8").reshape(-1, size // 8)[where] |= np.uint64(use * _PATTERN)

    def flags_from(self, piece: Allocation) -> int:
        """Return the address of the flags of an allocation's bytes, for code that accesses it without `Memory`.

        Such code sets the flags itself.
        """
        footprint = self._footprints.get(piece.address)
        if footprint is not None and footprint.flags.size < piece.data.size:
            self._former.append(footprint)
            footprint = None
        if footprint is None:
            footprint = self._footprints[piece.address] = _Footprint(piece)
        footprint.is_open = True
        return int(footprint.flags.__array_interface__["data"][0])

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the flags of a C-contiguous array's bytes, for texture lookups, which set them without `Memory`.

        `name` names the array in messages.
        """
        address = int(array.__array_interface__["data"][0])
        if address not in self._textures:
            piece = Allocation(name, address, array.nbytes, False, array.itemsize, array)
            footprint = self._textures[address] = _Footprint(piece)
            footprint.low, footprint.high = 0, array.nbytes
        return self._textures[address].flags

    def touches(self) -> list[Touch]:
        """Return the touches of the launch, by array and variable."""
        footprints = (*self._former, *self._footprints.values(), *self._textures.values())
        for footprint in footprints:
            footprint.close()
        return [
            Touch(
                footprint.piece.name,
                footprint.piece.address,
                footprint.piece.itemsize,
                footprint.piece.address + footprint.low,
                footprint.piece.address + footprint.high,
                footprint.flags[footprint.low : footprint.high].copy(),
                footprint.piece.owner,
            )
            for footprint in footprints
            if footprint.high
        ]


def touch_of(array: np.ndarray, name: str, use: int) -> Touch:
    """Return the touch of an array's elements, without the bytes between them. The array must not be empty."""
    low, high = host_span(array)
    if array.flags.c_contiguous:
        return Touch(name, low, array.itemsize, low, high, use)
    flags = np.zeros(high - low, np.uint8)
    first = array.__array_interface__["data"][0] - low
    elements = np.lib.stride_tricks.as_strided(
        flags[first:], (*array.shape, array.itemsize), (*array.strides, 1), writeable=True
    )
    elements[...] = use
    return Touch(name, low, array.itemsize, low, high, flags)


#: Number of readers of the same bytes that each later piece of work checks.
_FEW = 4
_VERBS = {WRITE: "writes", STRONG_WRITE: "changes atomically", READ: "reads", STRONG_READ: "reads atomically"}


class Doer(NamedTuple):
    """A piece of work, as messages name it.

    Attributes
    ----------
    name : str
        Name expression of a kernel, or name of the operation.
    stream : int
        Handle of its stream.
    site : str
        File and line of the program that asked for the work.
    """

    name: str
    stream: int
    site: str

    def __str__(self) -> str:
        return f"{self.name} on stream {self.stream} ({self.site})"


class History:
    """Touches of memory by earlier work.

    A touch is dropped when later touches cover it, when no later work can race with it, or when its memory is freed.

    Attributes
    ----------
    touches : list of Touch
        Touches, sorted by first byte.
    """

    def __init__(self) -> None:
        self.touches: list[Touch] = []
        self._starts: list[int] = []
        self._longest = 0

    @property
    def uses(self) -> list[Use]:
        """All uses of remembered touches."""
        return [use for touch in self.touches for use, _ in touch.uses.values()]

    def add(
        self, doer: Doer, use: Use, touches: Iterable[Touch], is_before: Callable[[Use], bool]
    ) -> EmulationError | None:
        """Add the touches of a piece of work, and check them for races.

        Parameters
        ----------
        doer : Doer
            The work, as messages name it.
        use : Use
            Position of the work in the order.
        touches : iterable of Touch
            Touches of the work.
        is_before : callable
            Function that returns whether an earlier use is ordered before this work.

        Returns
        -------
        EmulationError or None
            Error to raise, if the work races with earlier work.
        """
        race = None
        touches = list(touches)
        for touch in touches:
            if not isinstance(touch.flags, int):
                touch.simplify()
            for earlier in self._near(touch.start, touch.stop):
                start, stop = max(earlier.start, touch.start), min(earlier.stop, touch.stop)
                if start >= stop:
                    continue
                new, old = touch.within(start, stop), earlier.within(start, stop)
                bad, covered = CONFLICTS[new] & old, COVERS[new]
                races = bad.any() if isinstance(bad, np.ndarray) else bad > 0
                if len(earlier.uses) > 1 and not races:
                    # Readers beside readers, of which there may be many.
                    if (start, stop) == (earlier.start, earlier.stop) and not (old & (ALL ^ covered)).any():
                        self._cover_some(earlier, is_before)
                    continue
                for before, other in earlier.uses.values():
                    if not is_before(before):
                        if race is None and races:
                            race = _race(doer, touch, earlier, other, start, np.broadcast_to(bad, stop - start))
                        break
                else:
                    if earlier.cover(start, stop, covered):
                        self._remove(earlier)
        for touch in touches:
            same = self._alike(touch)
            same.uses[use.stream] = use, doer
            if same is touch:
                position = bisect_right(self._starts, touch.start)
                self._starts.insert(position, touch.start)
                self.touches.insert(position, touch)
                self._longest = max(self._longest, touch.stop - touch.start)
        return race

    def _cover_some(self, readers: Touch, is_before: Callable[[Use], bool]) -> None:
        """Drop some uses of the touch `readers` that are ordered before new work with the same touch.

        Each call tests only a few uses, and the next call tests other ones. The touch is removed once it has no use.
        """
        for stream in list(islice(readers.uses, _FEW)):
            use, doer = readers.uses.pop(stream)
            if not is_before(use):
                readers.uses[stream] = use, doer
        if not readers.uses:
            self._remove(readers)

    def _alike(self, touch: Touch) -> Touch:
        """Return a remembered touch of the same bytes with the same flags, if `touch` only reads and there is one.

        Else return `touch` itself.
        """
        if (touch.flags if isinstance(touch.flags, int) else touch.flags.max()) > READ:
            return touch
        for position in range(bisect_left(self._starts, touch.start), len(self.touches)):
            other = self.touches[position]
            if other.start != touch.start:
                break
            same = (other.name, other.address, other.itemsize, other.stop)
            if same == (touch.name, touch.address, touch.itemsize, touch.stop) and _equal(other.flags, touch.flags):
                return other
        return touch

    def _near(self, start: int, stop: int) -> list[Touch]:
        """Return the touches that may have bytes from address `start` to `stop`, perhaps with others that have none."""
        first, last = bisect_left(self._starts, start - self._longest), bisect_left(self._starts, stop)
        return self.touches[first:last]

    def _remove(self, touch: Touch) -> None:
        position = self.touches.index(touch, bisect_left(self._starts, touch.start))
        del self.touches[position], self._starts[position]

    def forget(self, is_over: Callable[[Use], bool]) -> None:
        """Drop the touches of uses with which no later work can race."""
        for touch in self.touches:
            touch.uses = {stream: entry for stream, entry in touch.uses.items() if not is_over(entry[0])}
        self.touches = [touch for touch in self.touches if touch.uses]
        self._starts = [touch.start for touch in self.touches]
        self._longest = max((touch.stop - touch.start for touch in self.touches), default=0)

    def forget_bytes(self, start: int, stop: int) -> None:
        """Drop the bytes from `start` to `stop` from all touches."""
        for touch in self._near(start, stop):
            low, high = max(start, touch.start), min(stop, touch.stop)
            if low < high and touch.cover(low, high, ALL):
                self._remove(touch)

    def forget_memory(self, start: int, stop: int) -> None:
        """Drop all touches that have bytes from address `start` to `stop`, since this memory was freed."""
        for touch in self._near(start, stop):
            if touch.stop > start:
                self._remove(touch)


def _equal(first: Any, other: Any) -> bool:
    same = first == other
    return same if isinstance(same, bool) else bool(same.all())


def _race(doer: Doer, touch: Touch, other: Touch, earlier: Doer, start: int, bad: np.ndarray) -> EmulationError:
    """Return the error for a race of `doer`, with `touch`, against the work `earlier`, with the touch `other`.

    `bad` has the conflicting flags of earlier work, one for each byte from address `start` on. The message names the
    first run of conflicting bytes.
    """
    places = np.flatnonzero(bad)
    jumps = np.flatnonzero(np.diff(places) > 1)
    first, last = int(places[0]), int(places[jumps[0]] if jumps.size else places[-1])
    theirs = _verb(int(bad[first]))
    ours = _verb(int(CONFLICTS[bad[first]] & np.min(touch.within(start + first, start + first + 1))))
    low, high = start + first, start + last
    return EmulationError(
        f"race: {doer} {ours} {_where(touch, low, high)}, which {earlier} {theirs}"
        f"{'' if (other.name, other.address) == (touch.name, touch.address) else ' as ' + _where(other, low, high)}"
        f", and neither comes first. After "
        f"{earlier.name}, record an event on stream {earlier.stream}; before {doer.name}, let stream "
        f"{doer.stream} wait for it: stream.wait(event)"
    )


def _verb(flags: int) -> str:
    return next(verb for flag, verb in _VERBS.items() if flags & flag)


def _where(touch: Touch, low: int, high: int) -> str:
    """Return the bytes from address `low` to `high` in words: ``bytes 0 … 7 of x (elements 0 … 1)``."""
    first, last = low - touch.address, high - touch.address
    description = f"bytes {first} … {last} of {touch.name}"
    if touch.itemsize == 1:
        return description
    first, last = first // touch.itemsize, last // touch.itemsize
    return f"{description} ({f'element {first}' if first == last else f'elements {first} … {last}'})"
