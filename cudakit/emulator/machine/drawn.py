"""Orders of lanes that are drawn: warps stop anywhere, and any may run next."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import RUNNING, Machine

#: A seed, or a seed and the numbers of those of its switches that are made.
Order: TypeAlias = int | tuple[int, ...]

#: How often a group stops before an instruction, and how often all warps that stand at a place go together.
_STOPS, _TOGETHER = 0.1, 0.5


class Drawn:
    """Draws which lanes run next, and as the container of the instructions before which they stop.

    Parameters
    ----------
    order : int or tuple of int
    first : int
        Number of the first block that runs.
    switches : int
        How many there were before it ran.

    Attributes
    ----------
    switches : int
        How often the lanes that run next could be drawn.
    """

    switches: int

    def __init__(self, order: Order, first: int, switches: int) -> None:
        self._seed, *kept = (order,) if isinstance(order, int) else order
        self._kept = None if isinstance(order, int) else frozenset(kept)
        self._first, self._chosen = first, np.zeros(0, np.int64)
        self._random = np.random.default_rng((self._seed, first))
        self.switches = switches

    def __contains__(self, code: object) -> bool:
        return bool(self._random.random() < _STOPS)

    def choose(self, machine: Machine) -> tuple[int, Index, bool] | None:
        """Place and lanes of the group to run next, of those that are running, and whether others could run.

        Where no switch is made, the lanes of the last one go on while they can; None where they cannot.
        """
        number = self.switches
        self.switches += 1
        if self._kept is not None and number not in self._kept:
            running = self._chosen[machine.status[self._chosen] == RUNNING]
            if not running.size:
                return None
            place = int(machine.place[running].min())
            group = running[machine.place[running] == place]
        else:
            # Each switch draws by itself, so that it is the same where others are left out.
            random = np.random.default_rng((self._seed, self._first, number))
            running = np.flatnonzero(machine.status == RUNNING)
            place = int(machine.place[running[random.integers(running.size)]])
            group = running[machine.place[running] == place]
            if random.random() >= _TOGETHER:
                warps = np.unique(machine.warp_of[group])
                chosen = warps[random.random(warps.size) < 0.5]
                some = group[np.isin(machine.warp_of[group], chosen)]
                group = some if some.size else group
            self._chosen = group
        return place, None if group.size == machine.lanes else group, group.size < machine.lanes
