"""How the lanes of an instruction's requests lie to each other and in their array: what advice rests on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cudakit.emulator.counters.requests import SECTOR, WARP, Group, stride
from cudakit.emulator.machine.memory import Allocation


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
        if not self.steady or not found:
            return
        within = first - np.uint64(self._low)
        self.members = (self.members or set()) | {int(within[0]) % abs(found)}
        self.is_aligned = self.is_aligned and not (within % np.uint64(SECTOR)).any()
        if self.pitch:
            self.rows_aligned = self.rows_aligned and not (within % np.uint64(self.pitch) % np.uint64(SECTOR)).any()
