"""Where a kernel's calls run, as its specializations see it: for what they are compiled, loaded and bound there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import Target, bind
from cudakit.jit.launch.dispatch import Shape
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.launch.plan import Plan
from cudakit.jit.load.load import Loaded, load
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.parameters import Slot
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams import devices
from cudakit.streams.streams import EMULATED_ARCH, is_emulated, known
from cudakit.types.arguments import Argument, describe

if TYPE_CHECKING:
    from cudakit.emulator.launch import Emulated

#: A specialization that can be launched.
Ready: TypeAlias = "Loaded | Emulated"


class PlannedShape(Shape, Protocol):
    """A `Shape` that can be planned too."""

    def plan(self, stream: Any, config: Any, values: Sequence[Any], arguments: tuple[Any, ...]) -> Plan:
        """The plan of a launch of what the fragments have checked."""


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

    def load(self, specialization: Specialization, compiled: Compiled, slots: tuple[Slot, ...]) -> Ready:
        """Make compiled code ready to be launched."""

    def holds(self, ready: Ready) -> bool:
        """Whether a specialization can be launched there."""

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> PlannedShape:
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

    def load(self, specialization: Specialization, compiled: Compiled, slots: tuple[Slot, ...]) -> Ready:
        return load(specialization, compiled, slots)

    def holds(self, ready: Ready) -> bool:
        return isinstance(ready, Loaded)

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> PlannedShape:
        target = Target(ready.specialization.name_expression, self.device_id, devices.device_count() > 1)
        rows = zip(ready.slots, described, ready.sizes, weak, strict=True)
        fragments = tuple(bind(slot, argument, target, size, choice) for slot, argument, size, choice in rows)
        families = tuple(argument.family for argument in described)
        return CallShape(ready, fragments, families, self.device_id, make_run(ready, fragments))


class EmulatedCode(NamedTuple):
    """The emulator."""

    arch: str
    target: Literal["cubin", "ptx"] = "ptx"

    def describe(self, value: Any) -> Argument:
        from cudakit.emulator.arguments import describe_host

        return describe_host(value)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check_arch(self, kernel: str, own: str | None) -> None:
        from cudakit.emulator.launch import check_arch

        check_arch(kernel, own, self.arch)

    def options(self, options: CompileOptions) -> CompileOptions:
        # With source lines, which change no code and which the emulator's errors name.
        return options if options.debug else options.replace(lineinfo=True)

    def load(self, specialization: Specialization, compiled: Compiled, slots: tuple[Slot, ...]) -> Ready:
        from cudakit.emulator.launch import prepare

        return prepare(specialization, compiled, slots)

    def holds(self, ready: Ready) -> bool:
        return not isinstance(ready, Loaded) and ready.specialization.arch == self.arch

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> PlannedShape:
        from cudakit.emulator.launch import bind_shape

        return bind_shape(ready, self.arch, given, described, weak)


def place_of(stream: Any) -> CodePlace:
    """Where a stream's kernels run.

    Raises
    ------
    ArgumentError, LaunchError
        For what is no stream, and for a GPU's in a process that cannot use one.
    """
    return EmulatedCode(stream.arch) if is_emulated(stream) else DeviceCode(known(stream).device_id)


def current_place(arch: str | None) -> CodePlace:
    """Where kernels run if no stream is named: the current device or, where there is none, the emulator as an arch."""
    return DeviceCode(devices.current_device().device_id) if devices.has_gpu() else EmulatedCode(arch or EMULATED_ARCH)
