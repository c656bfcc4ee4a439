"""Which sectors of global memory were touched at all."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.counters.requests import SECTOR, Group

#: Bits of the number of a sector within a piece of memory whose touched sectors are kept together.
_PIECE_SECTORS = 21
_SECTOR = SECTOR.bit_length() - 1


class Footprint:
    """A flag for each sector, in pieces of memory of which any was touched."""

    def __init__(self) -> None:
        self._pieces: dict[int, np.ndarray] = {}

    @property
    def bytes(self) -> int:
        """Of the sectors that were touched, each counted once."""
        return SECTOR * sum(int(np.count_nonzero(flags)) for flags in self._pieces.values())

    def touch(self, group: Group, addresses: np.ndarray, shift: int) -> None:
        """The sectors of addresses less `shift`."""
        for rows, _ in group.pieces(addresses):
            self._touch((rows - np.uint64(shift) >> np.uint64(_SECTOR)).view(np.int64))

    def touch_evenly(self, group: Group, addresses: np.ndarray, shift: int) -> None:
        """The same of lanes that are evenly apart."""
        low, high = sorted((int(addresses[0]) - shift >> _SECTOR, int(addresses[-1]) - shift >> _SECTOR))
        if high - low >= addresses.size or low >> _PIECE_SECTORS != high >> _PIECE_SECTORS:
            self.touch(group, addresses, shift)
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
