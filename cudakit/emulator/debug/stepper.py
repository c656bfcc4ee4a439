"""The machine, one instruction at a time: of all that come next, or of one warp."""

from __future__ import annotations

import copy
from collections.abc import Container
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.emulator.machine.decode import Context
from cudakit.emulator.machine.heap import Heap, device_limits
from cudakit.emulator.machine.machine import PATIENCE, Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import DONE, RUNNING, Geometry
from cudakit.errors import EmulationError

#: Steps that choose among all warps.
ALL: Final = -1
#: What a machine shares with its earlier states, for it never changes or can be computed again.
_CONSTANT: Final = (
    "launch", "module", "memory", "geometry", "special", "output", "placed", "block_of", "warp_of", "lane_id", "slots",
    "warpgroup_of",
)  # fmt: skip
_MEMORY: Final = ("shared", "shared_bytes", "shared_offsets", "local", "parameters", "block_of", "cluster", "exited")


class _Every:
    """Each instruction."""

    def __contains__(self, code: object) -> bool:
        return True


class Front(NamedTuple):
    """Where a warp stands: its lanes that go on next, their place, and whether they wait for others."""

    lanes: np.ndarray
    depth: int
    function: int
    code: int
    waits: bool


class Saved(NamedTuple):
    """A state of a machine, of its own memory, and of which blocks the device's heap has, if there is one."""

    machine: dict[str, Any]
    memory: dict[str, Any]
    heap: dict[str, Any] | None


class Stepper(Scheduler):
    """Some of a launch's blocks, run an instruction at a time.

    Parameters
    ----------
    launch : Launch
    blocks : range
    """

    near: Index
    steps: int

    def __init__(self, launch: Launch, blocks: range) -> None:
        super().__init__(launch, blocks)
        self.first_block: int = blocks.start
        self.warps: int = self.blocks * -(-self.threads // 32)
        self.alone: int = 0

    def leaders(self, context: Context) -> Container[int]:
        """See `Scheduler.leaders`."""
        return _Every()

    def make_child(self, pointer: int, geometry: Geometry) -> int:
        """Refuse what cannot be stepped back over."""
        raise EmulationError("kernels that launch kernels cannot be stepped through")

    # ── forward ──

    def tick(self, warp: int) -> tuple[int, Index]:
        """Run one instruction for the lanes that come next, of a warp if it can go on; gives its place and the lanes.

        Raises
        ------
        EmulationError
            As a launch does; what the instruction has changed until then stays.
        """
        location, index, others = self.next(warp)
        self.alone = self.alone + 1 if others else 0
        self.steps += 1
        with np.errstate(all="ignore"):
            self.run_group(location, index)
        if self.alone > PATIENCE:
            self.alone = 0
            self.pause(np.arange(self.lanes) if index is None else index)
        return location, index

    def next(self, warp: int) -> tuple[int, Index, bool]:
        """Place and lanes of the group that comes next, and whether others could run.

        Of a warp; where that cannot go on, of the others of its block, then of all.
        """
        if warp != ALL:
            lanes = self.lanes_of(warp)
            first = int(lanes[0]) // self.threads * self.threads
            for among in (lanes, np.arange(first, first + self.threads)):
                running = among[self.status[among] == RUNNING]
                if running.size:
                    self.near = None
                    places = self.place[running]
                    lowest = int(places.min())
                    return lowest, running[places == lowest], True
        return self.choose()

    @property
    def is_over(self) -> bool:
        """Whether all lanes have exited."""
        return self.alive == 0

    # ── where warps are ──

    def lanes_of(self, warp: int) -> np.ndarray:
        """The lanes of a warp."""
        block, inside = divmod(warp, self.warps // self.blocks)
        first = block * self.threads + 32 * inside
        return np.arange(first, min(first + 32, (block + 1) * self.threads))

    def front(self, warp: int) -> Front | None:
        """Where a warp stands; None where all of it has exited."""
        lanes = self.lanes_of(warp)
        status = self.status[lanes]
        standing = lanes[status < DONE] if (status < DONE).any() else lanes[status != DONE]
        if not standing.size:
            return None
        running = standing[self.status[standing] == RUNNING]
        group = running if running.size else standing
        places = self.place[group]
        lowest = int(places.min())
        depth, function, code = self.where(lowest)
        # A lane that waits stands behind the instruction that made it wait.
        waits = not running.size and bool((self.status[group] < DONE).all())
        return Front(group[places == lowest], depth, function, code - waits, waits)

    # ── states ──

    def save(self) -> Saved:
        """A copy of the state but for global memory."""
        state = {name: value for name, value in vars(self).items() if name not in _CONSTANT}
        memory = {name: getattr(self.memory, name) for name in _MEMORY}
        heap = device_limits().heap.saved() if device_limits().has_heap else None
        return Saved(*copy.deepcopy((state, memory), self._shared()), heap)

    def restore(self, saved: Saved) -> None:
        """Go back to a state, which stays as it is."""
        state, memory = copy.deepcopy((saved.machine, saved.memory), self._shared())
        vars(self).update(state)
        for name, value in memory.items():
            setattr(self.memory, name, value)
        if device_limits().has_heap:
            heap = device_limits().heap
            heap.restore(Heap(heap.data.size).saved() if saved.heap is None else saved.heap)

    def _shared(self) -> dict[int, Any]:
        """What copies of the state have in common with it, as `copy.deepcopy` takes it."""
        common = [self, self.memory.exited, *(vars(self)[name] for name in _CONSTANT if name in vars(self))]
        for _, number in self.frames:
            # What nothing was written to is known by being this very array.
            common += self.module.context(self.module.functions[number]).blank
        return {id(each): each for each in common}
