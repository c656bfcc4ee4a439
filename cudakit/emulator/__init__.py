"""Runs the PTX of CUDA C++ kernels on the host, as SIMT: the same compiled kernels on a machine with no GPU."""

from cudakit.emulator.instructions import (
    access,  # noqa: F401  (they fill the instruction table)
    arithmetic,  # noqa: F401  (they fill the instruction table)
    atomic,  # noqa: F401  (they fill the instruction table)
    barrier,  # noqa: F401  (they fill the instruction table)
    bits,  # noqa: F401  (they fill the instruction table)
    bulk,  # noqa: F401  (they fill the instruction table)
    comparison,  # noqa: F401  (they fill the instruction table)
    control,  # noqa: F401  (they fill the instruction table)
    conversion,  # noqa: F401  (they fill the instruction table)
    copies,  # noqa: F401  (they fill the instruction table)
    matrix_moves,  # noqa: F401  (they fill the instruction table)
    mbarrier,  # noqa: F401  (they fill the instruction table)
    surface,  # noqa: F401  (they fill the instruction table)
    system,  # noqa: F401  (they fill the instruction table)
    tensor,  # noqa: F401  (they fill the instruction table)
    tensor_copies,  # noqa: F401  (they fill the instruction table)
    tensormap_changes,  # noqa: F401  (they fill the instruction table)
    texture,  # noqa: F401  (they fill the instruction table)
    video,  # noqa: F401  (they fill the instruction table)
    warp,  # noqa: F401  (they fill the instruction table)
    wgmma,  # noqa: F401  (they fill the instruction table)
    wmma,  # noqa: F401  (they fill the instruction table)
)
from cudakit.emulator.machine.machine import Geometry, Launch, run
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.streams.events import EmulatedEvent
from cudakit.emulator.streams.stream import EmulatedStream, stream

__all__ = ["EmulatedEvent", "EmulatedStream", "Geometry", "Launch", "Memory", "Module", "parse", "run", "stream"]
