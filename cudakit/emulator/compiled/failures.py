"""What machine code stopped for, as errors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cudakit.emulator.compiled.builder import Reached
from cudakit.emulator.compiled.layout import DONE, Ending, Slot
from cudakit.emulator.compiled.loaded import Compiled
from cudakit.emulator.instructions.control import trapped
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import AccessError, check_aligned
from cudakit.emulator.machine.state import SpecialRegisters, deadlocked, place_of
from cudakit.emulator.ptx.program import Immediate, Instruction
from cudakit.errors import EmulationError


def error_of(code: int, launch: Launch, compiled: Compiled, words: Any) -> EmulationError:
    """What code stopped for, as the error that NumPy's machine raises."""
    if code == Ending.STUCK:
        return EmulationError(
            f"{launch.title}: deadlock: threads wait for other lanes of their warp, which wait elsewhere"
        )
    if code == Ending.STALLED:
        return _stalled(launch, compiled, words)
    number, reached = compiled.facts.sites[words[Slot.SITE]]
    given, function = compiled.source.instruction(number)
    block, thread = words[Slot.AT_BLOCK], words[Slot.THREAD]
    special = SpecialRegisters(launch.geometry, range(block, block + 1))
    if given.opcode == "trap":
        where = place_of(special, launch.geometry, thread)
        what = trapped(where, compiled.source.context.function, launch.geometry)
    elif "aligned" in given.modifiers and reached is None:
        where, here = place_of(special, launch.geometry, thread), words[Slot.ADDRESS]
        what = f"{given} needs all 32 threads of a warp; of that of {where}, only {here} are there"
    elif "sync" in given.modifiers and reached is None:
        named = words[Slot.ADDRESS] & 2**32 - 1
        what = f"lane {thread % 32} is not in its own member mask {named:#010x}"
    else:
        what = _access(launch, given, reached, words[Slot.ADDRESS] & 2**64 - 1)
    return EmulationError(launch.explain(function, given, what))


def _stalled(launch: Launch, compiled: Compiled, words: Any) -> EmulationError:
    """Vectors wait at barriers that others do not come to."""
    facts, width = compiled.facts, compiled.layout.width
    threads, held, waits = launch.geometry.threads, 0, dict(facts.waits)
    first: tuple[int, int | None] | None = None
    for at in range(0, threads, width):
        place = words[Slot.STATE] + at // width * facts.state_bytes
        state = ctypes.c_int64.from_address(place).value
        if state != DONE:
            held += min(width, threads - at)
            first = first or (at, waits.get(state))
    assert first is not None
    thread, number = first
    block = words[Slot.AT_BLOCK]
    where = place_of(SpecialRegisters(launch.geometry, range(block, block + 1)), launch.geometry, thread)
    what = deadlocked(held, 0, where)
    if number is None:
        return EmulationError(f"{launch.title}: {what}")
    given, function = compiled.source.instruction(number)
    return EmulationError(launch.explain(function, given, what))


def _access(launch: Launch, given: Instruction, reached: Reached | None, address: int) -> str:
    """What is wrong with an access, in the words of memory itself."""
    memory, module = launch.module.memory, launch.module
    memory.set_parameters(launch.parameters)
    if reached is None:
        assert given.opcode == "cp"
        assert isinstance(given.operands[2], Immediate)
        return f"a copy of {given.operands[2].value} bytes from a source of {address}"
    size = reached.size * reached.elements
    shared = launch.shared.total_bytes(launch.geometry.shared_bytes)
    memory.block_of = np.zeros(1, np.int64)
    memory.set_shared(1, shared)
    memory.shared_offsets = launch.shared.offsets
    context = module.context(launch.entry)
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
