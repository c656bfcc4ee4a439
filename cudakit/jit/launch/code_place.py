"""Where code runs, as a kernel's specializations see it: what is compiled for it, loaded and bound there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import Target, bind
from cudakit.jit.launch.dispatch import Shape
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.load.load import Loaded, load
from cudakit.jit.load.variables import Variables
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams import devices
from cudakit.types.arguments import Argument, describe


class Ready(Protocol):
    """A specialization that can be launched: `Loaded`, or the emulator's."""

    specialization: Specialization
    compiled: Compiled
    parameters: tuple[BoundParameter, ...]

    @property
    def variables(self) -> Variables:
        """Its ``__constant__`` and ``__device__`` variables."""


class CodePlace(Protocol):
    """What runs kernels: a GPU, or the emulator as one arch."""

    @property
    def target(self) -> Literal["cubin", "ptx"]:
        """What is compiled."""

    @property
    def arch(self) -> str:
        """What is compiled for where the kernel names nothing else."""

    def describe(self, value: Any) -> Argument:
        """What an argument is there."""

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """A block in which kernels can be loaded."""

    def check_arch(self, kernel: str, own: str | None) -> None:
        """Check that code for a kernel's own arch runs there, where that is not seen when it is loaded."""

    def options(self, options: CompileOptions) -> CompileOptions:
        """What is compiled with, for a kernel's own options."""

    def load(self, specialization: Specialization, compiled: Compiled, parameters: tuple[BoundParameter, ...]) -> Ready:
        """Make compiled code ready to be launched."""

    def holds(self, ready: Ready) -> bool:
        """Whether a specialization can be launched there."""

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        """Check a call's arguments and freeze the checks."""


class DeviceCode(NamedTuple):
    """A GPU."""

    device_id: int
    target: Literal["cubin", "ptx"] = "cubin"

    @property
    def arch(self) -> str:
        return devices.limits(self.device_id).arch

    def describe(self, value: Any) -> Argument:
        return describe(value)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        return devices.on_device(self.device_id)

    def check_arch(self, kernel: str, own: str | None) -> None:
        return

    def options(self, options: CompileOptions) -> CompileOptions:
        return options

    def load(
        self, specialization: Specialization, compiled: Compiled, parameters: tuple[BoundParameter, ...]
    ) -> Loaded:
        return load(specialization, compiled, parameters)

    def holds(self, ready: Ready) -> bool:
        return isinstance(ready, Loaded)

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        target = Target(ready.specialization.name_expression, self.device_id, devices.device_count() > 1)
        rows = zip(ready.parameters, described, ready.sizes, weak, strict=True)
        fragments = tuple(bind(parameter, argument, target, size, choice) for parameter, argument, size, choice in rows)
        families = tuple(argument.family for argument in described)
        return CallShape(ready, fragments, families, self.device_id, make_run(ready, fragments))
