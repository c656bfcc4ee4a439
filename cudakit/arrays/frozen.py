"""Calls that were made before, frozen into Python code that goes straight to the driver.

A call that is made again with the same kinds of arguments needs no deduction, broadcasting or planning: what is left of
it is a condition over its arguments, the memory that it makes, and its launches. While the process has used one stream
that holds for all arrays of the kind, until something comes that must be ordered, watched or captured.

With several streams it holds for arrays at addresses at which all launches of such a call have settled on the stream,
until another stream needs any of that memory. The order knows memory by nothing but its address, so new results are
among them: the stream's pool hands out again what the last one left.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import weakref
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple, Self

from cudakit.arrays.log import Cleared, Copied, Launched, Made, Source
from cudakit.jit.launch.bind import Fragment, evaluate
from cudakit.jit.launch.dispatch import MISSING, current_stream_text, known_value_text, launch_text
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.launch.param_buffer import PackedLaunch
from cudakit.jit.load.config import as_config
from cudakit.streams import devices
from cudakit.streams.order import FastPath, Order, order
from cudakit.streams.process import fill, make_function
from cudakit.streams.streams import known
from cudakit.streams.witnesses import add_shortcut, watched

# One call as text of a generated function: conditions over its arguments, the memory it makes, what it launches.
# Of each array that the call's steps are given is found in whose memory it lies, one of the caller's arrays, of the new
# ones, or of those that are kept; what is passed for it follows from that one's address.

_ATTEMPT = """\
if $current is $cupy_stream$conditions:
    $ways"""
_WAY_OF_KNOWN = """\
if (
    $guards
):
    $work"""
_WAY = """\
if (
    $guards
):
    $addresses
    if (
        $places
    ):
        $work"""
# The ordinary way gets the memory that was made here.
_LOOK = """\
if ($addresses,) not in $settled:
    ${drop}None
    raise LookupError"""
#: What a kernel may be given beside arrays: numbers and structs by value, null pointers.
_FAMILIES = {"cupy", "number", "struct", "none"}


class _Unfit(Exception):
    """A call that cannot be frozen."""


class _Held:
    """Lives as long as a call's names, and with it the kernels that it launches."""


@dataclass(frozen=True, eq=False)
class _Memory:
    """An array that others may lie in: its name in the lines, and the memory that it reaches."""

    name: str
    array: Any
    start: int
    end: int

    @classmethod
    def of(cls, name: str, array: Any) -> Self:
        below = above = 0
        for extent, stride in zip(array.shape, array.strides, strict=True):
            reach = (extent - 1) * stride
            below, above = (below - reach, above) if reach < 0 else (below, above + reach)
        first = array.data.ptr
        return cls(name, array, first - below, first + above + array.itemsize if array.size else first)


class FrozenCall(NamedTuple):
    """The text of a call, and the global names in it.

    Attributes
    ----------
    text : str
    names : dict
    """

    text: str
    names: dict[str, Any]

    @classmethod
    def of(cls, made: Made, number: int, settled: Container[tuple[int, ...]] | None) -> Self | None:
        """The text of a call that was made; None where it cannot be frozen.

        Parameters
        ----------
        number : int
            Tells its names from those of other calls.
        settled : container of tuple of int or None
            The `Made.addresses` that may take this way; None where all may.
        """
        try:
            shapes = {k: _shape_of(step) for k, step in enumerate(made.steps) if isinstance(step, Launched)}
            if not shapes:
                return None
            (device,) = {shape.device_id for shape in shapes.values()}
            held = _Held()
            for shape in shapes.values():
                shape.loaded.holders.add(held)
            names: dict[str, Any] = {f"settled_{number}": settled, f"held_{number}": held}
            several = devices.device_count() > 1
            if several:
                names["current_device"] = sys.modules["cupy"].cuda.runtime.getDevice
            conditions = [
                *([f"current_device() == {device}"] if several else []),
                *made.checks,
                *(condition(names, f"same_{number}_{k}", *same) for k, same in enumerate(made.same)),
            ]
            ways = [_Way(names, number, made, shapes, True, settled is not None).text()]
        except _Unfit:
            return None
        with contextlib.suppress(_Unfit):
            ways.append(_Way(names, number, made, shapes, False, settled is not None).text())
        text = fill(
            _ATTEMPT,
            current=current_stream_text(device, names),
            cupy_stream=f"cupy_stream_{number}",
            conditions="".join(f" and {each}" for each in conditions),
            ways="\n".join(ways),
        )
        return cls(text, names)


class _Way:
    """What looks at the arguments' arrays and does the call's steps.

    `is_known`: the arrays are those of `made` themselves; else they are like those. `is_placed`: their addresses must
    be settled.
    """

    def __init__(
        self,
        names: dict[str, Any],
        number: int,
        made: Made,
        shapes: dict[int, CallShape],
        is_known: bool,
        is_placed: bool,
    ) -> None:
        self.names, self.number, self.made, self.is_known, self.is_placed = names, number, made, is_known, is_placed
        self.given = [_Memory.of(name, array) for name, array in made.arrays]
        self.new = [_Memory.of(f"new_{k}", array) for k, array in enumerate(made.new)]
        self.kept = [_Memory.of(f"kept_{number}_{k}", array) for k, array in enumerate(made.kept)]
        self.guards: list[str] = []
        #: Conditions over addresses, tried after the others.
        self.places: list[str] = []
        self.done: list[str] = []
        self._guard_arrays()
        for k, step in enumerate(made.steps):
            match step:
                case Launched():
                    self.done.append(self._launch(shapes[k], step))
                case Cleared(array):
                    self.done.append(f"{self._memory(array)}.memset_async(0, {array.nbytes})")
                case Copied(source, target):
                    arguments = f"{self._memory(source)}, {source.nbytes}"
                    self.done.append(f"{self._memory(target)}.copy_from_device_async({arguments})")

    def text(self) -> str:
        """A condition, and what is done under it."""
        lines = []
        self.names["empty"] = sys.modules["cupy"].ndarray
        for memory in self.new:
            shape, dtype = (self._named(what, getattr(memory.array, what)) for what in ("shape", "dtype"))
            lines.append(f"{memory.name} = empty({shape}, {dtype})")
        # Nothing is launched before all memory is there: what fails then is done the ordinary way, from the beginning.
        lines += [f"new_address_{k} = {memory.name}.data.ptr" for k, memory in enumerate(self.new)]
        if self.is_placed:
            lines.append(self._look())
        work = "\n".join([*lines, *self.done, f"return {self._result(self.made.result)}"])
        guards = "\nand ".join(self.guards) or "True"
        if self.is_known:
            return fill(_WAY_OF_KNOWN, guards=guards, work=work)
        addresses = "\n".join(f"address_{k} = {memory.name}.data.ptr" for k, memory in enumerate(self.given))
        return fill(_WAY, guards=guards, addresses=addresses, places="\nand ".join(self.places) or "True", work=work)

    def _look(self) -> str:
        """Lines that leave the short way where the addresses are not settled."""
        addresses = [
            *(str(x.array.data.ptr) if self.is_known else f"address_{k}" for k, x in enumerate(self.given)),
            *(f"new_address_{k}" for k in range(len(self.new))),
            *(str(memory.array.data.ptr) for memory in self.kept),
        ]
        drop = "".join(f"{memory.name} = " for memory in self.new)
        return fill(_LOOK, addresses=", ".join(addresses), settled=f"settled_{self.number}", drop=drop)

    # ── what must be true ────────────────────────────────────────────────────────────────────────────────────────

    def _guard_arrays(self) -> None:
        """Conditions over the caller's arrays, and those that are kept."""
        firsts: dict[int, _Memory] = {}
        for k, memory in enumerate(self.given):
            first = firsts.setdefault(id(memory.array), memory)
            if first is not memory:
                self.guards.append(f"{memory.name} is {first.name}")
            elif self.is_known:
                self.guards += self._identity(f"argument_{self.number}_{k}_", memory.name, memory.array)
            else:
                self.guards += self._likeness(f"argument_{self.number}_{k}_", memory.name, memory.array)
        for memory in self.kept:
            self.names[memory.name] = weakref.ref(memory.array)
            # The answer of a dead reference is None.
            self.guards.append(f"{memory.name}() is not None")
        if self.is_known:
            return
        for k, memory in enumerate(self.given):
            for j, other in enumerate(self.given[:k]):
                if {memory.name, other.name}.isdisjoint(self.made.outs) or memory.array is other.array:
                    continue
                ends = [
                    _shifted(f"address_{n}", each.end - each.array.data.ptr) for n, each in ((k, memory), (j, other))
                ]
                starts = [
                    _shifted(f"address_{n}", each.start - each.array.data.ptr) for n, each in ((k, memory), (j, other))
                ]
                self.places.append(f"({ends[0]} <= {starts[1]} or {ends[1]} <= {starts[0]})")
        for arrays, alignment in self.made.aligned:
            found = {id(memory.array): f"address_{k}" for k, memory in reversed([*enumerate(self.given)])}
            own = [found[id(array)] for array in arrays if id(array) in found]
            if own:
                joined = " | ".join(own)
                self.places.append(
                    f"not ({joined}) & 15" if alignment == 16 else f"({joined}) & {2 * alignment - 1} == {alignment}"
                )

    def _identity(self, prefix: str, source: str, owner: Any) -> list[str]:
        """Conditions under which an argument is the array `owner`, as it was.

        CuPy lets nobody rebind an array's memory or dtype. Its shape may be set, which leaves every element with its
        row-major number where it is: where the shape is the same, so are the strides. None, which a dead reference
        gives too, has no shape: asking for it raises.
        """
        self.names[f"{prefix}same"] = weakref.ref(owner)
        guards = [f"{prefix}same() is {source}"]
        if owner.ndim > 2:
            return [*guards, self._shape(prefix, source, owner)]
        # It has as many elements as ever: in one dimension that says all, in two it takes the first besides.
        guards.append(f"{source}.ndim == {owner.ndim}")
        if owner.ndim == 2:
            guards.append(f"len({source}) == {len(owner)}")
        return guards

    def _likeness(self, prefix: str, source: str, owner: Any) -> list[str]:
        """Conditions under which an argument is an array like `owner`."""
        self.names[f"{prefix}dtype"], self.names[f"{prefix}class"] = owner.dtype, type(owner)
        # A structured dtype may be equal and another object.
        same = "is" if owner.dtype.kind != "V" else "=="
        guards = [f"{source}.__class__ is {prefix}class", f"{source}.dtype {same} {prefix}dtype"]
        if devices.device_count() > 1:
            guards.append(f"{source}.data.device_id == {owner.data.device_id}")
        guards.append(self._shape(prefix, source, owner))
        if owner.flags.c_contiguous:
            return [*guards, f"{source}._c_contiguous"]
        self.names[f"{prefix}strides"] = owner.strides
        return [*guards, f"{source}.strides == {prefix}strides"]

    def _shape(self, prefix: str, source: str, owner: Any) -> str:
        if owner.ndim == 1:
            return f"{source}.size == {owner.size} and {source}.ndim == 1"
        self.names[f"{prefix}shape"] = owner.shape
        return f"{source}.shape == {prefix}shape"

    # ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────

    def _launch(self, shape: CallShape, step: Launched) -> str:
        """The driver's call."""
        core, config = known(self.made.stream).core, shape.loaded.launch_config(as_config(step.config), shape.device_id)
        kernel = shape.loaded.kernel
        sources = (*step.sources, *[None] * (len(step.passed) - len(step.sources)))
        values = list(map(self._value, shape.fragments, step.passed, sources))
        given = {"launch": shape.run, "core": core, "config": config, "kernel": kernel}
        run, *first = [self._named(what, value) for what, value in given.items()]
        text = launch_text(run, first, values)
        array = sys.modules["cupy"].ndarray
        varies = any(
            source and not isinstance(value, array) for source, value in zip(sources, step.passed, strict=True)
        )
        if not self.is_known or varies or not isinstance(shape.run, PackedLaunch):
            return text
        # All that varies is where new arrays are, and that seldom: the parameters are written once.
        bound = shape.run.bound(core, config, kernel, list(map(evaluate, shape.fragments, step.passed)))
        same = " and ".join(f"new_address_{k} == {memory.array.data.ptr}" for k, memory in enumerate(self.new))
        return f"{self._named('bound', bound)}()" + (f" if {same} else {text}" if same else "")

    def _value(self, fragment: Fragment, value: Any, source: Source) -> str:
        """What is passed for one argument of a kernel."""
        if isinstance(value, sys.modules["cupy"].ndarray):
            found = evaluate(fragment, value)
            memory, name = self._owner(value)
            if memory in self.kept or (self.is_known and memory in self.given):
                return self._named("value", found)
            pointer = value.data.ptr
            if ".data.ptr" in fragment.guard:
                raise _Unfit  # what holds for this address need not for another
            text = _shifted(name, pointer - memory.array.data.ptr)
            if isinstance(found, bytes):
                # The struct of a strided array begins with its address.
                if found[:8] != pointer.to_bytes(8, "little"):
                    raise _Unfit
                return f"({text}).to_bytes(8, 'little') + {self._named('layout', found[8:])}"
            if found != pointer:
                raise _Unfit
            return text
        if source is None:
            return self._named("value", evaluate(fragment, value))
        prefix = f"number_{self.number}_{len(self.names)}_"
        self.names[f"{prefix}last"] = value
        seen, passed = (source, source) if isinstance(source, str) else source
        guard, text = fragment.written(seen, prefix, self.names, passed)
        self.guards.append(guard)
        if value.__class__ is float and text != passed:
            # The same float object, as a constant of a loop is: its bits are known.
            text = known_value_text(self._named("bits", evaluate(fragment, value)), seen, f"{prefix}last", text)
        return text

    def _owner(self, array: Any) -> tuple[_Memory, str]:
        """In whose memory an array lies, and the name of that one's address."""
        first = array.data.ptr
        for memories, letter in ((self.given, "address_"), (self.new, "new_address_"), (self.kept, "")):
            owners = [k for k, memory in enumerate(memories) if memory.array is array] or [
                k for k, memory in enumerate(memories) if memory.start <= first < memory.end
            ]
            if len({id(memories[k].array) for k in owners}) > 1:
                raise _Unfit
            if owners:
                return memories[owners[0]], f"{letter}{owners[0]}"
        raise _Unfit

    def _memory(self, array: Any) -> str:
        """CuPy's pointer to an array's memory."""
        memory, _ = self._owner(array)
        if memory in self.kept:
            return self._named("memory", array.data)
        offset = array.data.ptr - memory.array.data.ptr
        return f"({memory.name}.data + {offset})" if offset else f"{memory.name}.data"

    def _result(self, result: Any) -> str:
        """What is given back."""
        if isinstance(result, tuple):
            return f"({''.join(f'{self._result(each)}, ' for each in result)})"
        if result is None:
            return "None"
        for memory in (*self.given, *self.new):
            if memory.array is result:
                return memory.name
        if not isinstance(result, sys.modules["cupy"].ndarray) or self._owner(result)[0] not in self.new:
            raise _Unfit
        layout = (self._named(what, getattr(result, what)) for what in ("shape", "dtype"))
        return f"empty({', '.join(layout)}, {self._memory(result)}, {self._named('strides', result.strides)})"

    def _named(self, what: str, value: Any) -> str:
        """A new global name for a value."""
        name = f"{what}_{self.number}_{len(self.names)}"
        self.names[name] = value
        return name


def _shifted(name: str, offset: int) -> str:
    return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else name


def condition(names: dict[str, Any], name: str, source: str, value: Any) -> str:
    """The condition under which an argument has the value that it had; `name` is for it among `names`.

    An equal one of another type may mean something else, as True and 1 do.
    """
    if value is None or value is True or value is False:
        return f"{source} is {value}"
    names[name] = value
    kind = value.__class__
    if kind in (int, str) or (kind is float and value != 0):
        return f"({source} is {name} or ({source}.__class__ is {kind.__name__} and {source} == {name}))"
    if kind in (tuple, list):
        names[name], names["is_alike"] = _frozen_list(value), is_alike
        return f"({source} is {name} or is_alike({source}, {name}))"
    return f"{source} is {name}"


def _frozen_list(value: Any) -> Any:
    """A copy of what can be changed; what cannot be is itself."""
    if value.__class__ is list:
        return [_frozen_list(each) for each in value]
    if value.__class__ is tuple:
        kept = tuple([_frozen_list(each) for each in value])
        return value if all(map(operator.is_, kept, value)) else kept
    return value


def is_alike(value: Any, other: Any) -> bool:
    """Whether two values, perhaps in tuples and lists, are of the same types and equal, zeros of both signs apart."""
    if value.__class__ is not other.__class__:
        return False
    if value.__class__ in (tuple, list):
        return len(value) == len(other) and all(map(is_alike, value, other))
    return bool(value is other or (value == other and (value != 0 or repr(value) == repr(other))))


def goes_on(made: Made, ordered: Order, path: FastPath) -> bool:
    """Whether with several streams all launches of a call may be repeated where they were; `path` is told when not."""
    try:
        launches = [(_shape_of(step), step.passed) for step in made.steps if isinstance(step, Launched)]
    except _Unfit:
        return False
    stream = known(made.stream)
    return all(ordered.goes_on(stream, *shape.ranges(passed, passed), path) for shape, passed in launches)


def _shape_of(step: Launched) -> CallShape:
    """The shape that was launched.

    Raises
    ------
    _Unfit
    """
    for shape in step.kernel.dispatcher.shapes:
        if not isinstance(shape, CallShape):
            continue
        if len(shape.fragments) != len(step.passed) or set(shape.families) - _FAMILIES:
            continue
        if all(_fits(fragment, value) for fragment, value in zip(shape.fragments, step.passed, strict=True)):
            return shape
    raise _Unfit


def _fits(fragment: Fragment, value: Any) -> bool:
    names = {"a": value}
    guard, _ = fragment.written("a", "k_", names)
    try:
        return bool(eval(guard, names))
    except (AttributeError, TypeError):
        return False


#: Frozen calls that are tried, newest first; how often a call is made before it is frozen, and again where it could not
#: be; and calls frozen in all.
_MOST_FROZEN, _SEEN_BEFORE, _LATER, _MOST_MADE = 4, 2, 64, 64
_MOST_SEEN = 1024
#: Sets of addresses that a call is known to have settled at, with several streams.
_MOST_PLACES = 16
_numbers = count()

_CALL = """\
def $head:
$frozen    return ordinary($passed)
"""
_ALL_FROZEN = """\
    if $fits:
        try:
            $attempts
        # Whatever an argument lacks, the ordinary way says it better.
        except Exception:
            pass
"""
#: A stream that is never the current one.
_NOBODY = object()


class Function(functools.partial[Any]):
    """A function of arrays with attributes: why it is a `functools.partial`, see `cudakit.kernel.kernel.Kernel`."""

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of


@dataclass(eq=False)
class _Attempt:
    """A frozen call in the generated function.

    Attributes
    ----------
    key : object
        What it is told from others by.
    stream : object
        CuPy's current one.
    number : int
        Tells its global names from those of others. That of the stream stands for nobody's while the call may not be
        made.
    names : dict
        The function's global names.
    places : set of tuple of int or None
        The `Made.addresses` that it may be made at; None where they do not matter.
    text : str
    """

    key: Any
    stream: Any
    number: int
    names: dict[str, Any]
    places: set[tuple[int, ...]] | None
    text: str = ""

    def is_for(self, made: Made, single: bool) -> bool:
        return (self.key, self.places is None) == (made.key, single) and self.stream is made.stream

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether it is made at these addresses, if its conditions are met."""
        is_settled = self.names[f"cupy_stream_{self.number}"] is self.stream
        return is_settled and (self.places is None or addresses in self.places)

    def settle(self, addresses: tuple[int, ...]) -> None:
        """Make the call, at these addresses too."""
        if self.places is not None:
            self.places.add(addresses)
        self.names[f"cupy_stream_{self.number}"] = self.stream

    def unsettle(self) -> None:
        """Take the ordinary way until it is settled again."""
        self.names[f"cupy_stream_{self.number}"] = _NOBODY
        if self.places is not None:
            self.places.clear()


class Frozen:
    """The generated function of a function of arrays.

    Parameters
    ----------
    inputs : int
        How many positional arguments it takes.
    ordinary : callable
        ``ordinary(arguments, out, stream, *options)``: what a call does that is not frozen.
    options : mapping
        Its other keywords, with their defaults.
    named : bool
        Whether it takes any other keywords too, which `ordinary` is given last.
    names : mapping
        Global names of its own, for conditions.
    """

    def __init__(
        self,
        inputs: int,
        ordinary: Callable[..., Any],
        options: Mapping[str, Any] | None = None,
        named: bool = False,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        options = options or {}
        listed = "".join(f"a{k}, " for k in range(inputs))
        taken = "".join(f"a{k}=MISSING, " for k in range(inputs)) + ("/, " if inputs else "")
        with_defaults = "".join(f", {name}={value!r}" for name, value in options.items())
        passed = "".join(f", {name}" for name in (*options, *["named"] * named))
        self._head = f"call({taken}*more, out=None, stream=None{with_defaults}{', **named' if named else ''})"
        self._passed = f"({listed}*more,), out, stream{passed}"
        self._fits = f"stream is None and not more{' and not named' if named else ''}"
        self._start({**(names or {}), "MISSING": MISSING, "ordinary": ordinary})

    @classmethod
    def like(cls, head: str, passed: str, names: Mapping[str, Any]) -> Self:
        """That of a function with parameters of its own.

        Parameters
        ----------
        head : str
            Its name and parameters, `stream` among them.
        passed : str
            What ``ordinary`` is given of them.
        names : mapping
            The global names in these two, and ``ordinary``.
        """
        self = cls.__new__(cls)
        self._head, self._passed, self._fits = head, passed, "stream is None"
        self._start(names)
        return self

    def _start(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)
        self._seen: dict[Any, int] = {}
        self._attempts: list[_Attempt] = []
        self._made = 0
        self.function: FunctionType = self._compiled()
        order().watch(self)
        add_shortcut(self)

    def is_due(self, key: Any) -> bool:
        """Take note of a call; whether it has come often enough to be frozen."""
        if self._made >= _MOST_MADE and not any(key == attempt.key for attempt in self._attempts):
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen > _SEEN_BEFORE:
            self._seen[key] = 0
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def put_off(self, key: Any) -> None:
        """Leave calls that cannot be frozen alone for a while."""
        self._seen[key] = -_LATER

    def freeze(self, made: Made) -> None:
        """Take the short way for calls like this one from now on, if it is settled."""
        ordered = order()
        with ordered.lock:
            single, addresses = ordered.single, made.addresses
            former = next((attempt for attempt in self._attempts if attempt.is_for(made, single)), None)
            attempt = former
            if attempt is None or attempt.takes(addresses):
                attempt = _Attempt(made.key, made.stream, next(_numbers), self._names, None if single else set())
            if watched() or not (ordered.settle(None, self) if single else goes_on(made, ordered, attempt)):
                self.put_off(made.key)
            elif attempt is not former:
                if former is not None:
                    self.put_off(made.key)  # it did not do for such a call, and may not again
                self._add(attempt, made, former, single)
            elif attempt.places is not None and len(attempt.places) >= _MOST_PLACES:
                attempt.unsettle()
                self.put_off(made.key)
            else:
                attempt.settle(addresses)
                # The more there are, the longer until the next: it may be that none comes again.
                self._seen[made.key] = -2 * len(attempt.places or ())
            if watched():
                self.unsettle()  # somebody came meanwhile

    def _add(self, attempt: _Attempt, made: Made, former: _Attempt | None, single: bool) -> None:
        if self._made >= _MOST_MADE:
            return
        call = FrozenCall.of(made, attempt.number, attempt.places)
        if call is None:
            self.put_off(made.key)
            return
        self._made += 1
        self._names.update(call.names)
        attempt.text = call.text
        attempt.settle(made.addresses)
        # From the second stream on, those of one stream are settled no more.
        others = [each for each in self._attempts if each is not former and (each.places is None) is single]
        self._attempts = [attempt, *others[: _MOST_FROZEN - 1]]
        function = self._compiled()
        self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.function.__code__ = function.__code__

    def unsettle(self) -> None:
        """Take the ordinary way until calls are settled again."""
        for attempt in self._attempts:
            attempt.unsettle()

    def watch(self, watched: bool) -> None:
        """While there are witnesses nothing goes straight to the driver: they would not hear of it."""
        if watched:
            self.unsettle()

    def _compiled(self) -> FunctionType:
        attempts = "\n".join(attempt.text for attempt in self._attempts)
        frozen = fill(_ALL_FROZEN, fits=self._fits, attempts=attempts) if attempts else ""
        text = fill(_CALL, head=self._head, frozen=frozen, passed=self._passed)
        return make_function(text, f"call of {self._head.partition('(')[0]}", self._names)
