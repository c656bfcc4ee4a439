"""Race check between the blocks of one tile launch, while the blocks run one after the other.

Two blocks race if both access an element, at least one of them writes, the accesses are not both atomic, and nothing
orders them. Only a release by one block that the other acquires orders them.

For each element and kind of access, the first access is stored by its number. Numbers grow, so earlier blocks have
smaller numbers. An access that can race with no earlier access is only listed:

- an access before or behind all bytes that earlier blocks accessed in the allocation;
- a read of an allocation without writes.

The listed accesses are stored once an access has to be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Allocation, Watcher
from cudakit.emulator.tile.values import Box
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation

#: Accesses of other blocks that race with an access, by its kind.
_AGAINST: Final = {
    READ: (WRITE, STRONG_WRITE),
    STRONG_READ: (WRITE,),
    WRITE: (WRITE, STRONG_WRITE, READ, STRONG_READ),
    STRONG_WRITE: (WRITE, READ),
}
_VERBS: Final = {READ: "reads", STRONG_READ: "reads atomically", WRITE: "writes", STRONG_WRITE: "changes atomically"}
_least: Final = np.minimum.reduce
_NONE: Final = np.iinfo(np.int32).max
#: First and last byte of an empty range.
_NONE_BYTES: Final = (1 << 62, -1)
#: Most accesses, and bytes of their indices, listed for one allocation before they are entered.
_LISTED, _LISTED_BYTES = 65_536, 1 << 25


class _Access(NamedTuple):
    """An access: its block, its operation, and the number of releases that the block made before."""

    block: tuple[int, int, int]
    operation: Operation
    epoch: int


class _Shadow:
    """Accesses to one allocation: for each kind of access, the number of the first access of each element.

    Elements have `unit` bytes. Accesses that need no check yet are in a list.
    """

    def __init__(self, piece: Allocation, unit: int) -> None:
        self.piece, self.unit = piece, unit
        self.first: dict[int, np.ndarray] = {}
        self.listed: list[tuple[int, int, Any, int]] = []
        self.listed_bytes = 0
        self.is_written = False
        #: Byte ranges accessed by earlier blocks, and by the last block.
        self.low, self.high = _NONE_BYTES
        self._own_low, self._own_high = _NONE_BYTES
        self._last = -1

    def is_disjoint(self, low: int, high: int, block: int) -> bool:
        """Return whether a block's bytes are before or behind all bytes that earlier blocks accessed.

        The bytes, from `low` to before `high`, are then counted as accessed by the block. `block` is any number that
        differs between blocks.
        """
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

    def first_accesses(self, use: int) -> np.ndarray:
        """Return the array with the number of the first access of each element, for one kind of access (`use`).

        A great number means no access. The array is created if there is none; changes to it are kept.
        """
        if use not in self.first:
            self.first[use] = np.full(self.piece.data.size // self.unit + 1, _NONE, np.int32)
        return self.first[use]

    def refine(self, unit: int) -> None:
        """Split the elements into smaller ones, of `unit` bytes, with the same first accesses."""
        before = (self.skip() - -self.piece.address % unit) // unit
        times, self.unit = self.unit // unit, unit
        for use, old in self.first.items():
            refined = np.full(self.piece.data.size // unit + 1, _NONE, np.int32)
            fine = np.repeat(old, times)[: refined.size - before]
            refined[before : before + fine.size] = fine
            self.first[use] = refined

    def position(self, where: Any, size: int) -> _Position:
        """Return where a box, or elements of `size` bytes, are in the arrays of first accesses.

        `where` is a box, or the element numbers as a slice or an array. `size` is a multiple of the shadow's unit.
        """
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
    """A position at fixed strides in an array of 4-byte numbers: shape, offset and strides in bytes."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]


_Position: TypeAlias = _Spread | slice | np.ndarray


def _numbers_at(first: np.ndarray, at: _Position) -> np.ndarray:
    """Return the access numbers at a position: a view, or a copy if the position has indices in an array."""
    if isinstance(at, _Spread):
        return np.ndarray(at.shape, np.int32, first, at.offset, at.strides)
    return first[at]


def _enter_first(first: np.ndarray, at: _Position, number: np.int32) -> None:
    numbers = _numbers_at(first, at)
    if isinstance(at, np.ndarray):
        first[at] = np.minimum(numbers, number)
    else:
        np.minimum(numbers, number, out=numbers)


class Races:
    """The race check of a tile launch, which is `Memory.watcher` while the launch runs.

    Parameters
    ----------
    inner : Watcher or None
        Watcher that receives each access too.
    describe : callable
        Function that returns an operation's name and place, for messages.
    """

    def __init__(self, inner: Watcher | None, describe: Callable[[Operation], str]) -> None:
        self._inner, self._describe = inner, describe
        self._shadows: dict[int, _Shadow] = {}
        self._accesses: list[_Access] = []
        self._numbers: dict[int, int] = {}
        self._released: dict[int, dict[tuple[int, int, int], int]] = {}
        self._block, self._start, self._epoch = (0, 0, 0), 0, 0
        #: Number of acquired epochs of each block, for the running block.
        self._acquired: dict[tuple[int, int, int], int] = {}
        self.operation: Operation | None = None

    def enter(self, block: tuple[int, int, int]) -> None:
        """Begin a block, by its coordinates."""
        self._block, self._start, self._epoch = block, len(self._accesses), 0
        self._numbers, self._acquired = {}, {}

    def forget(self, address: int) -> None:
        """Forget the accesses to the allocation at an address, whose block has ended and which is freed."""
        self._shadows.pop(address, None)

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the flags of an array: see `Watcher`."""
        return np.zeros(array.nbytes, np.uint8) if self._inner is None else self._inner.flags_of(name, array)

    # ── order ──

    def release(self, addresses: np.ndarray) -> None:
        """Order the block's accesses so far before accesses that follow an acquire of these addresses."""
        mine = {**self._acquired, self._block: self._epoch}
        self._epoch += 1
        self._numbers = {}
        for address in np.unique(addresses).tolist():
            self._released[address] = _latest(self._released.get(address, {}), mine)

    def acquire(self, addresses: np.ndarray) -> None:
        """Order the accesses of blocks that released these addresses before the block's next ones."""
        if self._released:
            for address in np.unique(addresses).tolist():
                self._acquired = _latest(self._acquired, self._released.get(address, {}))

    # ── accesses ──

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """Record an access: see `Watcher`."""
        if self._inner is not None:
            self._inner.note(piece, elements, size, use)
        first, last = int(elements[0]), int(elements[-1])
        if last - first + 1 == elements.size and bool((elements[1:] - elements[:-1] == 1).all()):
            low = -piece.address % size + first * size
            self._enter(piece, slice(first, last + 1), size, use, low, low + elements.size * size, 0)
        else:
            self._enter(piece, elements, size, use, 0, piece.data.size, elements.nbytes)

    def note_box(self, box: Box, size: int, use: int) -> None:
        """Record an access to a box of elements of `size` bytes."""
        if self._inner is not None:
            self._inner.note(box.piece, box.elements(size), size, use)
        self._enter(box.piece, box, size, use, box.low, box.high, 0)

    def _enter(
        self, piece: Allocation, where: Any, size: int, use: int, low: int, high: int, listed_bytes: int
    ) -> None:
        shadow = self._shadows.get(piece.address)
        if shadow is None or shadow.piece.data.size < piece.data.size:
            shadow = self._shadows[piece.address] = _Shadow(piece, size)
        if size < shadow.unit:
            shadow.refine(size)
        number = self._number()
        is_disjoint = shadow.is_disjoint(low, high, self._start)
        if use != READ:
            shadow.is_written = True
        if is_disjoint or not shadow.is_written:
            shadow.listed.append((use, number, where, size))
            shadow.listed_bytes += listed_bytes
            if len(shadow.listed) > _LISTED or shadow.listed_bytes > _LISTED_BYTES:
                self._enter_listed(shadow)
            return
        self._enter_listed(shadow)
        at = shadow.position(where, size)
        if self._start:  # blocks were before
            for other in _AGAINST[use]:
                if other in shadow.first:
                    self._check(shadow, at, use, other)
        self._set(shadow.first_accesses(use), at, np.int32(number))

    def _number(self) -> int:
        """Return the access number of the running operation. All accesses of one operation share it.

        Each other operation has another number, and so has the same operation after a release of the block. The first
        access assigns the number, and records block, operation and number of releases under it.
        """
        assert self.operation is not None
        key = id(self.operation)
        if key not in self._numbers:
            self._numbers[key] = len(self._accesses)
            self._accesses.append(_Access(self._block, self.operation, self._epoch))
        return self._numbers[key]

    def _enter_listed(self, shadow: _Shadow) -> None:
        # A box that is accessed repeatedly is entered once.
        entered = set()
        for use, number, where, size in shadow.listed:
            if isinstance(where, Box):
                key = (use, where.offset, where.shape, where.strides, size)
                if key in entered:
                    continue
                entered.add(key)
            _enter_first(shadow.first_accesses(use), shadow.position(where, size), np.int32(number))
        shadow.listed, shadow.listed_bytes = [], 0

    def _set(self, first: np.ndarray, at: _Position, number: np.int32) -> None:
        if self._acquired:
            # An earlier, ordered access need not be stored: whatever races with it races with this one.
            numbers = _numbers_at(first, at)
            before = [foreign for foreign in self._foreign(numbers) if self._comes_first(foreign)]
            numbers = np.where(np.isin(numbers, before), number, numbers)
            if isinstance(at, _Spread):
                _numbers_at(first, at)[...] = numbers
            else:
                first[at] = numbers
        _enter_first(first, at, number)

    def _foreign(self, numbers: np.ndarray) -> list[int]:
        if not numbers.size or _least(numbers, axis=None) >= self._start:
            return []
        foreign: list[int] = np.unique(numbers[numbers < self._start]).tolist()
        return foreign

    def _comes_first(self, number: int) -> bool:
        access = self._accesses[number]
        return self._acquired.get(access.block, -1) >= access.epoch

    def _check(self, shadow: _Shadow, at: _Position, use: int, other: int) -> None:
        numbers = _numbers_at(shadow.first[other], at)
        for number in self._foreign(numbers):
            if self._comes_first(number):
                continue
            access = self._accesses[number]
            units = np.arange(shadow.first[other].size, dtype=np.int32)
            unit = int(_numbers_at(units, at)[numbers == number].reshape(-1)[0])
            element = (shadow.skip() + unit * shadow.unit) // max(1, shadow.piece.itemsize)
            raise EmulationError(
                f"a race between blocks: it {_VERBS[use]} element {element} of {shadow.piece.name}, which block "
                f"{access.block} {_VERBS[other]} ({self._describe(access.operation)}); blocks run at the same time and "
                "in any order: let each write elements of its own, use atomic operations, or order them by a release "
                "and an acquire"
            )


def _latest(
    first: dict[tuple[int, int, int], int], other: dict[tuple[int, int, int], int]
) -> dict[tuple[int, int, int], int]:
    return {block: max(first.get(block, -1), other.get(block, -1)) for block in first.keys() | other.keys()}
