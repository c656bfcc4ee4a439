"""Stage 7, launch: one combination of argument types on a device, ordered, and then known by what it was given."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cudakit.errors import ArgumentError, LaunchError, raise_launch_error
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.load.config import Config, Cover, as_config, is_empty
from cudakit.jit.load.load import Loaded
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams import devices
from cudakit.streams.order import Repeat, order, repeating
from cudakit.streams.segments import Range, Use, named_producers, span_of
from cudakit.streams.streams import Known, current_streams, known
from cudakit.streams.witnesses import Call, add_shortcut, doing, watched
from cudakit.types.arguments import texture_handle
from cudakit.types.shown import Table, html, words

if TYPE_CHECKING:
    from cuda.core import LaunchConfig


def tell_launch(run: Callable[..., Any], stream: Any, call: Call, *given: Any) -> Any:
    """``run(*given)``, told as the launch of a kernel on `stream`."""
    if not watched():
        return run(*given)
    reads, writes = accesses(call.target.parameters, call.arguments)
    with doing("kernel", call.target.specialization.name_expression, stream, reads, writes, 0, call):
        return run(*given)


def accesses(parameters: Sequence[BoundParameter], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments that a kernel reads, and those that it may write: a ``T*`` is both, a ``const T*`` read."""
    reads, writes = [], []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None or parameter.category in ("vector", "struct", "functor"):
            continue
        if parameter.category == "scalar":
            if texture_handle(argument) is not None:
                reads.append(argument)
                if type(argument).__name__ == "SurfaceObject":
                    writes.append(argument)
            continue
        reads.append(argument)
        if not parameter.const:
            writes.append(argument)
    return tuple(reads), tuple(writes)


class Recipe(NamedTuple):
    """What makes a plan of a stream and arguments; it can be pickled, where the plan stays in its process.

    Attributes
    ----------
    kernel : Kernel
    config : Config, Cover or cuda.core.LaunchConfig
    """

    kernel: Any
    config: Any

    def plan(self, stream: Any, *arguments: Any) -> Plan:
        """The plan for these."""
        made: Plan = self.kernel.plan(stream, self.config, *arguments)
        return made


class Plan(functools.partial[None]):
    """A launch with everything decided: stream, configuration and arguments. Calling it launches.

    The arguments are kept alive by the plan, which is to be kept until its work is done. They are checked and ordered
    once, when it is made: work that touches them on another stream afterwards is the caller's to order. An empty grid
    makes a plan that does nothing.
    """

    #: The specialization's; none of an empty grid.
    name: str = ""
    arguments: tuple[Any, ...] = ()
    #: What makes the same plan for other arguments, in another process too.
    recipe: Recipe | None = None
    #: What calling it does while nobody watches, kept so that a call under way in another thread stays whole.
    _unseen: tuple[Callable[..., None], Call, tuple[Any, ...]]

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of, as partials are from Python 3.14 on

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            f"the plan of {self.name or 'an empty grid'} cannot be pickled: its stream, arrays and loaded code are of "
            "this process. Pickle plan.recipe, and make a plan where it comes to: recipe.plan(stream, *arguments)"
        )

    def __repr__(self) -> str:
        what = f"{self.name}; arguments: {len(self.arguments)}" if self.name else "of an empty grid"
        return f"<cudakit.Plan {what}>"

    def _repr_html_(self) -> str:
        """What it launches and with what, in a notebook."""
        rows = [(number, words(argument)) for number, argument in enumerate(self.arguments)]
        return html(repr(self), Table(("", "argument"), rows, (0,)))

    def watch(self, watched: bool) -> None:
        """Tell the witnesses of each launch while there are any; see `cudakit.streams.witnesses`.

        A partial is given another function as unpickling gives it one, all at once. An object whose ``__call__`` looks
        its function up takes 1.34 times as long around one that does nothing (92 ns and 69, CPython 3.11).
        """
        run, call, given = self._unseen
        route = (tell_launch, (run, given[0], call, *given)) if watched else (run, given)
        self.__setstate__((*route, {}, self.__dict__))  # type: ignore[attr-defined]


def plan_of(run: Callable[..., None], call: Call, *given: Any) -> Plan:
    """The plan of ``run(stream, *given)``, of which the witnesses are told while there are any."""
    made = Plan(run, *given)
    made.arguments, made._unseen = call.arguments, (run, call, given)
    add_shortcut(made)
    return made


def nothing() -> None:
    """What the plan of an empty grid does."""


#: What nobody can give.
_NOTHING = object()
#: How often the remembered arrays of a shape may die and be replaced before identity is no longer tried.
_MOST_RENEWALS = 64
#: On how many streams, and with how many first arrays, a shape is known to be launched.
_MOST_REPEATS = 32


class Settled(NamedTuple):
    """What a call must be given again to go straight to the driver, and what the driver is given then.

    Attributes
    ----------
    stream, config : object
        As the user gave them.
    core : cuda.core.Stream
    resolved_config : cuda.core.LaunchConfig
    cupy_stream, torch_stream : object
        The current streams of the libraries that the shape has arrays of.
    any_arrays : object
        Whether any arguments that fit may go straight, or those only that are known by identity. Of a repeat: what
        launches it (see `cudakit.streams.order`), or None where it may go straight.
    arrays : tuple
        For each argument in `CallShape.fixed` a weak reference to it, and what is passed for it.
    numbers : tuple
        Each in `CallShape.numbers` itself; then, for those that are converted, what is passed; then the shapes of the
        arrays in `CallShape.shaped`.
    """

    stream: Any
    config: Any
    core: Any
    resolved_config: Any
    cupy_stream: Any
    torch_stream: Any
    any_arrays: Any
    arrays: tuple[Any, ...]
    numbers: tuple[Any, ...] = ()

    def flat(self) -> tuple[Any, ...]:
        """All in one plain tuple, which is unpacked in half the time of a nested or a named one."""
        return (*self[:_STATED], *self.arrays, *self.numbers)


#: How many things `Settled` states before its arrays.
_STATED = len(Settled.__annotations__) - 2


class _Remembering:
    """What generated code reads at each call, in slots: that is as quick as a global name."""

    __slots__ = ("repeats", "seen")

    def __init__(self) -> None:
        self.seen: tuple[Any, ...] = ()
        self.repeats: dict[tuple[int, int], tuple[Any, ...]] = {}


@dataclass(eq=False)
class CallShape(_Remembering):
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
    seen : tuple
        `Settled`, flat: with what it goes straight to the driver. Another one whenever something changes, so that a
        thread in the middle of a call never sees half of a change.
    repeats : dict
        By the identities of a stream and the first array, `Settled`, flat, of launches there.
    """

    loaded: Loaded
    fragments: tuple[Fragment, ...]
    families: tuple[str, ...]
    device_id: int
    run: Callable[..., None]
    config: tuple[Any, Any] = (_NOTHING, None)
    _renewals: int = 0
    _once: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.unsettle()
        order().watch(self)
        add_shortcut(self)

    @property
    def name(self) -> str:
        """The specialization's name expression."""
        return self.loaded.specialization.name_expression

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """Positions of arguments whose identity stands for their check."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.fixed)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Positions of numbers, which are looked at no more where they are the same objects again."""
        return tuple(position for position, fragment in enumerate(self.fragments) if fragment.number)

    @cached_property
    def converted(self) -> tuple[int, ...]:
        """Positions of those that are not passed as they are."""
        return tuple(position for position in self.numbers if self.fragments[position].value != "{a}")

    @cached_property
    def shaped(self) -> tuple[int, ...]:
        """Positions of arguments whose identity stands for their check while they keep their shape."""
        return tuple(position for position in self.fixed if self.fragments[position].shaped)

    @cached_property
    def libraries(self) -> tuple[str, ...]:
        """Libraries whose current stream decides the order."""
        return tuple(library for library in ("cupy", "torch") if library in self.families)

    @cached_property
    def memory(self) -> tuple[tuple[int, str, bool], ...]:
        """Position and family of each argument that is memory, and whether the kernel may write to it."""
        kinds, found = ("cupy", "torch", "memory", "buffer"), []
        for position, (family, parameter) in enumerate(zip(self.families, self.loaded.parameters, strict=True)):
            if family in kinds or (family == "object" and parameter.category != "tensor_map"):
                # Of the objects, raw addresses are memory, and textures of it.
                found.append((position, family, parameter.category != "scalar" and not parameter.const))
        return tuple(found)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether all memory is known by the identity of its arguments."""
        return {position for position, *_ in self.memory} <= set(self.fixed)

    @cached_property
    def named(self) -> tuple[int, ...]:
        """Positions of arguments that may name a stream of their own."""
        return tuple(position for position, family, _ in self.memory if family == "memory")

    @property
    def settled(self) -> Settled | None:
        """With what it goes straight to the driver; None where it does not."""
        if self.seen[0] is _NOTHING:
            return None
        end = _STATED + 2 * len(self.fixed)
        return Settled._make((*self.seen[:_STATED], self.seen[_STATED:end], self.seen[end:]))

    # ── one launch, looked at in full ────────────────────────────────────────────────────────────────────────────

    def target(self, stream: Any) -> Known | None:
        """What is known of a stream, if it is of the shape's device."""
        try:
            found = known(stream)
        except (ArgumentError, LaunchError):
            return None
        return found if found.device_id == self.device_id and not devices.is_forked() else None

    def launch(self, target: Known, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Launch on another stream or configuration than the last: ordered, and with limits checked.

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

    def plan(self, target: Known, config: Config | Cover, values: Sequence[Any], arguments: tuple[Any, ...]) -> Plan:
        """The plan of a launch, ordered now: it comes after everything that was launched until now."""
        with devices.on_device(self.device_id):
            resolved = self.loaded.launch_config(config, self.device_id)
            self._order(target, values, arguments)
        call = Call(self.loaded, resolved, tuple(values), arguments)
        made = plan_of(self.run, call, target.core, resolved, self.loaded.kernel, *values)
        made.name = self.name
        self.loaded.holders.add(made)
        return made

    def _launch(self, target: Known, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        given, resolved = self.config
        if given is not config:
            wanted = as_config(config)
            if is_empty(wanted):
                return
            resolved = self.loaded.launch_config(wanted, self.device_id)
            # A LaunchConfig can be changed after the call: the driver is given the user's own, never a stale copy.
            resolved = resolved if isinstance(config, Config | Cover) else config
            self.config = (config, resolved)
        ordered = order()
        # No other thread puts work between the waits and the launch.
        with ordered.lock:
            use = self._order(target, values, arguments)
            is_watched = watched()
            if is_watched:
                self._tell(target, resolved, values, arguments, use)
            else:
                self.run(target.core, resolved, self.loaded.kernel, *values)
            ordered.after(use, arguments)
            if self.named:
                # Nobody else keeps pinned memory from being handed out again while the kernel uses it.
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
                # With several streams it may go straight, unordered, with these very arrays only.
                self.seen = self._seen(target, config, resolved, ordered.single, values, arguments)
                if not ordered.single:
                    self._repeat(target, config, resolved, values, arguments, settled=True)

    def _tell(
        self, target: Known, config: LaunchConfig, values: Sequence[Any], arguments: Sequence[Any], use: Use | None
    ) -> None:
        """Launch, and tell the witnesses."""
        call = Call(self.loaded, config, tuple(values), tuple(arguments))
        if use is not None and use.note is not None:
            use.note.tell(call)
        tell_launch(self.run, target.core, call, target.core, config, self.loaded.kernel, *values)

    def _order(self, target: Known, values: Sequence[Any], arguments: Sequence[Any]) -> Use | None:
        """Put in the waits for a launch; for `Order.after`."""
        devices.make_current(self.device_id)
        producers = current_streams(self.libraries, self.device_id)
        for position in self.named:
            producers += named_producers(arguments[position], target.handle)
        return order().before(target, *self.ranges(values, arguments), producers)

    def ranges(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        """Memory that a launch reads, and memory that it may write."""
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
        """While there are witnesses no launch goes straight to the driver: they would not hear of it."""
        if watched:
            self.unsettle()

    def unsettle(self) -> None:
        """Never skip the ordering any more, until a launch settles it again that needs none."""
        # A stream that nobody gives.
        nothing = Settled(_NOTHING, None, None, None, None, None, False, *self._no_memo())
        self.seen = nothing.flat()
        self.repeats.clear()

    def renew(self, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Remember other arrays, once those remembered are gone; arrays that live for one call only end this soon."""
        self._renewals += 1
        # What another thread unsettles meanwhile must stay so.
        with order().lock:
            settled = self.settled
            if settled is not None:
                memo = self._memo(values, arguments) if self._renewals < _MOST_RENEWALS else self._no_memo()
                self.seen = settled._replace(arrays=memo[0], numbers=memo[1]).flat()

    def _repeat(
        self,
        target: Known,
        config: Any,
        resolved: LaunchConfig,
        values: Sequence[Any],
        arguments: Sequence[Any],
        settled: bool,
    ) -> None:
        """Let it go without a full look on this stream too, once the same arrays have come twice.

        Where it has not `settled` there, it goes with the waits that it needs.
        """
        if not self.fixed or not self.is_fixed or devices.device_count() > 1:
            return
        key = id(target.given), id(arguments[self.fixed[0]])
        once = (config, *(id(arguments[i]) for i in self.fixed))
        if self._once.get(key) != once:
            if len(self._once) >= _MOST_REPEATS:
                self._once.clear()
                self.repeats.clear()
            self._once[key] = once
            return
        again = None
        if not settled:
            found = order().repeatable(target, *self.ranges(values, arguments))
            if found is None:
                return
            producers = current_streams(self.libraries, self.device_id)
            foreign = tuple(handle for handle in producers if handle != target.handle)
            look = functools.partial(self.launch, target, config)
            launch = functools.partial(self.run, target.core, resolved, self.loaded.kernel)
            cool = functools.partial(self.repeats.pop, key, None)
            again = repeating(order(), Repeat(launch, look, cool, *found, foreign))
        # The stream as given is kept too, so that no other object can have its identity.
        self.repeats[key] = self._seen(target, config, resolved, again, values, arguments)

    def _seen(
        self,
        target: Known,
        config: Any,
        resolved: LaunchConfig,
        any_arrays: Any,
        values: Sequence[Any],
        arguments: Sequence[Any],
    ) -> tuple[Any, ...]:
        """`Settled`, flat, of a launch that was made."""
        memo = self._memo(values, arguments)
        return Settled(target.given, config, target.core, resolved, *self._current(), any_arrays, *memo).flat()

    def _current(self) -> tuple[Any, Any]:
        """CuPy's and torch's current streams, where the shape has arrays of theirs."""
        cupy_stream = sys.modules["cupy"].cuda.get_current_stream() if "cupy" in self.families else None
        torch_stream = None
        if "torch" in self.families:
            torch_stream = sys.modules["torch"]._C._cuda_getCurrentRawStream(self.device_id)
        return cupy_stream, torch_stream

    def _memo(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """`Settled.arrays` and `Settled.numbers` of a launch."""
        arrays = tuple(item for i in self.fixed for item in (weakref.ref(arguments[i]), values[i]))
        numbers = (*(arguments[i] for i in self.numbers), *(values[i] for i in self.converted))
        return arrays, (*numbers, *(arguments[i].shape for i in self.shaped))

    def _no_memo(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        numbers = (_NOTHING,) * len(self.numbers) + (0,) * (len(self.converted) + len(self.shaped))
        return (_nobody, 0) * len(self.fixed), numbers


def _nobody() -> object:
    """Where a memo has no array: the answer of a weak reference that no argument can be."""
    return _NOTHING


def make_run(loaded: Loaded, fragments: Sequence[Fragment]) -> Callable[..., None]:
    """What launches a shape: cuda.core's launch where it can pass every argument, else one that passes raw bytes."""
    if any(fragment.form == "s" for fragment in fragments):
        from cudakit.jit.launch.param_buffer import PackedLaunch

        return PackedLaunch(loaded, fragments)
    from cuda.core import launch

    run: Callable[..., None] = launch
    return run
