"""Stage 7, launch: one call shape on one stream, after what must come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from cudakit.errors import raise_launch_error
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.load.load import Loaded
from cudakit.jit.specialise.parameters import Slot
from cudakit.streams import devices
from cudakit.streams.order import ranges as spans
from cudakit.streams.order.order import order
from cudakit.streams.order.segments import Range, Use
from cudakit.streams.streams import Known, current_streams
from cudakit.streams.witnesses import Call, doing, watched
from cudakit.types.arguments import texture_handle

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
        raise_launch_error(error, shape.loaded.specialization.name_expression)
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


def tell_launch(run: Callable[..., Any], stream: Any, call: Call, *given: Any) -> Any:
    """``run(*given)``, told as the launch of a kernel on `stream`."""
    if not watched():
        return run(*given)
    reads, writes = accesses(call.target.slots, call.arguments)
    with doing("kernel", call.target.specialization.name_expression, stream, reads, writes, 0, call):
        return run(*given)


def accesses(slots: Sequence[Slot], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments that a kernel reads, and those that it may write: a ``T*`` is both, a ``const T*`` read."""
    reads, writes = [], []
    for slot, argument in zip(slots, arguments, strict=True):
        if argument is None or slot.kind in ("vector", "struct", "functor"):
            continue
        if slot.kind == "scalar":
            if texture_handle(argument) is not None:
                reads.append(argument)
                if type(argument).__name__ == "SurfaceObject":
                    writes.append(argument)
            continue
        reads.append(argument)
        if not slot.const:
            writes.append(argument)
    return tuple(reads), tuple(writes)
