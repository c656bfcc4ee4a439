"""Emulator: run compiled kernels on the CPU, on NumPy arrays, with every access checked.

Where there is no GPU, `ck.stream()` is an emulator's stream. With a GPU, `ck.emulator.stream()` gives one. The stream
decides where a call runs: source, options and arguments stay the same.

>>> import numpy as np
>>> import cudakit as ck
>>> scale = ck.Kernel("__global__ void scale(float* x, float by) { x[threadIdx.x] *= by; }")
>>> stream = ck.emulator.stream("sm_90")
>>> x = np.arange(4, dtype=np.float32)
>>> scale(stream, ck.config(1, 4), x, 2.0)
>>> x.tolist()
[0.0, 2.0, 4.0, 6.0]

A call returns when its kernel is done. A wrong access raises `EmulationError` with kernel, source line, array and
element:

>>> scale(stream, ck.config(1, 8), x, 2.0)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
cudakit.errors.EmulationError: ...

For programs:

- `stream`: a stream of the emulator, for an arch, with checks, a step budget or a random order of threads.
- `counters`: memory traffic, instructions and divergence, by kernel and source line.
- `debug`: one launch under a debugger: breakpoints, steps forward and back, variables by name.
- `strict`: a block that refuses host arrays where a GPU does.
- `EmulatedStream`, `EmulatedEvent`: the types of its streams and events.

For PTX without a `ck.Kernel`: `parse` reads a `Module`'s program, and `run` runs a `Launch` of it, with a `Geometry`
and a `Memory`.
"""

# Importing it fills the table of instructions.
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
