"""Calls that were made before, frozen into Python code that goes straight to the driver.

A call that is made again with the same kinds of arguments needs no deduction, broadcasting or planning: what is left of
it is a condition over its arguments and one launch, which `dispatch` does for kernels, and this module for functions of
arrays that are one launch of a kernel. Frozen calls rest on what the kernel's own dispatcher has settled, its stream,
its configuration and that nothing need be ordered: they end with it.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from itertools import count
from types import FunctionType
from typing import Any, Self

from cudakit.arrays.made import Made
from cudakit.jit.launch.bind import evaluate
from cudakit.jit.launch.dispatch import MISSING
from cudakit.jit.launch.launch import CallShape, Settled
from cudakit.jit.launch.param_buffer import PackedLaunch
from cudakit.streams import devices
from cudakit.streams.generated import fill, make_function

#: Frozen calls that are tried, newest first; how often a call is made before it is frozen, and again where it could not
#: be; and calls frozen in all.
_MOST_FROZEN, _SEEN_BEFORE, _LATER, _MOST_MADE = 4, 2, 64, 64
_MOST_SEEN = 1024
_numbers = count()

_CALL = """\
def call($arguments*more, out=None, stream=None$options):
$frozen    return ordinary(($given*more,), out, stream$passed)
"""
_ALL_FROZEN = """\
    if stream is None and not more$unnamed:
        try:
            $attempts
        # Whatever an argument lacks, the ordinary way says it better.
        except Exception:
            pass
"""
_ATTEMPT = """\
if $conditions and $shape.seen is $seen and current_cupy_stream($device) is $cupy_stream:
    $ways"""
_WAY = """\
if (
    $guards
):
    $launch"""
_WAY_OF_OUTPUTS = """\
if (
    $guards
):
    $addresses
    if (
        $apart
    ):
        $launch"""


class Function(functools.partial[Any]):
    """A function of arrays with attributes: why it is a `functools.partial`, see `cudakit.kernel.kernel.Kernel`."""

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of


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
    """

    def __init__(
        self, inputs: int, ordinary: Callable[..., Any], options: Mapping[str, Any] | None = None, named: bool = False
    ) -> None:
        self._inputs, self._options, self._named = inputs, options or {}, named
        self._seen: dict[Any, int] = {}
        # Of each frozen call its key, what it rests on, and its text.
        self._attempts: list[tuple[Any, Any, str]] = []
        self._made = 0
        self._lock = threading.Lock()
        self._names: dict[str, Any] = {"MISSING": MISSING, "ordinary": ordinary}
        self.function = self._compiled()

    def is_due(self, key: Any) -> bool:
        """Take note of a call; whether it has come often enough to be frozen."""
        if self._made >= _MOST_MADE:
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen > _SEEN_BEFORE:
            self._seen[key] = 0
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def freeze(self, made: Made) -> None:
        """Take the short way for calls like this one from now on, if it is settled."""
        found = _settled(made)
        if found is None:
            self._seen[made.key] = -_LATER
            return
        with self._lock:
            self._made += 1
            shape, settled = found
            if any(key == made.key and seen is shape.seen for key, seen, _ in self._attempts):
                self._seen[made.key] = -_LATER  # it did not do for such a call, and may not again
            others = [entry for entry in self._attempts if entry[0] != made.key]
            self._attempts = [(made.key, shape.seen, self._attempt(made, shape, settled)), *others[: _MOST_FROZEN - 1]]
            function = self._compiled()
            self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
            self.function.__code__ = function.__code__

    def _compiled(self) -> FunctionType:
        unnamed, named = (" and not named", ", **named") if self._named else ("", "")
        attempts = "\n".join(attempt for *_, attempt in self._attempts)
        arguments = "".join(f"a{k}=MISSING, " for k in range(self._inputs))
        text = fill(
            _CALL,
            arguments=arguments + "/, " * bool(arguments),
            options="".join(f", {name}={value!r}" for name, value in self._options.items()) + named,
            frozen=fill(_ALL_FROZEN, unnamed=unnamed, attempts=attempts) if attempts else "",
            given="".join(f"a{k}, " for k in range(self._inputs)),
            passed="".join(f", {name}" for name in (*self._options, *["named"] * self._named)),
        )
        return make_function(text, "call of a generated function", self._names)

    def _attempt(self, made: Made, shape: CallShape, settled: Settled) -> str:
        """The text that makes the call if the arguments fit it."""
        number, names = next(_numbers), self._names
        own = {
            part: f"{part}_{number}" for part in ("shape", "seen", "launch", "kernel", "core", "config", "cupy_stream")
        }
        stated = shape, shape.seen, shape.run, shape.loaded.kernel, *settled[2:5]
        names.update(zip(own.values(), stated, strict=True))
        names["current_cupy_stream"] = sys.modules["cupy"].cuda.get_current_stream
        several = made.outs is not None and len(made.outs) > 1
        conditions = [
            "out is None" if made.outs is None else "out.__class__ is tuple" if several else "out is not None"
        ]
        if several:
            conditions.append(f"len(out) == {len(made.outs or ())}")
        for k, (source, value) in enumerate(made.same):
            names[f"same_{number}_{k}"] = value
            conditions.append(f"{source} is same_{number}_{k}")
        # With several streams only arrays that the dispatcher knows need no ordering.
        each = (True, False) if settled.any_arrays else (True,)
        ways = "\n".join(_Arguments(names, number, made, shape, known).text() for known in each)
        device = str(shape.device_id) if devices.device_count() == 1 else ""
        return fill(_ATTEMPT, 0, conditions=" and ".join(conditions), device=device, ways=ways, **own)


class _Arguments:
    """The text of a frozen call that looks at the arguments and launches.

    `known`: the arrays are those of `made` themselves; else they are like those.
    """

    def __init__(self, names: dict[str, Any], number: int, made: Made, shape: CallShape, known: bool) -> None:
        self.names, self.number, self.made, self.known = names, number, made, known
        self.guards: list[str] = []
        self.values: list[str] = []
        self.constants: list[Any] = []
        self.news: list[str] = []
        # Where the outputs are given, each array's first address, bytes and place among the owners.
        self.extents: list[tuple[str, int, int]] = []
        for k, fragment in enumerate(shape.fragments):
            self._add(k, fragment)
        where = [f"core_{number}", f"config_{number}", f"kernel_{number}"]
        self.launch = f"launch_{number}({', '.join([*where, *self.values])})"
        if len(self.constants) == len(self.values) and isinstance(shape.run, PackedLaunch):
            core, config, kernel = (names[name] for name in where)
            names[f"bound_{number}"] = shape.run.bound(core, config, kernel, self.constants)
            self.launch = f"bound_{number}()"

    def text(self) -> str:
        """A condition, and what is done under it."""
        made = ", ".join(line.partition(" ")[0] for line in self.news)
        returned = "out" if self.made.outs is not None else f"({made})" if len(self.news) > 1 else made
        launch = "\n".join([*self.news, self.launch, f"return {returned}"])
        guards = "\nand ".join(self.guards) or "True"
        if not self.extents:
            return fill(_WAY, guards=guards, launch=launch)
        addresses = "\n".join(f"e{k} = {first}" for first, _, k in self.extents)
        apart = "\nand ".join(self._apart()) or "True"
        return fill(_WAY_OF_OUTPUTS, guards=guards, addresses=addresses, apart=apart, launch=launch)

    def _apart(self) -> list[str]:
        """Conditions under which no output lies where another array does, but where they are one as they were."""
        owners, given = self.made.owners, self.made.given
        conditions = []
        for at, (_, size, k) in enumerate(self.extents):
            for _, other_size, other in self.extents[:at]:
                if not str(given[k]).startswith("out"):
                    continue
                if owners[k] is owners[other]:
                    conditions.append(f"{given[k]} is {given[other]}")
                else:
                    conditions.append(f"(e{k} + {size} <= e{other} or e{other} + {other_size} <= e{k})")
        return conditions

    def _add(self, k: int, fragment: Any) -> None:
        """What the kernel is given for its argument `k`."""
        names, prefix, array = self.names, f"argument_{self.number}_{k}_", sys.modules["cupy"].ndarray
        value, source, owner = self.made.passed[k], self.made.given[k], self.made.owners[k]
        if source == "new":
            names[f"{prefix}shape"], names[f"{prefix}dtype"], names["empty"] = owner.shape, owner.dtype, array
            self.news.append(f"n{k} = empty({prefix}shape, {prefix}dtype)")
            self.values.append(f"n{k}.data.ptr")
        elif source is None or (self.known and isinstance(owner, array)):
            self.constants.append(evaluate(fragment, value))
            names[f"{prefix}value"] = self.constants[-1]
            self.values.append(f"{prefix}value")
            if isinstance(value, array):
                self.guards += self._identity(prefix, source, value if owner is None else owner)
        elif isinstance(owner, array):
            below = owner.data.ptr - value.data.ptr
            first = f"{source}.data.ptr" + (f" - {below}" if below else "")
            self.guards += self._likeness(prefix, source, owner)
            if self.made.outs is not None:
                self.extents.append((first, value.nbytes, k))
                first = f"e{k}"
            self.values.append(first)
        else:
            names.update({f"{prefix}{key}": constant for key, constant in fragment.constants.items()})
            self.guards.append(fragment.guard.format(a=source, k=prefix))
            text = fragment.value.format(a=source, k=prefix)
            if owner.__class__ is float and text != source:
                # The same float object, as a constant of a loop is: its bits are known.
                names[f"{prefix}last"], names[f"{prefix}bits"] = owner, evaluate(fragment, owner)
                text = f"{prefix}bits if {source} is {prefix}last else {text}"
            self.values.append(text)

    def _identity(self, prefix: str, source: str | None, owner: Any) -> list[str]:
        """Conditions under which an argument is the array `owner`; without one, under which that is still there.

        CuPy lets nobody rebind an array's memory or dtype. Its shape may be set, which leaves every element with its
        row-major number where it is: where the shape is the same, so are the strides.
        """
        self.names[f"{prefix}same"] = weakref.ref(owner)
        # The answer of a dead reference is None.
        if source is None:
            return [f"{prefix}same() is not None"]
        guards = [f"{prefix}same() is {source} is not None"]
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
        same = "is" if owner.dtype.names is None else "=="
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


def _settled(made: Made) -> tuple[CallShape, Settled] | None:
    """The shape that a call was launched with, and what it is settled with; None where it is not settled."""
    for shape in made.kernel.dispatcher.shapes:
        if not isinstance(shape, CallShape):
            continue
        settled = shape.settled
        if settled is None or settled.stream is not made.stream or settled.config is not made.config:
            continue
        if len(shape.fragments) != len(made.passed) or set(shape.families) - {"cupy", "number", "struct", "none"}:
            continue
        if not all(_fits(fragment, value) for fragment, value in zip(shape.fragments, made.passed, strict=True)):
            continue
        if settled.any_arrays:
            return shape, settled
        # With several streams only arrays that the dispatcher knows by identity need no ordering.
        remembered = [reference() for reference in settled.arrays[::2]]
        if made.outs is not None and all(
            any(value is other for other in remembered)
            for value, family in zip(made.passed, shape.families, strict=True)
            if family == "cupy"
        ):
            return shape, settled
    return None


def _fits(fragment: Any, value: Any) -> bool:
    names = {f"k_{key}": constant for key, constant in fragment.constants.items()}
    try:
        return bool(eval(fragment.guard.format(a="a", k="k_"), {**names, "a": value}))
    except (AttributeError, TypeError):
        return False
