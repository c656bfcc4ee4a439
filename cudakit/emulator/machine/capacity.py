"""What the blocks of a launch take of the host's memory, and how many of them therefore run at once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cudakit.emulator.ptx.program import Function, Program, Register, Symbol
from cudakit.errors import EmulationError

if TYPE_CHECKING:
    from cudakit.emulator.machine.machine import Launch

#: Lanes that run at once; blocks beyond them run after.
MOST_LANES = 65_536
#: Bytes of registers, shared and local memory that the blocks at once may take; fewer run at once to keep to it.
USUAL_BYTES = 1 << 30
#: What one cluster, or a grid that synchronises, may take at most, and what the frames of nested calls may.
MOST_BYTES = 4 << 30
#: Local memory of a thread, in bytes: the limit of every compute capability.
LOCAL_BYTES = 512 << 10
#: A recursion keeps the registers of each depth; so many times fewer lanes run at once.
_RECURSION = 16


def blocks_at_once(launch: Launch) -> int:
    """Blocks of a launch that run at once: whole clusters, all blocks of a grid that synchronises.

    Raises
    ------
    EmulationError
        If they take more memory than the emulator gives.
    """
    geometry, module = launch.geometry, launch.module
    context = module.context(launch.entry)
    if context.local_bytes > LOCAL_BYTES:
        raise EmulationError(
            f"{launch.title}: the variables of a thread in local memory are {context.local_bytes} bytes, over the "
            f"limit of {LOCAL_BYTES} bytes a thread"
        )
    _, static = module.shared_layout()
    cluster = prod(geometry.cluster)
    block_bytes = static + geometry.shared_bytes + geometry.threads * context.lane_bytes
    least = geometry.blocks if geometry.cooperative else cluster
    if least * block_bytes > MOST_BYTES:
        raise EmulationError(
            f"{launch.title}: {least} blocks that must run at once take {least * block_bytes} bytes of registers, "
            f"shared and local memory, and {MOST_BYTES} are available; use smaller blocks, fewer of them or less memory"
        )
    if geometry.cooperative:
        return geometry.blocks
    lanes = MOST_LANES // _RECURSION if module.recurses(launch.entry) else MOST_LANES
    clusters = min(lanes // (geometry.threads * cluster), USUAL_BYTES // (block_bytes * cluster))
    return max(1, clusters) * cluster


def recurses(program: Program, entry: Function) -> bool:
    """Whether a function that `entry` reaches may call itself; one called through a pointer may."""
    open_, closed = [(entry.name, iter(_callees(entry)))], set[str]()
    path = {entry.name}
    while open_:
        name, callees = open_[-1]
        callee = next(callees, None)
        if callee is None:
            open_.pop()
            path.discard(name)
            closed.add(name)
        elif callee == "" or callee in path:
            return True
        elif callee not in closed and callee in program.functions:
            path.add(callee)
            open_.append((callee, iter(_callees(program.functions[callee]))))
    return False


def _callees(function: Function) -> list[str]:
    """Functions that `function` calls by name; an empty name where it calls through a pointer."""
    found = []
    for given in function.code:
        if given.opcode == "call":
            # Results in brackets may stand before the function.
            target = next((item for item in given.operands[:2] if isinstance(item, Symbol | Register)), None)
            found.append(target.name if isinstance(target, Symbol) else "")
    return found
