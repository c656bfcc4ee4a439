"""Runs the PTX of CUDA C++ kernels on the host, as SIMT: the same compiled kernels on a machine with no GPU."""

# It fills the table of instructions.
from cudakit.emulator import instructions as instructions
from cudakit.emulator.counters.report import counters
from cudakit.emulator.debug.debug import debug
from cudakit.emulator.machine.machine import Launch, run
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.place import strict
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.streams.stream import EmulatedEvent, EmulatedStream, stream

__all__ = [
    "EmulatedEvent",
    "EmulatedStream",
    "Geometry",
    "Launch",
    "Memory",
    "Module",
    "counters",
    "debug",
    "parse",
    "run",
    "stream",
    "strict",
]


def __dir__() -> list[str]:
    return __all__
