"""Races between the blocks of one launch, found while the blocks run one after the other.

Two blocks race where both touch an element, at least one of them writes it, not both by atomic operations, and neither
comes first: only a release by one that the other acquires orders them. For each element and way of access the first one
is kept, by its number; numbers grow, so that those of earlier blocks are the smaller ones. An access that can race with
none before it is listed only: one that lies before or behind all that earlier blocks touched of the allocation, and a
read where nothing is written. The list is entered when an access has to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Allocation, Watcher
from cudakit.emulator.tile.values import Box
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation

#: By how an element is accessed: which accesses of other blocks race with that.
_AGAINST: Final = {
    READ: (WRITE, STRONG_WRITE),
    STRONG_READ: (WRITE,),
    WRITE: (WRITE, STRONG_WRITE, READ, STRONG_READ),
    STRONG_WRITE: (WRITE, READ),
}
_VERBS: Final = {READ: "reads", STRONG_READ: "reads atomically", WRITE: "writes", STRONG_WRITE: "changes atomically"}
_least: Final = np.minimum.reduce
_NONE: Final = np.iinfo(np.int32).max
#: The first and the last of no bytes.
_NONE_BYTES: Final = (1 << 62, -1)
#: Accesses that are listed of one allocation, before they are entered.
_LISTED, _LISTED_BYTES = 65_536, 1 << 25


class _Access(NamedTuple):
    """Which block, which operation, and how often the block had released before."""

    block: tuple[int, int, int]
    operation: Operation
    epoch: int


class _Shadow:
    """What is known of one allocation: for each element the first access of each kind."""

    def __init__(self, piece: Allocation, unit: int) -> None:
        self.piece, self.unit = piece, unit
        self.first: dict[int, np.ndarray] = {}
        self.listed: list[tuple[int, int, Any, int]] = []
        self.listed_bytes = 0
        self.is_written = False
        #: The bytes from the first to the last that earlier blocks accessed, and that block did which was here last.
        self.low, self.high = _NONE_BYTES
        self._own_low, self._own_high = _NONE_BYTES
        self._last = -1

    def is_apart(self, low: int, high: int, block: int) -> bool:
        """Whether bytes lie before or behind all that earlier blocks accessed; they count as accessed from now on."""
        if block != self._last:
            self.low, self.high = min(self.low, self._own_low), max(self.high, self._own_high)
            self._own_low, self._own_high = _NONE_BYTES
            self._last = block
        if low < self._own_low:
            self._own_low = low
        if high > self._own_high:
            self._own_high = high
        return high <= self.low or low >= self.high

    def skip(self) -> int:
        return -self.piece.address % self.unit

    def of(self, use: int) -> np.ndarray:
        """The first accesses of a kind."""
        if use not in self.first:
            self.first[use] = np.full(self.piece.data.size // self.unit + 1, _NONE, np.int32)
        return self.first[use]

    def refine(self, unit: int) -> None:
        """Count in elements of fewer bytes."""
        before = (self.skip() - -self.piece.address % unit) // unit
        times, self.unit = self.unit // unit, unit
        for use, old in self.first.items():
            made = np.full(self.piece.data.size // unit + 1, _NONE, np.int32)
            fine = np.repeat(old, times)[: made.size - before]
            made[before : before + fine.size] = fine
            self.first[use] = made

    def position(self, where: Any, size: int) -> _Position:
        """Where what stands for elements of `size` bytes is in the arrays of first accesses."""
        times = size // self.unit
        if isinstance(where, Box):
            offset = (where.offset - self.skip()) // self.unit * 4
            shape, strides = where.shape, tuple([stride // self.unit * 4 for stride in where.strides])
            return _Spread((*shape, times), offset, (*strides, 4)) if times > 1 else _Spread(shape, offset, strides)
        start = (-self.piece.address % size - self.skip()) // self.unit
        if isinstance(where, slice):
            return slice(start + where.start * times, start + where.stop * times)
        elements: np.ndarray = where
        if times > 1:
            elements = (elements[:, None] * times + np.arange(times)).reshape(-1)
        return elements + start


class _Spread(NamedTuple):
    """Elements of an array of 4 bytes each, at fixed steps."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]


_Position: TypeAlias = _Spread | slice | np.ndarray


def _held(first: np.ndarray, at: _Position) -> np.ndarray:
    """What stands there: a view, but for numbers in an array."""
    if isinstance(at, _Spread):
        return np.ndarray(at.shape, np.int32, first, at.offset, at.strides)
    return first[at]


def _enter_first(first: np.ndarray, at: _Position, number: np.int32) -> None:
    held = _held(first, at)
    if isinstance(at, np.ndarray):
        first[at] = np.minimum(held, number)
    else:
        np.minimum(held, number, out=held)


class Races:
    """Notes what each block of a launch touches; `Memory.watcher` while it runs.

    Parameters
    ----------
    inner : Watcher or None
        Is told too.
    told : callable
        An operation's name and place, for messages.
    """

    def __init__(self, inner: Watcher | None, told: Callable[[Operation], str]) -> None:
        self._inner, self._told = inner, told
        self._shadows: dict[int, _Shadow] = {}
        self._accesses: list[_Access] = []
        self._numbers: dict[int, int] = {}
        self._released: dict[int, dict[tuple[int, int, int], int]] = {}
        self._block, self._start, self._epoch = (0, 0, 0), 0, 0
        #: Of which blocks the running one has acquired how many of their epochs.
        self._known: dict[tuple[int, int, int], int] = {}
        self.operation: Operation | None = None

    def enter(self, block: tuple[int, int, int]) -> None:
        """A block begins."""
        self._block, self._start, self._epoch = block, len(self._accesses), 0
        self._numbers, self._known = {}, {}

    def forget(self, address: int) -> None:
        """An allocation is a block's own, and gone."""
        self._shadows.pop(address, None)

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """See `Watcher`."""
        return np.zeros(array.nbytes, np.uint8) if self._inner is None else self._inner.flags_of(name, array)

    # ── order ──

    def release(self, addresses: np.ndarray) -> None:
        """What the block has done so far comes before whatever acquires these."""
        mine = {**self._known, self._block: self._epoch}
        self._epoch += 1
        self._numbers = {}
        for address in np.unique(addresses).tolist():
            self._released[address] = _later(self._released.get(address, {}), mine)

    def acquire(self, addresses: np.ndarray) -> None:
        """What the blocks had done that released these comes before what the block does now."""
        if self._released:
            for address in np.unique(addresses).tolist():
                self._known = _later(self._known, self._released.get(address, {}))

    # ── accesses ──

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """See `Watcher`."""
        if self._inner is not None:
            self._inner.note(piece, elements, size, use)
        first, last = int(elements[0]), int(elements[-1])
        if last - first + 1 == elements.size and bool((elements[1:] - elements[:-1] == 1).all()):
            low = -piece.address % size + first * size
            self._enter(piece, slice(first, last + 1), size, use, low, low + elements.size * size, 0)
        else:
            self._enter(piece, elements, size, use, 0, piece.data.size, elements.nbytes)

    def note_box(self, box: Box, size: int, use: int) -> None:
        """A box of elements of `size` bytes is accessed."""
        if self._inner is not None:
            self._inner.note(box.piece, box.elements(size), size, use)
        self._enter(box.piece, box, size, use, box.low, box.high, 0)

    def _enter(self, piece: Allocation, where: Any, size: int, use: int, low: int, high: int, held: int) -> None:
        shadow = self._shadows.get(piece.address)
        if shadow is None or shadow.piece.data.size < piece.data.size:
            shadow = self._shadows[piece.address] = _Shadow(piece, size)
        if size < shadow.unit:
            shadow.refine(size)
        number = self._number()
        is_apart = shadow.is_apart(low, high, self._start)
        if use != READ:
            shadow.is_written = True
        if is_apart or not shadow.is_written:
            shadow.listed.append((use, number, where, size))
            shadow.listed_bytes += held
            if len(shadow.listed) > _LISTED or shadow.listed_bytes > _LISTED_BYTES:
                self._enter_listed(shadow)
            return
        self._enter_listed(shadow)
        at = shadow.position(where, size)
        if self._start:  # blocks were before
            for other in _AGAINST[use]:
                if other in shadow.first:
                    self._check(shadow, at, use, other)
        self._set(shadow.of(use), at, np.int32(number))

    def _number(self) -> int:
        """Of an access of the operation that runs: one for all of a block's, until it releases."""
        assert self.operation is not None
        key = id(self.operation)
        if key not in self._numbers:
            self._numbers[key] = len(self._accesses)
            self._accesses.append(_Access(self._block, self.operation, self._epoch))
        return self._numbers[key]

    def _enter_listed(self, shadow: _Shadow) -> None:
        # Boxes that are accessed again and again are entered once.
        seen = set()
        for use, number, where, size in shadow.listed:
            if isinstance(where, Box):
                key = (use, where.offset, where.shape, where.strides, size)
                if key in seen:
                    continue
                seen.add(key)
            _enter_first(shadow.of(use), shadow.position(where, size), np.int32(number))
        shadow.listed, shadow.listed_bytes = [], 0

    def _set(self, first: np.ndarray, at: _Position, number: np.int32) -> None:
        if self._known:
            # An access that comes before this one needs to be known no more: whoever races with it races with this.
            held = _held(first, at)
            before = [each for each in self._foreign(held) if self._comes_first(each)]
            held = np.where(np.isin(held, before), number, held)
            if isinstance(at, _Spread):
                _held(first, at)[...] = held
            else:
                first[at] = held
        _enter_first(first, at, number)

    def _foreign(self, held: np.ndarray) -> list[int]:
        if not held.size or _least(held, axis=None) >= self._start:
            return []
        found: list[int] = np.unique(held[held < self._start]).tolist()
        return found

    def _comes_first(self, number: int) -> bool:
        access = self._accesses[number]
        return self._known.get(access.block, -1) >= access.epoch

    def _check(self, shadow: _Shadow, at: _Position, use: int, other: int) -> None:
        held = _held(shadow.first[other], at)
        for number in self._foreign(held):
            if self._comes_first(number):
                continue
            access = self._accesses[number]
            units = np.arange(shadow.first[other].size, dtype=np.int32)
            unit = int(_held(units, at)[held == number].reshape(-1)[0])
            element = (shadow.skip() + unit * shadow.unit) // max(1, shadow.piece.itemsize)
            raise EmulationError(
                f"a race between blocks: it {_VERBS[use]} element {element} of {shadow.piece.name}, which block "
                f"{access.block} {_VERBS[other]} ({self._told(access.operation)}); blocks run at the same time and in "
                "any order: let each write elements of its own, use atomic operations, or order them by a release and "
                "an acquire"
            )


def _later(
    one: dict[tuple[int, int, int], int], other: dict[tuple[int, int, int], int]
) -> dict[tuple[int, int, int], int]:
    return {block: max(one.get(block, -1), other.get(block, -1)) for block in one.keys() | other.keys()}
