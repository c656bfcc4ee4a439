"""Instructions that all lanes of a warp, or of a warpgroup, run as one (``.sync.aligned``), on registers as a table.

A lane that comes to one waits there until all lanes of its warp (32) or warpgroup (four warps, 128) stand at the same
place. Their registers stay as they are meanwhile, so that nothing needs to be kept but who has come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.instructions.access import parts
from cudakit.emulator.machine.context import Context, Reader
from cudakit.emulator.machine.decode import Control, Step
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_WARP, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand
from cudakit.errors import EmulationError

WARP, WARPGROUP = 32, 128

#: read(frame, index, machine) → raw bits of a vector operand's registers, (warps, 32, registers)
TableReader: TypeAlias = Callable[[Frame, Index, Machine], np.ndarray]
TableWriter: TypeAlias = Callable[[Frame, Index, np.ndarray], None]


def aligned(given: Instruction, step: Step, size: int = WARP) -> Control:
    """A control that runs `step` for groups of `size` lanes of which all have come; the others wait."""

    def control(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is None and machine.threads % size == 0:
            step(frame, None, machine)
            return True
        lanes = np.arange(machine.lanes) if active is None else active
        waiting = machine.come.setdefault(here, np.zeros(machine.lanes, bool))
        waiting[lanes] = True
        come = np.flatnonzero(waiting)
        group = machine.warp_of if size == WARP else machine.warpgroup_of
        complete = (np.bincount(group[come]) == size)[group[come]]
        ready, late = come[complete], come[~complete]
        _refuse_missing(machine, given, group, late, size)
        waiting[ready] = False
        machine.status[ready], machine.status[late] = RUNNING, AT_WARP
        if ready.size:
            step(frame, ready, machine)
        # Lanes that waited since earlier must be chosen along with those that stand here now.
        return bool(ready.size == come.size == lanes.size)

    return control


def _refuse_missing(machine: Machine, given: Instruction, group: np.ndarray, late: np.ndarray, size: int) -> None:
    """Raise where a lane can never come, because it has exited or never was."""
    if late.size == 0:
        return
    alive = np.bincount(group[machine.status != DONE], minlength=int(group[-1]) + 1)
    short = late[alive[group[late]] < size]
    if short.size:
        lane = int(short[0])
        what = "warp" if size == WARP else "warpgroup (four warps)"
        raise EmulationError(
            f"{given} needs all {size} threads of a {what}; of that of {machine.name_of(lane)}, only "
            f"{int(alive[group[lane]])} are there"
        )


def uniform(values: Any, what: str, size: int = WARP) -> np.ndarray:
    """The value that all lanes of each group have, (groups,)."""
    table = np.asarray(values).reshape(-1, size)
    if (table != table[:, :1]).any():
        raise EmulationError(f"the {what} is not the same for all {size} threads")
    return table[:, 0]


def of_lanes(read: Reader, frame: Frame, index: Index, machine: Machine) -> np.ndarray:
    """What `read` gives, for each lane."""
    return np.broadcast_to(read(frame, index, machine), (machine.lanes if index is None else index.size,))


def table_reader(context: Context, operand: Operand, bits: int = 32) -> TableReader:
    """A function that reads the registers of `operand`, each of `bits`, as a table (warps, 32, registers)."""
    reads = [context.read(item, f"b{bits}") for item in parts(operand)]

    def read(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        table = np.empty((machine.lanes if index is None else index.size, len(reads)), f"u{bits // 8}")
        for number, one in enumerate(reads):
            table[:, number] = one(frame, index, machine)
        return table.reshape(-1, WARP, len(reads))

    return read


def table_writer(context: Context, operand: Operand, bits: int = 32) -> TableWriter:
    """A function that writes a table (warps, 32, registers) to the registers of `operand`."""
    writes = [context.write(item, f"b{bits}") for item in parts(operand)]

    def write(frame: Frame, index: Index, table: np.ndarray) -> None:
        columns = table.reshape(-1, len(writes)).T
        for one, values in zip(writes, columns, strict=True):
            one(frame, index, np.ascontiguousarray(values))

    return write
