"""Runs the PTX of CUDA C++ kernels on the host, as SIMT: the same compiled kernels on a machine with no GPU."""

from cudakit.emulator import (  # noqa: F401  (they fill the instruction table)
    access,
    arithmetic,
    atomic,
    barrier,
    bits,
    bulk,
    comparison,
    control,
    conversion,
    copies,
    matrix_moves,
    mbarrier,
    surface,
    system,
    tensor,
    tensor_copies,
    tensormap_changes,
    texture,
    video,
    warp,
    wgmma,
    wmma,
)
from cudakit.emulator.events import EmulatedEvent
from cudakit.emulator.machine import Geometry, Launch, run
from cudakit.emulator.memory import Memory
from cudakit.emulator.module import Module
from cudakit.emulator.ptx import parse
from cudakit.emulator.stream import EmulatedStream, stream

__all__ = ["EmulatedEvent", "EmulatedStream", "Geometry", "Launch", "Memory", "Module", "parse", "run", "stream"]
