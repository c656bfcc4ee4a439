"""What orders the lanes of a warp: its collectives, each the lanes that its mask names and no others."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_WARP, Machine

#: The mask of a whole warp.
WHOLE = 0xFFFFFFFF


class Warps:
    """The warps of a machine.

    Parameters
    ----------
    machine : Machine
    block : numpy.ndarray
        Number of the access before which all of its block come before what each lane does now; lanes that meet share
        what they know of it.

    Attributes
    ----------
    masks : numpy.ndarray
        Of the collective that each lane came to last.
    whole : numpy.ndarray
        Number of the access before which all of its warp come before what each lane does now.
    part : numpy.ndarray or None
        The same by lanes of the warp, (lanes, 32); None until a mask names a part of a warp.
    """

    masks: np.ndarray
    whole: np.ndarray
    part: np.ndarray | None

    def __init__(self, machine: Machine, block: np.ndarray) -> None:
        self._machine, self._block = machine, block
        self.masks = np.full(machine.lanes, WHOLE, np.uint32)
        self.whole = np.zeros(machine.lanes, np.int64)
        self.part = None
        #: Whether lanes of one warp may know different things of their block.
        self.is_uneven = False
        #: Lanes and masks of the last collective, if of parts of warps, and the columns that those of each lane have.
        self._again: tuple[Index, np.ndarray, np.ndarray] | None = None

    def meet(self, lanes: Index, masks: np.ndarray | None, now: int) -> None:
        """Lanes come to a collective, without masks to one of the whole warp; others may wait there for them."""
        machine = self._machine
        is_whole = masks is None or bool((masks == WHOLE).all())
        self.masks[slice(None) if lanes is None else lanes] = WHOLE if masks is None else masks
        again, self._again = self._again, None
        if lanes is None:
            if is_whole:
                self.whole[:] = now
                if self.is_uneven:
                    self._share(np.arange(machine.lanes))
                return
            members, waiting = np.arange(machine.lanes), None
        else:
            waiting = np.flatnonzero(machine.status == AT_WARP)
            if waiting.size:
                touched = np.zeros(int(machine.warp_of[-1]) + 1, bool)
                touched[machine.warp_of[lanes]] = True
                waiting = waiting[touched[machine.warp_of[waiting]]]
            if is_whole:
                members = np.concatenate([lanes, waiting[self.masks[waiting] == WHOLE]])
                self.whole[members] = now
                if self.is_uneven:
                    self._share(members)
                return
            members = np.concatenate([lanes, waiting])
        masks = np.broadcast_to(np.asarray(masks), members.shape) if waiting is None or not waiting.size else None
        if masks is None or self.is_uneven:
            self._meet_in_part(members, now)
        elif again is not None and again[0] is lanes and np.array_equal(again[1], masks):
            # They have met so before: each knows what the others know.
            self._put(lanes, again[2], now)
            self._again = again
        else:
            self._again = lanes, masks.copy(), self._meet_in_part(members, now)

    def met(self, lanes: np.ndarray, now: int) -> None:
        """Lanes of whole warps have met in another way."""
        self.whole[lanes], self._again = now, None

    def known(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Number of the access before which all that each of `others` did comes before what each of `lanes` does."""
        known: np.ndarray = self.whole[lanes]
        if self.part is not None:
            known = np.maximum(known, self.part[lanes, self._machine.lane_id[others]])
        return np.where(self._machine.warp_of[others] == self._machine.warp_of[lanes], known, 0)

    def gone(self, lanes: np.ndarray, now: int) -> None:
        """Lanes exit, for which others wait that name them."""
        machine = self._machine
        waiting = np.flatnonzero(machine.status == AT_WARP)
        if not waiting.size:
            return
        exited = np.zeros((int(machine.warp_of[-1]) + 1, 32), bool)
        exited[machine.warp_of[lanes], machine.lane_id[lanes]] = True
        bits = np.arange(32, dtype=np.uint32)
        named = (self.masks[waiting, None] >> bits & 1).astype(bool) & exited[machine.warp_of[waiting]]
        if named.any():
            self._again = None
            held = self._parts()
            held[waiting] = np.where(named, now, held[waiting])

    def _meet_in_part(self, members: np.ndarray, now: int) -> np.ndarray:
        """Lanes of one warp and mask learn of each other, and what each of them knows; whom they met, (lanes, 32)."""
        machine, held = self._machine, self._parts()
        keys = machine.warp_of[members].astype(np.int64) << 32 | self.masks[members]
        order = np.argsort(keys, kind="stable")
        members, keys = members[order], keys[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        starts, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        known = np.maximum.reduceat(held[members], starts, axis=0)
        known[group, machine.lane_id[members]] = now
        held[members] = known[group]
        for values in (self.whole, self._block):
            values[members] = np.maximum.reduceat(values[members], starts)[group]
        met = np.zeros(known.shape, bool)
        met[group, machine.lane_id[members]] = True
        columns = np.empty((members.size, 32), bool)
        columns[order] = met[group]
        return columns

    def _put(self, lanes: Index, columns: np.ndarray, now: int) -> None:
        held = self._parts()
        if lanes is None:
            held[columns] = now
        else:
            held[lanes] = np.where(columns, now, held[lanes])

    def _parts(self) -> np.ndarray:
        if self.part is None:
            self.part = np.zeros((self._machine.lanes, 32), np.int64)
        return self.part

    def _share(self, members: np.ndarray) -> None:
        """What one lane of a warp knows of its block all of them know."""
        warps = self._machine.warp_of[members]
        known = np.zeros(int(self._machine.warp_of[-1]) + 1, np.int64)
        np.maximum.at(known, warps, self._block[members])
        self._block[members] = known[warps]
