"""Who accessed memory last: stamps beside each few bytes, from which accesses that nothing orders are told.

A stamp is the number of an access (of all lanes together) above that of a lane. What a lane has been ordered after is a
number of an access too, so that a stamp is compared with one number: earlier accesses come first, later ones race.
"""

from __future__ import annotations

import numpy as np

LANE_BITS = 32
LANE = np.int64((1 << LANE_BITS) - 1)
#: Stands for copies that no lane does itself.
NOBODY = int(LANE)


class Shadow:
    """Stamps of one piece of memory: its last writer, and two of those who read since.

    Parameters
    ----------
    size : int
        Bytes of the memory.
    grain : int
        Bytes that share stamps, a power of two.
    """

    __slots__ = ("_first", "_last", "grain", "released", "size", "written")

    def __init__(self, size: int, grain: int) -> None:
        self.size, self.grain = size, grain
        count = -(-size // grain) + 1
        self.written = np.zeros(count, np.int64)
        self._first = np.zeros(count, np.int64)
        self._last = np.zeros(count, np.int64)
        #: Number of the access up to which the last release at a place publishes.
        self.released: np.ndarray | None = None

    def places(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """Numbers of what `size` bytes at offsets share stamps with, (lanes,) or (lanes, several)."""
        first: np.ndarray = (offsets >> np.uint64(self.grain.bit_length() - 1)).view(np.int64)
        return first if size <= self.grain else first[:, None] + np.arange(size // self.grain)

    def readers(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stamps of two of those who read."""
        return self._first[places], self._last[places]

    def read(self, places: np.ndarray, stamps: np.ndarray, floor: int) -> None:
        """Note readers; who read before access `floor` is forgotten."""
        stamps = np.broadcast_to(stamps, places.shape)
        old = self._first[places] < floor << LANE_BITS
        if old.all():
            # The first lane's stays, and below the last one's: these differ where several read.
            self._first[places.reshape(-1)[::-1]] = stamps.reshape(-1)[::-1]
        elif old.any():
            self._first[places[old][::-1]] = stamps[old][::-1]
        self._last[places] = stamps

    def write(self, places: np.ndarray, stamps: np.ndarray) -> None:
        """Note writers."""
        self.written[places] = stamps

    def release(self, places: np.ndarray, upto: np.ndarray) -> None:
        """What was published so far is known to whoever reads the places from now on."""
        if self.released is None:
            self.released = np.zeros(self.written.size, np.int64)
        np.maximum.at(self.released, places, upto)
