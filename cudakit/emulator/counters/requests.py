"""What a warp's access asks of the memory system: sectors of 32 bytes, wavefronts of shared memory, contention.

A request is one access of one warp. Lanes come as flat arrays with a `Group`, which says how they lie in warps. How the
lanes lie to each other and in their array is the pattern that advice rests on. Addresses count as on a device, whose
memory begins at a multiple of 256 bytes; NumPy puts arrays anywhere.
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
    lanes, warps : int
        How many.
    lane : numpy.ndarray
        Of each: its number in the warp.
    is_full : bool
        Whether all lanes of its warps are there.
    """

    warps: int

    def __init__(self, machine: Machine, index: Index) -> None:
        self.machine: Machine = machine
        self._index = index
        whole = machine.threads % WARP == 0
        if index is None:
            self.warp = machine.warp_of
        else:
            # Where blocks have whole warps, a shift is several times quicker than to look it up.
            self.warp = index >> 5 if whole else machine.warp_of[index]
        self.lanes: int = self.warp.size
        if index is None and whole:
            self.warps = self.lanes // WARP
        else:
            self.warps = int(np.count_nonzero(self.is_first))
        self.is_full: bool = self.lanes == self.warps * WARP

    @cached_property
    def is_first(self) -> np.ndarray:
        """Whether each lane is the first of its warp."""
        found = np.empty(self.lanes, bool)
        found[:1] = True
        np.not_equal(self.warp[1:], self.warp[:-1], out=found[1:])
        return found

    @cached_property
    def of_first_block(self) -> Group | None:
        """Those of the first block, if all blocks have the same."""
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
        """The warps, by their numbers in the machine, and how many lanes each has."""
        starts = np.flatnonzero(self.is_first)
        return self.warp[starts], np.diff(starts, append=self.lanes)

    @cached_property
    def lane(self) -> np.ndarray:
        return np.asarray(self.machine.lane_id if self._index is None else self.machine.lane_id[self._index])

    @cached_property
    def places(self) -> np.ndarray:
        """Of each lane, 32 times its row, and its number in the warp."""
        return np.asarray(np.repeat(np.arange(self.warps), self.sizes[1]) * WARP + self.lane)

    @cached_property
    def there(self) -> np.ndarray | None:
        """Whether each lane of each warp is among them, (warps, 32); None: all are."""
        if self.is_full:
            return None
        found = np.zeros(self.warps * WARP, bool)
        found[self.places] = True
        return found.reshape(-1, WARP)

    def pieces(self, values: np.ndarray, warps: int = 256) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Values a lane as (warps, 32), and `there`, of a few warps at a time, where lanes that are not there have
        what the first of their warp has.

        What is made of so little is memory that is there already; that for all warps would come from the system anew.
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
    """Whether from each lane to the next it is the same number of bytes."""
    step, many = addresses[1:2] - addresses[:1], WARP
    first = 0
    # The first lanes of most that are not show it.
    while first < addresses.size - 1:
        some = addresses[first : first + many + 1]
        if not (some[1:] - some[:-1] == step).all():
            return False
        first, many = first + many, 256 * WARP
    return True


def _summed(found: Iterable[tuple[int, ...]]) -> Iterator[int]:
    """The sums of each number."""
    return map(sum, zip(*found, strict=True))


def sectors(group: Group, addresses: np.ndarray, size: int, shift: int = 0) -> tuple[int, int]:
    """Sectors that requests touch, of addresses less `shift`, and the least that their bytes would fit in."""
    taken, least = _summed(_sectors(rows, size, shift) for rows, _ in group.pieces(addresses))
    return taken, least


@lru_cache(maxsize=4096)
def even_sectors(base: int, step: int, size: int) -> tuple[int, int]:
    """The same of one warp, whose lanes are `step` bytes apart, from `base` bytes into a sector on."""
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
    """Where in sorted rows of so many lanes another row or value begins."""
    found = np.empty(flat.size, bool)
    np.not_equal(flat[1:], flat[:-1], out=found[1:])
    found[::width] = True
    return found


def local_sectors(group: Group, offsets: np.ndarray, size: int) -> tuple[int, int]:
    """The same in local memory, where words of four bytes of a warp's threads lie beside each other."""
    words = max(1, size // BANK_BYTES)
    least = group.warps * size if group.is_full else int((-(-group.sizes[1] * size // SECTOR)).sum())
    return words * sum(_local_sectors(_units(*some, size)) for some in group.pieces(offsets, 2048)), least


def _local_sectors(units: np.ndarray) -> int:
    # A sector has the words of eight threads.
    eights = units.reshape(-1, 8)
    if units[0, 0] >= 0 and (units == units[0, 0]).all():
        return len(eights)
    # To compare eight lanes with each other takes half as long as to sort them.
    by_lane = np.ascontiguousarray(eights.T)
    count = 0
    for number, of_lane in enumerate(by_lane):
        differs = of_lane >= 0
        for before in by_lane[:number]:
            differs &= of_lane != before
        count += int(np.count_nonzero(differs))
    return count


def wavefronts(group: Group, offsets: np.ndarray, size: int, unites: bool = False) -> tuple[int, int]:
    """Passes that requests take through the banks of shared memory, and those that they would take without conflicts.

    Each of 32 banks gives four bytes of one row a pass. Accesses of 8 bytes are taken by half warps, of 16 by quarters.
    Of loads, which `unites` says, two parts go together where neighbouring lanes, or next but one, read the same.
    """
    parts = max(1, size // BANK_BYTES)
    taken, least = _summed(_wavefronts(_units(*some, size), parts, unites) for some in group.pieces(offsets))
    return taken, least


def _wavefronts(held: np.ndarray, parts: int, unites: bool) -> tuple[int, int]:
    banks = BANKS // parts
    if not unites or parts == 1:
        return _passes(held.reshape(-1, WARP // parts), banks)
    # Half warps become a warp, and quarters halves.
    in_twos = _in_twos(held)
    alone = _passes(held[~in_twos].reshape(-1, WARP // parts), banks)
    together = _passes(held[in_twos].reshape(-1, 2 * WARP // parts), banks)
    return alone[0] + together[0], alone[1] + together[1]


def _units(offsets: np.ndarray, there: np.ndarray | None, size: int) -> np.ndarray:
    """Which words, of four bytes or of a lane's, lanes access, in numbers that are small to sort; −1: none."""
    found = (offsets >> np.uint64(max(size, BANK_BYTES).bit_length() - 1)).astype(np.int32)
    if there is not None:
        found[~there] = -1
    return found


def _in_twos(held: np.ndarray) -> np.ndarray:
    """Of each warp, whether every lane i reads what lane i ^ 1 reads, if that takes part; or what i ^ 2 reads."""
    alike = np.zeros(len(held), bool)
    for other in (1, 2):
        theirs = held[:, np.arange(WARP) ^ other]
        alike |= ((theirs == held) | (theirs < 0) | (held < 0)).all(axis=1)
    return alike


def _passes(held: np.ndarray, banks: int) -> tuple[int, int]:
    """Units that the busiest bank has to give, summed over rows of lanes, and the rows that have any lane."""
    if not held.size:
        return 0, 0
    # By the bank and then the unit in it; −1 stays what it is.
    high = int(held.max()).bit_length()
    keys = held & (banks - 1)
    keys <<= high
    keys |= held >> (banks.bit_length() - 1)
    keys.sort(axis=1)
    least = int(np.count_nonzero(keys[:, -1] >= 0))
    flat = keys.reshape(-1)
    again = ~_begins(flat, held.shape[1])
    if again.any():
        flat[again] = -1
        keys.sort(axis=1)
    keys >>= high
    return int(_in_runs(keys).max(axis=0).sum(dtype=np.int64)) + least, least


def _in_runs(rows: np.ndarray) -> np.ndarray:
    """Of each number of sorted rows, how many alike stand before it; 0 where it is negative; as (width, rows)."""
    width = rows.shape[1]
    begins = _begins(rows.reshape(-1), width).view(np.uint8).reshape(-1, width)
    # This way round a step is over whole rows of memory.
    number = np.arange(width, dtype=np.uint8)[:, None]
    first = np.ascontiguousarray(begins.T) * number
    step = 1
    while step < width:
        np.maximum(first[step:], first[:-step], out=first[step:])
        step *= 2
    found = np.asarray(number - first)
    if rows[:, 0].min() < 0:
        found[rows.T < 0] = 0
    return found


def contention(group: Group, addresses: np.ndarray, shift: int = 0) -> tuple[int, int, int]:
    """Of atomic operations on addresses less `shift`: distinct addresses of requests, and turns and sectors, summed.

    Lanes of a warp that name one address take turns: in the first all addresses are changed once, in the second those
    that two lanes name, and so on. Each turn touches its sectors.
    """
    distinct, turns, taken = _summed(_contention(*some, shift) for some in group.pieces(addresses))
    return distinct, turns, taken


def _contention(rows: np.ndarray, there: np.ndarray | None, shift: int) -> tuple[int, int, int]:
    keys = (rows - np.uint64(shift)).view(np.int64)
    if there is not None:
        keys[~there] = -1
    keys.sort(axis=1)
    flat = keys.reshape(-1)
    distinct = int(np.count_nonzero(_begins(flat, WARP) & (flat >= 0)))
    turn = _in_runs(keys)
    most = int(turn.max(axis=0).sum(dtype=np.int64)) + len(rows)
    # Addresses of a sector that are changed in one turn count once.
    keys &= -SECTOR
    keys |= turn.T
    keys.sort(axis=1)
    taken = int(np.count_nonzero(_begins(flat, WARP) & (flat >= 0)))
    return distinct, most, taken


def stride(group: Group, addresses: np.ndarray) -> int | None:
    """Bytes from each lane's address to that of the next lane of its warp, where that is one number; else None."""
    if group.lanes == group.warps:
        return None
    if group.is_full:
        step = (addresses[1:2] - addresses[:1]).view(np.int64)[0]
        alike = all((np.diff(rows.view(np.int64), axis=1) == step).all() for rows, _ in group.pieces(addresses))
        return int(step) if alike else None
    steps = addresses[1:].astype(np.int64) - addresses[:-1].astype(np.int64)
    apart = group.lane[1:].astype(np.int64) - group.lane[:-1]
    steps, apart = steps[~group.is_first[1:]], apart[~group.is_first[1:]]
    each, rest = divmod(int(steps[0]), int(apart[0]))
    return each if not rest and bool((steps == each * apart).all()) else None


@dataclass(slots=True)
class Pattern:
    """What is the same in all requests of one instruction that take more than they must.

    Attributes
    ----------
    array : str
        The array of the first one.
    pitch : int
        Bytes between its rows, where it has several dimensions.
    is_struct : bool
        Whether its elements are.
    begins : int
        Bytes from the begin of a sector to that of the array.
    stride : int or None
        Bytes from each lane to the next.
    steady : bool
        Whether there is one stride, and one array.
    members : set of int
        Where in so many bytes of the array lanes access, if that is steady.
    launch : int
        The last one of the kernel that had any.
    is_aligned, rows_aligned : bool
        Whether warps begin whole sectors from where the array begins, and from where its rows begin.
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
    _seen: bool = False

    def meet(self, piece: Allocation | None, shift: int, launch: int) -> None:
        """A launch begins, the first or another: the array may lie elsewhere; what is known of another is dropped."""
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
        """Another request."""
        if not self.steady:
            return
        found = stride(group, addresses)
        first = addresses[::WARP] if group.is_full else addresses[group.is_first]
        self.steady = (
            found is not None
            and found == (self.stride if self._seen else found)
            and self._low <= int(first.min())
            and int(first.max()) < self._high
        )
        self.stride, self._seen = found if self.steady else None, True
        if not self.steady or not found or not self.array:
            return
        within = first - np.uint64(self._low)
        self.members = (self.members or set()) | {int(within[0]) % abs(found)}
        self.is_aligned = self.is_aligned and not (within % np.uint64(SECTOR)).any()
        if self.pitch:
            self.rows_aligned = self.rows_aligned and not (within % np.uint64(self.pitch) % np.uint64(SECTOR)).any()


#: What the memory of arrays on a device begins at a multiple of.
_ALIGNMENT = 256


class Placed(NamedTuple):
    """Memory from one address up to another, and how far it is off a device's alignment."""

    low: int
    high: int
    shift: int


class Alignment:
    """The arrays of a machine's memory that were met."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._placed = memory, list[Placed]()

    def of(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, int, bool]:
        """Addresses and what to take off them, as if each array began where a device's begins; and if it is one array.

        Addresses in several arrays are moved already, and there is nothing to take off.
        """
        found = self._at(int(addresses[0]), size)
        if int(addresses.min()) >= found.low and int(addresses.max()) < found.high:
            return addresses, found.shift, True
        moved, rest = addresses.copy(), np.arange(addresses.size)
        while rest.size:
            low, high, shift = self._at(int(addresses[rest[0]]), size)
            inside = (addresses[rest] >= np.uint64(low)) & (addresses[rest] < np.uint64(high))
            moved[rest[inside]] -= np.uint64(shift)
            rest = rest[~inside]
        return moved, 0, False

    def _at(self, address: int, size: int) -> Placed:
        """The array that holds an address."""
        for known in self._placed:
            if known.low <= address < known.high:
                return known
        found = self._memory.piece(address, size, READ)
        if found is None:
            # Memory that the launch has not come to yet is looked for again.
            return Placed(address, address + 1, 0)
        low, high, owner = found.address, found.end, found.owner
        if isinstance(owner, np.ndarray):
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            low, high = np.lib.array_utils.byte_bounds(owner)
        self._placed.append(Placed(low, high, low % _ALIGNMENT))
        return self._placed[-1]


#: Bits of the number of a sector within a piece of memory whose touched sectors are kept together.
_PIECE_SECTORS = 21
_SECTOR = SECTOR.bit_length() - 1
#: Addresses that are looked at together: what is made of so few is memory that is there already.
_AT_ONCE = 8192


class Footprint:
    """A flag for each sector, in pieces of memory of which any was touched."""

    def __init__(self) -> None:
        self._pieces: dict[int, np.ndarray] = {}

    @property
    def bytes(self) -> int:
        """Of the sectors that were touched, each counted once."""
        return SECTOR * sum(int(np.count_nonzero(flags)) for flags in self._pieces.values())

    def touch(self, addresses: np.ndarray, shift: int) -> None:
        """The sectors of addresses less `shift`."""
        for first in range(0, addresses.size, _AT_ONCE):
            some = addresses[first : first + _AT_ONCE]
            self._touch((some - np.uint64(shift) >> np.uint64(_SECTOR)).view(np.int64))

    def touch_evenly(self, addresses: np.ndarray, shift: int) -> None:
        """The same of lanes that are evenly apart."""
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
        """Of each sector of a piece of the address space, whether it was touched."""
        found = self._pieces.get(piece)
        if found is None:
            found = self._pieces[piece] = np.zeros(1 << _PIECE_SECTORS, bool)
        return found
