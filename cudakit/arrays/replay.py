"""Replay of recorded calls: generated Python code that goes straight to the driver.

A repeated call with arguments of the same dtypes and shapes needs no deduction, broadcasting or planning. Its replay is
a condition over the arguments, the allocations, and the launches. While the process has used one stream, the replay
serves all arrays of the same layouts. It ends when work must be ordered, watched or captured.

With several streams the replay serves sets of addresses at which all its launches have settled on the stream. This ends
when another stream needs any of that memory. The order identifies memory by address only. New results are therefore
among these addresses: the stream's pool hands out again the memory that the last result freed.
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
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, Self

from cudakit.arrays.log import Cleared, Copied, Launched, RecordedCall, Source
from cudakit.errors import CudakitError
from cudakit.jit.launch.bind import Fragment, evaluate
from cudakit.jit.launch.dispatch import MISSING
from cudakit.jit.launch.generated import current_stream_text, launch_text, remembered_value_text
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.launch.param_buffer import bound_launch
from cudakit.jit.launch.tracebacks import cut
from cudakit.jit.load.config import as_config
from cudakit.streams import devices
from cudakit.streams.order import FastPath, Order, order
from cudakit.streams.process import fill, make_function
from cudakit.streams.streams import device_stream
from cudakit.streams.witnesses import add_shortcut, watched

# The source of one replayed call: conditions over its arguments, allocations, launches. Each array of a step lies in
# the memory of another array: a caller's array, a new array or a persistent array. The code computes its address.

_REPLAY_TEXT = """\
if $current is $cupy_stream$conditions:
    $paths"""
_PATH_OF_KNOWN = """\
if (
    $guards
):
    $work"""
_PATH = """\
if (
    $guards
):
    $addresses
    if (
        $address_guards
    ):
        $work"""
# The ordinary call then gets the memory that was allocated here.
_LOOK = """\
if ($addresses,) not in $settled:
    ${drop}None
    raise LookupError"""
# The recorded result's memory, while nobody else refers to it. Whoever has taken it from the list has it alone.
_NEW_OR_AGAIN = """\
$name = None
if $room and get_allocator() is $allocator:
    pointer = $room.pop()
    memory = pointer.mem
    if (getrefcount(pointer), getrefcount(memory)) == references_of_one and memory.ptr:
        $name = empty($shape, $dtype, pointer)
    memory = None
    $room.append(pointer)
    pointer = None
if $name is None:
    $name = empty($shape, $dtype)
"""
#: Largest new result whose memory is used again, in bytes.
_MOST_AGAIN = 16 << 10
#: Families of arguments that a replayed launch may pass, beside tensor maps: arrays, numbers, structs by value, null
#: pointers.
_FAMILIES = {"cupy", "number", "struct", "none"}


class _NotReplayable(Exception):
    """A call that cannot be replayed."""


class _KernelHolder:
    """Keeps the kernels loaded while the generated function exists."""


@dataclass(frozen=True, eq=False)
class _Memory:
    """An array whose memory may contain other arrays: its name in the generated code, and its first and end address."""

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


class ReplayCode(NamedTuple):
    """The generated code of a replayed call, and the global names in it.

    Attributes
    ----------
    text : str
        Python code.
    names : dict
        Global names and their values.
    """

    text: str
    names: dict[str, Any]

    @classmethod
    def of(cls, call: RecordedCall, number: int, settled: Container[tuple[int, ...]] | None) -> Self | None:
        """Generate the code of a recorded call; return None if it cannot be replayed.

        Parameters
        ----------
        call : RecordedCall
            The call to replay.
        number : int
            Suffix that makes the global names of this call unique.
        settled : container of tuple of int or None
            The `RecordedCall.addresses` that may be replayed; None if all may.
        """
        try:
            shapes = {k: _shape_of(step) for k, step in enumerate(call.steps) if isinstance(step, Launched)}
            if not shapes:
                return None
            (device,) = {shape.device_id for shape in shapes.values()}
            holder = _KernelHolder()
            for shape in shapes.values():
                shape.loaded.holders.add(holder)
            names: dict[str, Any] = {f"settled_{number}": settled, f"holder_{number}": holder}
            several = devices.device_count() > 1
            if several:
                names["current_device"] = sys.modules["cupy"].cuda.runtime.getDevice
            conditions = [
                *([f"current_device() == {device}"] if several else []),
                *call.checks,
                *(value_guard(names, f"same_{number}_{k}", *same) for k, same in enumerate(call.same)),
            ]
            paths = [_ReplayPath(names, number, call, shapes, True, settled is not None).text()]
        except _NotReplayable:
            return None
        with contextlib.suppress(_NotReplayable):
            paths.append(_ReplayPath(names, number, call, shapes, False, settled is not None).text())
        text = fill(
            _REPLAY_TEXT,
            current=current_stream_text(device, names),
            cupy_stream=f"cupy_stream_{number}",
            conditions="".join(f" and {condition}" for condition in conditions),
            paths="\n".join(paths),
        )
        return cls(text, names)


class _ReplayPath:
    """Code that checks the arguments' arrays and repeats the call's steps.

    `is_known`: the arguments must be the recorded arrays themselves, else arrays of the same layouts.
    `checks_addresses`: the addresses must be settled.
    """

    def __init__(
        self,
        names: dict[str, Any],
        number: int,
        call: RecordedCall,
        shapes: dict[int, CallShape],
        is_known: bool,
        checks_addresses: bool,
    ) -> None:
        self.names, self.number, self.call, self.is_known, self.checks_addresses = (
            names,
            number,
            call,
            is_known,
            checks_addresses,
        )
        self.arguments = [_Memory.of(name, array) for name, array in call.arrays]
        self.new = [_Memory.of(f"new_{k}", array) for k, array in enumerate(call.new)]
        self.persistent = [_Memory.of(f"persistent_{number}_{k}", array) for k, array in enumerate(call.persistent)]
        self.guards: list[str] = []
        #: Conditions over addresses, tried after the others.
        self.address_guards: list[str] = []
        self.lines: list[str] = []
        self._guard_arrays()
        for k, step in enumerate(call.steps):
            match step:
                case Launched():
                    self.lines.append(self._launch(shapes[k], step))
                case Cleared(array):
                    self.lines.append(f"{self._memory(array)}.memset_async(0, {array.nbytes})")
                case Copied(source, target):
                    arguments = f"{self._memory(source)}, {source.nbytes}"
                    self.lines.append(f"{self._memory(target)}.copy_from_device_async({arguments})")

    def text(self) -> str:
        """Return the condition, and the steps under it."""
        lines = []
        self.names["empty"] = sys.modules["cupy"].ndarray
        for memory in self.new:
            shape, dtype = (
                self._add_name(attribute, getattr(memory.array, attribute)) for attribute in ("shape", "dtype")
            )
            lines.append(self._new(memory, shape, dtype))
        # All memory is allocated before the first launch: if that fails, the ordinary call starts from the beginning.
        lines += [f"new_address_{k} = {memory.name}.data.ptr" for k, memory in enumerate(self.new)]
        if self.checks_addresses:
            lines.append(self._look())
        work = "\n".join([*lines, *self.lines, f"return {self._result(self.call.result)}"])
        guards = "\nand ".join(self.guards) or "True"
        if self.is_known:
            return fill(_PATH_OF_KNOWN, guards=guards, work=work)
        addresses = "\n".join(f"address_{k} = {memory.name}.data.ptr" for k, memory in enumerate(self.arguments))
        return fill(
            _PATH,
            guards=guards,
            addresses=addresses,
            address_guards="\nand ".join(self.address_guards) or "True",
            work=work,
        )

    def _new(self, memory: _Memory, shape: str, dtype: str) -> str:
        """Return code that makes a new array. `shape` and `dtype` are expressions.

        A small result takes the recorded result's memory again if that result and all its views are gone. An array over
        memory is made in half the time of a new one. Its address is the recorded one.
        """
        allocator_of = getattr(sys.modules["cupy"].cuda, "get_allocator", None)
        if not (self.is_known and allocator_of and 0 < memory.array.nbytes <= _MOST_AGAIN and _REFERENCES_OF_ONE):
            return f"{memory.name} = empty({shape}, {dtype})"
        self.names.update(get_allocator=allocator_of, getrefcount=sys.getrefcount, references_of_one=_REFERENCES_OF_ONE)
        room, allocator = self._add_name("room", [memory.array.data]), self._add_name("allocator", allocator_of())
        parts = {"room": room, "allocator": allocator, "shape": shape, "dtype": dtype}
        return fill(_NEW_OR_AGAIN, 0, name=memory.name, **parts).rstrip()

    def _look(self) -> str:
        """Return code that drops the new arrays and raises LookupError, if the call's addresses are not settled."""
        addresses = [
            *(str(x.array.data.ptr) if self.is_known else f"address_{k}" for k, x in enumerate(self.arguments)),
            *(f"new_address_{k}" for k in range(len(self.new))),
            *(str(memory.array.data.ptr) for memory in self.persistent),
        ]
        drop = "".join(f"{memory.name} = " for memory in self.new)
        return fill(_LOOK, addresses=", ".join(addresses), settled=f"settled_{self.number}", drop=drop)

    # ── what must be true ────────────────────────────────────────────────────────────────────────────────────────

    def _guard_arrays(self) -> None:
        """Add to `guards` and `address_guards` the conditions over the caller's arrays and the persistent arrays.

        They say which arguments are the same array, their layouts, that outputs do not overlap other arguments, and the
        alignment.
        """
        firsts: dict[int, _Memory] = {}
        for k, memory in enumerate(self.arguments):
            first = firsts.setdefault(id(memory.array), memory)
            if first is not memory:
                self.guards.append(f"{memory.name} is {first.name}")
            elif self.is_known:
                self.guards += self._identity(f"argument_{self.number}_{k}_", memory.name, memory.array)
            else:
                self.guards += self._likeness(f"argument_{self.number}_{k}_", memory.name, memory.array)
        for memory in self.persistent:
            self.names[memory.name] = weakref.ref(memory.array)
            # A dead reference returns None.
            self.guards.append(f"{memory.name}() is not None")
        if self.is_known:
            return
        for k, memory in enumerate(self.arguments):
            for j, other in enumerate(self.arguments[:k]):
                if {memory.name, other.name}.isdisjoint(self.call.outs) or memory.array is other.array:
                    continue
                ends = [
                    _shifted(f"address_{n}", array.end - array.array.data.ptr) for n, array in ((k, memory), (j, other))
                ]
                starts = [
                    _shifted(f"address_{n}", array.start - array.array.data.ptr)
                    for n, array in ((k, memory), (j, other))
                ]
                self.address_guards.append(f"({ends[0]} <= {starts[1]} or {ends[1]} <= {starts[0]})")
        for arrays, alignment in self.call.aligned:
            names = {id(memory.array): f"address_{k}" for k, memory in reversed([*enumerate(self.arguments)])}
            own = [names[id(array)] for array in arrays if id(array) in names]
            if own:
                joined = " | ".join(own)
                self.address_guards.append(
                    f"not ({joined}) & 15" if alignment == 16 else f"({joined}) & {2 * alignment - 1} == {alignment}"
                )

    def _identity(self, prefix: str, source: str, owner: Any) -> list[str]:
        """Return conditions that an argument is the array `owner`, unchanged.

        CuPy's arrays cannot change their memory or dtype. Setting a shape leaves each element at its row-major number,
        so equal shapes mean equal strides. A dead reference returns None, which has no shape: the attribute raises.
        """
        self.names[f"{prefix}same"] = weakref.ref(owner)
        guards = [f"{prefix}same() is {source}"]
        if owner.ndim > 2:
            return [*guards, self._shape(prefix, source, owner)]
        # The number of elements cannot change: one dimension needs no further check, two need the first extent.
        guards.append(f"{source}.ndim == {owner.ndim}")
        if owner.ndim == 2:
            guards.append(f"len({source}) == {len(owner)}")
        return guards

    def _likeness(self, prefix: str, source: str, owner: Any) -> list[str]:
        """Return conditions that an argument is an array of the dtype and layout of `owner`."""
        self.names[f"{prefix}dtype"], self.names[f"{prefix}class"] = owner.dtype, type(owner)
        # Equal structured dtypes may be different objects.
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
        """Return Python source that launches the step's kernel by the driver's call, without checks."""
        core, config = (
            device_stream(self.call.stream).core,
            shape.loaded.launch_config(as_config(step.config), shape.device_id),
        )
        kernel = shape.loaded.kernel
        sources = (*step.sources, *[None] * (len(step.arguments) - len(step.sources)))
        values = list(map(self._value, shape.fragments, step.arguments, sources))
        constants = {"launch": shape.run, "core": core, "config": config, "kernel": kernel}
        run, *first = [self._add_name(constant, value) for constant, value in constants.items()]
        text = launch_text(run, first, values)
        array = sys.modules["cupy"].ndarray
        varies = any(
            source and not isinstance(value, array) for source, value in zip(sources, step.arguments, strict=True)
        )
        if not self.is_known or varies:
            return text
        # Only the addresses of new arrays vary, and seldom: the parameters are packed once.
        bound_values = list(map(evaluate, shape.fragments, step.arguments))
        bound = bound_launch(shape.run, shape.loaded, shape.fragments, core, config, bound_values)
        same = " and ".join(f"new_address_{k} == {memory.array.data.ptr}" for k, memory in enumerate(self.new))
        return f"{self._add_name('bound', bound)}()" + (f" if {same} else {text}" if same else "")

    def _value(self, fragment: Fragment, value: Any, source: Source) -> str:
        """Return Python source for the value that is passed for one argument of a kernel.

        `fragment` converts such an argument. `value` is the recorded argument. `source` is the caller's expression for
        it, or None for a constant. A condition on a value from a source is added to `guards`.
        """
        if isinstance(value, sys.modules["cupy"].ndarray):
            bound_value = evaluate(fragment, value)
            memory, name = self._owner(value)
            if memory in self.persistent or (self.is_known and memory in self.arguments):
                return self._add_name("value", bound_value)
            pointer = value.data.ptr
            if ".data.ptr" in fragment.guard:
                raise _NotReplayable  # the guard holds for this address only
            text = _shifted(name, pointer - memory.array.data.ptr)
            if isinstance(bound_value, bytes):
                # The struct of a strided array begins with its address.
                if bound_value[:8] != pointer.to_bytes(8, "little"):
                    raise _NotReplayable
                return f"({text}).to_bytes(8, 'little') + {self._add_name('layout', bound_value[8:])}"
            if bound_value != pointer:
                raise _NotReplayable
            return text
        mapped = next((mapped for mapped in self.call.maps if mapped.value is value), None)
        if mapped is not None:
            memory, name = self._owner(mapped.array)
            if memory not in self.persistent and not (self.is_known and memory in self.arguments):
                shifted = _shifted(name, mapped.array.data.ptr - memory.array.data.ptr)
                return f"{self._add_name('map', mapped.at_address)}({shifted})"
        if source is None:
            return self._add_name("value", evaluate(fragment, value))
        prefix = f"number_{self.number}_{len(self.names)}_"
        self.names[f"{prefix}last"] = value
        checked, expression = (source, source) if isinstance(source, str) else source
        guard, text = fragment.written(checked, prefix, self.names, expression)
        self.guards.append(guard)
        if value.__class__ is float and text != expression:
            # The same float object, such as a constant of a loop, has known bits.
            text = remembered_value_text(
                self._add_name("bits", evaluate(fragment, value)), checked, f"{prefix}last", text
            )
        return text

    def _owner(self, array: Any) -> tuple[_Memory, str]:
        """Return the recorded memory that contains an array, and the generated variable that holds its address.

        For persistent memory the variable's name is only its index.

        Raises
        ------
        _NotReplayable
            If no memory, or more than one, contains the array.
        """
        first = array.data.ptr
        for memories, letter in ((self.arguments, "address_"), (self.new, "new_address_"), (self.persistent, "")):
            owners = [k for k, memory in enumerate(memories) if memory.array is array] or [
                k for k, memory in enumerate(memories) if memory.start <= first < memory.end
            ]
            if len({id(memories[k].array) for k in owners}) > 1:
                raise _NotReplayable
            if owners:
                return memories[owners[0]], f"{letter}{owners[0]}"
        raise _NotReplayable

    def _memory(self, array: Any) -> str:
        """Return Python source for CuPy's pointer (``MemoryPointer``) to the first element of an array."""
        memory, _ = self._owner(array)
        if memory in self.persistent:
            return self._add_name("memory", array.data)
        offset = array.data.ptr - memory.array.data.ptr
        return f"({memory.name}.data + {offset})" if offset else f"{memory.name}.data"

    def _result(self, result: Any) -> str:
        """Return Python source for the call's result: an argument, a new array, a view of one, or a tuple of these.

        Raises
        ------
        _NotReplayable
            For another result.
        """
        if isinstance(result, tuple):
            return f"({''.join(f'{self._result(item)}, ' for item in result)})"
        if result is None:
            return "None"
        for memory in (*self.arguments, *self.new):
            if memory.array is result:
                return memory.name
        if not isinstance(result, sys.modules["cupy"].ndarray) or self._owner(result)[0] not in self.new:
            raise _NotReplayable
        layout = (self._add_name(attribute, getattr(result, attribute)) for attribute in ("shape", "dtype"))
        return f"empty({', '.join(layout)}, {self._memory(result)}, {self._add_name('strides', result.strides)})"

    def _add_name(self, prefix: str, value: Any) -> str:
        """Add a value to the global names, under a new name."""
        name = f"{prefix}_{self.number}_{len(self.names)}"
        self.names[name] = value
        return name


def _references_of_one() -> tuple[int, int] | None:
    """Return what `sys.getrefcount` counts in `_NEW_OR_AGAIN` for a pointer that nobody else has, and for its memory.

    The result is None if threads run at once: other threads' references are then counted late.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None

    def references(room: list[Any]) -> tuple[int, int]:
        pointer = room.pop()
        memory = pointer.mem
        return sys.getrefcount(pointer), sys.getrefcount(memory)

    return references([SimpleNamespace(mem=object())])


_REFERENCES_OF_ONE = _references_of_one()


def _shifted(name: str, offset: int) -> str:
    return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else name


def value_guard(names: dict[str, Any], name: str, source: str, value: Any) -> str:
    """Return Python source of the condition that an argument has its recorded value.

    `source` is the expression of the argument. The value is added to `names` as `name`. An equal value of another type
    fails the condition, because it may mean something else, as True and 1 do.
    """
    if value is None or value is True or value is False:
        return f"{source} is {value}"
    names[name] = value
    value_class = value.__class__
    if value_class in (int, str) or (value_class is float and value != 0):
        return f"({source} is {name} or ({source}.__class__ is {value_class.__name__} and {source} == {name}))"
    if value_class in (tuple, list):
        names[name], names["is_alike"] = _copied(value), is_alike
        return f"({source} is {name} or is_alike({source}, {name}))"
    return f"{source} is {name}"


def _copied(value: Any) -> Any:
    """Return a value with its lists copied; an immutable value is returned itself."""
    if value.__class__ is list:
        return [_copied(item) for item in value]
    if value.__class__ is tuple:
        copies = tuple([_copied(item) for item in value])
        return value if all(map(operator.is_, copies, value)) else copies
    return value


def is_alike(value: Any, other: Any) -> bool:
    """Return whether two values, perhaps in tuples and lists, are equal and of the same types; 0.0 and -0.0 differ."""
    if value.__class__ is not other.__class__:
        return False
    if value.__class__ in (tuple, list):
        return len(value) == len(other) and all(map(is_alike, value, other))
    return bool(value is other or (value == other and (value != 0 or repr(value) == repr(other))))


def goes_on(call: RecordedCall, ordered: Order, path: FastPath) -> bool:
    """Return whether every launch of a call may repeat on its stream without waiting for other streams.

    If that changes later, the order calls ``path.unsettle``.
    """
    try:
        launches = [(_shape_of(step), step.arguments) for step in call.steps if isinstance(step, Launched)]
    except _NotReplayable:
        return False
    stream = device_stream(call.stream)
    return all(ordered.goes_on(stream, *shape.ranges(arguments, arguments), path) for shape, arguments in launches)


def _shape_of(step: Launched) -> CallShape:
    """Return the kernel's recorded call shape that fits the arguments of a launch.

    Raises
    ------
    _NotReplayable
        If no recorded shape fits.
    """
    for shape in step.kernel.dispatcher.shapes:
        if not isinstance(shape, CallShape):
            continue
        if len(shape.fragments) != len(step.arguments):
            continue
        families = zip(shape.families, shape.loaded.parameters, strict=True)
        if any(family not in _FAMILIES and parameter.category != "tensor_map" for family, parameter in families):
            continue
        if all(_guard_holds(fragment, value) for fragment, value in zip(shape.fragments, step.arguments, strict=True)):
            return shape
    raise _NotReplayable


def _guard_holds(fragment: Fragment, value: Any) -> bool:
    names = {"a": value}
    guard, _ = fragment.written("a", "k_", names)
    try:
        return bool(eval(guard, names))
    except (AttributeError, TypeError):
        return False


#: Replays tried per call, newest first; calls before recording; calls ignored after a recording failed; recordings in
#: all.
_MOST_REPLAYS, _CALLS_BEFORE, _POSTPONED, _MOST_RECORDED = 4, 2, 64, 64
_MOST_COUNTS = 1024
#: Sets of settled addresses of one replay, with several streams.
_MOST_ADDRESSES = 16
_numbers = count()

_CALL = """\
def $head:
$replays    try:
        return ordinary($passed)
    except CudakitError as error:
        cut(error)
        raise
"""
_ALL_REPLAYS = """\
    if $applies:
        try:
            $replays
        # The ordinary call has the better error message.
        except Exception:
            pass
"""
#: Stands for a stream that is never current.
_NOBODY = object()


class Function(functools.partial[Any]):
    """A function of arrays with attributes. `cudakit.kernel.kernel.Kernel` says why it is a `functools.partial`."""

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of


@dataclass(eq=False)
class _Replay:
    """A replayed call in the generated function.

    Attributes
    ----------
    key : object
        Identifies calls with the same arguments.
    stream : object
        CuPy's current stream in the call.
    number : int
        Suffix of the call's global names. The stream's global name holds another object while the replay is not
        allowed.
    names : dict
        Global names of the function.
    settled_addresses : set of tuple of int or None
        The `RecordedCall.addresses` that may be replayed; None if addresses do not matter.
    text : str
        Python code.
    """

    key: Any
    stream: Any
    number: int
    names: dict[str, Any]
    settled_addresses: set[tuple[int, ...]] | None
    text: str = ""

    def is_for(self, call: RecordedCall, single: bool) -> bool:
        return (self.key, self.settled_addresses is None) == (call.key, single) and self.stream is call.stream

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Return whether calls at these addresses are replayed, if the other conditions are true."""
        is_settled = self.names[f"cupy_stream_{self.number}"] is self.stream
        return is_settled and (self.settled_addresses is None or addresses in self.settled_addresses)

    def settle(self, addresses: tuple[int, ...]) -> None:
        """Allow the replay, for calls whose arrays have these `addresses` too."""
        if self.settled_addresses is not None:
            self.settled_addresses.add(addresses)
        self.names[f"cupy_stream_{self.number}"] = self.stream

    def unsettle(self) -> None:
        """Forbid the replay until it is settled again."""
        self.names[f"cupy_stream_{self.number}"] = _NOBODY
        if self.settled_addresses is not None:
            self.settled_addresses.clear()


class CallReplay:
    """The generated function of a function of arrays: replays, and the ordinary call after them.

    Parameters
    ----------
    inputs : int
        Number of positional arguments.
    ordinary : callable
        ``ordinary(arguments, out, stream, *options)``: makes a call that no replay serves.
    options : mapping
        Further keywords of the function, with their defaults.
    takes_keywords : bool
        Whether the function accepts any other keywords too, which `ordinary` gets last.
    names : mapping
        Further global names, for conditions.
    """

    def __init__(
        self,
        inputs: int,
        ordinary: Callable[..., Any],
        options: Mapping[str, Any] | None = None,
        takes_keywords: bool = False,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        options = options or {}
        listed = "".join(f"a{k}, " for k in range(inputs))
        inputs_with_defaults = "".join(f"a{k}=MISSING, " for k in range(inputs)) + ("/, " if inputs else "")
        with_defaults = "".join(f", {name}={value!r}" for name, value in options.items())
        options_passed = "".join(f", {name}" for name in (*options, *["keywords"] * takes_keywords))
        keywords = ", **keywords" if takes_keywords else ""
        self._head = f"call({inputs_with_defaults}*more, out=None, stream=None{with_defaults}{keywords})"
        self._arguments = f"({listed}*more,), out, stream{options_passed}"
        self._applies = f"stream is None and not more{' and not keywords' if takes_keywords else ''}"
        self._start({**(names or {}), "MISSING": MISSING, "ordinary": ordinary})

    @classmethod
    def like(cls, head: str, arguments: str, names: Mapping[str, Any]) -> Self:
        """Make the generated function of a function with a signature of its own.

        Parameters
        ----------
        head : str
            Name and parameters of the function, `stream` among them.
        arguments : str
            Arguments that ``ordinary`` gets, in terms of the parameters.
        names : mapping
            Global names in these two texts, and ``ordinary``.
        """
        self = cls.__new__(cls)
        self._head, self._arguments, self._applies = head, arguments, "stream is None"
        self._start(names)
        return self

    def _start(self, names: Mapping[str, Any]) -> None:
        self._names = {**names, "CudakitError": CudakitError, "cut": cut}
        self._counts: dict[Any, int] = {}
        self._replays: list[_Replay] = []
        self._recorded = 0
        self.function: FunctionType = self._compile()
        order().watch(self)
        add_shortcut(self)

    def should_record(self, key: Any) -> bool:
        """Count a call with this key. Return True if the call is to be recorded, after a number of calls.

        The count then starts again. Return False if the function has too many replays, and none with this key.
        """
        if self._recorded >= _MOST_RECORDED and not any(key == replay.key for replay in self._replays):
            return False
        calls = self._counts[key] = self._counts.get(key, 0) + 1
        if calls > _CALLS_BEFORE:
            self._counts[key] = 0
            return True
        if len(self._counts) > _MOST_COUNTS:
            self._counts.clear()
        return False

    def postpone(self, key: Any) -> None:
        """Set back the count of calls with this key, so that they are not recorded for a while."""
        self._counts[key] = -_POSTPONED

    def record(self, call: RecordedCall) -> None:
        """Replay calls like `call` from now on, if its launches may be repeated without waits between streams.

        Otherwise, and while work is reported to observers, calls with this key are not recorded for a while.
        """
        ordered = order()
        with ordered.lock:
            single, addresses = ordered.single, call.addresses
            former = next((replay for replay in self._replays if replay.is_for(call, single)), None)
            replay = former
            if replay is None or replay.takes(addresses):
                replay = _Replay(call.key, call.stream, next(_numbers), self._names, None if single else set())
            if watched() or not (ordered.settle(None, self) if single else goes_on(call, ordered, replay)):
                self.postpone(call.key)
            elif replay is not former:
                if former is not None:
                    self.postpone(call.key)  # the replay did not fit this call, and may not again
                self._add(replay, call, former, single)
            elif replay.settled_addresses is not None and len(replay.settled_addresses) >= _MOST_ADDRESSES:
                replay.unsettle()
                self.postpone(call.key)
            else:
                replay.settle(addresses)
                # The more sets of addresses, the longer the pause: perhaps no set comes again.
                self._counts[call.key] = -2 * len(replay.settled_addresses or ())
            if watched():
                self.unsettle()  # a witness came meanwhile

    def _add(self, replay: _Replay, call: RecordedCall, former: _Replay | None, single: bool) -> None:
        if self._recorded >= _MOST_RECORDED:
            return
        code = ReplayCode.of(call, replay.number, replay.settled_addresses)
        if code is None:
            self.postpone(call.key)
            return
        self._recorded += 1
        self._names.update(code.names)
        replay.text = code.text
        replay.settle(call.addresses)
        # From the second stream on, replays for a single stream are never settled again.
        others = [old for old in self._replays if old is not former and (old.settled_addresses is None) is single]
        self._replays = [replay, *others[: _MOST_REPLAYS - 1]]
        function = self._compile()
        self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.function.__code__ = function.__code__

    def unsettle(self) -> None:
        """Forbid all replays until they are settled again."""
        for replay in self._replays:
            replay.unsettle()

    def watch(self, watched: bool) -> None:
        """Forbid all replays if `watched`: there are witnesses, which would not see replayed launches."""
        if watched:
            self.unsettle()

    def _compile(self) -> FunctionType:
        texts = "\n".join(replay.text for replay in self._replays)
        replays = fill(_ALL_REPLAYS, applies=self._applies, replays=texts) if texts else ""
        text = fill(_CALL, head=self._head, replays=replays, passed=self._arguments)
        return make_function(text, f"call of {self._head.partition('(')[0]}", self._names)
