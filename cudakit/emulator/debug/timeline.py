"""A launch that is run step by step, and its past: which group ran at each step, and states to begin again from.

A launch is deterministic but for the choice whose turn it is, which is what is kept of each step. To go back, the
nearest state before is taken up again, writes to global memory are undone, and the steps up to there are run anew. What
was overwritten between two states is kept once for all its steps where it comes to be much, and then fewer states are.
"""

from __future__ import annotations

import bisect
import copy
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.emulator.machine.decode import Context
from cudakit.emulator.machine.heap import Heap, device_limits
from cudakit.emulator.machine.machine import PATIENCE, Launch, Observer, Scheduler
from cudakit.emulator.machine.memory import WRITE, Allocation, Index
from cudakit.emulator.machine.module import blocks_at_once
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


#: Bytes that a write that is kept takes besides its elements.
_EACH = 400


class _Write(NamedTuple):
    """Elements of `size` bytes that were written at a tick or later, to memory at an address; what they were before."""

    tick: int
    address: int
    data: np.ndarray
    size: int
    elements: np.ndarray
    former: np.ndarray

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.elements.nbytes + self.former.nbytes + _EACH

    def undo(self) -> None:
        """Put back what was there."""
        _view(self.address, self.data, self.size)[self.elements] = self.former

    def by_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """The same as single bytes."""
        first = -self.address % self.size + self.elements.astype(np.int64) * self.size
        return (first[:, None] + np.arange(self.size)).reshape(-1), self.former.view(np.uint8)


class Undo:
    """The writes of a launch, in order; `cudakit.emulator.machine.memory.Memory.watcher`.

    Attributes
    ----------
    tick : int
        Of the writes that come now.
    bytes : int
        What they take, about.
    """

    def __init__(self) -> None:
        self.tick: int = 0
        self.bytes: int = 0
        self._held: list[_Write] = []

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """See `cudakit.emulator.machine.memory.Watcher`."""
        if use >= WRITE:
            former = _view(piece.address, piece.data, size)[elements].copy()
            self._add(_Write(self.tick, piece.address, piece.data, size, np.array(elements), former))

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """The same for what is written past `Memory`: surfaces."""
        data = array.reshape(-1).view(np.uint8)
        self._add(_Write(self.tick, 0, data, 1, np.arange(data.size), data.view("V1").copy()))
        return np.zeros(array.nbytes, np.uint8)

    def _add(self, write: _Write) -> None:
        self._held.append(write)
        self.bytes += write.bytes

    def back(self, tick: int) -> None:
        """Undo the writes of a tick and of all after it."""
        while self._held and self._held[-1].tick >= tick:
            write = self._held.pop()
            self.bytes -= write.bytes
            write.undo()

    def merge(self, ticks: Sequence[int]) -> None:
        """Keep of what was written from one of these ticks to the next what was there first, to go back to them alone.

        Parameters
        ----------
        ticks : sequence of int
            Ascending, from 0 up.
        """
        stretches = groupby(self._held, lambda write: int(np.searchsorted(ticks, write.tick, "right")) - 1)
        self._held = [each for number, writes in stretches for each in _merged(ticks[number], writes)]
        self.bytes = sum(write.bytes for write in self._held)


def _view(address: int, data: np.ndarray, size: int) -> np.ndarray:
    """Memory as its elements that are aligned."""
    skip = -address % size
    whole = (data.size - skip) // size * size
    return data[skip : skip + whole].view(f"V{size}")


def _merged(tick: int, writes: Iterable[_Write]) -> list[_Write]:
    by_memory = dict[tuple[int, int], list[_Write]]()
    for write in writes:
        by_memory.setdefault((write.data.__array_interface__["data"][0], write.data.nbytes), []).append(write)
    found = []
    for each in by_memory.values():
        size = each[0].size if all(write.size == each[0].size for write in each) else 1
        pairs = [(w.elements, w.former) if size == w.size else w.by_bytes() for w in each]
        elements, first = np.unique(np.concatenate([pair[0] for pair in pairs]), return_index=True)
        former = np.concatenate([np.ascontiguousarray(pair[1]).view(f"V{size}") for pair in pairs])
        found.append(_Write(tick, each[0].address, each[0].data, size, elements, former[first]))
    return found


#: Steps between two states that are kept, at first; and how many are kept at the most.
_STEPS, _MOST = 512, 48
#: What was overwritten may take so much; more only where less would not lead back to the begin.
MOST_BYTES = 256 << 20
#: Lanes at once: each state that is kept holds all their registers.
_LANES: Final = 4096


class _State(NamedTuple):
    tick: int
    part: int
    saved: Saved


class Timeline:
    """A launch, somewhere between its begin and its end.

    Parameters
    ----------
    launch : Launch
    observers : sequence of Observer
        Are told of each instruction once, when it is run for the first time.

    Attributes
    ----------
    tick : int
        Steps since the begin.
    known : int
        Steps that have been run.
    stepper : Stepper
        Of the blocks that run now.
    """

    stepper: Stepper
    tick: int
    known: int

    def __init__(self, launch: Launch, observers: Sequence[Observer] = ()) -> None:
        self.launch: Launch = launch
        self.tick = self.known = 0
        self._observers, self._output = tuple(observers), launch.output
        self._undo, self._most_bytes = Undo(), MOST_BYTES
        self._turns: list[tuple[int, int]] = []
        self._states: list[_State] = []
        self._apart = _STEPS
        geometry = launch.geometry
        most = blocks_at_once(launch.module, launch.entry, geometry, launch.title)
        if not geometry.cooperative:
            cluster = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2]
            most = min(most, max(1, _LANES // (geometry.threads * cluster)) * cluster)
        blocks = range(geometry.blocks)
        self._blocks = [blocks[first : first + most] for first in range(0, geometry.blocks, most)]
        self._parts: dict[int, Stepper] = {}
        self._part = 0
        launch.output = self._print
        launch.memory.watcher = self._undo
        self._enter(0)

    @property
    def is_over(self) -> bool:
        """Whether the launch has ended."""
        return self.stepper.is_over and self._part == len(self._blocks) - 1

    def close(self) -> None:
        """Let go of the launch's memory; it can be gone through no more."""
        self.launch.memory.watcher = None
        self.launch.memory.clear_lanes()

    # ── forward ──

    def step(self, warp: int = ALL) -> tuple[int, Index]:
        """Run one instruction: what was run here before, or what comes next, of a warp if it can go on.

        Gives its place and lanes.

        Raises
        ------
        EmulationError
            Whereupon all is as it was before the step.
        """
        if self.stepper.is_over and not self.is_over:
            self._enter(self._part + 1)
        if self.tick < self.known:
            at = bisect.bisect_right(self._turns, self.tick, key=lambda turn: turn[0]) - 1
            warp = self._turns[at][1]
        elif not self._turns or self._turns[-1][1] != warp:
            self._turns.append((self.tick, warp))
        if self.tick >= self._states[-1].tick + self._apart:
            self._keep()
        self.launch.observers = self._observers if self.tick == self.known else ()
        self._undo.tick = self.tick
        try:
            ran = self.stepper.tick(warp)
        except EmulationError:
            if self._turns[-1][0] == self.tick == self.known:
                self._turns.pop()
            self.seek(self.tick)
            raise
        self.tick += 1
        self.known = max(self.known, self.tick)
        if self._undo.bytes > self._most_bytes:
            self._shrink()
        return ran

    def _enter(self, part: int) -> None:
        """Begin with other blocks."""
        self._part = part
        known = next((state for state in self._states if state.part == part), None)
        if known is not None:
            self.stepper = self._parts[part]
            self.stepper.restore(known.saved)
            return
        self.launch.steps = self.stepper.steps if part else 0
        self.stepper = self._parts[part] = Stepper(self.launch, self._blocks[part])
        self._states.append(_State(self.tick, part, self.stepper.save()))

    def _keep(self) -> None:
        """Keep the state at hand; of many, every second goes but for the begin of each part."""
        if self.tick < self.known:
            return
        self._states.append(_State(self.tick, self._part, self.stepper.save()))
        if len(self._states) > _MOST + len(self._parts):
            self._thin()

    def _thin(self) -> bool:
        """Let every second state go; whether any did."""
        self._apart *= 2
        count = len(self._states)
        begins = {next(each.tick for each in self._states if each.part == part) for part in self._parts}
        last = self._states[-1]
        self._states = [
            each for k, each in enumerate(self._states) if k % 2 == 0 or each.tick in begins or each is last
        ]
        return len(self._states) < count

    def _shrink(self) -> None:
        """Keep less of what was overwritten, with which each state that is still kept can be gone back to."""
        self._undo.merge([state.tick for state in self._states])
        while self._undo.bytes > self._most_bytes // 2 and self._thin():
            self._undo.merge([state.tick for state in self._states])
        self._most_bytes = max(MOST_BYTES, 2 * self._undo.bytes)

    def _print(self, text: str) -> None:
        if self.tick == self.known:
            self._output(text)

    # ── back ──

    def seek(self, tick: int) -> None:
        """Go to where so many steps have been run, all of which have been run before."""
        if tick <= self.tick:
            self._take_up(self._before(tick))
        while self.tick < tick:
            self.step()

    def _before(self, tick: int) -> _State:
        states: list[_State] = [state for state in self._states if state.tick <= tick]
        return states[-1]

    def _take_up(self, state: _State) -> None:
        self._undo.back(state.tick)
        self.tick, self._part = state.tick, state.part
        self.stepper = self._parts[state.part]
        self.stepper.restore(state.saved)

    def last(self, begin: Callable[[Stepper], Callable[[], bool] | None]) -> int:
        """The step before this one after which a condition held last; that with which these blocks began if none is.

        Parameters
        ----------
        begin : callable
            Gives what is called after each step of a stretch; None where it must begin earlier.
        """
        limit = end = self.tick
        while end > self.began:
            start = self._before(end - 1)
            self._take_up(start)
            while (holds := begin(self.stepper)) is None and start.tick > self.began:
                start = self._before(start.tick - 1)
                self._take_up(start)
            found = self.began - 1
            while self.tick < end:
                self.step()
                if self.tick < limit and holds is not None and holds():
                    found = self.tick
            if found >= self.began:
                return found
            end = start.tick
        return self.began

    @property
    def began(self) -> int:
        """The step with which the blocks at hand began."""
        return next(state.tick for state in self._states if state.part == self._part)

    @contextmanager
    def trial(self) -> Iterator[Stepper]:
        """A block in which the machine may be tried; afterwards all is as before."""
        saved, self._undo.tick = self.stepper.save(), self.tick
        self.launch.observers = ()
        try:
            yield self.stepper
        finally:
            self._undo.back(self.tick)
            self.stepper.restore(saved)
