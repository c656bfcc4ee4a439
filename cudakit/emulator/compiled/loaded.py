"""A kernel that is machine code, and the memory that its launches have."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudakit.emulator.compiled import native, tiers
from cudakit.emulator.compiled.kernel import Facts
from cudakit.emulator.compiled.layout import Layout, Slot
from cudakit.emulator.compiled.source import Source
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import WIDEST, Memory
from cudakit.emulator.machine.state import SHARED_UNIT, Geometry, coordinates


@dataclass(eq=False)
class Frame:
    """What launches of one kernel with one geometry have in common: memory, and the words that are told."""

    geometry: Geometry
    words: Any
    address: int
    held: list[Any]
    table: Any
    parameters: Any

    def tell(self, memory: Memory) -> None:
        """Write the table of allocations."""
        flags_from = getattr(memory.watcher, "flags_from", None)
        rows = memory.table if flags_from is None else memory.flagged(flags_from)
        address, length = rows.buffer_info()
        if length > len(self.table):
            self.table = (ctypes.c_int64 * (2 * length))()
        # A copy: while code runs on one core, another may come upon more memory.
        ctypes.memmove(self.table, address, 8 * length)
        self.words[Slot.TABLE] = ctypes.addressof(self.table)
        self.words[Slot.TABLE_COUNT] = length // 4


@dataclass(eq=False)
class Compiled:
    """A kernel that is machine code, for one layout."""

    source: Source
    layout: Layout
    #: Instructions of kernels that are optimised at once.
    short: int
    #: How long what was made quickly runs before it is optimised, in seconds.
    patience: float = 0
    frames: dict[tuple[Any, ...], Frame] = field(default_factory=dict)
    facts: Facts = field(init=False)
    code: native.Code = field(init=False)
    #: Whether it was made quickly, for the time being: such code may need more stack than threads have.
    is_quick: bool = field(init=False)

    def __post_init__(self) -> None:
        self._take(tiers.code_of(self.source, self.layout, self.short))

    def improve(self) -> None:
        """Compile what runs quicker."""
        self._take(tiers.make(self.source, self.layout, self.short, True))
        self.frames.clear()

    def _take(self, tier: tiers.Tier) -> None:
        self.facts, self.code, self.is_quick = tier.facts, native.Code(tier.object_code), tier.is_quick


def frame_of(launch: Launch, compiled: Compiled) -> Frame:
    """Room for launches of a geometry."""
    geometry, module = launch.geometry, launch.module
    facts = compiled.facts
    words = (ctypes.c_int64 * int(Slot.COUNT + 1))()
    held: list[Any] = []

    def room(size: int) -> int:
        array = np.zeros(size + 64, np.uint8)
        held.append(array)
        address = int(array.__array_interface__["data"][0])
        return -(-address // 64) * 64

    shared = launch.shared.total_bytes(geometry.shared_bytes)
    parameter_bytes = -(-len(launch.parameters) // WIDEST) * WIDEST
    parameters = room(max(WIDEST, parameter_bytes))
    lanes = -(-geometry.threads // 64) * 64
    at = np.zeros(3 * 1088, np.uint32)
    for axis, values in enumerate(coordinates(np.arange(geometry.threads), geometry.block).values()):
        at[axis * 1088 : axis * 1088 + geometry.threads] = values
    held.append(at)
    addresses = np.array([module.symbols.addresses[name] for name in facts.symbols] or [0], np.int64)
    held.append(addresses)
    table = (ctypes.c_int64 * (4 * 1024))()
    words[Slot.PARAMETERS], words[Slot.PARAMETER_BYTES] = parameters, parameter_bytes
    words[Slot.SHARED], words[Slot.SHARED_BYTES] = room(shared + 64), shared
    words[Slot.LOCAL], words[Slot.LOCAL_BYTES] = room(max(16, facts.local_bytes) * lanes), facts.local_bytes
    for axis in range(3):
        words[Slot.GRID + axis], words[Slot.BLOCK + axis] = geometry.grid[axis], geometry.block[axis]
    words[Slot.THREADS] = geometry.threads
    words[Slot.THREAD_AT] = int(at.__array_interface__["data"][0])
    words[Slot.SYMBOLS] = int(addresses.__array_interface__["data"][0])
    words[Slot.VECTORS] = -(-geometry.threads // compiled.layout.width)
    words[Slot.STATE] = room(max(64, facts.state_bytes * words[Slot.VECTORS]))
    words[Slot.DYNAMIC_BYTES] = geometry.shared_bytes
    words[Slot.TOTAL_BYTES] = -(-shared // SHARED_UNIT) * SHARED_UNIT
    words[Slot.GRID_BARRIER] = module.grid_barrier_address if geometry.cooperative else 0
    return Frame(geometry, words, ctypes.addressof(words), held, table, parameters)
