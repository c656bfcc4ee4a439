"""State of the lanes that run at once, as instructions read and change it: each lane's status, place and memory."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from cudakit.emulator.machine.late import Late
from cudakit.emulator.machine.memory import Index, Memory
from cudakit.errors import EmulationError


@dataclass(slots=True)
class Geometry:
    """Extents of a launch: the grid's in blocks, the block's in threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    #: Whether all blocks run at once, so that they may wait for each other.
    cooperative: bool = False
    #: Whether the launch, or the kernel's source, names a cluster, which may be of one block.
    has_cluster: bool = False

    @property
    def threads(self) -> int:
        """Number of threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Number of blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


# ── special registers: PTX ISA 10; each is computed when a kernel first reads it ──

_AXES = "xyz"
#: Registers that no driver sets here: profiler counters, the driver's registers, the running graph.
_UNSET = re.compile(r"pm[0-7](_64)?|envreg([12]?[0-9]|3[01])|current_graph_exec")
#: Multiprocessors of the emulated device, to which blocks are assigned in turn.
_MULTIPROCESSORS = 132
#: Registers that depend on the thread's number in its block.
_OF_THREADS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "warpid": lambda thread: thread // 32, "laneid": lambda thread: thread % 32,
    "lanemask_eq": lambda thread: 1 << thread % 32, "lanemask_lt": lambda thread: (1 << thread % 32) - 1,
    "lanemask_le": lambda thread: (2 << thread % 32) - 1, "lanemask_gt": lambda thread: -2 << thread % 32,
    "lanemask_ge": lambda thread: -1 << thread % 32,
}  # fmt: skip


class SpecialRegisters(dict[str, Any]):
    """Value of each special register by its name without %: an array over the lanes, or a scalar for all.

    Parameters
    ----------
    geometry : Geometry
        Grid and block of the launch.
    blocks : range
        Numbers of the running blocks.

    Raises
    ------
    EmulationError
        For a register that is not emulated.
    """

    def __init__(self, geometry: Geometry, blocks: range) -> None:
        self._threads = geometry.threads
        self._blocks = len(blocks)
        grid, block, cluster = geometry.grid, geometry.block, geometry.cluster
        # Blocks run in the order of their clusters, so that a cluster is never cut in two.
        number, inside = np.arange(blocks.start, blocks.stop), cluster[0] * cluster[1] * cluster[2]
        clusters = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
        self._number, self._rank = number, number % inside
        self._cluster_at = coordinates(number // inside, clusters)
        self._rank_at = coordinates(self._rank, cluster)
        self._thread_at = coordinates(np.arange(geometry.threads), block)
        self._cluster = cluster
        u4 = np.uint32
        super().__init__(
            {
                "nwarpid": u4(-(-geometry.threads // 32)), "nsmid": u4(_MULTIPROCESSORS), "gridid": np.uint64(1),
                "WARP_SZ": u4(32), "dynamic_smem_size": u4(geometry.shared_bytes),
                "is_explicit_cluster": np.bool_(inside > 1 or geometry.has_cluster), "cluster_nctarank": u4(inside),
                **{f"ntid.{axis}": u4(size) for axis, size in zip(_AXES, block, strict=True)},
                **{f"nctaid.{axis}": u4(size) for axis, size in zip(_AXES, grid, strict=True)},
                **{f"nclusterid.{axis}": u4(size) for axis, size in zip(_AXES, clusters, strict=True)},
                **{f"cluster_nctaid.{axis}": u4(size) for axis, size in zip(_AXES, cluster, strict=True)},
            }
        )  # fmt: skip

    def __missing__(self, name: str) -> Any:
        self[name] = value = self._compute(name)
        return value

    def _compute(self, name: str) -> Any:
        """Return the value of a special register over all lanes."""
        base, _, axis = name.partition(".")
        of_blocks = {"clusterid": self._cluster_at, "cluster_ctaid": self._rank_at}
        if base == "tid":
            return self._of_threads(self._thread_at[axis])
        if base == "ctaid":
            return self._of_blocks(self._cluster_at[axis] * self._cluster[_AXES.index(axis)] + self._rank_at[axis])
        if base in of_blocks:
            return self._of_blocks(of_blocks[base][axis])
        if base in ("cluster_ctarank", "smid"):
            return self._of_blocks(self._rank if base == "cluster_ctarank" else self._number % _MULTIPROCESSORS)
        if base in _OF_THREADS:
            return self._of_threads(_OF_THREADS[base](np.arange(self._threads)))
        if _UNSET.fullmatch(base):
            return np.uint64(0)
        raise EmulationError(f"special register %{name} is not emulated")

    def _of_threads(self, values: np.ndarray) -> np.ndarray:
        """Return values over all lanes: `values`, one for each thread of a block, repeated for each block."""
        return np.tile(values.astype(np.uint32), self._blocks)

    def _of_blocks(self, values: np.ndarray) -> np.ndarray:
        """Return values over all lanes: `values`, one for each block, repeated for each of its threads."""
        return np.repeat(values.astype(np.uint32), self._threads)


class Thread(NamedTuple):
    """The indices (x, y, z) of a thread: of its block in the grid, and of the thread in its block."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]


def thread_of(special: SpecialRegisters, lane: int) -> Thread:
    """Return the indices of a lane."""
    block, thread = (
        (int(special[f"{name}.x"][lane]), int(special[f"{name}.y"][lane]), int(special[f"{name}.z"][lane]))
        for name in ("ctaid", "tid")
    )
    return Thread(block, thread)


def place_of(special: SpecialRegisters, geometry: Geometry, lane: int) -> str:
    """Return a lane's ``block 5, thread 7``, or with (x, y, z) if the grid or block has more than x."""

    def shown_coordinates(index: tuple[int, int, int], extent: tuple[int, int, int]) -> str:
        return f"{index[0]}" if extent[1:] == (1, 1) else str(index)

    block, thread = thread_of(special, lane)
    return f"block {shown_coordinates(block, geometry.grid)}, thread {shown_coordinates(thread, geometry.block)}"


def deadlocked(at_barrier: int, in_warp: int, first: str) -> str:
    """Return the message of a deadlock.

    `at_barrier` and `in_warp` are the numbers of threads that wait at a barrier, or for other lanes of their warp.
    `first` is the place of the first of them, in words.
    """
    counts = f"{at_barrier} at a barrier, {in_warp} for other lanes of their warp"
    return f"deadlock: threads wait that nothing can wake ({counts}); the first is {first}"


def coordinates(number: np.ndarray, shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Return the coordinates x, y and z of numbers that count elements of `shape`, along x first."""
    return {"x": number % shape[0], "y": number // shape[0] % shape[1], "z": number // (shape[0] * shape[1])}


#: Status of a lane. Lanes of the first three have a place where they stand or wait.
RUNNING, AT_BARRIER, AT_WARP, DONE, YIELDED = 0, 1, 2, 3, 4
_FUNCTION_BITS, _CODE_BITS = 12, 28
#: Calls that may be nested.
DEEPEST = (1 << 16) - 1
#: Local memory of a thread, in bytes: the limit of every compute capability.
LOCAL_BYTES = 512 << 10
#: Bytes of shared memory that the system keeps in every block.
RESERVED_SHARED = 1024
#: Shared memory is allocated in multiples of this (PTX ISA 10.30).
SHARED_UNIT = 128


@dataclass(slots=True)
class Frame:
    """Registers and parameters of one function at one call depth, for every lane."""

    lanes: int
    #: Values of each register, one a lane; or one element for all lanes, which is not changed in place.
    registers: list[np.ndarray]
    local_base: np.ndarray
    #: Bytes of parameters and call arguments by name: (lanes, size), or (1, size) where all lanes have the same.
    parameters: dict[str, np.ndarray]
    #: Return place of each lane; and the caller's variables for the results, by return place.
    return_to: np.ndarray
    returns: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def bytes_of(self, name: str, size: int) -> np.ndarray:
        """Return the bytes of a parameter variable, a row a lane; make them, as zeros, at the first use."""
        data = self.parameters.get(name)
        if data is None:
            data = self.parameters[name] = np.zeros((self.lanes, -(-size // 8) * 8), np.uint8)
        return data


class Waiter(Protocol):
    """A barrier or warp collective at which lanes may wait."""

    def release(self, machine: Machine) -> None:
        """Let the lanes go on that need not wait for other lanes any more."""


class Machine(ABC):
    """State of the NumPy interpreter: the lanes of the blocks that run at once.

    Attributes
    ----------
    lanes : int
        Number of lanes of all running blocks.
    threads : int
        Number of threads of a block.
    blocks : int
        Number of running blocks.
    alive : int
        Number of lanes that have not exited.
    steps : int
        Steps of the launch so far, which are its clock.
    block_of, warp_of : numpy.ndarray
        Block and warp of each lane, both counted over all running blocks.
    lane_id : numpy.ndarray
        Number of each lane in its warp.
    status : numpy.ndarray
        Status of each lane.
    place : numpy.ndarray
        Place of each lane: its (call depth, function, instruction) in one number.
    local_top : numpy.ndarray
        Bytes of local memory that each lane uses.
    stack_bytes : int
        Limit of `local_top`.
    waiters : dict of str to Waiter
        Barriers and warp collectives at which lanes wait, by name.
    arrived : dict
        Lanes that have come to an instruction which a whole warp runs as one, by place.
    output : callable
        Function that takes the text that the kernel prints.
    placed : callable
        Function that maps the compiler's file and line to the user's, for messages.
    late : Late or None
        Asynchronous copies under way; None if copies are performed at once.
    """

    memory: Memory
    geometry: Geometry
    output: Callable[[str], None]
    placed: Callable[[str, int], str]
    threads: int
    blocks: int
    lanes: int
    alive: int

    def __init__(
        self,
        memory: Memory,
        geometry: Geometry,
        blocks: range,
        shared_bytes: int,
        output: Callable[[str], None],
        placed: Callable[[str, int], str],
    ) -> None:
        self.memory, self.geometry, self.output, self.placed = memory, geometry, output, placed
        threads, count = geometry.threads, len(blocks)
        self.threads, self.blocks = threads, count
        self.alive = self.lanes = threads * count
        self.steps: int = 0
        thread = np.arange(threads)
        self.block_of: np.ndarray = np.repeat(np.arange(count), threads)
        self.warp_of: np.ndarray = (np.arange(count)[:, None] * -(-threads // 32) + thread // 32).reshape(-1)
        self.lane_id: np.ndarray = np.tile((thread % 32).astype(np.uint32), count)
        self.special: SpecialRegisters = SpecialRegisters(geometry, blocks)
        self.status: np.ndarray = np.zeros(self.lanes, np.int8)
        self.place: np.ndarray = np.zeros(self.lanes, np.int64)
        self.local_top: np.ndarray = np.zeros(self.lanes, np.int64)
        self.stack_bytes = LOCAL_BYTES
        self.waiters: dict[str, Waiter] = {}
        self.late: Late | None = None
        self.arrived: dict[tuple[int, int, int], np.ndarray] = {}
        self._masked = self._mask = np.zeros(0, bool)
        self._reserved = -1
        allocated = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT
        self.special["total_smem_size"] = np.uint32(allocated)
        self.special["aggr_smem_size"] = np.uint32(allocated + RESERVED_SHARED)
        memory.block_of = self.block_of
        memory.set_shared(count, shared_bytes)
        memory.local = np.zeros((self.lanes, 1024), np.uint8)
        memory.cluster = prod(geometry.cluster)
        memory.exited = lambda blocks: (self.status.reshape(count, -1) == DONE).all(axis=1)[blocks]

    # ── places ──

    @staticmethod
    def location(depth: int, function: int, code: int) -> int:
        """Return call depth, function number and instruction index as one number, a place.

        A deeper call has a lower number. The scheduler therefore runs it first, so that it returns early.
        """
        return (((DEEPEST - depth) << _FUNCTION_BITS | function) << _CODE_BITS) | code

    @staticmethod
    def where(location: int) -> tuple[int, int, int]:
        """Split a place, made by `location`, into call depth, function number and instruction index."""
        code = location & ((1 << _CODE_BITS) - 1)
        rest = location >> _CODE_BITS
        return DEEPEST - (rest >> _FUNCTION_BITS), rest & ((1 << _FUNCTION_BITS) - 1), code

    def set_place(self, index: Index, location: int | np.ndarray) -> None:
        """Move lanes to a place."""
        self.place[slice(None) if index is None else index] = location

    # ── numbers of lanes ──

    @cached_property
    def slots(self) -> np.ndarray:
        """Slot of each lane: 32 · warp + lane in warp."""
        return np.asarray(self.warp_of * 32 + self.lane_id)

    @cached_property
    def warpgroup_of(self) -> np.ndarray:
        """Warpgroup (four warps) of each lane, counted over all running blocks."""
        thread = np.arange(self.lanes) % self.threads
        return np.asarray(self.block_of * -(-self.threads // 128) + thread // 128)

    def mask(self, index: np.ndarray) -> np.ndarray:
        """Return an array over all lanes: whether each is in `index`. The last result is cached."""
        if self._masked is not index:
            self._masked = index
            self._mask = np.zeros(self.lanes, bool)
            self._mask[index] = True
        return self._mask

    def name_of(self, lane: int) -> str:
        """Return a lane's ``block 5, thread 7``, or with (x, y, z) if the grid or block has more than x."""
        return place_of(self.special, self.geometry, lane)

    def thread_of(self, lane: int) -> Thread:
        """Return the indices of a lane's block and thread."""
        return thread_of(self.special, lane)

    # ── memory of lanes and blocks ──

    def reserve_local(self, index: Index, size: int | np.ndarray) -> None:
        """Move the top of lanes' local memory up by `size` bytes; a negative size frees memory.

        Raises
        ------
        EmulationError
            If a lane's stack would pass its limit.
        """
        top = self.local_top
        if index is None:
            top += size
        else:
            top[index] += size
        need = int(top.max())
        if need > self.stack_bytes:
            raise self._stack_overflow(int(top.argmax()), need)
        if need > self.memory.local.shape[1]:
            grown = np.zeros((self.lanes, -(-2 * need // 1024) * 1024), np.uint8)
            grown[:, : self.memory.local.shape[1]] = self.memory.local
            self.memory.local = grown

    def _stack_overflow(self, lane: int, need: int) -> EmulationError:
        """Return the error for a lane whose stack needs `need` bytes."""
        depth = self.where(int(self.place[lane]))[0] + 1
        where = f"stack overflow: {self.name_of(lane)}, {depth} calls deep, takes {need} bytes of stack"
        if self.stack_bytes == LOCAL_BYTES:
            return EmulationError(f"{where}, over the limit of {LOCAL_BYTES} that a thread may have")
        return EmulationError(
            f"{where}, and the device gives a thread {self.stack_bytes}; let it recurse less deep, or set more with "
            'ck.memory.limit(bytes, "stack")'
        )

    def reserved_shared(self, place: str) -> int:
        """Return an offset in the shared memory that the system reserves behind each block's own (PTX ISA 10.33).

        `place` is ``begin``, ``0``, ``1`` or ``end``. For ``cap``, return the number of reserved bytes. The memory is
        made at the first call.
        """
        if self._reserved < 0:
            self._reserved = self.memory.shared.shape[1]
            self.memory.shared = np.pad(self.memory.shared, ((0, 0), (0, RESERVED_SHARED)))
            self.memory.shared_bytes = self._reserved + RESERVED_SHARED
        after = {"begin": 0, "0": 0, "1": RESERVED_SHARED // 2, "end": RESERVED_SHARED}
        return RESERVED_SHARED if place == "cap" else self._reserved + after[place]

    # ── calls, exits and waits ──

    @abstractmethod
    def call(
        self,
        name: str,
        lanes: np.ndarray,
        arguments: tuple[str, ...],
        results: tuple[str, ...],
        frame: Frame,
        position: tuple[int, int, int],
    ) -> None:
        """Move lanes into the function `name`.

        `position` is the call depth, function and index of the call instruction. `arguments` and `results` are the
        names of the call's variables in the caller's `frame`.
        """

    @abstractmethod
    def return_from(self, frame: Frame, index: Index, position: tuple[int, int, int]) -> None:
        """Move lanes behind the call that made `frame`, and copy its results."""

    @abstractmethod
    def make_child(self, pointer: int, geometry: Geometry) -> int:
        """Return the address for the parameters of a kernel that the running kernel launches."""

    @abstractmethod
    def launch_child(self, address: int, stream: int) -> None:
        """Launch a kernel by the address of its parameters, in a stream of the device."""

    def pause(self, lanes: np.ndarray) -> None:
        """Make running lanes yield, so that all other lanes that can run go first."""
        self.status[lanes[self.status[lanes] == RUNNING]] = YIELDED

    def finish(self, index: Index) -> None:
        """Mark lanes as exited; barriers and warp collectives no longer wait for them."""
        self.status[slice(None) if index is None else index] = DONE
        self.alive -= self.lanes if index is None else index.size
        for waiter in self.waiters.values():
            waiter.release(self)
