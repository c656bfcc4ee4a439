"""Replay repeated calls of ops and of functions of arrays through generated code."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.log import Log, Made, current_log, logging, mark
from cudakit.jit.launch.dispatch import MISSING
from cudakit.streams import devices
from cudakit.types.shown import ShownSignature, keywords

_Op = TypeVar("_Op", bound=Callable[..., Any])
#: After so many calls of which nothing came, only one in `_SELDOM` is looked at: it may be that none is like another.
_LOOKS, _SELDOM = 128, 8
#: Types of which two equal values are the same to an op.
_PLAIN = {type(None), bool, int, float, str, type}
#: Types of numbers.
_NUMBERS = {type(None), bool, int, float, complex}


def repeated(*outs: str) -> Callable[[_Op], _Op]:
    """Let an op be frozen; `outs` are its parameters that are written.

    The op does everything in the `ArrayPlace` that `array_place` gives it: launches, memory, copies; where it looks
    at an address, it asks `ArrayPlace.alignment`. All else must follow from dtypes, shapes, strides and the arguments
    that are no arrays. It may call other such ops, on its own stream. Of a method's ``self`` a launch may be given what
    its `sources` name.
    """

    def decorate(op: _Op) -> _Op:
        signature = inspect.signature(op)
        names = [name for name in signature.parameters if name != "stream"]

        def ordinary(*given: Any, stream: Any, **named: Any) -> Any:
            def run(stream: Any) -> Any:
                return op(*given, stream=stream, **named)

            arguments = dict(zip(names, (*given, *named.values()), strict=True))
            arguments.pop("self", None)
            return repeats.call(arguments, stream, run)

        defaults = {
            f"default_{name}": parameter.default
            for name, parameter in signature.parameters.items()
            if parameter.default is not parameter.empty
        }
        parameters, passed = [], []
        for name, parameter in signature.parameters.items():
            named = parameter.kind is parameter.KEYWORD_ONLY
            if named and "*" not in parameters:
                parameters.append("*")
            parameters.append(f"{name}=default_{name}" if f"default_{name}" in defaults else name)
            passed.append(f"{name}={name}" if named else name)
        head = f"{op.__name__}({', '.join(parameters)})"
        repeats = Repeats(Frozen.like(head, ", ".join(passed), {"ordinary": ordinary, **defaults}), outs)
        return cast(_Op, functools.update_wrapper(repeats.frozen.function, op))

    return decorate


class Repeats:
    """The calls of a function that are not frozen.

    Parameters
    ----------
    frozen : Frozen
        Is told of calls that have come often enough.
    outs : tuple of str
        Parameters that are written.
    """

    frozen: Frozen

    def __init__(self, frozen: Frozen, outs: tuple[str, ...] = ("out",)) -> None:
        self.frozen, self._outs = frozen, outs
        self._calls = 0

    def call(
        self, arguments: Mapping[str, Any], stream: Any, run: Callable[[Any], Any], numbers: Sequence[str] = ()
    ) -> Any:
        """``run(stream)``, a call in full.

        Parameters
        ----------
        arguments : mapping
            Those of the call, by their names in the generated function.
        numbers : sequence of str
            Those that are passed to all its kernels first, where they are no arrays: they may be others each time.
        """
        cupy = sys.modules.get("cupy") if stream is None else None
        self._calls += 1
        if cupy is None or (self._calls > _LOOKS and self._calls % _SELDOM) or current_log() is not None:
            return run(stream)
        arrays: list[Any] = []
        varying = [arguments[name] for name in numbers]
        rest = [value for name, value in arguments.items() if name not in numbers]
        try:
            key = _kind(varying, cupy.ndarray, arrays, True), _kind(rest, cupy.ndarray, arrays)
        except RecursionError:  # lists in lists, which no op takes
            return run(stream)
        if None in key or not (arrays or devices.has_gpu()):
            return run(stream)
        marked = mark(key, arrays)
        if not self.frozen.is_due(marked):
            return run(stream)
        with logging() as log:
            # On a stream that is named, ops that it calls do not take their own short way, of which no log would tell.
            result = run(cupy.cuda.get_current_stream())
        self._calls = 0
        if log.is_whole:
            log.name_numbers(numbers)
            self._tell(log, marked, arguments, result, numbers)
        else:
            self.frozen.put_off(marked)
        return result

    def _tell(self, log: Log, key: Any, arguments: Mapping[str, Any], result: Any, numbers: Sequence[str]) -> None:
        cupy = sys.modules["cupy"]
        arrays, same, checks = [], [], []
        for name, value in arguments.items():
            if type(value) is cupy.ndarray:
                arrays.append((name, value))
            elif type(value) in (list, tuple) and any(type(each) is cupy.ndarray for each in value):
                checks += [f"{name}.__class__ is {type(value).__name__}", f"len({name}) == {len(value)}"]
                arrays += [(f"{name}[{k}]", each) for k, each in enumerate(value)]
            elif name not in numbers:
                same.append((name, value))
        if any(type(array) is not cupy.ndarray for _, array in arrays):
            self.frozen.put_off(key)
            return
        known = {id(array) for _, array in arrays}
        kept = {id(array): array for array in log.kept if id(array) not in known}
        stream = cupy.cuda.get_current_stream()
        self.frozen.freeze(
            Made(
                key,
                stream,
                tuple(log.steps),
                tuple(arrays),
                tuple([name for name, _ in arrays if name.partition("[")[0] in self._outs]),
                tuple(log.new),
                tuple(kept.values()),
                result,
                tuple(same),
                tuple(checks),
                tuple(log.aligned),
            )
        )


def _kind(values: Any, array: type, arrays: list[Any], varying: bool = False) -> Any:
    """What tells calls with such values from others; None where there may be more to see. Arrays go to `arrays`.

    `varying`: numbers are alike that are of one type.
    """
    found: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is array:
            arrays.append(value)
            # How it is aligned may decide what is launched.
            found.append((value.dtype, value.shape, value.strides, value.data.ptr & 15))
        elif varying:
            if kind not in _NUMBERS and not isinstance(value, np.generic):
                return None
            found.append((kind, getattr(value, "dtype", None)))
        elif kind in _PLAIN or value is MISSING or isinstance(value, np.dtype):
            found.append((kind, value))
        elif kind is tuple or kind is list:
            inner = _kind(value, array, arrays)
            if inner is None:
                return None
            found.append((kind, inner))
        else:
            return None
    return tuple(found)


class ArrayFunction(Function):
    """A function of arrays: ``f(*inputs, out=None, stream=None, **options)``, whose calls are frozen.

    Who derives from it has an `_ordinary` way for calls that are not, and a `_job` that plans what calls of a new kind
    do.

    Parameters
    ----------
    name : str
    takes : sequence of str
        Names of the arrays that it takes.
    outputs : sequence of str
        Names of those that may be given after them.
    **own : object
        Attributes.
    """

    #: Its keywords beside `out` and `stream`, with their defaults.
    _OPTIONS: ClassVar[Mapping[str, Any]]

    __signature__: ShownSignature = ShownSignature(lambda self: self._shown_parameters())
    __name__: str
    _jobs: dict[Any, Any]
    _takes: tuple[str, ...]
    _outputs: tuple[str, ...]
    _MOST_JOBS: ClassVar[int] = 4096

    def __new__(cls, name: str, takes: Sequence[str], outputs: Sequence[str] = (), **own: Any) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
            if args and args[-1] is MISSING:
                args = tuple([value for value in args if value is not MISSING])

            def run(stream: Any) -> Any:
                return self._ordinary(args, out, stream, *options)

            if len(args) != count:
                return run(stream)
            named = {**dict(zip(inputs, args, strict=True)), "out": out}
            return repeats.call(named | dict(zip(cls._OPTIONS, options, strict=True)), stream, run, inputs)

        count = len(takes)
        inputs = tuple([f"a{k}" for k in range(count)])
        repeats = Repeats(Frozen(count, ordinary, cls._OPTIONS))
        self = super().__new__(cls, repeats.frozen.function)
        self.__dict__.update(_jobs={}, __name__=name, _takes=tuple(takes), _outputs=tuple(outputs), **own)
        return self

    def _shown_parameters(self) -> Iterable[Parameter]:
        for name in self._takes:
            yield Parameter(name, Parameter.POSITIONAL_ONLY)
        for name in self._outputs:
            yield Parameter(name, Parameter.POSITIONAL_ONLY, default=None)
        yield from keywords({"out": None, "stream": None, **self._OPTIONS})

    def _ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
        """What a call does that is not frozen, all in its `ArrayPlace`; inputs are the kernels' first arguments."""
        raise NotImplementedError

    def _job(self, *of: Any) -> Any:
        """What calls of one kind do."""
        raise NotImplementedError

    def _job_of(self, key: Any, *of: Any) -> Any:
        """The job of calls that are alike in `key`, made of `of` where that is new."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= self._MOST_JOBS:
                self._jobs.clear()
            job = self._jobs[key] = self._job(*of)
        return job
