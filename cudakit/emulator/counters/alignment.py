"""Where arrays lay on a device, whose memory begins at a multiple of 256 bytes; NumPy puts them anywhere."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, Memory

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
