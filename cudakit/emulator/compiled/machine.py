"""Launches on the compiled machine: what a kernel's code is given, and the errors that it comes back with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from cudakit.emulator.compiled import kernel, native
from cudakit.emulator.compiled.emit.arithmetic import type_of
from cudakit.emulator.compiled.layout import Layout, Slot, layout_of
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.machine.capacity import blocks_at_once
from cudakit.emulator.machine.context import DTYPES
from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import STRONG_WRITE, WRITE, AccessError, Memory
from cudakit.emulator.machine.memory import check_aligned
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.special import SpecialRegisters, coordinates, place_of
from cudakit.emulator.machine.state import RESERVED_SHARED, SHARED_UNIT
from cudakit.emulator.ptx.program import Group, Instruction
from cudakit.errors import EmulationError

#: Turns of loops between two looks at whether the user wants to stop.
_PERIOD = 1 << 22
#: Allocations that a launch's table has room for beyond its own.
_ROOM = 64
#: What code comes back with that was told to stop, and with lanes that wait for each other.
_STOPPED, _STUCK = 2, 3


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
    frames: dict[tuple[Any, ...], Frame] = field(default_factory=dict)


class Machine:
    """The kernels that are compiled, by module; and why others are not."""

    def __init__(self) -> None:
        self._kernels: WeakKeyDictionary[Module, dict[tuple[str, Layout], Compiled | Refusal]] = WeakKeyDictionary()
        self._warps: WeakKeyDictionary[Module, dict[str, bool]] = WeakKeyDictionary()

    def find(self, launch: Launch) -> Compiled | Refusal:
        """A launch's kernel as machine code, or why there is none."""
        module, entry, geometry = launch.module, launch.entry, launch.geometry
        if geometry.cooperative or prod(geometry.cluster) > 1:
            return Refusal("blocks that run at the same time")
        kernels = self._kernels.setdefault(module, {})
        warps = self._warps.setdefault(module, {})
        if entry.name not in warps:
            warps[entry.name] = kernel.uses_warps(module.context(entry))
        watched = module.memory.watcher is not None
        layout = layout_of(geometry, warps[entry.name], native.processor().native, watched)
        found = kernels.get((entry.name, layout))
        if found is None:
            found = kernels[entry.name, layout] = self._make(module, entry.name, layout)
        return found

    def _make(self, module: Module, name: str, layout: Layout) -> Compiled | Refusal:
        try:
            made = kernel.make(module.context(module.program.functions[name]), layout)
        except Refusal as refusal:
            return refusal
        return Compiled(made, native.Code(native.compiled(made.text), f"{name}.{id(made)}"))

    def run(self, launch: Launch, compiled: Compiled) -> None:
        """Run a launch to its end.

        Raises
        ------
        EmulationError
        """
        memory, geometry = launch.module.memory, launch.geometry
        key = (geometry.grid, geometry.block, geometry.shared_bytes)
        frame = compiled.frames.get(key)
        if frame is None:
            blocks_at_once(launch.module, launch.entry, geometry, launch.title)
            frame = compiled.frames[key] = _frame(launch, compiled.made)
        ctypes.memmove(frame.parameters, launch.parameters, len(launch.parameters))
        session = _Session(launch, frame)
        try:
            memory.set_parameters(launch.parameters)
            code = compiled.code.run(frame.words, 0, geometry.blocks)
            if session.failure is not None:
                raise session.failure
            if code == _STOPPED:
                raise KeyboardInterrupt
            if code:
                raise session.error(code, compiled.made)
        finally:
            memory.leave()


def _frame(launch: Launch, made: kernel.Made) -> Frame:
    geometry, module = launch.geometry, launch.module
    context = module.context(launch.entry)
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
    assert RESERVED_SHARED
    return Frame(geometry, words, held, table, parameters)


class _Session:
    """One launch while it runs: what it calls back for."""

    def __init__(self, launch: Launch, frame: Frame) -> None:
        self.launch, self.frame = launch, frame
        self.memory: Memory = launch.module.memory
        self.failure: BaseException | None = None
        self._tell()
        words = frame.words
        words[Slot.TICKS] = _PERIOD
        words[Slot.REACH], words[Slot.TICK] = _callbacks()
        _sessions.append(self)

    def _tell(self) -> None:
        """Write the table of allocations."""
        rows = self.memory.rows()
        table = self.frame.table
        if 4 * len(rows) > len(table):
            table = self.frame.table = (ctypes.c_int64 * (8 * len(rows)))()
            self.frame.words[Slot.TABLE] = ctypes.addressof(table)
        place = 0
        for start, end, readonly, flags in rows:
            table[place], table[place + 1], table[place + 2], table[place + 3] = start, end, readonly, flags
            place += 4
        self.frame.words[Slot.TABLE_COUNT] = len(rows)

    def reach(self, address: int, size: int, use: int) -> int:
        """Whether memory that is in no row of the table can be come to by a pointer: 1 where it is in a row now."""
        try:
            address &= 2**64 - 1
            before = self.frame.words[Slot.TABLE_COUNT]
            self.memory.views("global", np.array([address], np.uint64), np.dtype(np.uint8), None, WRITE if use else 1)
            self._tell()
            return int(self.frame.words[Slot.TABLE_COUNT] > before)
        except AccessError:
            return 0
        except BaseException as error:
            self.failure = error
            return 0

    # ── errors ──

    def error(self, code: int, made: kernel.Made) -> EmulationError:
        words, launch = self.frame.words, self.launch
        if code == _STUCK:
            return EmulationError(
                f"{launch.title}: deadlock: threads wait for other lanes of their warp, which wait elsewhere"
            )
        given = made.sites[words[Slot.SITE]]
        block, thread = words[Slot.AT_BLOCK], words[Slot.THREAD]
        special = SpecialRegisters(launch.geometry, range(block, block + 1))
        if given.opcode == "trap":
            what = f"{place_of(special, launch.geometry, thread)} trapped"
        else:
            what = self._access(given, words[Slot.ADDRESS] & 2**64 - 1, thread)
        return EmulationError(launch.explain(launch.entry, given, what))

    def _access(self, given: Instruction, address: int, thread: int) -> str:
        """What is wrong with an access, in the words of memory itself."""
        memory, module = self.memory, self.launch.module
        atomic = given.opcode in ("atom", "red")
        operands = given.operands[1:] if given.opcode != "st" else given.operands
        size = DTYPES[type_of(given)].itemsize
        vector = next((each for each in given.operands if isinstance(each, Group) and each.kind == "vector"), None)
        count = len(vector.items) if vector is not None else 1
        assert operands
        from cudakit.emulator.compiled.emit.memory import space_of

        shared = module.symbols.shared_bytes(self.launch.geometry.shared_bytes)
        memory.block_of = np.zeros(1, np.int64)
        memory.set_shared(1, shared)
        memory.shared_offsets = module.symbols.shared
        context = module.context(self.launch.entry)
        memory.local = np.zeros((1, max(1024, context.local_bytes)), np.uint8)
        use = STRONG_WRITE if atomic else WRITE if given.opcode == "st" else 1
        addresses = np.array([address], np.uint64)
        try:
            check_aligned(addresses, size * count)
            whole = min(16, size * count)
            dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[whole]
            for start in range(0, size * count, whole):
                memory.views(space_of(given), addresses + np.uint64(start), np.dtype(dtype), None, use)
        except AccessError as error:
            return str(error)
        return f"an access to {address:#x} was refused"


#: The launch at hand, which callbacks are for; those of other threads wait for it.
_sessions: list[_Session] = []

def _reach(address: int, size: int, use: int) -> int:
    return _sessions[-1].reach(address, size, use)


def _tick() -> int:
    try:
        return _PERIOD
    except BaseException as error:
        _sessions[-1].failure = error
        return 0


_Reach = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Tick = ctypes.CFUNCTYPE(ctypes.c_int64)
_kept: list[Any] = []


def _callbacks() -> tuple[int, int]:
    """Addresses of the functions that code calls back."""
    if not _kept:
        _kept.extend((_Reach(_reach), _Tick(_tick)))
    reach, tick = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in _kept)
    return reach, tick


_machine = Machine()


def run(launch: Launch, otherwise: Callable[[Launch], None]) -> None:
    """Run a launch as machine code where that can be done, else `otherwise`."""
    if launch.observers or launch.step_budget is not None :
        otherwise(launch)
        return
    found = _machine.find(launch)
    if isinstance(found, Refusal):
        otherwise(launch)
        return
    try:
        _machine.run(launch, found)
    finally:
        if _sessions:
            _sessions.pop()
