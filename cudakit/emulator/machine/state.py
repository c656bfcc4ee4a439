"""The lanes of the blocks that run at once, as instructions see and change them: what each is doing, and where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np

from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.late import Late
from cudakit.emulator.machine.memory import Index, Memory
from cudakit.emulator.machine.special import SpecialRegisters, place_of
from cudakit.errors import EmulationError

#: What a lane is doing; the first three have a place of which they may go on without being asked again.
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
    #: Values of each register, one a lane; of one element where all lanes have the same, which nobody changes in place.
    registers: list[np.ndarray]
    local_base: np.ndarray
    #: Parameters and call arguments by name: bytes, (lanes, size), or (1, size) where all lanes have the same.
    parameters: dict[str, np.ndarray]
    #: Place to return to, for each lane, and the caller's variables that take the result.
    return_to: np.ndarray
    returns: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def bytes_of(self, name: str, size: int) -> np.ndarray:
        """Bytes of a parameter variable, one row a lane."""
        found = self.parameters.get(name)
        if found is None:
            found = self.parameters[name] = np.zeros((self.lanes, -(-size // 8) * 8), np.uint8)
        return found


class Waiter(Protocol):
    """A barrier, or another meeting of lanes, at which some may wait."""

    def release(self, machine: Machine) -> None:
        """Let lanes go on that wait for nobody any more."""


class Machine(ABC):
    """The lanes of the blocks that run at once.

    Attributes
    ----------
    lanes, threads, blocks : int
        Lanes of all blocks; threads of a block; blocks.
    alive : int
        Lanes that have not exited.
    steps : int
        Steps of the launch so far, which are its clock.
    block_of, warp_of, lane_id : numpy.ndarray
        Of each lane: its block, its warp, both counted over all blocks that run, and its number in the warp.
    status, place : numpy.ndarray
        Of each lane: what it is doing, and (call depth, function, instruction) in one number.
    local_top : numpy.ndarray
        Bytes of local memory that each lane uses.
    stack_bytes : int
        Bytes of it that a lane may use.
    waiters : dict of str to Waiter
        At which lanes wait, by kind.
    come : dict
        By place, the lanes that have come to an instruction which all lanes of a warp run as one.
    output : callable
        Takes what the kernel prints.
    placed : callable
        What messages call a file and line of the compiler.
    late : Late or None
        The asynchronous copies under way; None where they are done at once.
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
        self.come: dict[tuple[int, int, int], np.ndarray] = {}
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
        """Call depth, function number and instruction as one number; a deeper call sorts first, to come back early."""
        return (((DEEPEST - depth) << _FUNCTION_BITS | function) << _CODE_BITS) | code

    @staticmethod
    def where(location: int) -> tuple[int, int, int]:
        """Depth, function number and instruction of a place."""
        code = location & ((1 << _CODE_BITS) - 1)
        rest = location >> _CODE_BITS
        return DEEPEST - (rest >> _FUNCTION_BITS), rest & ((1 << _FUNCTION_BITS) - 1), code

    def set_place(self, index: Index, location: int | np.ndarray) -> None:
        self.place[slice(None) if index is None else index] = location

    # ── numbers of lanes ──

    @cached_property
    def slots(self) -> np.ndarray:
        """32 · warp + lane in warp, of each lane."""
        return np.asarray(self.warp_of * 32 + self.lane_id)

    @cached_property
    def warpgroup_of(self) -> np.ndarray:
        """Warpgroup (four warps) of each lane, counted over all blocks that run."""
        thread = np.arange(self.lanes) % self.threads
        return np.asarray(self.block_of * -(-self.threads // 128) + thread // 128)

    def mask(self, index: np.ndarray) -> np.ndarray:
        """Whether each lane is in `index`; a group's is asked for again and again."""
        if self._masked is not index:
            self._masked = index
            self._mask = np.zeros(self.lanes, bool)
            self._mask[index] = True
        return self._mask

    def name_of(self, lane: int) -> str:
        """``block 5, thread 7``, or with (x, y, z) where the launch has more than x."""
        return place_of(self.special, self.geometry, lane)

    # ── memory of lanes and blocks ──

    def reserve_local(self, index: Index, size: int | np.ndarray) -> None:
        """Move the top of lanes' local memory up by `size` bytes."""
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
        depth = self.where(int(self.place[lane]))[0] + 1
        where = f"stack overflow: {self.name_of(lane)}, {depth} calls deep, takes {need} bytes of stack"
        if self.stack_bytes == LOCAL_BYTES:
            return EmulationError(f"{where}, over the limit of {LOCAL_BYTES} that a thread may have")
        return EmulationError(
            f"{where}, and the device gives a thread {self.stack_bytes}; let it recurse less deep, or set more with "
            'ck.memory.limit(bytes, "stack")'
        )

    def reserved_shared(self, place: str) -> int:
        """PTX ISA 10.33: the shared memory that the system keeps behind each block's own, made when first asked for."""
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
        here: tuple[int, int, int],
    ) -> None:
        """Let lanes that stand at `here` enter a function; `arguments` and `results` are variables of their `frame`."""

    @abstractmethod
    def return_from(self, frame: Frame, index: Index, here: tuple[int, int, int]) -> None:
        """Let lanes go on behind the call that made `frame`, with its results."""

    @abstractmethod
    def make_child(self, pointer: int, geometry: Geometry) -> int:
        """Where the parameters of a kernel that this one launches are to be written."""

    @abstractmethod
    def launch_child(self, address: int, stream: int) -> None:
        """Launch that kernel, in one of the device's own streams."""

    def pause(self, lanes: np.ndarray) -> None:
        """Let all other lanes that can run go first."""
        self.status[lanes[self.status[lanes] == RUNNING]] = YIELDED

    def finish(self, index: Index) -> None:
        """Lanes have exited: barriers and warp operations no longer wait for them."""
        self.status[slice(None) if index is None else index] = DONE
        self.alive -= self.lanes if index is None else index.size
        for waiter in self.waiters.values():
            waiter.release(self)
