"""The SIMT machine: lanes with their own program counters, run in groups that stand at one place.

A lane's place is (call depth, function, instruction) in one number. The machine takes the lanes that stand at one
place, runs the instructions from there to the next branch, call or barrier for all of them at once (each instruction is
a few NumPy operations over the lanes), and chooses again. It prefers the lowest place, where lanes that took different
ways meet again. A group that only spins (it went round a loop that polls memory, and no lane left it), and one that
runs long while others wait, yields: it runs again when all others have yielded, wait or are done. So every lane that
can run will run, and what a spinning lane waits for comes soon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np

from cudakit.emulator.machine.capacity import LOCAL_BYTES, MOST_BYTES, blocks_at_once
from cudakit.emulator.machine.context import Frame
from cudakit.emulator.machine.decode import Decoded, failure
from cudakit.emulator.machine.memory import AccessError, Index
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.special import SpecialRegisters
from cudakit.emulator.ptx.program import Function, as_compiled
from cudakit.errors import EmulationError

#: Steps that groups may take while others wait, before the one at hand yields to them.
PATIENCE = 256

#: What a lane is doing; the first three have a place of which they may go on without being asked again.
RUNNING, AT_BARRIER, AT_WARP, DONE, YIELDED = 0, 1, 2, 3, 4
_FUNCTION_BITS, _CODE_BITS = 12, 28
#: Bytes of shared memory that the system keeps in every block.
_RESERVED_SHARED = 1024
#: Shared memory is allocated in multiples of this (PTX ISA 10.30).
_SHARED_UNIT = 128


class Observer(Protocol):
    """Watches a machine: the seam for memory checks and counters."""

    def instruction(self, decoded: Decoded, lanes: int) -> None:
        """An instruction was executed for `lanes` lanes."""


@dataclass(slots=True)
class Geometry:
    """Grid and block of a launch, in blocks and threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    #: Whether all blocks run at once, so that they may wait for each other.
    cooperative: bool = False

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass
class Launch:
    """One launch of an entry: what the machine runs."""

    module: Module
    entry: Function
    geometry: Geometry
    parameters: bytes
    output: Callable[[str], None] = print
    observers: tuple[Observer, ...] = ()
    step_budget: int | None = None
    #: What messages call the kernel; empty: its name in the PTX.
    name: str = ""
    #: What messages call a file and line of the compiler.
    placed: Callable[[str, int], str] = as_compiled
    steps: int = field(default=0)

    @property
    def title(self) -> str:
        return self.name or self.entry.name


def run(launch: Launch) -> None:
    """Run a launch to its end.

    Raises
    ------
    EmulationError
        For an access that memory does not have, an unknown instruction, a failed assertion, a deadlock or a step
        budget that is used up; each names the instruction and its line.
    """
    geometry = launch.geometry
    at_once = blocks_at_once(launch)
    try:
        with np.errstate(all="ignore"):
            for first in range(0, geometry.blocks, at_once):
                Machine(launch, range(first, min(geometry.blocks, first + at_once))).run()
    finally:
        launch.module.memory.leave()


class Machine:
    """The lanes of the blocks that run at once."""

    def __init__(self, launch: Launch, blocks: range) -> None:
        self.launch, self.module, self.memory = launch, launch.module, launch.module.memory
        geometry = launch.geometry
        threads = geometry.threads
        self.lanes = threads * len(blocks)
        self.threads, self.blocks = threads, len(blocks)
        self.block_of = np.repeat(np.arange(len(blocks)), threads)
        warps = -(-threads // 32)
        thread = np.arange(threads)
        #: Lanes that have not exited.
        self.alive = self.lanes
        #: Warp of each lane, counted over all blocks that run; its lane number in the warp.
        self.warp_of = (np.arange(len(blocks))[:, None] * warps + thread // 32).reshape(-1)
        self.lane_id = np.tile((thread % 32).astype(np.uint32), len(blocks))
        self.special = SpecialRegisters(geometry, blocks)
        self.module.grid_barrier[:] = 0
        # Where cooperative groups find the grid's barrier; 0 tells them that the grid cannot synchronise.
        high, low = divmod(self.module.grid_barrier_address if geometry.cooperative else 0, 1 << 32)
        self.special |= {"envreg1": np.uint32(high), "envreg2": np.uint32(low)}
        self.status = np.zeros(self.lanes, np.int8)
        self.place = np.zeros(self.lanes, np.int64)
        #: Lanes of a group that was chosen, and the lowest place of all others that have neither exited nor yielded:
        #: until the near come that far, the next group is one of theirs, and the others need not be looked at.
        self.near: Index = None
        self._masked = self._mask = np.zeros(0, bool)
        self.far = 0
        self.spinning: dict[int, int] = {}
        self.local_top = np.zeros(self.lanes, np.int64)
        self.frames: dict[tuple[int, int], Frame] = {}
        _, static = self.module.shared_layout()
        shared_bytes = -(-(static + geometry.shared_bytes) // _SHARED_UNIT) * _SHARED_UNIT
        self.special["total_smem_size"] = np.uint32(shared_bytes)
        self.special["aggr_smem_size"] = np.uint32(shared_bytes + _RESERVED_SHARED)
        self.memory.block_of = self.block_of
        self.memory.shared = np.zeros((self.blocks, -(-(static + geometry.shared_bytes) // 16) * 16 + 16), np.uint8)
        self._reserved = -1
        self.memory.local = np.zeros((self.lanes, 1024), np.uint8)
        self.memory.cluster = prod(geometry.cluster)
        self.memory.exited = lambda blocks: (self.status.reshape(self.blocks, -1) == DONE).all(axis=1)[blocks]
        self.waiters: dict[str, Any] = {}
        entry = launch.entry
        frame = self.frame(0, self.module.numbers[entry.name])
        self.memory.set_parameters(launch.parameters)
        offsets = self.module.context(entry).parameter_offsets
        for variable in entry.parameters:
            offset = offsets[variable.name]
            frame.parameters[variable.name] = self.memory.parameters[:, offset : offset + variable.size]
        self.place[:] = self.location(0, self.module.numbers[entry.name], 0)

    # ── places and frames ──

    @staticmethod
    def location(depth: int, function: int, code: int) -> int:
        return (((1023 - depth) << _FUNCTION_BITS | function) << _CODE_BITS) | code

    @staticmethod
    def where(location: int) -> tuple[int, int, int]:
        """Depth, function number and instruction of a place; a deeper call sorts first, to come back early."""
        code = location & ((1 << _CODE_BITS) - 1)
        rest = location >> _CODE_BITS
        return 1023 - (rest >> _FUNCTION_BITS), rest & ((1 << _FUNCTION_BITS) - 1), code

    def frame(self, depth: int, number: int) -> Frame:
        """Registers of a function at a call depth, for all lanes."""
        found = self.frames.get((depth, number))
        if found is None:
            context = self.module.context(self.module.functions[number])
            taken = (len(self.frames) + 1) * self.lanes * context.lane_bytes
            if depth and taken > MOST_BYTES:
                raise EmulationError(
                    f"stack overflow: {depth} calls deep, the registers of {self.lanes} threads take {taken} bytes, "
                    f"and {MOST_BYTES} are available"
                )
            found = self.frames[depth, number] = context.make_frame(self.lanes)
            if depth == 0:
                self.reserve_local(None, context.local_bytes)
        return found

    def reserve_local(self, index: Index, size: int | np.ndarray) -> None:
        """Move the top of lanes' local memory up by `size` bytes."""
        top = self.local_top
        if index is None:
            top += size
        else:
            top[index] += size
        need = int(top.max())
        if need > LOCAL_BYTES:
            raise EmulationError(
                f"stack overflow: a thread's calls take {need} bytes of local memory, over the limit of {LOCAL_BYTES}"
            )
        if need > self.memory.local.shape[1]:
            grown = np.zeros((self.lanes, -(-2 * need // 1024) * 1024), np.uint8)
            grown[:, : self.memory.local.shape[1]] = self.memory.local
            self.memory.local = grown

    def reserved_shared(self, place: str) -> int:
        """PTX ISA 10.33: the shared memory that the system keeps behind each block's own, made when first asked for."""
        if self._reserved < 0:
            self._reserved = self.memory.shared.shape[1]
            self.memory.shared = np.pad(self.memory.shared, ((0, 0), (0, _RESERVED_SHARED)))
        after = {"begin": 0, "0": 0, "1": _RESERVED_SHARED // 2, "end": _RESERVED_SHARED}
        return _RESERVED_SHARED if place == "cap" else self._reserved + after[place]

    # ── scheduling ──

    def run(self) -> None:
        alone = 0
        while True:
            location, index, others = self.choose()
            if location < 0:
                return
            alone = alone + 1 if others else 0
            self.launch.steps += 1
            self.run_group(location, index)
            if alone > PATIENCE:
                alone = 0
                self.pause(np.arange(self.lanes) if index is None else index)

    def choose(self) -> tuple[int, Index, bool]:
        """Place and lanes of the group to run next, and whether others could run; place −1 when all are done."""
        if self.near is not None:
            running = self.near[self.status[self.near] == RUNNING]
            if running.size and (lowest := int((places := self.place[running]).min())) < self.far:
                return lowest, running[places == lowest], True
            self.near = None
        if not self.status.any() and (lowest := int(self.place.min())) == int(self.place.max()):
            return lowest, None, False
        standing = np.flatnonzero(self.status < DONE)
        running = self.status[standing] == RUNNING
        yielded = np.count_nonzero(self.status == YIELDED)
        if not running.any():
            if not yielded:
                if standing.size:
                    self.deadlock()
                return -1, None, False
            self.status[self.status == YIELDED] = RUNNING
            return self.choose()
        places = self.place[standing]
        lowest = int(places[running].min())
        chosen = running & (places == lowest)
        group, rest = standing[chosen], places[~chosen]
        if group.size == self.lanes:
            return lowest, None, False
        self.near, self.far = group, int(rest.min(initial=np.iinfo(np.int64).max))
        return lowest, group, group.size < np.count_nonzero(running) + yielded

    def mask(self, index: np.ndarray) -> np.ndarray:
        """Whether each lane is in `index`; a group's is asked for again and again."""
        if self._masked is not index:
            self._masked = index
            self._mask = np.zeros(self.lanes, bool)
            self._mask[index] = True
        return self._mask

    def pause(self, lanes: np.ndarray) -> None:
        """Let all other lanes that can run go first."""
        self.status[lanes[self.status[lanes] == RUNNING]] = YIELDED

    def after_loop(self, index: Index, location: int) -> None:
        """A group has gone round a loop that polls memory: it yields if no lane has left since it last came here."""
        spinning = np.flatnonzero(self.place < location) if index is None else index[self.place[index] < location]
        # Where all lanes go round together there are no others to let go first.
        if 0 < spinning.size < self.lanes and self.spinning.get(location) == spinning.size:
            self.pause(spinning)
        self.spinning[location] = spinning.size

    def run_group(self, location: int, index: Index) -> None:
        """Run lanes that stand at one place to the next point where they may part."""
        depth, number, code = self.where(location)
        function = self.module.functions[number]
        decoded, frame = self.module.decoded(function), self.frame(depth, number)
        context = self.module.context(function)
        budget = self.launch.step_budget
        while True:
            instruction = decoded[code]
            if budget is not None and self.launch.steps > budget:
                what = f"the budget of {budget} steps is used up; if the kernel is not endless, give more steps"
                raise EmulationError(self.explain(function, instruction, what))
            try:
                active = index
                if instruction.guard is not None:
                    active = instruction.guard(frame, index)
                    if not instruction.is_branch and active is not None and active.size == 0:
                        code += 1
                        if code in context.leaders:
                            break
                        continue
                for observer in self.launch.observers:
                    observer.instruction(instruction, self.lanes if active is None else active.size)
                if instruction.control is not None:
                    self.set_place(index, self.location(depth, number, code + 1))
                    stay = instruction.control(self, frame, index, active, (depth, number, code))
                    if code in context.polling:
                        self.after_loop(index, location - self.where(location)[2] + code)
                    if not stay:
                        return
                else:
                    assert instruction.step is not None
                    instruction.step(frame, active, self)
            except (AccessError, EmulationError) as error:
                raise EmulationError(self.explain(function, instruction, str(error))) from None
            except Exception as error:
                what = f"cannot be executed with these operands ({failure(error)})"
                raise EmulationError(self.explain(function, instruction, what)) from error
            self.launch.steps += 1
            code += 1
            if code in context.leaders:
                break
        self.set_place(index, self.location(depth, number, code))

    def set_place(self, index: Index, location: int) -> None:
        self.place[slice(None) if index is None else index] = location

    def explain(self, function: Function, decoded: Decoded, what: str) -> str:
        instruction = decoded.instruction
        source = f", {instruction.source.shown(self.launch.placed)}" if instruction.source else ""
        name = (
            self.launch.title if function.name == self.launch.entry.name else f"{self.launch.title}, in {function.name}"
        )
        return f"{name}: {instruction} (PTX line {instruction.line}{source}): {what}"

    def name_of(self, lane: int) -> str:
        """``block 5, thread 7``, or with (x, y, z) where the launch has more than x."""

        def one(kind: str, extent: tuple[int, int, int]) -> str:
            x, y, z = (int(self.special[f"{kind}.{axis}"][lane]) for axis in "xyz")
            return f"{x}" if extent[1:] == (1, 1) else f"({x}, {y}, {z})"

        geometry = self.launch.geometry
        return f"block {one('ctaid', geometry.grid)}, thread {one('tid', geometry.block)}"

    def finish(self, index: Index) -> None:
        """Lanes have exited: barriers and warp operations no longer wait for them."""
        self.status[slice(None) if index is None else index] = DONE
        self.alive -= self.lanes if index is None else index.size
        self.wake()

    def wake(self) -> None:
        """Look again at lanes that wait for others, after lanes have arrived or exited."""
        from cudakit.emulator.instructions import barrier, cluster, warp

        barrier.release(self)
        warp.release(self)
        cluster.release(self)

    def deadlock(self) -> None:
        waiting = np.flatnonzero(self.status != DONE)
        kinds = {AT_BARRIER: "at a barrier", AT_WARP: "for other lanes of their warp"}
        counts = [f"{int((self.status == kind).sum())} {what}" for kind, what in kinds.items()]
        _, number, code = self.where(int(self.place[waiting[0]]))
        function = self.module.functions[number]
        # A lane that waits stands behind the instruction that made it wait.
        decoded = self.module.decoded(function)[code - 1]
        what = f"deadlock: threads wait that nothing can wake ({', '.join(counts)}); the first is"
        raise EmulationError(self.explain(function, decoded, f"{what} {self.name_of(int(waiting[0]))}"))
