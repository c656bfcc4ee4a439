"""Orders of lanes that are drawn: warps stop anywhere, and any may run next."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import RUNNING, Machine

#: How often a group stops before an instruction, and how often all warps that stand at a place go together.
_STOPS, _TOGETHER = 0.1, 0.5


class Drawn:
    """Draws which lanes run next, and as the container of the instructions before which they stop.

    Parameters
    ----------
    seed : int
    first : int
        Number of the first block that runs.
    """

    def __init__(self, seed: int, first: int) -> None:
        self._random = np.random.default_rng((seed, first))

    def __contains__(self, code: object) -> bool:
        return bool(self._random.random() < _STOPS)

    def choose(self, machine: Machine) -> tuple[int, Index, bool]:
        """Place and lanes of the group to run next, of those that are running, and whether others could run."""
        running = np.flatnonzero(machine.status == RUNNING)
        place = int(machine.place[running[self._random.integers(running.size)]])
        group = running[machine.place[running] == place]
        if self._random.random() >= _TOGETHER:
            warps = np.unique(machine.warp_of[group])
            chosen = warps[self._random.random(warps.size) < 0.5]
            some = group[np.isin(machine.warp_of[group], chosen)]
            group = some if some.size else group
        return place, None if group.size == machine.lanes else group, group.size < machine.lanes
