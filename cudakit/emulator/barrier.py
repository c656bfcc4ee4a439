"""Barriers and fences: PTX ISA 9.7.13.1 – 9.7.13.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudakit.emulator.decode import Context, Control, Frame, Step, control, instruction
from cudakit.emulator.memory import Index
from cudakit.emulator.ptx import Instruction

if TYPE_CHECKING:
    from cudakit.emulator.machine import Machine


@control("bar", "9.7.13.1")
@control("barrier", "9.7.13.1")
def bar(given: Instruction, context: Context) -> Control:
    number = context.read(given.operands[0], "u32") if given.operands else None
    count = context.read(given.operands[1], "u32") if len(given.operands) > 1 else None

    def wait(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        from cudakit.emulator.machine import AT_BARRIER

        lanes = np.arange(machine.lanes) if active is None else active
        if lanes.size == 0:
            return
        barrier = np.asarray(number(frame, active, machine) if number else 0).astype(np.int64)
        expected = np.asarray(count(frame, active, machine) if count else 0).astype(np.int64)
        machine.barrier[lanes] = barrier | expected << 8
        machine.status[lanes] = AT_BARRIER
        release(machine)

    return wait


def release(machine: Machine) -> None:
    """Let lanes go on whose barrier all that it waits for have reached; threads that have exited count as arrived."""
    from cudakit.emulator.machine import AT_BARRIER, DONE, RUNNING

    waiting = np.flatnonzero(machine.status == AT_BARRIER)
    if waiting.size == 0:
        return
    alive = np.bincount(machine.block_of[machine.status != DONE], minlength=machine.blocks)
    code = machine.barrier[waiting]
    group = machine.block_of[waiting] << 4 | (code & 15)
    arrived = np.bincount(group, minlength=machine.blocks << 4)
    expected = code >> 8
    needed = np.where(expected > 0, expected, alive[machine.block_of[waiting]])
    ready = waiting[arrived[group] >= needed]
    machine.status[ready] = RUNNING


@instruction("membar", "9.7.13.4")
@instruction("fence", "9.7.13.4")
@instruction("nanosleep", "9.7.19.3")
@instruction("pmevent", "9.7.19.2")
@instruction("griddepcontrol", "9.7.13.13")
@instruction("setmaxnreg", "9.7.19.5")
def nothing(given: Instruction, context: Context) -> Step:
    """Every access is seen by all at once here, so that there is nothing to order."""
    return lambda frame, index, machine: None
