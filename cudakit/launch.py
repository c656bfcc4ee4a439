"""Stage 7, launch: one call shape on one stream, after what must come first; and the driver's errors, explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from cudakit import devices
from cudakit.binding import Fragment
from cudakit.errors import LaunchError
from cudakit.load import Loaded
from cudakit.streams import Known, current_streams, order
from cudakit.work import Call, tell_launch

if TYPE_CHECKING:
    from cuda.core import LaunchConfig


@dataclass
class CallShape:
    """One combination of argument types, bound to a loaded specialization.

    Attributes
    ----------
    loaded : Loaded
    fragments : tuple of Fragment
        One an argument.
    families : tuple of str
        What kind of object each argument is, as `describe` names it.
    device_id : int
    run : callable
        ``run(stream, launch config, kernel, *values)``: cuda.core's launch, or a `PackedLaunch`.
    """

    loaded: Loaded
    fragments: tuple[Fragment, ...]
    families: tuple[str, ...]
    device_id: int
    run: Callable[..., None]
    serial: int = field(default_factory=count().__next__)
    config: tuple[Any, Any] = (None, None)
    renewals: int = 0

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Positions of arguments whose identity stands for their check."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.fixed)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """Libraries whose current stream decides the order."""
        return tuple(library for library in ("cupy", "torch") if library in self.families)

    @cached_property
    def memory(self) -> tuple[tuple[int, str], ...]:
        """Position and family of each argument that is memory."""
        kinds = ("cupy", "torch", "memory", "buffer")
        return tuple((position, family) for position, family in enumerate(self.families) if family in kinds)


def make_run(loaded: Loaded, fragments: Sequence[Fragment]) -> Callable[..., None]:
    """What launches a shape: cuda.core's launch where it can pass every argument, else one that passes raw bytes."""
    if any(fragment.form == "s" for fragment in fragments):
        from cudakit.packed import PackedLaunch

        return PackedLaunch(loaded, fragments)
    from cuda.core import launch

    run: Callable[..., None] = launch
    return run


def launch_ordered(
    shape: CallShape, target: Known, config: LaunchConfig, values: Sequence[Any], arguments: Sequence[Any]
) -> int | None:
    """Launch after what must come first; the epoch in which nothing had to, so that a repetition may skip this."""
    devices.make_current(shape.device_id)
    producers = current_streams(shape.libraries, shape.device_id)
    epoch = order().before(target, _allocations(shape, values, arguments), producers)
    try:
        call = Call(shape.loaded, config, tuple(values), tuple(arguments))
        tell_launch(shape.run, target.core, call, target.core, config, shape.loaded.kernel, *values)
    except Exception as error:
        raise_launch_error(shape, error)
        raise
    if epoch is None:
        order().hold(target.core, arguments)
    return epoch


def order_plan(shape: CallShape, target: Known, values: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Order what a plan will launch, once: later launches of it come after everything that was launched until now."""
    devices.make_current(shape.device_id)
    producers = current_streams(shape.libraries, shape.device_id)
    order().before(target, _allocations(shape, values, arguments), producers)


def raise_launch_error(shape: CallShape | None, error: BaseException) -> None:
    """Raise a `LaunchError` where `error` is the driver's; cuda.core's own class for it is private."""
    if isinstance(error, LaunchError):
        raise error
    if any(kind.__name__ == "CUDAError" for kind in type(error).__mro__):
        kernel = f"{shape.loaded.specialization.name_expression}: " if shape else ""
        raise LaunchError(
            f"{kernel}the driver refused the launch: {error}. An error of work launched before, such as an access out "
            "of bounds, shows up here too; run under compute-sanitizer to find it"
        ) from error


def _allocations(shape: CallShape, values: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
    """Base address of each allocation among the arguments."""
    found = []
    for position, family in shape.memory:
        if family == "cupy":
            found.append(arguments[position].data.mem.ptr)
        elif family == "torch":
            found.append(arguments[position].untyped_storage().data_ptr())
        elif isinstance(values[position], int):
            found.append(values[position])
    return found
