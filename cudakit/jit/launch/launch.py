"""Stage 7, launch: one call shape on one stream, after what must come first; and the driver's errors, explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from cudakit.errors import LaunchError, lost_context
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.load.load import Loaded
from cudakit.streams import devices
from cudakit.streams.order import ranges as spans
from cudakit.streams.order.order import order
from cudakit.streams.order.segments import Range, Use
from cudakit.streams.streams import Known, current_streams
from cudakit.streams.witnesses import Call, tell_launch, watched

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
    once: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Positions of arguments whose identity stands for their check."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.fixed)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """Libraries whose current stream decides the order."""
        return tuple(library for library in ("cupy", "torch") if library in self.families)

    @cached_property
    def memory(self) -> tuple[tuple[int, str, bool], ...]:
        """Position and family of each argument that is memory, and whether the kernel may write to it."""
        kinds, found = ("cupy", "torch", "memory", "buffer"), []
        for position, (family, slot) in enumerate(zip(self.families, self.loaded.slots, strict=True)):
            if family in kinds or (family == "object" and slot.kind != "tensor_map"):
                # Of the objects, raw addresses are memory, and textures of it.
                found.append((position, family, slot.kind != "scalar" and not slot.const))
        return tuple(found)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether all memory is known by the identity of its arguments."""
        return {position for position, *_ in self.memory} <= set(self.fixed)

    @cached_property
    def named(self) -> tuple[int, ...]:
        """Positions of arguments that may name a stream of their own."""
        return tuple(position for position, family, _ in self.memory if family == "memory")


def make_run(loaded: Loaded, fragments: Sequence[Fragment]) -> Callable[..., None]:
    """What launches a shape: cuda.core's launch where it can pass every argument, else one that passes raw bytes."""
    if any(fragment.form == "s" for fragment in fragments):
        from cudakit.jit.launch.param_buffer import PackedLaunch

        return PackedLaunch(loaded, fragments)
    from cuda.core import launch

    run: Callable[..., None] = launch
    return run


def launch_ordered(
    shape: CallShape, target: Known, config: LaunchConfig, values: Sequence[Any], arguments: Sequence[Any]
) -> Use | None:
    """Launch after what must come first; what `Order.before` gave, for `Order.settle`.

    Called with the order's lock held, so that no other thread puts work between the waits and the launch.
    """
    ordered = order()
    use = _order(shape, target, values, arguments)
    try:
        if watched():
            call = Call(shape.loaded, config, tuple(values), tuple(arguments))
            if use is not None and use.note is not None:
                use.note.tell(call)
            tell_launch(shape.run, target.core, call, target.core, config, shape.loaded.kernel, *values)
        else:
            shape.run(target.core, config, shape.loaded.kernel, *values)
    except Exception as error:
        raise_launch_error(shape, error)
        raise
    ordered.after(use, arguments)
    return use


def order_plan(shape: CallShape, target: Known, values: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Order what a plan will launch, once: later launches of it come after everything that was launched until now."""
    _order(shape, target, values, arguments)


def _order(shape: CallShape, target: Known, values: Sequence[Any], arguments: Sequence[Any]) -> Use | None:
    """Put in the waits for a launch."""
    devices.make_current(shape.device_id)
    producers = current_streams(shape.libraries, shape.device_id)
    for position in shape.named:
        producers += spans.named_producers(arguments[position], target.handle)
    return order().before(target, *ranges_of(shape, values, arguments), producers)


def ranges_of(
    shape: CallShape, values: Sequence[Any], arguments: Sequence[Any]
) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Memory that a launch reads, and memory that it may write."""
    reads: list[Range] = []
    writes: list[Range] = []
    for position, family, written in shape.memory:
        argument, value = arguments[position], values[position]
        if family == "cupy" and type(value) is int:
            span = value, value + argument.nbytes
        else:
            span = spans.span_of(argument)
            written = written or type(argument).__name__ == "SurfaceObject"
        (writes if written else reads).append(span)
    return tuple(reads), tuple(writes)


def raise_launch_error(shape: CallShape | None, error: BaseException) -> None:
    """Raise a `LaunchError` where `error` is the driver's; cuda.core's own class for it is private."""
    if isinstance(error, LaunchError):
        raise error
    lost = lost_context(error)
    if lost is not None:
        raise lost from error
    if any(kind.__name__ == "CUDAError" for kind in type(error).__mro__):
        kernel = f"{shape.loaded.specialization.name_expression}: " if shape else ""
        raise LaunchError(
            f"{kernel}the driver refused the launch: {error}. An error of work launched before, such as an access out "
            "of bounds, shows up here too; run under compute-sanitizer to find it"
        ) from error
