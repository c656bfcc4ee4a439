"""Launches of a call shape on a device: in order with other streams, and faster when they repeat."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, LaunchError, raise_launch_error
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.load.config import Config, Cover, as_config, is_empty, launch_traits
from cudakit.jit.load.load import Loaded
from cudakit.records import NamedTuple
from cudakit.streams import devices
from cudakit.streams.order import order
from cudakit.streams.segments import Range, Use, named_producers, span_of
from cudakit.streams.streams import DeviceStream, current_streams, device_stream
from cudakit.streams.witnesses import Call, add_shortcut, watched

if TYPE_CHECKING:
    from cuda.core import LaunchConfig

    from cudakit.jit.launch.plan import Plan


#: An object that no caller can pass.
_NOTHING = object()
#: Maximum of calls for which a shape remembers other arrays. After these, identity is no longer tried.
_MOST_RENEWALS = 64
#: Launches with the same arguments before the driver's parameters are written once.
_CALLS_BEFORE_BINDING = 8
#: As `Settled.any_arrays`.
RENEWING = "renewing"
#: Maximum of streams and first arrays for which a shape has repeats.
_MOST_REPEATS = 32


class Settled(NamedTuple):
    """The conditions under which a repeated call goes straight to the driver, and the driver's arguments.

    Attributes
    ----------
    stream, config : object
        The user's stream and configuration.
    core : cuda.core.Stream
        cuda.core's object for the stream.
    resolved_config : cuda.core.LaunchConfig
        Checked configuration for cuda.core.
    cupy_stream, torch_stream : object
        Current streams of the libraries whose arrays are among the arguments.
    any_arrays : object
        In `CallShape.last_launch`: whether all arguments that fit may go straight to the driver. False: only the
        remembered arrays. `RENEWING`: all, and `CallShape.renew` then remembers them. In `CallShape.repeats`: the
        function that launches with waits (see `cudakit.streams.order`), or None if the launch may go straight.
    former : tuple or None
        `memo` of the arrays that were remembered before, which may take turns with these.
    arrays : tuple
        For each argument in `CallShape.fixed`, a weak reference to it, and its driver argument.
    numbers : tuple
        Arguments in `CallShape.numbers`; then driver arguments for `CallShape.converted`; then shapes of the arrays in
        `CallShape.shaped`; then, where `CallShape.is_bindable`, the list that `CallShape.bind` fills.
    """

    stream: Any
    config: Any
    core: Any
    resolved_config: Any
    cupy_stream: Any
    torch_stream: Any
    any_arrays: Any
    former: tuple[Any, ...] | None
    arrays: tuple[Any, ...]
    numbers: tuple[Any, ...] = ()

    @property
    def memo(self) -> tuple[Any, ...]:
        """All remembered arguments, in one plain tuple."""
        return (*self.arrays, *self.numbers)

    def flat(self) -> tuple[Any, ...]:
        """Return all fields in one plain tuple, which unpacks in half the time of a nested or named tuple."""
        return (*self[:_STATED], *self.memo)


#: Number of fields of `Settled` before its arrays.
_STATED = len(Settled.__annotations__) - 2


class _Remembering:
    """Fields that generated code reads in each call, in slots, which are as fast as global names."""

    __slots__ = ("last_launch", "repeats")

    def __init__(self) -> None:
        self.last_launch: tuple[Any, ...] = ()
        self.repeats: dict[tuple[int, int], tuple[Any, ...]] = {}


class CallShape(_Remembering):
    """A combination of argument types, bound to a loaded specialization.

    Attributes
    ----------
    loaded : Loaded
        The loaded specialization.
    fragments : tuple of Fragment
        A fragment for each argument.
    families : tuple of str
        Family of each argument, as `describe` names it.
    device_id : int
        Ordinal of the device.
    run : callable
        ``run(stream, launch config, kernel, *values)``: cuda.core's launch, or a `PackedLaunch`.
    last_launch : tuple
        `Settled`, flat, of the last launch: calls with these arguments go straight to the driver. It is replaced as a
        whole, so that a thread in a call never sees a partial change.
    repeats : dict
        `Settled`, flat, of further launches, by the identities of a stream and the first array.
    """

    def __init__(
        self,
        loaded: Loaded,
        fragments: tuple[Fragment, ...],
        families: tuple[str, ...],
        device_id: int,
        run: Callable[..., None],
    ) -> None:
        super().__init__()
        self.loaded = loaded
        self.fragments = fragments
        self.families = families
        self.device_id = device_id
        self.run = run
        self.config: tuple[Any, Any] = (_NOTHING, None)
        self._renewals = 0
        self._once: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.unsettle()
        order().watch(self)
        add_shortcut(self)

    @property
    def name(self) -> str:
        """Name expression of the specialization."""
        return self.loaded.specialization.name_expression

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Positions of arguments that are checked by identity."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.fixed)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Positions of numbers, which are not checked again if they are the same objects."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.number)

    @cached_property
    def converted(self) -> tuple[int, ...]:
        """Positions of numbers that are converted for the driver."""
        return tuple(position for position in self.numbers if self.fragments[position].value != "{a}")

    @cached_property
    def shaped(self) -> tuple[int, ...]:
        """Positions of arguments that are checked by identity and shape."""
        return tuple(position for position in self.fixed if self.fragments[position].shaped)

    @cached_property
    def is_bindable(self) -> bool:
        """True if all arguments can be remembered: the driver's parameters are then written once."""
        return len({*self.fixed, *self.numbers}) == len(self.fragments) > 0

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """CuPy or torch, if arguments are its arrays: the launch is ordered after the library's current stream."""
        return tuple(library for library in ("cupy", "torch") if library in self.families)

    @cached_property
    def memory(self) -> tuple[tuple[int, str, bool], ...]:
        """Position and family of each argument that is memory, and whether the kernel may write to it."""
        families, rows = ("cupy", "torch", "memory", "buffer"), []
        for position, (family, parameter) in enumerate(zip(self.families, self.loaded.parameters, strict=True)):
            if family in families or (family == "object" and parameter.category != "tensor_map"):
                # Among objects, raw addresses are memory, and textures refer to it.
                rows.append((position, family, parameter.category != "scalar" and not parameter.const))
        return tuple(rows)

    @cached_property
    def is_fixed(self) -> bool:
        """True if every argument that is memory is checked by identity: the same objects mean the same memory."""
        return {position for position, *_ in self.memory} <= set(self.fixed)

    @cached_property
    def named(self) -> tuple[int, ...]:
        """Positions of arguments from other libraries than CuPy and torch.

        Such an array may name the stream on which it is written.
        """
        return tuple(position for position, family, _ in self.memory if family == "memory")

    @property
    def settled(self) -> Settled | None:
        """The conditions of the last launch, or None if no call goes straight to the driver."""
        if self.last_launch[0] is _NOTHING:
            return None
        end = _STATED + 2 * len(self.fixed)
        return Settled._make((*self.last_launch[:_STATED], self.last_launch[_STATED:end], self.last_launch[end:]))

    # ── one launch, looked at in full ────────────────────────────────────────────────────────────────────────────

    def target(self, stream: Any) -> DeviceStream | None:
        """Return the stream's record if the stream is of the shape's device, else None."""
        try:
            known_stream = device_stream(stream)
        except (ArgumentError, LaunchError):
            return None
        return known_stream if known_stream.device_id == self.device_id and not devices.is_forked() else None

    def launch(self, target: DeviceStream, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Launch with a new stream or configuration: in order, and with limits checked.

        Raises
        ------
        LaunchError
        """
        try:
            if devices.device_count() > 1:
                with devices.on_device(self.device_id):
                    self._launch(target, config, values, arguments)
            else:
                self._launch(target, config, values, arguments)
        except Exception as error:
            raise_launch_error(error, self.name)
            raise

    def plan(
        self, target: DeviceStream, config: Config | Cover, values: Sequence[Any], arguments: tuple[Any, ...]
    ) -> Plan:
        """Make the plan of a launch, ordered now: after everything launched until now."""
        from cudakit.jit.launch.plan import plan_of  # many programs make none

        with devices.on_device(self.device_id):
            resolved = self.loaded.launch_config(config, self.device_id)
            self._order(target, values, arguments)
        call = Call(self.loaded, resolved, tuple(values), arguments)
        result = plan_of(self.run, call, target.core, resolved, self.loaded.kernel, *values)
        result.name = self.name
        self.loaded.holders.add(result)
        return result

    def _launch(self, target: DeviceStream, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        last_config, resolved = self.config
        if last_config is not config:
            launch_config = as_config(config)
            if is_empty(launch_config):
                return
            resolved = self.loaded.launch_config(launch_config, self.device_id)
            # A LaunchConfig can change after the call: the driver gets the user's object, never a stale copy.
            resolved = resolved if isinstance(config, Config | Cover) else config
            self.config = (config, resolved)
        ordered = order()
        # No other thread puts work between the waits and the launch.
        with ordered.lock:
            use = self._order(target, values, arguments)
            is_watched = watched()
            if is_watched:
                self._launch_watched(target, resolved, values, arguments, use)
            else:
                self.run(target.core, resolved, self.loaded.kernel, *values)
            ordered.after(use, arguments)
            if self.named:
                # Nothing else keeps pinned memory from being reused while the kernel uses it.
                pinned = [arguments[i] for i in self.named if hasattr(arguments[i], "__array_interface__")]
                if pinned:
                    ordered.hold(target.core, pinned)
            if is_watched or self.named:
                return
            if use is not None and use.event is not None:
                self._repeat(target, config, resolved, values, arguments, settled=False)
                return
            may_settle = (devices.device_count() == 1 or self.libraries) and (ordered.single or self.is_fixed)
            if may_settle and ordered.settle(use, self):
                # With several streams, only these very arrays may go straight.
                any_arrays = ordered.single and (RENEWING if self._renewals < _MOST_RENEWALS else True)
                self.last_launch = self._settled_flat(target, config, resolved, any_arrays, values, arguments)
                if not ordered.single:
                    self._repeat(target, config, resolved, values, arguments, settled=True)

    def _launch_watched(
        self,
        target: DeviceStream,
        config: LaunchConfig,
        values: Sequence[Any],
        arguments: Sequence[Any],
        use: Use | None,
    ) -> None:
        """Launch, and report it to the witnesses."""
        from cudakit.jit.launch.report import report_launch  # for traces and the like

        call = Call(self.loaded, config, tuple(values), tuple(arguments))
        if use is not None and use.note is not None:
            use.note.record_call(call)
        report_launch(self.run, target.core, call, target.core, config, self.loaded.kernel, *values)

    def _order(self, target: DeviceStream, values: Sequence[Any], arguments: Sequence[Any]) -> Use | None:
        """Insert the waits that a launch needs before it on the stream. Make the shape's device current.

        Return the record of the launch's memory for `Order.after`, which the caller passes after the launch, or None.
        """
        devices.make_current(self.device_id)
        producers = current_streams(self.libraries, self.device_id)
        for position in self.named:
            producers += named_producers(arguments[position], target.handle)
        return order().before(target, *self.ranges(values, arguments), producers)

    def ranges(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Return the address ranges that a launch reads, and the address ranges that it may write."""
        reads: list[Range] = []
        writes: list[Range] = []
        for position, family, written in self.memory:
            argument, value = arguments[position], values[position]
            if family == "cupy" and type(value) is int:
                span = value, value + argument.nbytes
            else:
                span = span_of(argument)
                written = written or type(argument).__name__ == "SurfaceObject"
            (writes if written else reads).append(span)
        return tuple(reads), tuple(writes)

    # ── what is known of the last ones ───────────────────────────────────────────────────────────────────────────

    def watch(self, watched: bool) -> None:
        """Stop straight launches while there are witnesses, which would not see them."""
        if watched:
            self.unsettle()

    def unsettle(self) -> None:
        """Send all calls through the ordering of streams again, and forget the remembered launches.

        A later launch that needs no waits may go straight to the driver again.
        """
        # A stream that no caller can pass.
        nothing = Settled(_NOTHING, None, None, None, None, None, False, None, *self._no_memo())
        self.last_launch = nothing.flat()
        self.repeats.clear()

    def bind(self, bound: list[Any], core: Any, config: Any, resolved: LaunchConfig, values: Sequence[Any]) -> None:
        """Count a launch with remembered arguments. After some, put the launch with these arguments into `bound`.

        Parameters
        ----------
        bound : list
            The launch, or None; what a mutable configuration was then (see `launch_traits`), or None; the count.
        core, config, resolved : object
            cuda.core's stream, the user's configuration and the checked one.
        values : sequence
            The driver's arguments.
        """
        bound[2] += 1
        if bound[2] >= _CALLS_BEFORE_BINDING:
            from cudakit.jit.launch.param_buffer import bound_launch  # for launches that repeat

            bound[1] = launch_traits(config) if config is resolved else None
            bound[0] = bound_launch(self.run, self.loaded, self.fragments, core, resolved, values)

    def renew(self, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Remember the arrays and numbers of this call, and the arrays that were remembered before.

        After `_MOST_RENEWALS` calls, remember none.
        """
        self._renewals += 1
        # If another thread unsettles the shape meanwhile, it must stay unsettled.
        with order().lock:
            settled = self.settled
            if settled is None:
                return
            if self._renewals < _MOST_RENEWALS:
                (arrays, numbers), former = self._memo(values, arguments), settled.memo
                settled = settled._replace(former=former, arrays=arrays, numbers=numbers)
            else:
                arrays, numbers = self._no_memo()
                settled = settled._replace(any_arrays=True, former=None, arrays=arrays, numbers=numbers)
            self.last_launch = settled.flat()

    def _repeat(
        self,
        target: DeviceStream,
        config: Any,
        resolved: LaunchConfig,
        values: Sequence[Any],
        arguments: Sequence[Any],
        settled: bool,
    ) -> None:
        """Let launches with these arrays and this stream go straight to the driver, from the second such launch on.

        Parameters
        ----------
        target : DeviceStream
            Stream of the launch.
        config, resolved : object, cuda.core.LaunchConfig
            The user's configuration, and the checked one.
        values, arguments : sequence
            Driver's arguments, and the user's.
        settled : bool
            Whether the launch needed no waits. If False, the waits are repeated with each launch.
        """
        if not self.fixed or not self.is_fixed or devices.device_count() > 1:
            return
        key = id(target.stream), id(arguments[self.fixed[0]])
        once = (config, *(id(arguments[i]) for i in self.fixed))
        if self._once.get(key) != once:
            if len(self._once) >= _MOST_REPEATS:
                self._once.clear()
                self.repeats.clear()
            self._once[key] = once
            return
        again = None
        if not settled:
            uses = order().repeatable(target, *self.ranges(values, arguments))
            if uses is None:
                return
            from cudakit.streams.repeating import Repeat, repeating  # as in `bind`

            producers = current_streams(self.libraries, self.device_id)
            foreign = tuple(handle for handle in producers if handle != target.handle)
            launch = functools.partial(self.run, target.core, resolved, self.loaded.kernel)
            cool = functools.partial(self.repeats.pop, key, None)
            again = repeating(order(), Repeat(launch, cool, *uses, foreign))
        # The user's stream object is kept, so that no other object can have its identity.
        self.repeats[key] = self._settled_flat(target, config, resolved, again, values, arguments)

    def _settled_flat(
        self,
        target: DeviceStream,
        config: Any,
        resolved: LaunchConfig,
        any_arrays: Any,
        values: Sequence[Any],
        arguments: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Return `Settled`, flat, of a launch."""
        memo = self._memo(values, arguments)
        return Settled(target.stream, config, target.core, resolved, *self._current(), any_arrays, None, *memo).flat()

    def _current(self) -> tuple[Any, Any]:
        """Return CuPy's current stream, an object, and torch's, a handle; None for a library without arguments."""
        cupy_stream = sys.modules["cupy"].cuda.get_current_stream() if "cupy" in self.families else None
        torch_stream = None
        if "torch" in self.families:
            torch_stream = sys.modules["torch"]._C._cuda_getCurrentRawStream(self.device_id)
        return cupy_stream, torch_stream

    def _memo(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return `Settled.arrays` and `Settled.numbers` of a launch."""
        arrays = tuple(item for i in self.fixed for item in (weakref.ref(arguments[i]), values[i]))
        numbers = (*(arguments[i] for i in self.numbers), *(values[i] for i in self.converted))
        return arrays, (*numbers, *(arguments[i].shape for i in self.shaped), *self._unbound())

    def _no_memo(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        numbers = (_NOTHING,) * len(self.numbers) + (0,) * (len(self.converted) + len(self.shaped))
        return (_nobody, 0) * len(self.fixed), (*numbers, *self._unbound())

    def _unbound(self) -> tuple[list[Any], ...]:
        return ([None, None, 0],) if self.is_bindable else ()


def _nobody() -> object:
    """Return an object that equals no argument. The function is called in place of a weak reference to an array."""
    return _NOTHING


def make_run(loaded: Loaded, fragments: Sequence[Fragment]) -> Callable[..., None]:
    """Return the function that launches a shape: cuda.core's launch, or a `PackedLaunch` if an argument needs it."""
    if any(fragment.form == "s" for fragment in fragments):
        from cudakit.jit.launch.param_buffer import PackedLaunch  # for structs and tensors

        return PackedLaunch(loaded, fragments)
    from cuda.core import launch

    run: Callable[..., None] = launch
    return run
