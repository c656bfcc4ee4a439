"""What the blocks of a launch take of the host's memory, and how many of them therefore run at once."""

from __future__ import annotations

from math import prod

from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import LOCAL_BYTES
from cudakit.emulator.ptx.program import Function
from cudakit.errors import EmulationError

#: Lanes that run at once; blocks beyond them run after.
MOST_LANES = 65_536
#: Bytes of registers, shared and local memory that the blocks at once may take; fewer run at once to keep to it.
USUAL_BYTES = 1 << 30
#: What one cluster, or a grid that synchronises, may take at most, and what the frames of nested calls may.
MOST_BYTES = 4 << 30
#: A recursion keeps the registers of each depth; so many times fewer lanes run at once.
_RECURSION = 16


def blocks_at_once(module: Module, entry: Function, geometry: Geometry, title: str) -> int:
    """Blocks of a launch that run at once: whole clusters, all blocks of a grid that synchronises.

    `title` is what messages call the kernel.

    Raises
    ------
    EmulationError
        If they take more memory than the emulator gives.
    """
    context = module.context(entry)
    if context.local_bytes > LOCAL_BYTES:
        raise EmulationError(
            f"{title}: the variables of a thread in local memory are {context.local_bytes} bytes, over the "
            f"limit of {LOCAL_BYTES} bytes a thread"
        )
    cluster = prod(geometry.cluster)
    block_bytes = module.shared(entry.name).static_bytes + geometry.shared_bytes + geometry.threads * context.lane_bytes
    least = geometry.blocks if geometry.cooperative else cluster
    if least * block_bytes > MOST_BYTES:
        raise EmulationError(
            f"{title}: {least} blocks that must run at once take {least * block_bytes} bytes of registers, "
            f"shared and local memory, and {MOST_BYTES} are available; use smaller blocks, fewer of them or less memory"
        )
    if geometry.cooperative:
        return geometry.blocks
    lanes = MOST_LANES // _RECURSION if module.recurses(entry) else MOST_LANES
    clusters = min(lanes // (geometry.threads * cluster), USUAL_BYTES // (block_bytes * cluster))
    return max(1, clusters) * cluster
