"""Branches, calls and exits: PTX ISA 9.7.12 (control flow)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.emulator.machine.context import Context, Frame
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.ptx.program import Group, Instruction, Register, Symbol
from cudakit.errors import EmulationError

if TYPE_CHECKING:
    from cudakit.emulator.machine.machine import Machine


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
        machine.place[slice(None) if active is None else active] = (
            machine.location(here[0], here[1], 0) + targets[chosen.astype(np.int64)]
        )

    return branch


def _leave(machine: Machine, frame: Frame, active: Index, here: tuple[int, int, int]) -> None:
    depth, number, _ = here
    if depth == 0:
        machine.finish(active)
        return
    lanes = np.arange(machine.lanes) if active is None else active
    function = machine.module.functions[number]
    back = frame.return_to[lanes]
    machine.local_top[lanes] = frame.local_base[lanes]
    for location in np.unique(back):
        group = lanes[back == location]
        caller_depth, caller_number, _ = machine.where(int(location))
        caller = machine.frame(caller_depth, caller_number)
        for variable, target in zip(function.returns, frame.returns[int(location)], strict=True):
            _bytes_of(caller, target, variable.size, machine.lanes)[group] = _bytes_of(
                frame, variable.name, variable.size, machine.lanes
            )[group]
        machine.place[group] = location


def _bytes_of(frame: Frame, name: str, size: int, lanes: int) -> np.ndarray:
    """Bytes of a parameter variable, one row a lane."""
    found = frame.parameters.get(name)
    if found is None:
        found = frame.parameters[name] = np.zeros((lanes, -(-size // 8) * 8), np.uint8)
    return found


@control("ret", "9.7.12.6")
def ret(given: Instruction, context: Context) -> Control:
    def leave(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        if active is None or active.size:
            _leave(machine, frame, active, here)

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
    """A kernel that gives up; cooperative groups do so where a grid cannot synchronise."""
    grid = any(Register("%envreg1") in other.operands for other in context.function.code)

    def stop(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is not None and active.size == 0:
            return True
        lane = 0 if active is None else int(active[0])
        hint = ""
        if grid and not machine.launch.geometry.cooperative:
            hint = "; a grid synchronises only in a cooperative launch: config(…, cooperative=True)"
        raise EmulationError(f"{machine.name_of(lane)} trapped{hint}")

    return stop


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

    def enter(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> None:
        lanes = np.arange(machine.lanes) if active is None else active
        if lanes.size == 0:
            return
        if pointer is None:
            _enter(machine, frame, name, lanes, arguments, results, here)
            return
        chosen = np.broadcast_to(pointer(frame, active, machine), lanes.shape)
        for value in np.unique(chosen):
            number = int(value) - machine.module.function_address(machine.module.functions[0].name)
            if not 0 <= number < len(machine.module.functions):
                raise EmulationError(f"a call to {int(value):#x}, which is no function")
            group = lanes[chosen == value]
            _enter(machine, frame, machine.module.functions[number].name, group, arguments, results, here)

    return enter


def _enter(
    machine: Machine,
    frame: Frame,
    name: str,
    lanes: np.ndarray,
    arguments: tuple[str, ...],
    results: tuple[str, ...],
    here: tuple[int, int, int],
) -> None:
    from cudakit.emulator.instructions import system

    depth, number, code = here
    if name in system.CALLS:
        given: list[Any] = [frame.parameters[argument][lanes] for argument in arguments]
        answer = system.CALLS[name](machine, lanes, given)
        for result in results:
            rows = _bytes_of(frame, result, 8, machine.lanes)
            rows[lanes, :4] = np.broadcast_to(np.asarray(answer, np.uint32), lanes.shape)[:, None].view(np.uint8)
        return
    function = machine.module.program.functions.get(name)
    if function is None or function.is_declaration:
        raise EmulationError(f"a call to {name}, which the module does not define and the emulator does not know")
    if depth >= 1000:
        raise EmulationError(f"{name} calls itself more than 1000 deep")
    callee_number = machine.module.numbers[name]
    callee = machine.frame(depth + 1, callee_number)
    local_bytes = machine.module.context(function).local_bytes
    callee.local_base[lanes] = machine.local_top[lanes]
    machine.reserve_local(lanes, local_bytes)
    for variable, argument in zip(function.parameters, arguments, strict=True):
        _bytes_of(callee, variable.name, variable.size, machine.lanes)[lanes] = _bytes_of(
            frame, argument, variable.size, machine.lanes
        )[lanes]
    back = machine.location(depth, number, code + 1)
    callee.return_to[lanes] = back
    callee.returns[back] = results
    machine.set_place(lanes, machine.location(depth + 1, callee_number, 0))
