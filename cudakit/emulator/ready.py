"""Launchable code of the emulator: a kernel of threads in PTX, or a tile kernel in Tile IR.

The compiled back-end runs a kernel of threads where it can and where it pays; else the NumPy interpreter does.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from cudakit.emulator.checks.check import checkers, with_schedules
from cudakit.emulator.machine.machine import Launch, run
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import PROGRAMS, Module
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.ptx.program import Function, as_compiled
from cudakit.emulator.streams.stream import EVERYWHERE, EmulatedStream
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.load.config import Config, Cover, spread, tiled
from cudakit.jit.load.limits import bounded, check_cooperative, check_grid, check_launch
from cudakit.jit.load.load import EmulatedAttributes, check_sizes
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.streams.devices import Limits

if TYPE_CHECKING:
    from cudakit.emulator.tile.machine import TileLaunch, TileProgram


@cache
def runner(machine: str) -> Callable[[Launch], None]:
    """Return the function that runs a launch on a stream whose machine is ``auto``, ``compiled`` or ``numpy``."""
    if machine == "numpy" or importlib.util.find_spec("llvmlite") is None:
        return run
    # Loaded late: it takes a tenth of a second, and most programs that run one kernel do not need it.
    from cudakit.emulator.compiled.machine import run as compiled

    return lambda launch: compiled(launch, run, machine == "compiled")


#: Limits of the emulated arches, from the CUDA programming guide's table of compute capabilities. The numbers of
#: multiprocessors are an A100's and an H200's.
_SHARED_BYTES = {(8, 0): 163 * 1024, (8, 6): 99 * 1024, (8, 9): 99 * 1024, (9, 0): 227 * 1024}
_MULTIPROCESSORS = {(8, 0): 108, (9, 0): 132}
_RESIDENT_THREADS, _RESIDENT_BLOCKS = 2048, 32
_COVER_THREADS = 256


@dataclasses.dataclass
class Emulated(ABC):
    """Specialization loaded on the emulator."""

    specialization: Specialization
    compiled: Compiled
    parameters: tuple[BoundParameter, ...]
    loaded: Any

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each parameter.

        Raises
        ------
        ArgumentError
            If the code's parameters are not those of the signature.
        """
        return check_sizes(self.specialization, self.parameters, self.compiled_sizes)

    @property
    @abstractmethod
    def compiled_sizes(self) -> tuple[int, ...]:
        """Bytes of each parameter in the compiled code."""

    @cached_property
    @abstractmethod
    def layout(self) -> struct.Struct:
        """Layout of the parameters, each as bytes; shorter values are filled up with zeros."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Memory of the kernel's module."""

    @abstractmethod
    def geometry(self, arch: str, config: Config | Cover) -> Geometry:
        """Return grid and block, checked against the limits of the kernel and of an arch's device."""

    @abstractmethod
    def launch(self, stream: EmulatedStream, geometry: Geometry, packed: bytes) -> Launch | TileLaunch:
        """Return a launch of the kernel, not yet run."""

    def attributes(self) -> EmulatedAttributes:
        """Return the machine that ran the kernel last, with the reason."""
        return EmulatedAttributes("numpy", "tile kernels run on NumPy", 0)

    @property
    def symbol(self) -> str:
        """Name of the kernel in the compiled code."""
        return self.compiled.lowered[self.specialization.name_expression]

    def placed(self, file: str, line: int) -> str:
        """Convert a file and line, as the compiler names them, to the user's ``file:line``.

        For source text in a Python file, this is the Python file and its line.
        """
        source = self.specialization.source
        if source.named(file) != source.name:
            return as_compiled(file, line)
        shift, file = line_of_text(source)
        return as_compiled(file, line + shift - self.specialization.unnumbered_lines)


class EmulatedThreads(Emulated):
    """Kernel of threads; later launches parse nothing while the program is kept."""

    loaded: Module

    @property
    def compiled_sizes(self) -> tuple[int, ...]:
        return tuple(variable.size for variable in self.entry.parameters)

    @cached_property
    def layout(self) -> struct.Struct:
        return _layout((variable.size, variable.align) for variable in self.entry.parameters)

    @cached_property
    def source(self) -> tuple[str, str]:
        """Name that the compiler has for the source, and the source itself."""
        return self.specialization.source.name, self.specialization.written_text

    @cached_property
    def pointers(self) -> dict[str, str]:
        """PTX names of parameters that may be pointers, each with its C++ name if it points to const, else empty."""
        names = iter(variable.name for variable in self.entry.parameters)
        return {
            name: parameter.name if parameter.category == "pointer" and parameter.const else ""
            for parameter in self.parameters
            for name in islice(names, parameter.parts)
            if parameter.category not in ("scalar", "vector")
        }

    @property
    def memory(self) -> Memory:
        return self.loaded.memory

    @property
    def entry(self) -> Function:
        """Kernel in the parsed program."""
        return self.loaded.program.functions[self.symbol]

    def attributes(self) -> EmulatedAttributes:
        machine, why = self.loaded.ran.get(self.symbol, ("numpy", "it has not run"))
        return EmulatedAttributes(machine, why, self.loaded.shared(self.symbol).static_bytes)

    def launch(self, stream: EmulatedStream, geometry: Geometry, packed: bytes) -> Launch:
        PROGRAMS.use(self.loaded)
        checks, run = checkers(stream), runner(stream.machine)
        return Launch(
            self.loaded,
            self.entry,
            geometry,
            packed,
            stream.output,
            (*stream.observers, *EVERYWHERE, *checks),
            stream.step_budget,
            name=self.specialization.name_expression,
            placed=self.placed,
            source=self.source,
            runner=with_schedules(run, stream) if checks else run,
            schedule=stream.schedule,
            pointers=self.pointers if checks else {},
            late=stream.schedule is not None or bool(checks),
        )

    def geometry(self, arch: str, requested: Config | Cover) -> Geometry:
        name, bounds = self.specialization.name_expression, LaunchBounds.of(self.entry.directives)
        limits = limits_of(arch)
        own = bounds.threads or prod(bounds.block or (limits.threads_per_block,))
        config = spread(requested, min(_COVER_THREADS, own), bounds) if isinstance(requested, Cover) else requested
        config = bounded(name, config, bounds)
        static = self.loaded.shared(self.symbol).static_bytes
        check_launch(name, config, limits, own, "set by its __launch_bounds__", static)
        if config.cooperative:
            warps = -(-prod(config.block) // 32)
            resident = min(_RESIDENT_BLOCKS, _RESIDENT_THREADS // (32 * warps))
            if static + config.shared_bytes:
                resident = min(resident, limits.shared_bytes // (static + config.shared_bytes))
            check_cooperative(name, config, limits, resident)
        cluster, has_cluster = config.cluster or (1, 1, 1), config.cluster is not None
        return Geometry(config.grid, config.block, config.shared_bytes, cluster, config.cooperative, has_cluster)


class EmulatedTiles(Emulated):
    """Tile kernel."""

    loaded: TileProgram

    @property
    def compiled_sizes(self) -> tuple[int, ...]:
        from cudakit.emulator.tile.values import dtype_of

        return tuple(dtype_of(parameter).itemsize for parameter in self.loaded.module.functions[self.symbol].parameters)

    @cached_property
    def layout(self) -> struct.Struct:
        return _layout((size, min(size, 8)) for size in self.sizes)

    @property
    def memory(self) -> Memory:
        return self.loaded.memory

    def geometry(self, arch: str, requested: Config | Cover) -> Geometry:
        name = self.specialization.name_expression
        config = tiled(name, requested)
        check_grid(name, config, limits_of(arch))
        return Geometry(config.grid, config.block)

    def launch(self, stream: EmulatedStream, geometry: Geometry, packed: bytes) -> TileLaunch:
        from cudakit.emulator.tile.machine import TileLaunch

        return TileLaunch(
            self.loaded,
            self.loaded.module.functions[self.symbol],
            geometry.grid,
            packed,
            stream.output,
            stream.step_budget,
            stream.block_order,
            self.specialization.name_expression,
            self.placed,
        )


def _layout(parameters: Iterable[tuple[int, int]]) -> struct.Struct:
    """Return the layout of parameters one after the other, by their sizes and alignments."""
    parts, end = "<", 0
    for size, align in parameters:
        padding = -end % max(1, align)
        parts += f"{padding}x{size}s"
        end += padding + size
    return struct.Struct(parts)


def limits_of(arch: str) -> Limits:
    """Return the launch limits of the emulated device of an arch."""
    digits = arch.removeprefix("sm_").rstrip("af")
    capability = int(digits[:-1]), int(digits[-1])
    return Limits(
        name=f"the emulator's {arch}",
        arch=arch,
        compute_capability=capability,
        threads_per_block=1024,
        block=(1024, 1024, 64),
        grid=(2**31 - 1, 65_535, 65_535),
        shared_bytes=_SHARED_BYTES.get(capability, 227 * 1024),
        multiprocessors=_MULTIPROCESSORS.get(capability, 132),
        cooperative=True,
    )
