"""Branches, calls and exits: PTX ISA 9.7.12 (control flow)."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.instructions.system import CALLS
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Function, Group, Instruction, Register, Symbol
from cudakit.errors import EmulationError


@control("bra", "9.7.12.3")
def bra(given: Instruction, context: Context) -> Control:
    (target,) = given.operands
    assert isinstance(target, Symbol)
    code = context.function.labels[target.name]

    def branch(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        machine.set_place(active, machine.location(here[0], here[1], code))

    return branch


@control("brx", "9.7.12.4")
def brx(given: Instruction, context: Context) -> Control:
    selector, table = given.operands
    assert isinstance(table, Symbol)
    targets = np.array([context.function.labels[name] for name in context.function.branch_targets[table.name]])
    read = context.read(selector, "u32")

    def branch(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        chosen = np.broadcast_to(read(frame, active, machine), (machine.lanes if active is None else active.size,))
        if (chosen >= targets.size).any():
            raise EmulationError(f"branch {int(chosen.max())} of a table of {targets.size}")
        machine.set_place(active, machine.location(here[0], here[1], 0) + targets[chosen.astype(np.int64)])

    return branch


@control("ret", "9.7.12.6")
def ret(given: Instruction, context: Context) -> Control:
    def leave(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        if active is None or active.size:
            machine.return_from(frame, active, here)

    return leave


@control("exit", "9.7.12.7")
def exit_(given: Instruction, context: Context) -> Control:
    def leave(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        if active is None or active.size:
            machine.finish(active)

    return leave


@control("trap", "9.7.19.4")
@control("brkpt", "9.7.19.1")
def trap(given: Instruction, context: Context) -> Control:
    """A kernel that gives up."""

    def stop(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is not None and active.size == 0:
            return True
        lane = 0 if active is None else int(active[0])
        raise EmulationError(trapped(machine.name_of(lane), context.function, machine.geometry))

    return stop


def trapped(place: str, function: Function, geometry: Geometry) -> str:
    """What is told of a trap; cooperative groups trap where a grid cannot synchronise."""
    hint = ""
    if not geometry.cooperative and any(Register("%envreg1") in other.operands for other in function.code):
        hint = "; a grid synchronises only in a cooperative launch: config(…, cooperative=True)"
    return f"{place} trapped{hint}"


@control("call", "9.7.12.5")
def call(given: Instruction, context: Context) -> Control:
    operands = list(given.operands)
    results: tuple[str, ...] = ()
    first = operands[0]
    if isinstance(first, Group) and first.kind == "arguments":
        results = tuple(item.name for item in first.items if isinstance(item, Symbol))
        operands.pop(0)
    target = operands.pop(0)
    arguments: tuple[str, ...] = ()
    if operands and isinstance(operands[0], Group):
        arguments = tuple(item.name for item in operands[0].items if isinstance(item, Symbol))
    pointer = context.read(target, "u64") if isinstance(target, Register) else None
    name = target.name if isinstance(target, Symbol) else ""

    def go(machine: Machine, frame: Frame, name: str, lanes: np.ndarray, here: tuple[int, int, int]) -> None:
        if name not in CALLS:
            machine.call(name, lanes, arguments, results, frame, here)
            return
        answer = CALLS[name](machine, lanes, [frame.parameters[argument][lanes] for argument in arguments])
        for result in results:
            values = np.ascontiguousarray(np.broadcast_to(answer, lanes.shape))
            frame.bytes_of(result, 8)[lanes, : values.itemsize] = values[:, None].view(np.uint8)

    def enter(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        lanes = np.arange(machine.lanes) if active is None else active
        if lanes.size == 0:
            return
        if pointer is None:
            go(machine, frame, name, lanes, here)
            return
        chosen = np.broadcast_to(pointer(frame, active, machine), lanes.shape)
        for value in np.unique(chosen):
            go(machine, frame, context.symbols.function_at(int(value)), lanes[chosen == value], here)

    return enter
