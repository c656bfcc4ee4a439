"""Timeline of a launch: steps, the warp that ran at each step, and saved states from which to run again.

A launch is deterministic except for the choice of the next warp, which is recorded. To go back, the nearest earlier
state is restored, writes to global memory are undone, and the steps up to the target run again.

Overwritten values are recorded for each step. If they take much memory, values between two states are merged; then
fewer states are saved.
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

#: Warp number of steps that choose among all warps.
ALL: Final = -1
#: Attributes shared with saved states: they never change or can be computed again.
_CONSTANT: Final = (
    "launch", "module", "memory", "geometry", "special", "output", "placed", "block_of", "warp_of", "lane_id", "slots",
    "warpgroup_of",
)  # fmt: skip
_MEMORY: Final = ("shared", "shared_bytes", "shared_offsets", "local", "parameters", "block_of", "cluster", "exited")


class _AllInstructions:
    """A container of every instruction."""

    def __contains__(self, code: object) -> bool:
        return True


class Front(NamedTuple):
    """Position of a warp.

    It has the lanes that run next together, their call depth, function number and instruction number, and whether they
    wait for other lanes.
    """

    lanes: np.ndarray
    depth: int
    function: int
    code: int
    waits: bool


class Saved(NamedTuple):
    """Saved state of an interpreter: attributes, shared and local memory, and the device's heap (or None).

    Global memory is not included.
    """

    machine: dict[str, Any]
    memory: dict[str, Any]
    heap: dict[str, Any] | None


class Stepper(Scheduler):
    """Interpreter of some of a launch's blocks, which runs one instruction at a time.

    Parameters
    ----------
    launch : Launch
        The launch.
    blocks : range
        Numbers of the blocks.
    """

    near: Index
    steps: int

    def __init__(self, launch: Launch, blocks: range) -> None:
        super().__init__(launch, blocks)
        self.first_block: int = blocks.start
        self.warps: int = self.blocks * -(-self.threads // 32)
        self.alone: int = 0

    def leaders(self, context: Context) -> Container[int]:
        """Return all instructions: see `Scheduler.leaders`."""
        return _AllInstructions()

    def make_child(self, pointer: int, geometry: Geometry) -> int:
        """Raise the error that refuses the launch of a child kernel, which could not be undone."""
        raise EmulationError("kernels that launch kernels cannot be stepped through")

    # ── forward ──

    def tick(self, warp: int) -> tuple[int, Index]:
        """Run one instruction of the next group of lanes, of `warp` if it can run.

        Return the location of the group before the instruction, and its lanes; None for all lanes.

        Raises
        ------
        EmulationError
            For the errors of a launch. Changes that the instruction made before the error stay.
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
        """Return location and lanes of the next group to run, and whether other groups may be able to run.

        The lanes are None for all lanes. The group is of `warp`. If the warp cannot run, the group is of the warp's
        block; if the block cannot run either, of any block.
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
        """True once all lanes have exited."""
        return self.alive == 0

    # ── where warps are ──

    def lanes_of(self, warp: int) -> np.ndarray:
        """Return the lanes of a warp."""
        block, inside = divmod(warp, self.warps // self.blocks)
        first = block * self.threads + 32 * inside
        return np.arange(first, min(first + 32, (block + 1) * self.threads))

    def front(self, warp: int) -> Front | None:
        """Return the position of a warp; None once all its lanes have exited."""
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
        # A waiting lane is behind the instruction that made it wait.
        waits = not running.size and bool((self.status[group] < DONE).all())
        return Front(group[places == lowest], depth, function, code - waits, waits)

    # ── states ──

    def save(self) -> Saved:
        """Return a copy of the state, without global memory."""
        state = {name: value for name, value in vars(self).items() if name not in _CONSTANT}
        memory = {name: getattr(self.memory, name) for name in _MEMORY}
        heap = device_limits().heap.saved() if device_limits().has_heap else None
        return Saved(*copy.deepcopy((state, memory), self._shared_objects()), heap)

    def restore(self, saved: Saved) -> None:
        """Restore a state. The saved state does not change."""
        state, memory = copy.deepcopy((saved.machine, saved.memory), self._shared_objects())
        vars(self).update(state)
        for name, value in memory.items():
            setattr(self.memory, name, value)
        if device_limits().has_heap:
            heap = device_limits().heap
            heap.restore(Heap(heap.data.size).saved() if saved.heap is None else saved.heap)

    def _shared_objects(self) -> dict[int, Any]:
        """Return the objects that saved states share with the interpreter, by ``id``: a memo for `copy.deepcopy`."""
        common = [self, self.memory.exited, *(vars(self)[name] for name in _CONSTANT if name in vars(self))]
        for _, number in self.frames:
            # An unwritten register is recognised by being this very array.
            common += self.module.context(self.module.functions[number]).blank
        return {id(item): item for item in common}


#: Bytes of a recorded write besides its elements.
_WRITE_BYTES = 400


class _Write(NamedTuple):
    """A write of elements of `size` bytes to memory at an address, made at a tick, with the overwritten values."""

    tick: int
    address: int
    data: np.ndarray
    size: int
    elements: np.ndarray
    former: np.ndarray

    @property
    def bytes(self) -> int:
        """Number of bytes that the record of the write takes."""
        return self.elements.nbytes + self.former.nbytes + _WRITE_BYTES

    def undo(self) -> None:
        """Restore the overwritten values."""
        _view(self.address, self.data, self.size)[self.elements] = self.former

    def by_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the byte offsets of the written elements, and the overwritten bytes: flat arrays of one length."""
        first = -self.address % self.size + self.elements.astype(np.int64) * self.size
        return (first[:, None] + np.arange(self.size)).reshape(-1), self.former.view(np.uint8)


class Undo:
    """Log of a launch's writes, in order, to undo them; it is `cudakit.emulator.machine.memory.Memory.watcher`.

    Attributes
    ----------
    tick : int
        Tick of the next writes.
    bytes : int
        Approximate bytes of the log.
    """

    def __init__(self) -> None:
        self.tick: int = 0
        self.bytes: int = 0
        self._writes: list[_Write] = []

    def note(self, piece: Allocation, elements: np.ndarray, size: int, use: int) -> None:
        """Record a write: see `cudakit.emulator.machine.memory.Watcher`."""
        if use >= WRITE:
            former = _view(piece.address, piece.data, size)[elements].copy()
            self._add(_Write(self.tick, piece.address, piece.data, size, np.array(elements), former))

    def flags_of(self, name: str, array: np.ndarray) -> np.ndarray:
        """Save all elements of a surface, so that they can be restored; return flags that nobody reads.

        A surface's writes do not use `Memory`, so all its elements count as overwritten. `name` is ignored.
        """
        data = array.reshape(-1).view(np.uint8)
        self._add(_Write(self.tick, 0, data, 1, np.arange(data.size), data.view("V1").copy()))
        return np.zeros(array.nbytes, np.uint8)

    def _add(self, write: _Write) -> None:
        self._writes.append(write)
        self.bytes += write.bytes

    def back(self, tick: int) -> None:
        """Undo the writes of a tick and of all later ones."""
        while self._writes and self._writes[-1].tick >= tick:
            write = self._writes.pop()
            self.bytes -= write.bytes
            write.undo()

    def merge(self, ticks: Sequence[int]) -> None:
        """Merge writes between consecutive ticks of a list. Only these ticks can then be restored.

        Parameters
        ----------
        ticks : sequence of int
            Ticks, ascending from 0.
        """
        stretches = groupby(self._writes, lambda write: int(np.searchsorted(ticks, write.tick, "right")) - 1)
        self._writes = [write for number, writes in stretches for write in _merged(ticks[number], writes)]
        self.bytes = sum(write.bytes for write in self._writes)


def _view(address: int, data: np.ndarray, size: int) -> np.ndarray:
    """Return memory as an array of the aligned elements of `size` bytes; `data` has its bytes and begins at `address`.

    Bytes before the first and after the last aligned element are left out.
    """
    skip = -address % size
    whole = (data.size - skip) // size * size
    return data[skip : skip + whole].view(f"V{size}")


def _merged(tick: int, writes: Iterable[_Write]) -> list[_Write]:
    by_memory = dict[tuple[int, int], list[_Write]]()
    for write in writes:
        by_memory.setdefault((write.data.__array_interface__["data"][0], write.data.nbytes), []).append(write)
    merged = []
    for group in by_memory.values():
        size = group[0].size if all(write.size == group[0].size for write in group) else 1
        pairs = [(w.elements, w.former) if size == w.size else w.by_bytes() for w in group]
        elements, first = np.unique(np.concatenate([pair[0] for pair in pairs]), return_index=True)
        former = np.concatenate([np.ascontiguousarray(pair[1]).view(f"V{size}") for pair in pairs])
        merged.append(_Write(tick, group[0].address, group[0].data, size, elements, former[first]))
    return merged


#: Steps between two saved states at first, and most saved states.
_STEPS, _MOST = 512, 48
#: Most bytes of overwritten values; more only if fewer could not restore the beginning.
MOST_BYTES = 256 << 20
#: Most lanes at once: each saved state holds all their registers.
_LANES: Final = 4096


class _State(NamedTuple):
    tick: int
    part: int
    saved: Saved


class Timeline:
    """A launch at some moment between its beginning and its end.

    Parameters
    ----------
    launch : Launch
        The launch.
    observers : sequence of Observer
        Observers of each instruction. They are called once, when the instruction first runs.

    Attributes
    ----------
    tick : int
        Number of steps since the beginning.
    recorded : int
        Number of steps that have run so far.
    stepper : Stepper
        Interpreter of the blocks that run now.
    """

    stepper: Stepper
    tick: int
    recorded: int

    def __init__(self, launch: Launch, observers: Sequence[Observer] = ()) -> None:
        self.launch: Launch = launch
        self.tick = self.recorded = 0
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
        """True once the launch has ended."""
        return self.stepper.is_over and self._part == len(self._blocks) - 1

    def close(self) -> None:
        """Release the launch's memory. The timeline cannot be used afterwards."""
        self.launch.memory.watcher = None
        self.launch.memory.clear_lanes()

    # ── forward ──

    def step(self, warp: int = ALL) -> tuple[int, Index]:
        """Run one instruction; return the location of its lanes before it, and the lanes (None for all).

        A step that ran before runs again in the same way, and `warp` is ignored. Otherwise the next instruction runs,
        of `warp` if it can run.

        Raises
        ------
        EmulationError
            For an error of the instruction. The state is then the same as before the step.
        """
        if self.stepper.is_over and not self.is_over:
            self._enter(self._part + 1)
        if self.tick < self.recorded:
            at = bisect.bisect_right(self._turns, self.tick, key=lambda turn: turn[0]) - 1
            warp = self._turns[at][1]
        elif not self._turns or self._turns[-1][1] != warp:
            self._turns.append((self.tick, warp))
        if self.tick >= self._states[-1].tick + self._apart:
            self._save_state()
        self.launch.observers = self._observers if self.tick == self.recorded else ()
        self._undo.tick = self.tick
        try:
            ran = self.stepper.tick(warp)
        except EmulationError:
            if self._turns[-1][0] == self.tick == self.recorded:
                self._turns.pop()
            self.seek(self.tick)
            raise
        self.tick += 1
        self.recorded = max(self.recorded, self.tick)
        if self._undo.bytes > self._most_bytes:
            self._shrink()
        return ran

    def _enter(self, part: int) -> None:
        """Begin part number `part` of the launch: a range of blocks that run together.

        If the part ran before, its first state is restored.
        """
        self._part = part
        start = next((state for state in self._states if state.part == part), None)
        if start is not None:
            self.stepper = self._parts[part]
            self.stepper.restore(start.saved)
            return
        self.launch.steps = self.stepper.steps if part else 0
        self.stepper = self._parts[part] = Stepper(self.launch, self._blocks[part])
        self._states.append(_State(self.tick, part, self.stepper.save()))

    def _save_state(self) -> None:
        """Save the current state, unless the current step ran before.

        If there are many states, drop every second one, except the first of each part.
        """
        if self.tick < self.recorded:
            return
        self._states.append(_State(self.tick, self._part, self.stepper.save()))
        if len(self._states) > _MOST + len(self._parts):
            self._thin()

    def _thin(self) -> bool:
        """Drop every second saved state, except the first of each part and the last; return whether any was dropped.

        States are saved half as often from then on.
        """
        self._apart *= 2
        count = len(self._states)
        begins = {next(state.tick for state in self._states if state.part == part) for part in self._parts}
        last = self._states[-1]
        self._states = [
            state for k, state in enumerate(self._states) if k % 2 == 0 or state.tick in begins or state is last
        ]
        return len(self._states) < count

    def _shrink(self) -> None:
        """Merge the overwritten values between saved states, and drop states until the log is small enough."""
        self._undo.merge([state.tick for state in self._states])
        while self._undo.bytes > self._most_bytes // 2 and self._thin():
            self._undo.merge([state.tick for state in self._states])
        self._most_bytes = max(MOST_BYTES, 2 * self._undo.bytes)

    def _print(self, text: str) -> None:
        if self.tick == self.recorded:
            self._output(text)

    # ── back ──

    def seek(self, tick: int) -> None:
        """Go to a tick whose steps have all run before."""
        if tick <= self.tick:
            self._resume(self._before(tick))
        while self.tick < tick:
            self.step()

    def _before(self, tick: int) -> _State:
        states: list[_State] = [state for state in self._states if state.tick <= tick]
        return states[-1]

    def _resume(self, state: _State) -> None:
        self._undo.back(state.tick)
        self.tick, self._part = state.tick, state.part
        self.stepper = self._parts[state.part]
        self.stepper.restore(state.saved)

    def last(self, begin: Callable[[Stepper], Callable[[], bool] | None]) -> int:
        """Return the last earlier step after which a condition held, or the first step of the current blocks.

        The timeline may be at another step afterwards: `seek` goes to a step.

        Parameters
        ----------
        begin : callable
            Function that returns the condition for a stretch of steps, or None if the stretch must begin earlier. The
            condition is called after each step of the stretch.
        """
        limit = end = self.tick
        while end > self.start_tick:
            start = self._before(end - 1)
            self._resume(start)
            while (holds := begin(self.stepper)) is None and start.tick > self.start_tick:
                start = self._before(start.tick - 1)
                self._resume(start)
            latest = self.start_tick - 1
            while self.tick < end:
                self.step()
                if self.tick < limit and holds is not None and holds():
                    latest = self.tick
            if latest >= self.start_tick:
                return latest
            end = start.tick
        return self.start_tick

    @property
    def start_tick(self) -> int:
        """Tick at which the current blocks began."""
        return next(state.tick for state in self._states if state.part == self._part)

    @contextmanager
    def trial(self) -> Iterator[Stepper]:
        """Let the interpreter run in a ``with`` block; afterwards its state and global memory are restored.

        Observers are not called in the block.
        """
        saved, self._undo.tick = self.stepper.save(), self.tick
        self.launch.observers = ()
        try:
            yield self.stepper
        finally:
            self._undo.back(self.tick)
            self.stepper.restore(saved)
