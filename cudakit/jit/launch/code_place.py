"""Where code runs, as a kernel's specializations see it: what is compiled for it, loaded and bound there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import Callee, bind
from cudakit.jit.launch.dispatch import Shape
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.load.device_image import DeviceImage
from cudakit.jit.load.image import Image
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams import devices
from cudakit.types.arguments import Argument, describe


class Ready(Protocol):
    """A specialization that can be launched: `Loaded`, or the emulator's."""

    specialization: Specialization
    compiled: Compiled
    parameters: tuple[BoundParameter, ...]


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

    def adapted(self, specialization: Specialization) -> Specialization:
        """What is compiled there for it."""

    def image(self) -> Image:
        """A module that nothing of is loaded there yet."""

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

    def adapted(self, specialization: Specialization) -> Specialization:
        return specialization

    def image(self) -> DeviceImage:
        return DeviceImage()

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        callee = Callee(ready.specialization.name_expression, self.device_id, devices.device_count() > 1)
        rows = zip(ready.parameters, described, ready.sizes, weak, strict=True)
        fragments = tuple(bind(parameter, argument, callee, size, choice) for parameter, argument, size, choice in rows)
        families = tuple(argument.family for argument in described)
        return CallShape(ready, fragments, families, self.device_id, make_run(ready, fragments))
