"""What a warp's access asks of the memory system: sectors of 32 bytes, wavefronts of shared memory, contention.

A request is one access of one warp. Lanes come as flat arrays with a `Group`, which says how they lie in warps.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Machine

WARP = 32
SECTOR = 32
_BANKS = 32
_BANK_BYTES = 4


class Group:
    """Lanes that run one instruction, by warps.

    Attributes
    ----------
    lanes, warps : int
        How many.
    row, lane : numpy.ndarray
        Of each: its warp, counted among those that have any; its number in the warp.
    """

    lanes: int
    warps: int
    is_full: bool

    def __init__(self, machine: Machine, index: Index) -> None:
        self._machine, self._index = machine, index
        if index is None:
            self.warp = machine.warp_of
        else:
            # Where blocks have whole warps, a shift is several times quicker than to look it up.
            self.warp = machine.warp_of[index] if machine.threads % WARP else index >> 5
        self.lanes = self.warp.size
        #: Whether each lane is the first of its warp.
        self.is_first = np.empty(self.lanes, bool)
        self.is_first[:1] = True
        np.not_equal(self.warp[1:], self.warp[:-1], out=self.is_first[1:])
        self.warps = int(np.count_nonzero(self.is_first))
        self._parts: dict[int, np.ndarray] = {}
        self.is_full = self.lanes == self.warps * WARP

    @cached_property
    def of_first_block(self) -> Group | None:
        """Those of the first block, if all blocks have the same."""
        blocks, threads = self._machine.blocks, self._machine.threads
        if blocks == 1 or self.lanes % blocks:
            return None
        if self._index is None:
            return Group(self._machine, np.arange(threads))
        by_block = self._index.reshape(blocks, -1)
        same = (by_block - by_block[0] == np.arange(0, blocks * threads, threads)[:, None]).all()
        return Group(self._machine, by_block[0]) if same else None

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The warps, by their numbers in the machine, and how many lanes each has."""
        starts = np.flatnonzero(self.is_first)
        return self.warp[starts], np.diff(starts, append=self.lanes)

    @cached_property
    def lane(self) -> np.ndarray:
        return np.asarray(self._machine.lane_id if self._index is None else self._machine.lane_id[self._index])

    @cached_property
    def row(self) -> np.ndarray:
        if self.is_full:
            return np.arange(self.lanes) >> 5
        return np.repeat(np.arange(self.warps), self.sizes[1])

    @cached_property
    def places(self) -> np.ndarray:
        """Of each lane, 32 times its row, and its number in the warp."""
        return np.asarray(self.row * WARP + self.lane)

    def part(self, number: int) -> np.ndarray:
        """Of each lane, which part of which warp it is in, of `number` equal ones."""
        found = self._parts.get(number)
        if found is None:
            found = self._parts[number] = self.row * number + self.lane // (WARP // number)
        return found

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Values a lane as (warps · 32), where lanes that are not there have what the first of their warp has."""
        if self.is_full:
            return values
        filled = np.repeat(values[self.is_first], WARP)
        filled[self.places] = values
        return filled


def evenly_apart(addresses: np.ndarray) -> bool:
    """Whether from each lane to the next it is the same number of bytes."""
    steps = addresses[1:] - addresses[:-1]
    return bool((steps == steps[:1]).all())


def sectors(group: Group, addresses: np.ndarray, size: int) -> tuple[int, int]:
    """Sectors that requests touch, and the least that their bytes would fit in."""
    flat = group.rows(addresses)
    exponent = np.uint64(SECTOR.bit_length() - 1)
    before, after = flat[:-1], flat[1:]
    descends = after < before
    descends[WARP - 1 :: WARP] = False
    if descends.any():
        flat = np.sort(flat.reshape(-1, WARP), axis=1).reshape(-1)
        before, after = flat[:-1], flat[1:]
    differs = np.empty(flat.size, bool)
    np.not_equal(after, before, out=differs[1:])
    differs[::WARP] = True
    distinct = np.bitwise_count(np.packbits(differs).view(np.uint32)).astype(np.int64)
    touched = flat >> exponent
    np.not_equal(touched[1:], touched[:-1], out=differs[1:])
    differs[::WARP] = True
    least = int((-(-distinct * size // SECTOR)).sum())
    return int(np.count_nonzero(differs)), least


def local_sectors(group: Group, offsets: np.ndarray, size: int) -> tuple[int, int]:
    """The same in local memory, where words of four bytes of a warp's threads lie beside each other."""
    words = max(1, size // _BANK_BYTES)
    first = (offsets // np.uint64(_BANK_BYTES)).astype(np.int64)
    keys = [((group.row << 34) + first + word << 2) + (group.lane >> 3) for word in range(words)]
    count = int(np.unique(np.concatenate(keys)).size)
    least = int((-(-np.bincount(group.row) * size // SECTOR)).sum())
    return count, least


def load_wavefronts(group: Group, offsets: np.ndarray, size: int) -> tuple[int, int]:
    """Those of loads: where lanes that are next to each other, or next but one, read the same, parts go together."""
    return wavefronts(group, offsets, size, size > _BANK_BYTES)


def wavefronts(group: Group, offsets: np.ndarray, size: int, unites: bool = False) -> tuple[int, int]:
    """Passes that requests take through the banks of shared memory, and those that they would take without conflicts.

    Each of 32 banks gives four bytes of one row a pass. Accesses of 8 bytes are taken by half warps, of 16 by quarters.
    """
    parts = max(1, size // _BANK_BYTES)
    banks = _BANKS // parts
    units = (offsets >> np.uint64(max(size, _BANK_BYTES).bit_length() - 1)).view(np.int64)
    part = group.part(parts)
    if unites:
        # Half warps become a warp, and quarters halves.
        part = np.where(_in_twos(group, units)[group.row], part & ~1, part)
    count = group.warps * parts
    # Without looking for lanes that read the same, most accesses are seen to have no conflict.
    most = _most(part, units, banks, count)
    least = int(np.count_nonzero(most))
    if int(most.max()) > 1:
        kept = np.empty(units.size, bool)
        kept[:1] = True
        kept[1:] = (units[1:] != units[:-1]) | (part[1:] != part[:-1])
        if not kept.all():
            part, units = part[kept], units[kept]
            most = _most(part, units, banks, count)
        if int(most.max()) > 1:
            part, units = _sorted_pairs(part, units, count)
            first = _begins(part, units)
            most = _most(part[first], units[first], banks, count)
    return int(most.sum()), least


def _in_twos(group: Group, units: np.ndarray) -> np.ndarray:
    """Of each warp, whether every lane i reads what lane i ^ 1 reads, if that takes part; or what i ^ 2 reads."""
    held = np.full((group.warps, WARP), -1, np.int64)
    held.reshape(-1)[group.places] = units
    alike = np.zeros(group.warps, bool)
    for other in (1, 2):
        theirs = held[:, np.arange(WARP) ^ other]
        alike |= ((theirs == held) | (theirs < 0) | (held < 0)).all(axis=1)
    return alike


def _most(part: np.ndarray, units: np.ndarray, banks: int, count: int) -> np.ndarray:
    """Units that the busiest bank of each part has to give."""
    held = np.bincount(part * banks + (units & (banks - 1)), minlength=count * banks).reshape(count, banks)
    return np.asarray(held.max(axis=1))


def contention(group: Group, addresses: np.ndarray) -> tuple[int, int, int]:
    """Of atomic operations: distinct addresses of requests, and turns and sectors, summed.

    Lanes of a warp that name one address take turns: in the first all addresses are changed once, in the second those
    that two lanes name, and so on. Each turn touches its sectors.
    """
    row, changed = _sorted(group, addresses)
    starts = np.flatnonzero(_begins(row, changed))
    turns = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=turns[:-1])
    turns[-1] = row.size - starts[-1]
    row, changed = row[starts], changed[starts]
    most = np.maximum.reduceat(turns, np.flatnonzero(_begins(row, row)))
    in_sectors = np.maximum.reduceat(turns, np.flatnonzero(_begins(row, changed >> np.uint64(SECTOR.bit_length() - 1))))
    return int(starts.size), int(most.sum()), int(in_sectors.sum())


def _sorted(group: Group, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and addresses of lanes, by rows and then by addresses."""
    low = addresses.min()
    row, apart = _sorted_pairs(group.row, (addresses - low).view(np.int64), group.warps)
    return row, apart.astype(np.uint64) + low


def _sorted_pairs(row: np.ndarray, values: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a row, of which there are `rows`, and a value that is not negative, in order."""
    bits = int(values.max()).bit_length()
    if bits + rows.bit_length() > 62:
        order = np.lexsort((values, row))
        return row[order], values[order]
    # One number of both is sorted several times as quickly, and a small one more so.
    number: type[Any] = np.int32 if bits + rows.bit_length() < 31 else np.int64
    keys = np.sort((row.astype(number) << number(bits)) + values.astype(number))
    return keys >> number(bits), keys & number((1 << bits) - 1)


def _begins(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where in sorted lanes another row or value begins."""
    found = np.empty(row.size, bool)
    found[:1] = True
    found[1:] = (values[1:] != values[:-1]) | (row[1:] != row[:-1])
    return found


def stride(group: Group, addresses: np.ndarray) -> int | None:
    """Bytes from each lane's address to that of the next lane of its warp, where that is one number; else None."""
    if group.lanes == group.warps:
        return None
    if group.is_full:
        rows = addresses.reshape(-1, WARP)
        between = rows[:, 1:] - rows[:, :-1]
        return int(between.view(np.int64)[0, 0]) if (between == between[0, 0]).all() else None
    steps = addresses[1:].astype(np.int64) - addresses[:-1].astype(np.int64)
    apart = group.lane[1:].astype(np.int64) - group.lane[:-1]
    steps, apart = steps[~group.is_first[1:]], apart[~group.is_first[1:]]
    each, rest = divmod(int(steps[0]), int(apart[0]))
    return each if not rest and bool((steps == each * apart).all()) else None
