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
from typing import Any, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.decode import Context, Decoded, Frame, decode
from cudakit.emulator.memory import AccessError, Index, Memory
from cudakit.emulator.ptx import Function, Program, Symbol, Variable
from cudakit.errors import EmulationError

#: Lanes that run at once; blocks beyond them run after.
MOST_LANES = 65_536
#: Steps that groups may take while others wait, before the one at hand yields to them.
PATIENCE = 256

RUNNING, AT_BARRIER, AT_WARP, DONE, YIELDED = 0, 1, 2, 3, 4
_FUNCTION_BITS, _CODE_BITS = 12, 28

Outcome: TypeAlias = "tuple[str, Any] | None"


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


class Module:
    """A decoded program with its variables in memory; made once for a specialization, launched many times."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.numbers = {name: number for number, name in enumerate(program.functions)}
        self.functions = list(program.functions.values())
        self._decoded: dict[str, list[Decoded]] = {}
        self._contexts: dict[str, Context] = {}
        for variable in program.variables.values():
            self._place(variable)
        for variable in program.variables.values():
            self._fill(variable)

    def _place(self, variable: Variable) -> None:
        if variable.space in ("global", "const"):
            padded = np.zeros(variable.size + variable.align + 16, np.uint8)
            skip = -int(padded.__array_interface__["data"][0]) % max(1, variable.align)
            data = padded[skip : skip + max(1, variable.size)]
            self.storage[variable.name] = data
            self.addresses[variable.name] = self.memory.add(data, f"variable {variable.name}")

    def _fill(self, variable: Variable) -> None:
        for offset, item in variable.data:
            if isinstance(item, Symbol):
                value = self.addresses.get(item.name, self.function_address(item.name)) + item.offset
                item = value.to_bytes(8, "little")
            self.storage[variable.name][offset : offset + len(item)] = np.frombuffer(item, np.uint8)

    def function_address(self, name: str) -> int:
        """A number that stands for a function in a function pointer."""
        return 0x7300_0000_0000_0000 + self.numbers.get(name, 0)

    def context(self, function: Function) -> Context:
        """Layout of a function's registers, shared and local variables."""
        if function.name not in self._contexts:
            self._contexts[function.name] = Context(self, function)
        return self._contexts[function.name]

    def decoded(self, function: Function) -> list[Decoded]:
        """The function's instructions, decoded at its first use."""
        if function.name not in self._decoded:
            context = self.context(function)
            self._decoded[function.name] = [decode(instruction, context) for instruction in function.code]
        return self._decoded[function.name]

    def shared_layout(self) -> tuple[dict[str, int], int]:
        """Offset of every shared variable of the module, and where dynamic shared memory begins."""
        offsets, end = {}, 0
        variables = [v for v in self.program.variables.values() if v.space == "shared"]
        for function in self.functions:
            variables += [v for v in function.variables.values() if v.space == "shared"]
        for variable in variables:
            if variable.size:
                end = -(-end // variable.align) * variable.align
                offsets[variable.name] = end
                end += variable.size
        dynamic = [variable for variable in variables if not variable.size]
        start = -(-end // 16) * 16
        for variable in dynamic:
            align = max(16, variable.align)
            start = -(-start // align) * align
        return {**offsets, **{variable.name: start for variable in dynamic}}, start


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
    steps: int = field(default=0)


def run(launch: Launch) -> None:
    """Run a launch to its end.

    Raises
    ------
    EmulationError
        For an access that memory does not have, an unknown instruction, a failed assertion, a deadlock or a step
        budget that is used up; each names the instruction and its line.
    """
    geometry = launch.geometry
    cluster = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2]
    at_once = max(1, MOST_LANES // (geometry.threads * cluster)) * cluster
    if geometry.cooperative:
        at_once = geometry.blocks
    for first in range(0, geometry.blocks, at_once):
        Machine(launch, range(first, min(geometry.blocks, first + at_once))).run()


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
        thread = np.tile(np.arange(threads), len(blocks))
        #: Warp of each lane, counted over all blocks that run; its lane number in the warp.
        self.warp_of = self.block_of * warps + thread // 32
        self.lane_id = (thread % 32).astype(np.uint32)
        self.special = self._special(geometry, thread, np.repeat(np.asarray(blocks), threads))
        self.status = np.zeros(self.lanes, np.int8)
        self.place = np.zeros(self.lanes, np.int64)
        self.spinning: dict[int, int] = {}
        self.barrier = np.zeros(self.lanes, np.int64)
        self.local_top = np.zeros(self.lanes, np.int64)
        self.frames: dict[tuple[int, int], Frame] = {}
        _, static = self.module.shared_layout()
        self.memory.block_of = self.block_of
        self.memory.shared = np.zeros((self.blocks, -(-(static + geometry.shared_bytes) // 16) * 16 + 16), np.uint8)
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

    def _special(self, geometry: Geometry, thread: np.ndarray, block: np.ndarray) -> dict[str, Any]:
        (bx, by, bz), (gx, gy, gz), (cx, cy, cz) = geometry.block, geometry.grid, geometry.cluster
        u4 = np.uint32
        # Blocks run in the order of their clusters, so that a cluster is never cut in two.
        (nx, ny, nz), inside = (gx // cx, gy // cy, gz // cz), cx * cy * cz
        cluster, rank = block // inside, block % inside
        cluster_x, cluster_y, cluster_z = cluster % nx, cluster // nx % ny, cluster // (nx * ny)
        rank_x, rank_y, rank_z = rank % cx, rank // cx % cy, rank // (cx * cy)
        block_x, block_y, block_z = cluster_x * cx + rank_x, cluster_y * cy + rank_y, cluster_z * cz + rank_z
        found: dict[str, Any] = {
            "tid.x": (thread % bx).astype(u4), "tid.y": (thread // bx % by).astype(u4),
            "tid.z": (thread // (bx * by)).astype(u4), "ctaid.x": block_x.astype(u4),
            "ctaid.y": block_y.astype(u4), "ctaid.z": block_z.astype(u4),
            "ntid.x": u4(bx), "ntid.y": u4(by), "ntid.z": u4(bz), "nctaid.x": u4(gx), "nctaid.y": u4(gy),
            "nctaid.z": u4(gz), "laneid": (thread % 32).astype(u4), "warpid": (thread // 32).astype(u4),
            "nwarpid": u4(-(-geometry.threads // 32)), "smid": (block % 132).astype(u4), "nsmid": u4(132),
            "gridid": np.uint64(1), "WARP_SZ": u4(32), "dynamic_smem_size": u4(geometry.shared_bytes),
            "is_explicit_cluster": np.bool_(inside > 1), "cluster_ctarank": rank.astype(u4),
            "cluster_nctarank": u4(inside), "clusterid.x": cluster_x.astype(u4), "clusterid.y": cluster_y.astype(u4),
            "clusterid.z": cluster_z.astype(u4), "nclusterid.x": u4(nx), "nclusterid.y": u4(ny),
            "nclusterid.z": u4(nz), "cluster_ctaid.x": rank_x.astype(u4), "cluster_ctaid.y": rank_y.astype(u4),
            "cluster_ctaid.z": rank_z.astype(u4), "cluster_nctaid.x": u4(cx), "cluster_nctaid.y": u4(cy),
            "cluster_nctaid.z": u4(cz),
        }  # fmt: skip
        lane = (thread % 32).astype(u4)
        one = u4(1)
        found["lanemask_eq"] = one << lane
        found["lanemask_lt"] = (one << lane) - one
        found["lanemask_le"] = found["lanemask_lt"] | found["lanemask_eq"]
        found["lanemask_gt"] = ~found["lanemask_le"]
        found["lanemask_ge"] = ~found["lanemask_lt"]
        return found

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
            found = self.frames[depth, number] = context.make_frame(self.lanes)
            if depth == 0:
                self.reserve_local(None, context.local_bytes)
        return found

    def reserve_local(self, index: Index, size: int) -> None:
        """Move the top of lanes' local memory up by `size` bytes."""
        top = self.local_top
        if index is None:
            top += size
        else:
            top[index] += size
        need = int(top.max())
        if need > self.memory.local.shape[1]:
            grown = np.zeros((self.lanes, -(-2 * need // 1024) * 1024), np.uint8)
            grown[:, : self.memory.local.shape[1]] = self.memory.local
            self.memory.local = grown

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
        if not self.status.any() and (lowest := int(self.place.min())) == int(self.place.max()):
            return lowest, None, False
        candidates = np.flatnonzero(self.status == RUNNING)
        yielded = np.flatnonzero(self.status == YIELDED)
        if candidates.size == 0:
            if yielded.size == 0:
                if not (self.status == DONE).all():
                    self.deadlock()
                return -1, None, False
            self.status[yielded] = RUNNING
            candidates, yielded = yielded, yielded[:0]
        places = self.place[candidates]
        lowest = int(places.min())
        group = candidates[places == lowest]
        others = group.size < candidates.size + yielded.size
        return lowest, None if group.size == self.lanes else group, others

    def pause(self, lanes: np.ndarray) -> None:
        """Let all other lanes that can run go first."""
        self.status[lanes[self.status[lanes] == RUNNING]] = YIELDED

    def after_loop(self, index: Index, location: int) -> None:
        """A group has gone round a loop that polls memory: it yields if no lane has left since it last came here."""
        lanes = np.arange(self.lanes) if index is None else index
        spinning = lanes[self.place[lanes] < location]
        if spinning.size and self.spinning.get(location) == spinning.size:
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
            except AccessError as error:
                raise EmulationError(self.explain(function, instruction, str(error))) from None
            except EmulationError as error:
                raise EmulationError(self.explain(function, instruction, str(error))) from None
            self.launch.steps += 1
            if budget is not None and self.launch.steps > budget:
                raise EmulationError(self.explain(function, instruction, f"the budget of {budget} steps is used up"))
            code += 1
            if code in context.leaders:
                break
        self.set_place(index, self.location(depth, number, code))

    def set_place(self, index: Index, location: int) -> None:
        self.place[slice(None) if index is None else index] = location

    def explain(self, function: Function, decoded: Decoded, what: str) -> str:
        instruction = decoded.instruction
        source = f", {instruction.source[0]}:{instruction.source[1]}" if instruction.source else ""
        return f"{function.name}: {instruction} (PTX line {instruction.line}{source}): {what}"

    def finish(self, index: Index) -> None:
        """Lanes have exited: barriers and warp operations no longer wait for them."""
        self.status[slice(None) if index is None else index] = DONE
        self.wake()

    def wake(self) -> None:
        """Look again at lanes that wait for others, after lanes have arrived or exited."""
        from cudakit.emulator import barrier, cluster, warp

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
        block, thread = int(self.block_of[waiting[0]]), int(waiting[0]) % self.threads
        what = f"deadlock: threads wait that nothing can wake ({', '.join(counts)}); the first is block {block}"
        raise EmulationError(self.explain(function, decoded, f"{what} (of those that run), thread {thread}"))
