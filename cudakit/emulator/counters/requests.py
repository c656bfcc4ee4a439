"""Requests of warps to the memory system: sectors of 32 bytes, wavefronts of shared memory, contention.

A request is one access of one warp. Lanes come as flat arrays with a `Group`, which knows the lanes' warps. The pattern
of a request, on which advice rests, is the spacing of its lanes' addresses in their array. Addresses count as on a
device, where memory begins at a multiple of 256 bytes; NumPy puts arrays anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, Allocation, Index, Memory
from cudakit.emulator.machine.state import Machine

WARP = 32
SECTOR = 32
BANKS = 32
BANK_BYTES = 4


class Group:
    """Lanes that run one instruction, by warps.

    Attributes
    ----------
    machine : Machine
        Interpreter of the lanes.
    lanes, warps : int
        Number of lanes and of warps.
    lane : numpy.ndarray
        Number of each lane in its warp.
    is_full : bool
        Whether all lanes of the warps take part.
    """

    warps: int

    def __init__(self, machine: Machine, index: Index) -> None:
        self.machine: Machine = machine
        self._index = index
        whole = machine.threads % WARP == 0
        if index is None:
            self.warp = machine.warp_of
        else:
            # Where blocks have whole warps, a shift is several times faster than a lookup.
            self.warp = index >> 5 if whole else machine.warp_of[index]
        self.lanes: int = self.warp.size
        if index is None and whole:
            self.warps = self.lanes // WARP
        else:
            self.warps = int(np.count_nonzero(self.is_first))
        self.is_full: bool = self.lanes == self.warps * WARP

    @cached_property
    def is_first(self) -> np.ndarray:
        """Flag of each lane: whether it is the first lane of its warp."""
        flags = np.empty(self.lanes, bool)
        flags[:1] = True
        np.not_equal(self.warp[1:], self.warp[:-1], out=flags[1:])
        return flags

    @cached_property
    def of_first_block(self) -> Group | None:
        """Group of the first block's lanes. None if there is one block only, or if other blocks have other lanes."""
        blocks, threads = self.machine.blocks, self.machine.threads
        if blocks == 1 or self.lanes % blocks:
            return None
        if self._index is None:
            return Group(self.machine, np.arange(threads))
        by_block = self._index.reshape(blocks, -1)
        same = (by_block - by_block[0] == np.arange(0, blocks * threads, threads)[:, None]).all()
        return Group(self.machine, by_block[0]) if same else None

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the warps that have lanes in the group, and the number of lanes in each of them."""
        starts = np.flatnonzero(self.is_first)
        return self.warp[starts], np.diff(starts, append=self.lanes)

    @cached_property
    def lane(self) -> np.ndarray:
        return np.asarray(self.machine.lane_id if self._index is None else self.machine.lane_id[self._index])

    @cached_property
    def places(self) -> np.ndarray:
        """Flat index of each lane in an array (warps, 32) with one row for each warp of the group."""
        return np.asarray(np.repeat(np.arange(self.warps), self.sizes[1]) * WARP + self.lane)

    @cached_property
    def there(self) -> np.ndarray | None:
        """Flags of the lanes that take part, (warps, 32); None if all do."""
        if self.is_full:
            return None
        flags = np.zeros(self.warps * WARP, bool)
        flags[self.places] = True
        return flags.reshape(-1, WARP)

    def pieces(self, values: np.ndarray, warps: int = 256) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield `values`, which has one value for each lane, as arrays (warps, 32) of at most `warps` rows.

        With each array comes its part of `there`. Absent lanes have the value of the first lane of their warp. Small
        arrays reuse memory; arrays for all warps would be allocated by the system each time.
        """
        rows = values
        if not self.is_full:
            rows = np.repeat(values[self.is_first], WARP)
            rows[self.places] = values
        rows = rows.reshape(-1, WARP)
        for first in range(0, self.warps, warps):
            some = slice(first, first + warps)
            yield rows[some], None if self.there is None else self.there[some]


def evenly_apart(addresses: np.ndarray) -> bool:
    """Return whether the addresses of all consecutive lanes are the same number of bytes apart."""
    step, many = addresses[1:2] - addresses[:1], WARP
    first = 0
    # The first lanes show it for most uneven addresses.
    while first < addresses.size - 1:
        some = addresses[first : first + many + 1]
        if not (some[1:] - some[:-1] == step).all():
            return False
        first, many = first + many, 256 * WARP
    return True


def _summed(rows: Iterable[tuple[int, ...]]) -> Iterator[int]:
    """Yield the sum of each column of rows of integers."""
    return map(sum, zip(*rows, strict=True))


def sectors(group: Group, addresses: np.ndarray, size: int, shift: int = 0) -> tuple[int, int]:
    """Return the number of sectors that requests touch, and the least number that would hold their bytes.

    `size` is the size of an access. `shift` is subtracted from the addresses first.
    """
    used, least = _summed(_sectors(rows, size, shift) for rows, _ in group.pieces(addresses))
    return used, least


@lru_cache(maxsize=4096)
def even_sectors(base: int, step: int, size: int) -> tuple[int, int]:
    """Return the number of sectors of one warp whose lanes are `step` bytes apart, and the least number.

    The first lane begins `base` bytes into a sector. The least number of sectors would hold the bytes.
    """
    return _sectors((base + step * np.arange(WARP)).astype(np.uint64)[None], size, 0)


def _sectors(rows: np.ndarray, size: int, shift: int) -> tuple[int, int]:
    flat = rows.reshape(-1)
    descends = flat[1:] < flat[:-1]
    descends[WARP - 1 :: WARP] = False
    if descends.any():
        flat = np.sort(rows, axis=1).reshape(-1)
    distinct = np.bitwise_count(np.packbits(_begins(flat, WARP)).view(np.uint32)).astype(np.int64)
    differs = _begins(flat - np.uint64(shift) >> np.uint64(SECTOR.bit_length() - 1), WARP)
    return int(np.count_nonzero(differs)), int((-(-distinct * size // SECTOR)).sum())


def _begins(flat: np.ndarray, width: int) -> np.ndarray:
    """Return a flag for each element of sorted rows of `width` lanes: whether a new row or value begins there."""
    begins = np.empty(flat.size, bool)
    np.not_equal(flat[1:], flat[:-1], out=begins[1:])
    begins[::width] = True
    return begins


def local_sectors(group: Group, offsets: np.ndarray, size: int) -> tuple[int, int]:
    """Return the number of sectors of local memory that requests touch, and the least number that holds their bytes.

    In local memory, words of four bytes of a warp's threads are adjacent.
    """
    words = max(1, size // BANK_BYTES)
    least = group.warps * size if group.is_full else int((-(-group.sizes[1] * size // SECTOR)).sum())
    return words * sum(_local_sectors(_units(*some, size)) for some in group.pieces(offsets, 2048)), least


def _local_sectors(units: np.ndarray) -> int:
    # A sector has the words of eight threads.
    eights = units.reshape(-1, 8)
    if units[0, 0] >= 0 and (units == units[0, 0]).all():
        return len(eights)
    # Comparing eight lanes with each other takes half as long as sorting them.
    by_lane = np.ascontiguousarray(eights.T)
    count = 0
    for number, of_lane in enumerate(by_lane):
        differs = of_lane >= 0
        for before in by_lane[:number]:
            differs &= of_lane != before
        count += int(np.count_nonzero(differs))
    return count


def wavefronts(group: Group, offsets: np.ndarray, size: int, unites: bool = False) -> tuple[int, int]:
    """Return the number of passes of requests through the banks of shared memory, and of passes without conflicts.

    Each of 32 banks serves four bytes of one row a pass. Accesses of 8 bytes are served by half warps, accesses of 16
    bytes by quarters. Two parts of a load (`unites`) share a pass if lanes i and i ^ 1, or i and i ^ 2, read the same.
    """
    parts = max(1, size // BANK_BYTES)
    used, least = _summed(_wavefronts(_units(*some, size), parts, unites) for some in group.pieces(offsets))
    return used, least


def _wavefronts(units: np.ndarray, parts: int, unites: bool) -> tuple[int, int]:
    banks = BANKS // parts
    if not unites or parts == 1:
        return _passes(units.reshape(-1, WARP // parts), banks)
    # Half warps merge into a warp, and quarters into halves.
    in_twos = _read_in_pairs(units)
    alone = _passes(units[~in_twos].reshape(-1, WARP // parts), banks)
    together = _passes(units[in_twos].reshape(-1, 2 * WARP // parts), banks)
    return alone[0] + together[0], alone[1] + together[1]


def _units(offsets: np.ndarray, there: np.ndarray | None, size: int) -> np.ndarray:
    """Return the number of the unit that each lane accesses, small enough to sort fast; −1 for an absent lane.

    A unit is a word of four bytes, or a lane's whole access if that is wider.
    """
    units = (offsets >> np.uint64(max(size, BANK_BYTES).bit_length() - 1)).astype(np.int32)
    if there is not None:
        units[~there] = -1
    return units


def _read_in_pairs(units: np.ndarray) -> np.ndarray:
    """Return for each warp whether its lanes read the same in pairs.

    Lane i is paired with lane i ^ 1, or each lane with lane i ^ 2. An absent lane matches any other.
    """
    alike = np.zeros(len(units), bool)
    for other in (1, 2):
        theirs = units[:, np.arange(WARP) ^ other]
        alike |= ((theirs == units) | (theirs < 0) | (units < 0)).all(axis=1)
    return alike


def _passes(units: np.ndarray, banks: int) -> tuple[int, int]:
    """Return the number of passes through the banks, and the least number, each summed over the rows.

    `units` has a row of lanes for each request, and the number of the unit that each lane accesses; −1 for an absent
    lane. A row takes as many passes as its busiest bank has distinct units. The least number is one for each row with
    any lane.
    """
    if not units.size:
        return 0, 0
    # Keys sort by bank, then by unit within the bank; −1 stays −1.
    high = int(units.max()).bit_length()
    keys = units & (banks - 1)
    keys <<= high
    keys |= units >> (banks.bit_length() - 1)
    keys.sort(axis=1)
    least = int(np.count_nonzero(keys[:, -1] >= 0))
    flat = keys.reshape(-1)
    again = ~_begins(flat, units.shape[1])
    if again.any():
        flat[again] = -1
        keys.sort(axis=1)
    keys >>= high
    return int(_in_runs(keys).max(axis=0).sum(dtype=np.int64)) + least, least


def _in_runs(rows: np.ndarray) -> np.ndarray:
    """Return for each number of sorted rows how many equal numbers precede it in its row; 0 for negative numbers.

    `rows` has the shape (rows, width), the result the shape (width, rows).
    """
    width = rows.shape[1]
    begins = _begins(rows.reshape(-1), width).view(np.uint8).reshape(-1, width)
    # In this orientation each step covers whole rows of memory.
    number = np.arange(width, dtype=np.uint8)[:, None]
    first = np.ascontiguousarray(begins.T) * number
    step = 1
    while step < width:
        np.maximum(first[step:], first[:-step], out=first[step:])
        step *= 2
    counts = np.asarray(number - first)
    if rows[:, 0].min() < 0:
        counts[rows.T < 0] = 0
    return counts


def contention(group: Group, addresses: np.ndarray, shift: int = 0) -> tuple[int, int, int]:
    """Return the number of distinct addresses, of turns and of sectors of atomic operations, each summed over requests.

    `shift` is subtracted from the addresses first. Lanes of a warp that name one address take turns. The first turn
    changes each address once, the second turn each address that two lanes name, and so on. Each turn touches its
    sectors.
    """
    distinct, turns, touched = _summed(_contention(*some, shift) for some in group.pieces(addresses))
    return distinct, turns, touched


def _contention(rows: np.ndarray, there: np.ndarray | None, shift: int) -> tuple[int, int, int]:
    keys = (rows - np.uint64(shift)).view(np.int64)
    if there is not None:
        keys[~there] = -1
    keys.sort(axis=1)
    flat = keys.reshape(-1)
    distinct = int(np.count_nonzero(_begins(flat, WARP) & (flat >= 0)))
    turn = _in_runs(keys)
    most = int(turn.max(axis=0).sum(dtype=np.int64)) + len(rows)
    # Addresses of one sector that change in one turn count once.
    keys &= -SECTOR
    keys |= turn.T
    keys.sort(axis=1)
    touched = int(np.count_nonzero(_begins(flat, WARP) & (flat >= 0)))
    return distinct, most, touched


def stride(group: Group, addresses: np.ndarray) -> int | None:
    """Return the bytes between the addresses of consecutive lanes, if this is one number for all warps; else None."""
    if group.lanes == group.warps:
        return None
    if group.is_full:
        step = (addresses[1:2] - addresses[:1]).view(np.int64)[0]
        alike = all((np.diff(rows.view(np.int64), axis=1) == step).all() for rows, _ in group.pieces(addresses))
        return int(step) if alike else None
    steps = addresses[1:].astype(np.int64) - addresses[:-1].astype(np.int64)
    apart = group.lane[1:].astype(np.int64) - group.lane[:-1]
    steps, apart = steps[~group.is_first[1:]], apart[~group.is_first[1:]]
    per_lane, rest = divmod(int(steps[0]), int(apart[0]))
    return per_lane if not rest and bool((steps == per_lane * apart).all()) else None


@dataclass(slots=True)
class Pattern:
    """Pattern common to all requests of one instruction that use more sectors than the least.

    Attributes
    ----------
    array : str
        Name of the array of the last launch's first request.
    pitch : int
        Bytes between the array's rows, if it has several dimensions.
    is_struct : bool
        Whether the elements are structs.
    begins : int
        Bytes from the beginning of a sector to the beginning of the array.
    stride : int or None
        Bytes from each lane to the next.
    steady : bool
        Whether all requests have one stride and one array.
    members : set of int
        Offsets of the accesses modulo the stride, if the pattern is steady.
    launch : int
        Number of the kernel's last launch with a request.
    is_aligned, rows_aligned : bool
        Whether warps begin at whole sectors counted from the beginning of the array, and from the beginning of its
        rows.
    """

    array: str = ""
    pitch: int = 0
    is_struct: bool = False
    begins: int = 0
    stride: int | None = None
    steady: bool = True
    members: set[int] | None = None
    is_aligned: bool = True
    rows_aligned: bool = True
    launch: int = 0
    _low: int = 0
    _high: int = 1 << 64
    _has_request: bool = False

    def begin_launch(self, piece: Allocation | None, shift: int, launch: int) -> None:
        """Begin a launch, in which the array may have another address. Another array makes the pattern unsteady."""
        before = self.launch, self.array, self.pitch, self.begins
        self.launch = launch
        if piece is not None:
            self.array, self.begins = piece.name, piece.address - shift & SECTOR - 1
            self._low, self._high = piece.address, piece.end
            if isinstance(piece.owner, np.ndarray):
                self.is_struct = piece.owner.dtype.names is not None
                self.pitch = abs(piece.owner.strides[-2]) if piece.owner.ndim > 1 else 0
        if before[0] and before != (before[0], self.array, self.pitch, self.begins):
            self.steady = False

    def add(self, group: Group, addresses: np.ndarray) -> None:
        """Add a request."""
        if not self.steady:
            return
        step = stride(group, addresses)
        first = addresses[::WARP] if group.is_full else addresses[group.is_first]
        self.steady = (
            step is not None
            and step == (self.stride if self._has_request else step)
            and self._low <= int(first.min())
            and int(first.max()) < self._high
        )
        self.stride, self._has_request = step if self.steady else None, True
        if not self.steady or not step or not self.array:
            return
        within = first - np.uint64(self._low)
        self.members = (self.members or set()) | {int(within[0]) % abs(step)}
        self.is_aligned = self.is_aligned and not (within % np.uint64(SECTOR)).any()
        if self.pitch:
            self.rows_aligned = self.rows_aligned and not (within % np.uint64(self.pitch) % np.uint64(SECTOR)).any()


#: Alignment of arrays in a device's memory, in bytes.
_ALIGNMENT = 256


class Placed(NamedTuple):
    """An address range, and its shift: the offset of its start from a multiple of the device's alignment."""

    low: int
    high: int
    shift: int


class Alignment:
    """Alignment of the arrays in an interpreter's memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._placed = memory, list[Placed]()

    def of(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, int, bool]:
        """Return addresses, their shift, and whether all are in one array.

        The shift is the number to subtract so that the array begins at a multiple of the device's alignment. If the
        addresses are in several arrays, they are returned with the shifts already subtracted, and the shift is 0.
        """
        placed = self._at(int(addresses[0]), size)
        if int(addresses.min()) >= placed.low and int(addresses.max()) < placed.high:
            return addresses, placed.shift, True
        moved, rest = addresses.copy(), np.arange(addresses.size)
        while rest.size:
            low, high, shift = self._at(int(addresses[rest[0]]), size)
            inside = (addresses[rest] >= np.uint64(low)) & (addresses[rest] < np.uint64(high))
            moved[rest[inside]] -= np.uint64(shift)
            rest = rest[~inside]
        return moved, 0, False

    def _at(self, address: int, size: int) -> Placed:
        """Return the range and shift of the array that has an address.

        If the launch has not accessed this memory yet, the range is the one address, and the shift 0.
        """
        for placed in self._placed:
            if placed.low <= address < placed.high:
                return placed
        piece = self._memory.piece(address, size, READ)
        if piece is None:
            # Memory that the launch has not accessed yet is looked up again.
            return Placed(address, address + 1, 0)
        low, high, owner = piece.address, piece.end, piece.owner
        if isinstance(owner, np.ndarray):
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            low, high = np.lib.array_utils.byte_bounds(owner)
        self._placed.append(Placed(low, high, low % _ALIGNMENT))
        return self._placed[-1]


#: Bits of a sector's number within a piece of the address space.
_PIECE_SECTORS = 21
_SECTOR = SECTOR.bit_length() - 1
#: Addresses processed at a time: temporary arrays of this size reuse memory.
_AT_ONCE = 8192


class Footprint:
    """Flags of all touched sectors, by piece of the address space."""

    def __init__(self) -> None:
        self._pieces: dict[int, np.ndarray] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the touched sectors, each counted once."""
        return SECTOR * sum(int(np.count_nonzero(flags)) for flags in self._pieces.values())

    def touch(self, addresses: np.ndarray, shift: int) -> None:
        """Record the sectors of addresses; `shift` is subtracted from the addresses first."""
        for first in range(0, addresses.size, _AT_ONCE):
            some = addresses[first : first + _AT_ONCE]
            self._touch((some - np.uint64(shift) >> np.uint64(_SECTOR)).view(np.int64))

    def touch_evenly(self, addresses: np.ndarray, shift: int) -> None:
        """Record the sectors of addresses that are evenly apart; `shift` is subtracted from the addresses first."""
        low, high = sorted((int(addresses[0]) - shift >> _SECTOR, int(addresses[-1]) - shift >> _SECTOR))
        if high - low >= addresses.size or low >> _PIECE_SECTORS != high >> _PIECE_SECTORS:
            self.touch(addresses, shift)
        else:
            start = low >> _PIECE_SECTORS << _PIECE_SECTORS
            self._flags(low >> _PIECE_SECTORS)[low - start : high - start + 1] = True

    def _touch(self, touched: np.ndarray) -> None:
        first, last = int(touched.min()) >> _PIECE_SECTORS, int(touched.max()) >> _PIECE_SECTORS
        for piece in range(first, last + 1):
            chosen = touched if first == last else touched[touched >> _PIECE_SECTORS == piece]
            self._flags(piece)[chosen - (piece << _PIECE_SECTORS)] = True

    def _flags(self, piece: int) -> np.ndarray:
        """Return the flags of the touched sectors in a piece of the address space, by the piece's number.

        The flags are created, all False, if there are none. Changes to the array are kept.
        """
        flags = self._pieces.get(piece)
        if flags is None:
            flags = self._pieces[piece] = np.zeros(1 << _PIECE_SECTORS, bool)
        return flags
