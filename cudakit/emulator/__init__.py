"""Runs the PTX of CUDA C++ kernels on the host, as SIMT: the same compiled kernels on a machine with no GPU."""

from cudakit.emulator import access, arithmetic, barrier, control  # noqa: F401  (they fill the instruction table)
from cudakit.emulator.machine import Geometry, Launch, Module, run
from cudakit.emulator.memory import Memory
from cudakit.emulator.ptx import parse

__all__ = ["Geometry", "Launch", "Memory", "Module", "parse", "run"]
