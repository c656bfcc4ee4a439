"""Runs the PTX of CUDA C++ kernels on the host, as SIMT: the same compiled kernels on a machine with no GPU."""

from cudakit.emulator import (  # noqa: F401  (they fill the instruction table)
    access,
    arithmetic,
    atomic,
    barrier,
    bits,
    comparison,
    control,
    conversion,
    copies,
    mbarrier,
    warp,
)
from cudakit.emulator.machine import Geometry, Launch, Module, run
from cudakit.emulator.memory import Memory
from cudakit.emulator.ptx import parse
from cudakit.emulator.stream import EmulatedStream, stream

__all__ = ["EmulatedStream", "Geometry", "Launch", "Memory", "Module", "parse", "run", "stream"]
