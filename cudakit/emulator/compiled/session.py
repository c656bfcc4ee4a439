"""Sessions: one launch of machine code, on all cores, with its callbacks and errors."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cudakit import system
from cudakit.emulator.compiled.builder import LaneAccess
from cudakit.emulator.compiled.emit.hosted import registers_of
from cudakit.emulator.compiled.layout import DONE, STRIP, Ending, Slot
from cudakit.emulator.compiled.native import Compiled, Frame, frame_of
from cudakit.emulator.instructions.control import CALLS, trapped
from cudakit.emulator.machine.decode import decode
from cudakit.emulator.machine.machine import Launch, fault_of
from cudakit.emulator.machine.memory import READ, WRITE, AccessError, Memory, check_aligned
from cudakit.emulator.machine.module import MOST_LANES, blocks_at_once
from cudakit.emulator.machine.state import SpecialRegisters, deadlocked, place_of, thread_of
from cudakit.emulator.ptx.program import Immediate, Instruction
from cudakit.errors import EmulationError, named
from cudakit.streams import process

# ── cores ──


#: Stack of a thread that runs code; only used pages take memory. Large kernels of the baseline tier have a stack slot
#: for each value, some megabytes.
_STACK = 256 << 20


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the thread pool, one thread a core."""
    return ThreadPoolExecutor(system.cores(), "cudakit emulator")


process.in_child(_pool.cache_clear)  # it has none of the threads


def submit(work: Callable[[int], None], core: int) -> Future[None]:
    """Submit ``work(core)`` to the thread pool; a thread begun for it gets a large stack."""
    former = threading.stack_size(_STACK)
    try:
        return _pool().submit(work, core)
    finally:
        threading.stack_size(former)


# ── errors ──


def error_of(code: int, launch: Launch, compiled: Compiled, words: Any) -> EmulationError:
    """Return the error for which code stopped, as the NumPy interpreter raises it.

    `code` is the `Ending` that the code returned, and `words` the words that it shares with the launch.
    """
    if code == Ending.STUCK:
        return EmulationError(
            f"{launch.title}: deadlock: threads wait for other lanes of their warp, which wait elsewhere"
        ).detailed(kind="deadlock", **named(launch.title))
    if code == Ending.STALLED:
        return _stalled(launch, compiled, words)
    number, lane_access = compiled.facts.sites[words[Slot.SITE]]
    instr, function = compiled.source.instruction(number)
    block, thread = words[Slot.AT_BLOCK], words[Slot.THREAD]
    special = SpecialRegisters(launch.geometry, range(block, block + 1))
    category, parts = "", dict[str, str]()
    if instr.opcode == "trap":
        category = "trap"
        where = place_of(special, launch.geometry, thread)
        problem = trapped(where, compiled.source.context.function, launch.geometry)
    elif "aligned" in instr.modifiers and lane_access is None:
        where, thread_count = place_of(special, launch.geometry, thread), words[Slot.ADDRESS]
        problem = f"{instr} needs all 32 threads of a warp; of that of {where}, only {thread_count} are there"
    elif "sync" in instr.modifiers and lane_access is None:
        mask = words[Slot.ADDRESS] & 2**32 - 1
        problem = f"lane {thread % 32} is not in its own member mask {mask:#010x}"
    else:
        category = "access"
        problem, parts = _access(launch, instr, lane_access, words[Slot.ADDRESS] & 2**64 - 1)
    return launch.explain(function, instr, problem, category, thread_of(special, thread), parts)


def _stalled(launch: Launch, compiled: Compiled, words: Any) -> EmulationError:
    """Return the error for a block whose vectors wait at barriers to which others do not come.

    `words` are the words that the code shares with the launch.
    """
    facts, width = compiled.facts, compiled.layout.width
    threads, waiting, waits = launch.geometry.threads, 0, dict(facts.barriers)
    first: tuple[int, int | None] | None = None
    for at in range(0, threads, width):
        place = words[Slot.STATE] + at // width * facts.state_bytes
        state = ctypes.c_int64.from_address(place).value
        if state != DONE:
            waiting += min(width, threads - at)
            first = first or (at, waits.get(state))
    assert first is not None
    thread, number = first
    block = words[Slot.AT_BLOCK]
    special = SpecialRegisters(launch.geometry, range(block, block + 1))
    where = place_of(special, launch.geometry, thread)
    problem = deadlocked(waiting, 0, where)
    if number is None:
        return EmulationError(f"{launch.title}: {problem}").detailed(kind="deadlock", **named(launch.title))
    instr, function = compiled.source.instruction(number)
    return launch.explain(function, instr, problem, "deadlock", thread_of(special, thread))


def _access(
    launch: Launch, instr: Instruction, lane_access: LaneAccess | None, address: int
) -> tuple[str, dict[str, str]]:
    """Return the message for an invalid access, as `Memory` writes it, and its details."""
    memory, module = launch.module.memory, launch.module
    memory.set_parameters(launch.parameters)
    if lane_access is None:
        assert instr.opcode == "cp"
        assert isinstance(instr.operands[2], Immediate)
        return f"a copy of {instr.operands[2].value} bytes from a source of {address}", {}
    size = lane_access.size * lane_access.elements
    shared = launch.shared.total_bytes(launch.geometry.shared_bytes)
    memory.block_of = np.zeros(1, np.int64)
    memory.set_shared(1, shared)
    memory.shared_offsets = launch.shared.offsets
    context = module.context(launch.entry)
    memory.local = np.zeros((1, max(1024, context.local_bytes)), np.uint8)
    addresses = np.array([address], np.uint64)
    try:
        check_aligned(addresses, size)
        whole = min(lane_access.piece, size)
        dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[whole]
        for start in range(0, size, whole):
            memory.views(lane_access.space, addresses + np.uint64(start), np.dtype(dtype), None, lane_access.mark)
    except AccessError as error:
        return str(error), error.parts
    return f"an access to {address:#x} was refused", {}


#: Turns of loops between two checks for signals.
_PERIOD = 1 << 22


@dataclass
class _Lanes:
    """Part of the interpreter's state that system functions read."""

    launch: Launch
    memory: Memory
    special: SpecialRegisters
    lanes: int
    block_of: np.ndarray
    late: None = None

    def output(self, text: str) -> None:
        self.launch.output(text)

    def placed(self, file: str, line: int) -> str:
        return self.launch.placed(file, line)

    def name_of(self, lane: int) -> str:
        return place_of(self.special, self.launch.geometry, lane)


class Session:
    """A launch while it runs: on the cores, with the callbacks of its code."""

    def __init__(self, launch: Launch, compiled: Compiled) -> None:
        self.launch, self.compiled = launch, compiled
        self.memory: Memory = launch.module.memory
        self.failure: BaseException | None = None
        self.stops = False
        #: Ticks so far: checks whether to go on.
        self.ticks = 0
        self._lock = threading.Lock()
        self._frames: dict[int, Frame] = {}

    def run(self) -> None:
        """Run all blocks of the launch.

        Raises
        ------
        EmulationError
            For the failed block with the lowest number.
        """
        _sessions.append(self)
        try:
            self._run()
        finally:
            _sessions.pop()
            self.launch.steps += self._steps()
            self.memory.clear_lanes()

    def _run(self) -> None:
        """Run all blocks on the cores, and raise the first error."""
        geometry, layout = self.launch.geometry, self.compiled.layout
        if geometry.cooperative:
            self.launch.module.grid_barrier[:] = 0
        blocks, threads = geometry.blocks, geometry.threads
        on_one_core = (
            self.compiled.facts.ordered or self.memory.watcher is not None or blocks * threads < _FEW or blocks < 2
        )
        workers = 1 if on_one_core else system.cores()
        size = blocks if workers == 1 else max(1, min(-(-blocks // (4 * workers)), -(-_MOST // threads)))
        if layout.strips:
            size = -(-size // _TOGETHER) * _TOGETHER
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
                if code == Ending.IDLE:
                    code, frame = self._waiting(frame, blocks)
                if code:
                    self.stops = True
                    failed.append((first, code, frame))

        helpers = [submit(work, core) for core in range(1, workers)] if size < blocks else []
        hook, sys.unraisablehook = sys.unraisablehook, self._raised
        try:
            if self.compiled.is_baseline:
                self._wait_for(submit(work, 0))
            else:
                work(0)
        finally:
            for helper in helpers:
                helper.result()
            sys.unraisablehook = hook
        if self.failure is not None:
            raise self.failure
        if failed:
            _, code, frame = min(failed, key=lambda failure: failure[0])
            if code == Ending.STOPPED:
                raise KeyboardInterrupt
            raise error_of(code, self.launch, self.compiled, frame.words)

    def _wait_for(self, helper: Future[None]) -> None:
        """Wait for a thread that runs the first blocks; an exception of a signal handler stops them."""
        while True:
            try:
                return helper.result()
            except BaseException as error:
                if helper.done():
                    raise
                self.failure, self.stops = error, True

    def _steps(self) -> int:
        """Return the launch's steps: instructions times the sets of lanes that NumPy runs at once, and loop turns."""
        geometry = self.launch.geometry
        steps: int = len(self.launch.entry.code) * -(-geometry.blocks * geometry.threads // MOST_LANES)
        for frame in self._frames.values():
            steps += _PERIOD - frame.words[Slot.TICKS]
        return steps + self.ticks * _PERIOD

    def _waiting(self, frame: Frame, blocks: int) -> tuple[int, Frame]:
        """Run the launch from the block at which `frame` went idle, to block `blocks` - 1.

        Waiting blocks have frames of their own. Return 0, or the `Ending` of a failed block, and its frame.
        """
        run, idle, spare = self.compiled.code.run, [frame], list[Frame]()
        following = frame.words[Slot.AT_BLOCK] + 1
        while idle or following < blocks:
            # Waiting blocks poll again, then one more block begins.
            for waiting_frame in list(idle):
                number = waiting_frame.words[Slot.AT_BLOCK]
                waiting_frame.words[Slot.RESUMED] = 1
                code = run(waiting_frame.words, number, number + 1)
                waiting_frame.words[Slot.RESUMED] = 0
                if code not in (Ending.FINISHED, Ending.IDLE):
                    return code, waiting_frame
                if code == Ending.FINISHED:
                    idle.remove(waiting_frame)
                    spare.append(waiting_frame)
            if following < blocks:
                waiting_frame = spare.pop() if spare else self._frame(-1 - len(idle))
                code = run(waiting_frame.words, following, blocks if not idle else following + 1)
                if code == Ending.IDLE:
                    idle.append(waiting_frame)
                    following = waiting_frame.words[Slot.AT_BLOCK] + 1
                elif code:
                    return code, waiting_frame
                else:
                    following = blocks if not idle else following + 1
                    spare.append(waiting_frame)
        return 0, frame

    def _raised(self, raised: Any) -> None:
        """Keep an exception that a signal handler raised outside any try block, and stop the launch."""
        self.failure, self.stops = raised.exc_value, True

    def _frame(self, core: int) -> Frame:
        """Return the frame of a core's code, ready for this launch; it is kept for launches with the same geometry."""
        launch, geometry = self.launch, self.launch.geometry
        key = (geometry.grid, geometry.block, geometry.shared_bytes, geometry.cooperative, core)
        with self._lock:
            frame = self.compiled.frames.get(key)
            if frame is None:
                blocks_at_once(launch.module, launch.entry, geometry, launch.title)
                frame = self.compiled.frames[key] = frame_of(launch, self.compiled)
                frame.words[Slot.REACH], frame.words[Slot.TICK], frame.words[Slot.CALL] = _callbacks()
            ctypes.memmove(frame.parameters, launch.parameters, len(launch.parameters))
            frame.update_table(self.memory)
            frame.words[Slot.TICKS] = _PERIOD
            self._frames[frame.address] = frame
        return frame

    def reach(self, words: int, address: int, size: int, use: int) -> int:
        """Find memory that the code's table of allocations does not have, for an access; called by the code.

        `words` is the address of the words that the code shares with the launch, and `use` is 0 for a read. Return 1 if
        the memory is in the table now, 2 for the heap, 0 for an invalid address.
        """
        try:
            with self._lock:
                frame = self._frames[words]
                before = frame.words[Slot.TABLE_COUNT]
                where = np.array([address & 2**64 - 1], np.uint64)
                # Pointers in the parameters, in structs too, may lead to memory beyond the arguments.
                self.memory.set_parameters(self.launch.parameters)
                self.memory.views("global", where, np.dtype(np.uint8), None, WRITE if use else READ)
                frame.update_table(self.memory)
                # The heap is not in the table: each access to it is checked here.
                return 1 if frame.words[Slot.TABLE_COUNT] > before else 2
        except AccessError:
            return 0
        except BaseException as error:
            self.failure = error
            return 0

    def call(self, words: int, site: int, first: int, block: int, mask: int, values: int) -> int:
        """Call a system function or the interpreter for lanes; called by the code.

        `words` is the address of the words that the code shares with the launch. `site` is the number of the site, and
        `first` the vector's first thread. The bits of `mask` are the lanes, and `values` is the address of their
        values. Return 0 for success, 1 for an error, which `failure` keeps.
        """
        try:
            with self._lock:
                return self._called(self._frames[words], site, first, block, mask, values)
        except BaseException as error:
            self.failure = error
            return 1

    def _called(self, frame: Frame, site: int, first: int, block: int, mask: int, values: int) -> int:
        """Run a system function or the interpreter for the lanes of a mask, as `call` does, and return 0.

        Raises
        ------
        EmulationError
            If the instruction fails.
        """
        instr, function = self.compiled.source.instruction(self.compiled.facts.sites[site].number)
        width = self.compiled.layout.width
        lanes = np.array([lane for lane in range(width) if mask >> lane & 1], np.int64)
        self._show(frame, block)
        special = SpecialRegisters(self.launch.geometry, range(block, block + 1))
        machine = _Lanes(self.launch, self.memory, special, self.launch.geometry.threads, self.memory.block_of)
        step = self._system if instr.opcode == "call" else self._step
        try:
            step(instr, machine, first, lanes, values)
        except (AccessError, EmulationError) as error:
            called = replace(instr, modifiers=("uni",)) if instr.opcode == "call" else instr
            _, category, parts = fault_of(error, lanes)
            thread = thread_of(special, first + int(lanes[0])) if category in ("trap", "assert") else None
            raise self.launch.explain(function, called, str(error), category, thread, parts) from None
        return 0

    def _system(self, instr: Instruction, machine: _Lanes, first: int, lanes: np.ndarray, values: int) -> None:
        """Call a system function with the lanes' arguments, and store its results in their place.

        `first` is the vector's first thread, and `values` the address of the arguments.
        """
        count = len(instr.operands) - 1
        table = self._table(values, max(1, count))
        arguments = [table[number, lanes].copy()[:, None].view(np.uint8) for number in range(count)]
        answer = CALLS[instr.modifiers[0]](machine, first + lanes, arguments)  # type: ignore[arg-type]
        if answer is not None:
            table[0, lanes] = answer

    def _step(self, instr: Instruction, machine: _Lanes, first: int, lanes: np.ndarray, values: int) -> None:
        """Run an instruction on the NumPy interpreter for some lanes, and store its results in their rows.

        `first` is the vector's first thread, and `values` the address of the rows of registers.
        """
        context = self.compiled.source.context
        read, written = registers_of(instr, context.function.registers)
        table, index = self._table(values, len(read) + len(written)), first + lanes
        registers = context.make_frame(machine.lanes)
        for row, name in enumerate(read):
            number = context.numbers[name]
            column = registers.registers[number] = np.zeros(machine.lanes, context.storage[number])
            column[index] = table[row, lanes].astype(column.dtype)
        decoded = decode(instr, context)
        if decoded.control is not None:
            decoded.control(machine, registers, index, index, (0, 0, 0))  # type: ignore[arg-type]
        else:
            assert decoded.step is not None
            decoded.step(registers, index, machine)  # type: ignore[arg-type]
        for row, name in enumerate(written, len(read)):
            table[row, lanes] = registers.registers[context.numbers[name]][index]

    def _table(self, values: int, rows: int) -> np.ndarray:
        """Return a view of the lanes' values at the address `values`: `rows` rows, with eight bytes for each lane."""
        width = self.compiled.layout.width
        table = (ctypes.c_uint64 * (width * rows)).from_address(values)
        return np.ctypeslib.as_array(table).reshape(rows, width)

    def _show(self, frame: Frame, block: int) -> None:
        """Set the parameters, shared and local memory of thread block `block` in `Memory`, from a frame."""
        words, memory = frame.words, self.memory
        threads = self.launch.geometry.threads
        memory.set_parameters(self.launch.parameters)
        memory.block_of, memory.cluster = np.zeros(threads, np.int64), 1
        memory.exited = lambda blocks: np.zeros(len(blocks), bool)
        memory.shared_offsets = self.launch.shared.offsets
        memory.shared_bytes = size = words[Slot.SHARED_BYTES]
        whole = -(-size // 16) * 16
        if whole:
            memory.shared = np.ctypeslib.as_array((ctypes.c_uint8 * whole).from_address(words[Slot.SHARED]))[None, :]
        rows = words[Slot.LOCAL_BYTES]
        if rows:
            local_rows = np.ctypeslib.as_array((ctypes.c_uint8 * (threads * rows)).from_address(words[Slot.LOCAL]))
            memory.local = local_rows.reshape(threads, rows)

    def tick(self) -> int:
        """Return the turns of loops until the next tick, or 0 to stop; Python handles signals here."""
        try:
            self.ticks += 1
            return 0 if self.stops else _PERIOD
        except BaseException as error:
            self.failure, self.stops = error, True
            return 0


#: The current launch, which callbacks belong to; other launches wait.
_sessions: list[Session] = []
_Reach = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3)
_Tick = ctypes.CFUNCTYPE(ctypes.c_int64)
_Call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 5)
_callback_functions: list[Any] = [
    _Reach(lambda *arguments: _sessions[-1].reach(*arguments)),
    _Tick(lambda: _sessions[-1].tick()),
    _Call(lambda *arguments: _sessions[-1].call(*arguments)),
]


@cache
def _callbacks() -> tuple[int, ...]:
    """Return addresses of the functions that code calls back."""
    return tuple(ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in _callback_functions)


#: Threads below which one core runs a launch, and the most threads that a core takes at once.
_FEW, _MOST = 1 << 14, 1 << 18
#: A core takes a multiple of this number of blocks that run by rows.
_TOGETHER = STRIP // 2
