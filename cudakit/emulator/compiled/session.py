"""One launch of machine code: what it is given, what it calls back for, and the errors that it comes back with."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from cudakit.emulator.compiled import kernel, native
from cudakit.emulator.compiled.builder import Reached
from cudakit.emulator.compiled.layout import STRIP, Layout, Slot
from cudakit.emulator.instructions.control import trapped
from cudakit.emulator.instructions.system import CALLS
from cudakit.emulator.machine.capacity import MOST_LANES, blocks_at_once
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import READ, WRITE, AccessError, Memory, check_aligned
from cudakit.emulator.machine.special import SpecialRegisters, coordinates, place_of
from cudakit.emulator.machine.state import RESERVED_SHARED, SHARED_UNIT
from cudakit.emulator.ptx.program import Function, Immediate, Instruction
from cudakit.errors import EmulationError
from cudakit.streams import forks

#: Turns of loops between two looks at whether the user wants to stop.
_PERIOD = 1 << 22


@dataclass(eq=False)
class Frame:
    """What launches of one kernel with one geometry have in common: memory, and the words that are told."""

    geometry: Geometry
    words: Any
    held: list[Any]
    table: Any
    parameters: Any


@dataclass(eq=False)
class Compiled:
    """A kernel that is machine code, for one layout."""

    made: kernel.Made
    code: native.Code
    context: Context
    #: Functions that instructions were taken from, by the ``id`` of these.
    origins: dict[int, Function]
    layout: Layout
    #: Whether it was made quickly, for the time being: such code may need more stack than threads have. And how long it
    #: runs before it is made anew, in seconds.
    is_quick: bool = False
    patience: float = 0
    frames: dict[tuple[Any, ...], Frame] = field(default_factory=dict)

    def improve(self) -> None:
        """Compile what runs quicker."""
        brief, self.made = self.made, kernel.make(self.context, self.layout)
        self.code, self.is_quick = native.Code(self.made.text, True), False
        self.frames.clear()
        native.note_improved(brief.text)


def _frame(launch: Launch, compiled: Compiled) -> Frame:
    geometry, module = launch.geometry, launch.module
    context, made = compiled.context, compiled.made
    words = (ctypes.c_int64 * int(Slot.COUNT + 1))()
    held: list[Any] = []

    def room(size: int) -> int:
        array = np.zeros(size + 64, np.uint8)
        held.append(array)
        address = int(array.__array_interface__["data"][0])
        return -(-address // 64) * 64

    shared = module.symbols.shared_bytes(geometry.shared_bytes)
    parameters = room(max(64, sum(v.size + v.align for v in launch.entry.parameters)))
    rows = -(-context.local_bytes // 16) * 16 if context.local else 0
    lanes = -(-geometry.threads // 64) * 64
    at = np.zeros(3 * 1088, np.uint32)
    for axis, values in enumerate(coordinates(np.arange(geometry.threads), geometry.block).values()):
        at[axis * 1088 : axis * 1088 + geometry.threads] = values
    held.append(at)
    addresses = np.array([module.symbols.addresses[name] for name in made.symbols] or [0], np.int64)
    held.append(addresses)
    table = (ctypes.c_int64 * (4 * 1024))()
    words[Slot.PARAMETERS] = parameters
    words[Slot.SHARED], words[Slot.SHARED_BYTES] = room(shared + 64), shared
    words[Slot.LOCAL], words[Slot.LOCAL_BYTES] = room(max(16, rows) * lanes), rows
    words[Slot.TABLE] = ctypes.addressof(table)
    for axis in range(3):
        words[Slot.GRID + axis], words[Slot.BLOCK + axis] = geometry.grid[axis], geometry.block[axis]
    words[Slot.THREADS] = geometry.threads
    words[Slot.THREAD_AT] = int(at.__array_interface__["data"][0])
    words[Slot.SYMBOLS] = int(addresses.__array_interface__["data"][0])
    words[Slot.VECTORS] = -(-geometry.threads // made.width)
    words[Slot.STATE] = room(max(64, made.state_bytes * words[Slot.VECTORS]))
    words[Slot.DYNAMIC_BYTES] = geometry.shared_bytes
    allocated = -(-shared // SHARED_UNIT) * SHARED_UNIT
    words[Slot.TOTAL_BYTES] = allocated
    words[Slot.GRID_BARRIER] = module.grid_barrier_address if geometry.cooperative else 0
    assert RESERVED_SHARED
    return Frame(geometry, words, held, table, parameters)


@dataclass
class _Lanes:
    """What functions of the system ask of a machine."""

    launch: Launch
    memory: Memory
    special: SpecialRegisters

    def output(self, text: str) -> None:
        self.launch.output(text)

    def placed(self, file: str, line: int) -> str:
        return self.launch.placed(file, line)

    def name_of(self, lane: int) -> str:
        return place_of(self.special, self.launch.geometry, lane)


class Session:
    """One launch while it runs: over the cores, and what its code calls back for."""

    def __init__(self, launch: Launch, compiled: Compiled) -> None:
        self.launch, self.compiled = launch, compiled
        self.memory: Memory = launch.module.memory
        self.failure: BaseException | None = None
        self.stops = False
        #: How often code has asked whether to go on.
        self.asked = 0
        self._lock = threading.Lock()
        self._frames: dict[int, Frame] = {}

    def run(self) -> None:
        """Run all blocks.

        Raises
        ------
        EmulationError
            Of the first block, by its number, that fails.
        """
        _sessions.append(self)
        try:
            self._run()
        finally:
            _sessions.pop()
            self.launch.steps += self._steps()
            self.memory.leave()

    def _run(self) -> None:
        geometry, made = self.launch.geometry, self.compiled.made
        self.launch.module.grid_barrier[:] = 0
        blocks, workers = geometry.blocks, cores()
        alone = made.ordered or self.memory.watcher is not None or blocks * geometry.threads < _FEW or blocks < 2
        size = (
            blocks if alone or workers == 1 else max(1, min(-(-blocks // (4 * workers)), -(-_MOST // geometry.threads)))
        )
        if made.strips:
            size = -(-size // STRIP) * STRIP
        parts = iter(range(0, blocks, size))
        failed: list[tuple[int, int, Frame]] = []

        def work(core: int) -> None:
            frame = self._frame(core)
            while not self.stops:
                with self._lock:
                    first = next(parts, None)
                if first is None:
                    return
                code = self.compiled.code.run(frame.words, first, min(blocks, first + size))
                if code == kernel.IDLE:
                    code, frame = self._waiting(frame, blocks)
                if code:
                    self.stops = True
                    failed.append((first, code, frame))

        helpers = [_begun(work, core) for core in range(1, workers)] if size < blocks else []
        hook, sys.unraisablehook = sys.unraisablehook, self._raised
        try:
            if self.compiled.is_quick:
                self._wait_for(_begun(work, 0))
            else:
                work(0)
        finally:
            for helper in helpers:
                helper.result()
            sys.unraisablehook = hook
        if self.failure is not None:
            raise self.failure
        if failed:
            _, code, frame = min(failed, key=lambda each: each[0])
            if code == kernel.STOPPED:
                raise KeyboardInterrupt
            raise self._error(code, frame)

    def _wait_for(self, helper: Future[None]) -> None:
        """Let a thread run the first blocks; what a signal's handler raises meanwhile stops them."""
        while True:
            try:
                return helper.result()
            except BaseException as error:
                if helper.done():
                    raise
                self.failure, self.stops = error, True

    def _steps(self) -> int:
        """What counts as its steps: its instructions, for as many lanes as NumPy's runs at once, and turns of loops."""
        geometry = self.launch.geometry
        rounds = -(-geometry.blocks * geometry.threads // MOST_LANES)
        turns: int = sum(_PERIOD - frame.words[Slot.TICKS] for frame in self._frames.values())
        return len(self.launch.entry.code) * rounds + turns + self.asked * _PERIOD

    def _waiting(self, frame: Frame, blocks: int) -> tuple[int, Frame]:
        """Run blocks of which some wait for later ones, each in memory of its own."""
        run, idle, spare = self.compiled.code.run, [frame], list[Frame]()
        following = frame.words[Slot.AT_BLOCK] + 1
        while idle or following < blocks:
            # Those that wait look again, then one block more begins.
            for each in list(idle):
                number = each.words[Slot.AT_BLOCK]
                each.words[Slot.RESUMED] = 1
                code = run(each.words, number, number + 1)
                each.words[Slot.RESUMED] = 0
                if code not in (0, kernel.IDLE):
                    return code, each
                if code == 0:
                    idle.remove(each)
                    spare.append(each)
            if following < blocks:
                each = spare.pop() if spare else self._frame(-1 - len(idle))
                code = run(each.words, following, blocks if not idle else following + 1)
                if code == kernel.IDLE:
                    idle.append(each)
                    following = each.words[Slot.AT_BLOCK] + 1
                elif code:
                    return code, each
                else:
                    following = blocks if not idle else following + 1
                    spare.append(each)
        return 0, frame

    def _raised(self, raised: Any) -> None:
        """What a signal's handler raised where no handler of exceptions was yet."""
        self.failure, self.stops = raised.exc_value, True

    def _frame(self, core: int) -> Frame:
        """What a core's code is told; kept for the next launch alike."""
        launch, geometry = self.launch, self.launch.geometry
        key = (geometry.grid, geometry.block, geometry.shared_bytes, geometry.cooperative, core)
        with self._lock:
            frame = self.compiled.frames.get(key)
            if frame is None:
                blocks_at_once(launch.module, launch.entry, geometry, launch.title)
                frame = self.compiled.frames[key] = _frame(launch, self.compiled)
            ctypes.memmove(frame.parameters, launch.parameters, len(launch.parameters))
            self._tell(frame)
            frame.words[Slot.TICKS] = _PERIOD
            frame.words[Slot.REACH], frame.words[Slot.TICK], frame.words[Slot.CALL] = _callbacks()
            self._frames[ctypes.addressof(frame.words)] = frame
        return frame

    def _tell(self, frame: Frame) -> None:
        """Write the table of allocations."""
        flags_from = getattr(self.memory.watcher, "flags_from", None)
        rows = self.memory.rows(flags_from)
        table = frame.table
        if 4 * len(rows) > len(table):
            table = frame.table = (ctypes.c_int64 * (8 * len(rows)))()
            frame.words[Slot.TABLE] = ctypes.addressof(table)
        place = 0
        for start, end, readonly, flags in rows:
            table[place], table[place + 1], table[place + 2], table[place + 3] = start, end, readonly, flags
            place += 4
        frame.words[Slot.TABLE_COUNT] = len(rows)

    def reach(self, words: int, address: int, size: int, use: int) -> int:
        """Whether memory that is in no row of the table can be come to by a pointer: 1 where it is in a row now."""
        try:
            with self._lock:
                frame = self._frames[words]
                before = frame.words[Slot.TABLE_COUNT]
                where = np.array([address & 2**64 - 1], np.uint64)
                # Pointers among the parameters, in structs too, lead to memory that no argument is.
                self.memory.set_parameters(self.launch.parameters)
                self.memory.views("global", where, np.dtype(np.uint8), None, WRITE if use else READ)
                self._tell(frame)
                # The heap is in no row: each access to it is looked at.
                return 1 if frame.words[Slot.TABLE_COUNT] > before else 2
        except AccessError:
            return 0
        except BaseException as error:
            self.failure = error
            return 0

    def call(self, words: int, site: int, first: int, block: int, mask: int, values: int) -> int:
        """Call what the system gives for the lanes of a mask, with their arguments; 0 where it went well."""
        try:
            frame = self._frames[words]
            given = self.compiled.made.sites[site].given
            width, count = self.compiled.made.width, len(given.operands) - 1
            lanes = np.array([lane for lane in range(width) if mask >> lane & 1], np.int64)
            table = np.ctypeslib.as_array((ctypes.c_uint64 * (width * max(1, count))).from_address(values)).reshape(
                -1, width
            )
            arguments = [table[number, lanes].copy()[:, None].view(np.uint8) for number in range(count)]
            self._show(frame, block)
            machine = _Lanes(self.launch, self.memory, SpecialRegisters(self.launch.geometry, range(block, block + 1)))
            try:
                answer = CALLS[given.modifiers[0]](machine, first + lanes, arguments)  # type: ignore[arg-type]
            except (AccessError, EmulationError) as error:
                function = self.compiled.origins.get(id(given), self.launch.entry)
                called = replace(given, modifiers=("uni",)) if given.opcode == "call" else given
                raise EmulationError(self.launch.explain(function, called, str(error))) from None
            if answer is not None:
                table[0, lanes] = answer
            return 0
        except BaseException as error:
            self.failure = error
            return 1

    def _show(self, frame: Frame, block: int) -> None:
        """Give memory the shared and local memory of the block at hand."""
        words, memory = frame.words, self.memory
        threads = self.launch.geometry.threads
        memory.block_of = np.zeros(threads, np.int64)
        memory.shared_bytes = size = words[Slot.SHARED_BYTES]
        whole = -(-size // 16) * 16
        if whole:
            memory.shared = np.ctypeslib.as_array((ctypes.c_uint8 * whole).from_address(words[Slot.SHARED]))[None, :]
        rows = words[Slot.LOCAL_BYTES]
        if rows:
            held = np.ctypeslib.as_array((ctypes.c_uint8 * (threads * rows)).from_address(words[Slot.LOCAL]))
            memory.local = held.reshape(threads, rows)

    # ── errors ──

    def _error(self, code: int, frame: Frame) -> EmulationError:
        words, launch, made = frame.words, self.launch, self.compiled.made
        if code == kernel.STUCK:
            return EmulationError(
                f"{launch.title}: deadlock: threads wait for other lanes of their warp, which wait elsewhere"
            )
        given, reached = made.sites[words[Slot.SITE]]
        block, thread = words[Slot.AT_BLOCK], words[Slot.THREAD]
        special = SpecialRegisters(launch.geometry, range(block, block + 1))
        if given.opcode == "trap":
            where = place_of(special, launch.geometry, thread)
            what = trapped(where, self.compiled.context.function, launch.geometry)
        elif "aligned" in given.modifiers and reached is None:
            where, here = place_of(special, launch.geometry, thread), words[Slot.ADDRESS]
            what = f"{given} needs all 32 threads of a warp; of that of {where}, only {here} are there"
        elif "sync" in given.modifiers and reached is None:
            named = words[Slot.ADDRESS] & 2**32 - 1
            what = f"lane {thread % 32} is not in its own member mask {named:#010x}"
        else:
            what = self._access(given, reached, words[Slot.ADDRESS] & 2**64 - 1)
        return EmulationError(launch.explain(self.compiled.origins.get(id(given), launch.entry), given, what))

    def _access(self, given: Instruction, reached: Reached | None, address: int) -> str:
        """What is wrong with an access, in the words of memory itself."""
        memory, module = self.memory, self.launch.module
        memory.set_parameters(self.launch.parameters)
        if reached is None:
            assert given.opcode == "cp"
            assert isinstance(given.operands[2], Immediate)
            return f"a copy of {given.operands[2].value} bytes from a source of {address}"
        size = reached.size * reached.count
        shared = module.symbols.shared_bytes(self.launch.geometry.shared_bytes)
        memory.block_of = np.zeros(1, np.int64)
        memory.set_shared(1, shared)
        memory.shared_offsets = module.symbols.shared
        context = module.context(self.launch.entry)
        memory.local = np.zeros((1, max(1024, context.local_bytes)), np.uint8)
        addresses = np.array([address], np.uint64)
        try:
            check_aligned(addresses, size)
            whole = min(reached.piece, size)
            dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[whole]
            for start in range(0, size, whole):
                memory.views(reached.space, addresses + np.uint64(start), np.dtype(dtype), None, reached.mark)
        except AccessError as error:
            return str(error)
        return f"an access to {address:#x} was refused"


#: The launch at hand, which callbacks are for; others wait for it.
_sessions: list[Session] = []


def _reach(words: int, address: int, size: int, use: int) -> int:
    return _sessions[-1].reach(words, address, size, use)


def _tick() -> int:
    """How many turns of loops to go on for; this is where Python looks whether the user wants to stop."""
    session = _sessions[-1]
    try:
        session.asked += 1
        return 0 if session.stops else _PERIOD
    except BaseException as error:
        session.failure, session.stops = error, True
        return 0


def _call(words: int, site: int, first: int, block: int, mask: int, values: int) -> int:
    return _sessions[-1].call(words, site, first, block, mask, values)


_Reach = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Tick = ctypes.CFUNCTYPE(ctypes.c_int64)
_Call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 5)
_kept: list[Any] = [_Reach(_reach), _Tick(_tick), _Call(_call)]


@cache
def _callbacks() -> tuple[int, ...]:
    """Addresses of the functions that code calls back."""
    return tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in _kept)


#: Threads of a launch below which one core runs it, and those that a core takes at once at most.
_FEW, _MOST = 1 << 14, 1 << 18


def cores() -> int:
    """Cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Stack of a thread that runs code, of which as much is taken as is used: large kernels that are made quickly have a
#: place for each value, some megabytes.
_STACK = 256 << 20


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "cudakit emulator")


forks.in_child(_pool.cache_clear)  # it has none of the threads


def _begun(work: Callable[[int], None], core: int) -> Future[None]:
    """Work in a thread of the pool, which may be begun for it."""
    former = threading.stack_size(_STACK)
    try:
        return _pool().submit(work, core)
    finally:
        threading.stack_size(former)
