"""Kernels that a kernel launches: they run when it has ended, each with what it launches itself before the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.program import Function
from cudakit.errors import EmulationError, LaunchError
from cudakit.jit.compile.launch_bounds import LaunchBounds
from cudakit.jit.load.config import Config
from cudakit.jit.load.limits import bounded

#: How deep a device lets kernels launch kernels, and how many launches it keeps, unless its limits are set.
_DEEPEST, _MOST_PENDING = 24, 2048
_MOST_THREADS = 1024
#: ``cudaStreamTailLaunch``: what it is given runs when all else has.
_TAIL = 3


class Child(NamedTuple):
    """A launch that a kernel asked for, and its parameters, in memory that the kernel writes to."""

    entry: Function
    geometry: Geometry
    parameters: np.ndarray


@dataclass
class Children:
    """What one launch of a kernel launches.

    Attributes
    ----------
    module : Module
    depth : int
        How many kernels, one by the other, launched the one at hand.
    """

    module: Module
    depth: int = 0
    _made: dict[int, Child] = field(default_factory=dict)
    _waiting: list[Child] = field(default_factory=list)
    _last: list[Child] = field(default_factory=list)

    def make(self, pointer: int, geometry: Geometry) -> int:
        """Where the parameters of a kernel are to be written, which a later `launch` names.

        Raises
        ------
        EmulationError
            For what no device would launch.
        """
        entry = self.module.program.functions[self.module.symbols.function_at(pointer)]
        if not entry.is_entry:
            raise EmulationError(f"{entry.name} is no kernel, and cannot be launched")
        if not (0 < geometry.threads <= _MOST_THREADS and geometry.blocks > 0):
            raise EmulationError(
                f"{entry.name} is launched with a grid of {geometry.grid} and blocks of {geometry.block}; a block has "
                f"1 to {_MOST_THREADS} threads, and a grid a block at least"
            )
        config = Config(geometry.grid, geometry.block, geometry.shared_bytes)
        try:
            cluster = bounded(entry.name, config, LaunchBounds.of(entry.directives)).cluster
        except LaunchError as error:
            raise EmulationError(str(error)) from None
        if cluster is not None:
            geometry = replace(geometry, cluster=cluster, has_cluster=True)
        if self.depth >= _DEEPEST:
            raise EmulationError(f"{entry.name} is launched more than {_DEEPEST} kernels deep")
        offsets = self.module.context(entry).parameter_offsets
        size = max((offsets[variable.name] + variable.size for variable in entry.parameters), default=0)
        parameters = np.zeros(size + 64, np.uint8)
        start = -int(parameters.__array_interface__["data"][0]) % 64
        child = Child(entry, geometry, parameters[start : start + max(1, size)])
        address = self.module.memory.add(child.parameters, f"the parameters of {entry.name}")
        self._made[address] = child
        return address

    def launch(self, address: int, stream: int) -> None:
        """Launch a kernel whose parameters have been written."""
        child = self._made.get(address)
        if child is None:
            raise EmulationError(f"{address:#x} is not where the parameters of a kernel were to be written")
        (self._last if stream == _TAIL else self._waiting).append(child)
        if len(self._waiting) + len(self._last) > _MOST_PENDING:
            raise EmulationError(
                f"more than {_MOST_PENDING} launches wait for their kernel to end; a device keeps no more"
            )

    def take(self) -> Iterator[Child]:
        """The launches, in the order in which they run; their parameters' memory goes afterwards."""
        try:
            yield from (*self._waiting, *self._last)
        finally:
            for address in self._made:
                self.module.memory.remove(address)
