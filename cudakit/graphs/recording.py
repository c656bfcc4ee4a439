"""Captured graphs on any execution place: named arguments, recorded steps, objects kept and refused by a capture."""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, LaunchError, UnknownNameError, shortened
from cudakit.jit.launch.bind import converter
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.places import place_of
from cudakit.streams.witnesses import Witness, Work
from cudakit.types.arguments import as_numpy, describe, is_on_device, refuse_masked, texture_handle

#: An address as it lies in a kernel's parameters.
ADDRESS = struct.Struct("<Q")
#: Kinds of parameters that hold no addresses.
VALUES = frozenset({"scalar", "vector", "functor"})
#: The widest access that a kernel chooses by an array's address, in bytes.
_WIDEST = 16


class Memory(NamedTuple):
    """Memory of an array: addresses, dtype, shape, strides in bytes, device (None: host memory).

    `address` is the address of the first element. `low` is the lowest address of the memory, `high` the address after
    it.
    """

    address: int
    low: int
    high: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None

    @property
    def words(self) -> str:
        """Description of the memory for error messages."""
        where = "host memory" if self.device is None else f"memory of device {self.device}"
        steps = "" if self.strides == _row_major(self.shape, self.dtype.itemsize) else f" and strides {self.strides}"
        return f"{self.dtype} with shape {self.shape}{steps} in {where}"


class _Int(int):
    """A named int: a distinct object, unlike the number 2."""


class _Float(float):
    """A named float."""


class _Complex(complex):
    """A named complex number."""


class _Bool(int):
    """A named bool: an int for which ``isinstance(value, bool)`` is True. Python's bool has no subclasses."""

    @property  # type: ignore[misc]  # what isinstance asks where the type itself is another
    def __class__(self) -> type:
        return bool

    def __repr__(self) -> str:
        return str(self != 0)


class _NumpyBool(_Bool):
    """A named `numpy.bool`, which has no subclasses either."""

    dtype = np.dtype("?")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.bool_


def memory_of(value: Any, former: Memory | None = None) -> Memory | None:
    """Return the memory of an array, or None for any other value. `former` is memory of an array that may be alike."""
    if _is_of_cupy(value) and hasattr(value, "data"):
        # What `describe` finds, for a third of its time.
        data = value.data
        if former is not None and value.shape == former.shape and value.strides == former.strides:
            _, _, _, dtype, shape, strides, device = former
            if value.dtype == dtype and data.device_id == device:
                address = data.ptr
                distance = address - former.address
                return Memory(address, former.low + distance, former.high + distance, dtype, shape, strides, device)
        return _memory(data.ptr, value.dtype, value.shape, value.strides, data.device_id)
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        return _memory(int(value.__array_interface__["data"][0]), value.dtype, value.shape, value.strides, None)
    if isinstance(value, np.generic | int | float | complex | str | None) or texture_handle(value) is not None:
        return None
    host = as_numpy(value)
    if host is not None:
        return memory_of(host)
    argument = describe(value)
    if argument.family == "buffer":
        return _memory(argument.pointer, np.dtype("u1"), (int(value.size),), (1,), argument.device_id)
    if argument.evidence.category != "array" or argument.evidence.dtype is None:
        return None
    size = argument.evidence.dtype.itemsize
    steps = tuple(step * size for step in argument.strides)
    return _memory(argument.pointer, argument.evidence.dtype, argument.shape, steps, argument.device_id)


def _is_of_cupy(value: Any) -> bool:
    module = type(value).__module__
    return module == "cupy" or module.startswith("cupy.")


def is_readonly(value: Any) -> bool:
    """Return whether `value` is a read-only array."""
    if _is_of_cupy(value):
        return False  # which has none
    host = as_numpy(value)
    if host is not None:
        return not host.flags.writeable
    return is_on_device(value) and describe(value).evidence.readonly


def _memory(address: int, dtype: np.dtype, shape: Any, strides: Any, device: int | None) -> Memory:
    low = high = address
    if 0 not in shape:
        for extent, step in zip(shape, strides, strict=True):
            reach = (extent - 1) * step
            low, high = low + min(reach, 0), high + max(reach, 0)
        high += dtype.itemsize
    return Memory(address, low, high, dtype, tuple(shape), tuple(strides), device)


def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


class NamedArguments:
    """The named arguments of a graph.

    Parameters
    ----------
    values : mapping
        Arrays and numbers by name, as given to `capture`.

    Attributes
    ----------
    values : dict
        Value of each name inside the block: an array itself, and for a number an object distinct from every other
        number.
    arrays : dict of str to Memory
        Memory of the arrays when the graph was captured.

    Raises
    ------
    ArgumentError
        For values that are neither arrays nor numbers, and for arrays that share memory.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self.arrays: dict[str, Memory] = {}
        for name, value in values.items():
            memory = memory_of(value)
            if memory is not None:
                self.arrays[name], self.values[name] = memory, value
            else:
                self.values[name] = _own(name, value)
        self._check_apart()
        #: Of CuPy's C-contiguous arrays: class, dtype, shape and device, and the bits that are zero in every address.
        self._likenesses: dict[str, tuple[Any, np.dtype, tuple[int, ...], int | None, int]] = {
            name: (type(values[name]), values[name].dtype, memory.shape, memory.device, _alignment(memory) - 1)
            for name, memory in self.arrays.items()
            if getattr(values[name], "_c_contiguous", False) and _is_of_cupy(values[name])
        }

    def value(self, name: str) -> Any:
        """Return the value of a named argument.

        Raises
        ------
        UnknownNameError
        """
        if not isinstance(name, str) or name not in self.values:
            names = ", ".join(self.values) or "none"
            raise UnknownNameError(f"graph: no argument is named {shortened(name)}; named at capture: {names}")
        return self.values[name]

    def memory(self, name: str) -> Memory | None:
        """Return the present memory of a named array, or None for a number."""
        return memory_of(self.values[name], self.arrays[name]) if name in self.arrays else None

    def address_of(self, name: str, value: Any) -> int | None:
        """Return the address of a CuPy array that differs from the captured one in its address only.

        The result is None for other values, which `check` must check.
        """
        likeness = self._likenesses.get(name)
        if likeness is None:
            return None
        array_type, dtype, shape, device, unaligned = likeness
        if value.__class__ is not array_type or value.dtype is not dtype or not value._c_contiguous:
            return None
        memory = value.data
        if value.shape != shape or memory.device_id != device:
            return None
        address: int = memory.ptr
        return None if address & unaligned else address

    def _check_apart(self) -> None:
        ranges = sorted((memory.low, memory.high, name) for name, memory in self.arrays.items())
        for (_, end, first), (start, _, second) in pairwise(ranges):
            if start < end:
                raise ArgumentError(
                    f"capture: {first} and {second} share memory: an argument in it could be either one; "
                    "name the whole array once"
                )

    def holding(self, address: int) -> tuple[str, int] | None:
        """Return the named array that contains the byte at `address`, and the byte's distance from its first element.

        The result is (name, distance in bytes), or None if no named array contains the byte.
        """
        for name, memory in self.arrays.items():
            if memory.low <= address < memory.high:
                return name, address - memory.address
        return None

    def viewed(self, memory: Memory | None) -> tuple[str, int] | None:
        """Return the named array that contains an array's memory, and the distance between both first elements.

        The result is (name, distance in bytes), or None if no named array contains the memory.
        """
        location = self.holding(memory.low) if memory is not None else None
        return (
            (location[0], memory.address - self.arrays[location[0]].address)
            if memory is not None and location
            else None
        )

    def addresses_in(self, data: Any) -> Iterator[tuple[int, str, int]]:
        """Yield each address within a named array in a parameter's bytes.

        Each result is (offset in the bytes, name, distance of the address from the array's first element in bytes).
        """
        for place in range(0, len(data) - 7, ADDRESS.size):
            location = self.holding(ADDRESS.unpack_from(data, place)[0])
            if location is not None:
                yield place, *location

    def refuse_inside(self, address: int, kernel: str, noun: str) -> None:
        """Raise if `address`, which a kernel gets in a `noun`, is within a named array.

        Raises
        ------
        ArgumentError
        """
        location = self.holding(address)
        if location is not None:
            raise ArgumentError(
                f"graph: {kernel} is given a {noun} of {location[0]}, which holds the array's address for good; do not "
                f"name {location[0]}"
            )

    def number_named(self, value: Any) -> str | None:
        """Return the name of a number that was passed to a kernel, or None. The number is recognized by identity."""
        for name, candidate in self.values.items():
            if candidate is value and name not in self.arrays:
                return name
        return None

    def check(self, name: str, value: Any) -> int | None:
        """Check the value for `name` at a launch. Return its address, or None for a number.

        Raises
        ------
        ArgumentError
            For an unknown name, and for an array that differs from the captured one in more than its address.
        """
        self.value(name)
        captured = self.arrays.get(name)
        memory = memory_of(value, captured)
        if captured is None:
            if memory is not None or not isinstance(value, int | float | complex | np.generic):
                raise ArgumentError(f"graph: {name} is a number, got {type(value).__name__}")
            return None
        if memory is None:
            raise ArgumentError(f"graph: {name} is an array, {captured.words}, got {type(value).__name__}")
        if memory.shape is not captured.shape and memory[3:] != captured[3:]:  # not the captured one, moved
            raise ArgumentError(
                f"graph: {name} was captured as {captured.words}, got {memory.words}; capture another graph for it"
            )
        aligned = _alignment(captured)
        if memory.address % aligned:
            raise ArgumentError(
                f"graph: {name} was captured at a multiple of {aligned} bytes, which kernels may rely on, got one at "
                f"{memory.address:#x}; copy it, or capture with such an array"
            )
        return memory.address

    def unused(self, used: Iterable[str]) -> list[str]:
        """Return the names that nothing in the graph uses. Empty arrays need no use."""
        empty = {name for name, memory in self.arrays.items() if memory.low == memory.high}
        return sorted(set(self.values) - set(used) - empty)


def _alignment(memory: Memory) -> int:
    """Return the alignment in bytes of captured memory that kernels may rely on: a power of two."""
    return max(1, min(_WIDEST, memory.address & -memory.address))


def _own(name: str, value: Any) -> Any:
    """Return the number `value` as a new object, which identity distinguishes from every other argument.

    `name` is for the error: `ArgumentError` if `value` is no number.
    """
    number_types: tuple[tuple[type, Any], ...] = (
        (bool, _Bool), (int, _Int), (float, _Float), (complex, _Complex), (np.bool_, _NumpyBool)
    )  # fmt: skip
    for plain, own in number_types:
        if type(value) is plain:
            return own(value)
    if isinstance(value, np.number):
        return np.array(value)[()]
    raise ArgumentError(f"capture: {name} is {type(value).__name__}; what is named is an array or a number")


# ── a capture that is open ──


class Recording(Witness):
    """An open capture: the witness of the work that its thread puts on streams.

    Parameters
    ----------
    arguments : NamedArguments
        Named arguments of the graph.
    is_captured : bool
        Whether another capture has the stream already, which is refused.

    Attributes
    ----------
    reads, writes : dict
        Arrays that cudakit's own work reads, and arrays that it may write. The key of a named array and its views is
        the name, the key of any other array its identity.
    kept_alive : list
        Objects that live as long as the graph.
    """

    def __init__(self, arguments: NamedArguments, is_captured: bool = False) -> None:
        if is_captured:
            raise LaunchError("capture: this stream is being captured already; launch the inner graph on it instead")
        self.named_arguments = arguments
        self.reads: dict[Any, Any] = {}
        self.writes: dict[Any, Any] = {}
        self.kept_alive: list[Any] = []
        self._own: dict[int, dict[Any, Any]] = {}
        self._thread = threading.get_ident()
        self._error: BaseException | None = None

    def kept_by(self, owner: object) -> dict[Any, Any]:
        return self._own.setdefault(id(owner), {})

    def keep(self, thing: Any) -> None:
        self.kept_alive.append(thing)

    def is_named(self, address: int) -> bool:
        return self.named_arguments.holding(address) is not None

    @contextlib.contextmanager
    def body(self) -> Iterator[None]:
        """Capture the body of a loop or branch. If the body does not end without an error, no graph is made."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    def check_whole(self) -> None:
        """Raise if the body of a loop or branch ended with an error: the graph would lack the rest of the body."""
        if self._error is not None:
            raise LaunchError(
                f"capture: a loop or branch ended with an error ({type(self._error).__name__}: {self._error}), so that "
                "the graph would lack the rest of it; capture again"
            ) from self._error

    def begin(self, work: Work) -> bool:
        if threading.get_ident() != self._thread:
            return False
        if work.kind == "compile":  # for what is captured: it is no part of that itself
            return False
        if work.stream is None:
            raise LaunchError(f"capture: {work.name} is work of the host, which is no part of a graph")
        owner = place_of(work.stream).capture(work.stream)
        if owner is None:
            raise LaunchError(
                f"capture: {work.name} was given another stream, which is no part of the capture; let that wait first, "
                "as in other.wait(stream.record()), and join it before the block ends: stream.wait(other.record())"
            )
        if owner is self and not self._is_inside(work.stream):
            raise outside_of_body(work.name)

        return owner is self

    def end(self, work: Work, begun: Any) -> None:
        if not begun:
            return
        self.touch(work.reads, work.writes)
        self.kept_alive.append(work)
        self._note(work)

    def touch(self, reads: Iterable[Any], writes: Iterable[Any] = ()) -> None:
        """Record that the graph reads some arrays, and may write others."""
        self.reads.update(self.placed(reads))
        self.writes.update(self.placed(writes))

    def placed(self, arrays: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
        """Yield (key, value) for each array, as `reads` and `writes` store them.

        For a named array, or a view of one, both are the name. For any other array, the key is its identity and the
        value the array.
        """
        for array in arrays:
            memory = memory_of(array) if self.named_arguments.arrays else None
            location = self.named_arguments.holding(memory.low) if memory else None
            yield (location[0], location[0]) if location else (id(array), array)

    def touched(self, arrays: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Return the arrays of `reads` or `writes`. A named array is replaced by its present value."""
        values = self.named_arguments.values
        return tuple(values[key] if isinstance(key, str) else array for key, array in arrays.items())

    def _is_inside(self, stream: Any) -> bool:
        """Return whether a captured stream belongs to the graph or body that is captured now."""
        return True

    def _note(self, work: Work) -> None:
        """Record work that was put on a stream of the capture."""


def outside_of_body(name: str) -> LaunchError:
    """Return the error for work inside a loop or branch on a stream from outside of it."""
    return LaunchError(
        f"capture: {name} inside a loop or branch was given a stream from outside of it; give it the stream that the "
        "with statement yields"
    )


def conditional_child() -> LaunchError:
    """Return the error for embedding a graph with loops or branches: no child graph may have conditional nodes."""
    return LaunchError(
        "graph: one that has loops or branches cannot become a part of another graph: the driver takes no child graph "
        "with conditional nodes (cuGraphAddChildGraphNode), which loops and branches are; launch it by itself, or "
        "capture its calls again in the other graph"
    )


def unjoined(names: Iterable[str]) -> LaunchError:
    """Return the error for work on another stream that the captured stream does not join."""
    return LaunchError(
        f"capture: {', '.join(sorted(set(names)))} on another stream was not joined: let the captured one wait for it, "
        "with stream.wait(other.record()), before the block ends"
    )


# ── recorded steps ──

#: Writes a new value into a step's arguments.
Write: TypeAlias = Callable[[Any], None]


class Step:
    """A recorded step, which each launch repeats: a node of the driver, or the emulator's call.

    Attributes
    ----------
    name : str
        Description of the step, such as the name of its kernel.
    uses : list of (str, callable)
        For each use of a named argument, its name and the function that writes a new value. The function refers to the
        arguments and not to the step, to avoid a reference cycle.
    foreign : bool
        Whether another library than cudakit made the step.
    """

    foreign = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.uses: list[tuple[str, Write]] = []

    def find_addresses(
        self,
        arguments: NamedArguments,
        data: Any,
        put: Callable[[int, int], None],
        address_of: Callable[[Any], int] = int,
    ) -> None:
        """Find named arrays by their addresses in a parameter's bytes, and add their uses to the step.

        ``put(offset, address)`` writes another address into the bytes. `address_of` returns the address of a new value.
        """
        for place, name, distance in arguments.addresses_in(data):

            def write(value: Any, place: int = place, distance: int = distance) -> None:
                put(place, address_of(value) + distance)

            # Most addresses are written as they are.
            is_plain = address_of is int and not distance
            self.uses.append((name, functools.partial(put, place) if is_plain else write))

    def find_number(
        self, arguments: NamedArguments, parameter: BoundParameter, argument: Any, put: Callable[[Any, Any], None]
    ) -> None:
        """Find the named number that is passed for a parameter, and add its use to the step.

        ``put(argument, value)`` writes another number: as the caller passes it, and converted to the parameter's type.

        Raises
        ------
        ArgumentError
            If the parameter takes no number.
        """
        name = arguments.number_named(argument)
        if name is None:
            return
        where = f"{self.name}'s parameter {parameter.name} ({parameter.cpp})"
        if parameter.category != "scalar" or parameter.dtype is None:
            raise ArgumentError(
                f"graph: {name} goes to {where}; what can be changed at a launch is an array or a number"
            )
        convert = converter(parameter, f"graph: {name}, {where},")
        self.uses.append((name, lambda value: put(value, convert(value))))


#: `Executable.settled` with a stream that nobody can pass.
UNSETTLED = object(), None, None, None


class Executable:
    """A finished graph, launched by its execution place.

    Attributes
    ----------
    nodes : sequence of Step
        Steps of the graph, without orders between streams.
    settled : tuple
        Stream on which a launch is one call without checks; the function to call; CuPy's current stream at that, and
        the function that returns it.
    """

    #: Whether a new array is written by its address.
    by_address = False
    settled: tuple[Any, Any, Any, Any] = UNSETTLED

    def __init__(self, capture: Recording, nodes: Sequence[Step]) -> None:
        self._capture = capture
        self.nodes: Sequence[Step] = nodes
        self._uses: dict[str, list[tuple[Any, Write]]] = {}
        for node in nodes:
            for name, write in node.uses:
                self._uses.setdefault(name, []).append((node, write))

    @property
    def reads(self) -> tuple[Any, ...]:
        """Arrays that the graph reads, with the present named arrays."""
        return self._capture.touched(self._capture.reads)

    @property
    def writes(self) -> tuple[Any, ...]:
        """Arrays that the graph may write, with the present named arrays."""
        return self._capture.touched(self._capture.writes)

    def change(self, name: str, value: Any, address: int | None) -> None:
        """Make the nodes that use `name` use `value` from the next launch on. If a node refuses it, none changes.

        `address` is the address of an array, and None for a number.
        """
        uses = self._uses.get(name, [])
        try:
            for _, write in uses:
                write(address if address is not None and self.by_address else value)
        except ArgumentError:
            for _, write in uses:
                write(self._capture.named_arguments.values[name])
            raise
        self._changed(uses)

    def _changed(self, uses: Sequence[tuple[Any, Write]]) -> None:
        """Note which steps have new values, for the next launch. Here it does nothing: a subclass may override it.

        `change` calls it after it has written the values. `uses` are pairs of a changed step and the function that
        wrote its value.
        """

    def push(self) -> None:
        """Bring changed steps to the driver. Here there is none."""

    def launch(self, stream: Any, graph: Any) -> None:
        """Launch on a stream. If the stream is being captured, become a part of the other graph instead.

        `graph` is the user's `Graph` of this graph.
        """
        raise NotImplementedError

    def dot(self) -> str:
        """Return the graph in Graphviz' language."""
        raise NotImplementedError
