"""Replay of repeated calls of ops, and of functions of arrays, through generated code."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from cudakit.arrays.log import Log, RecordedCall, call_key, current_log, logging
from cudakit.arrays.replay import CallReplay, Function
from cudakit.jit.launch.dispatch import MISSING
from cudakit.streams import devices
from cudakit.types.shown_signature import ShownSignature, keywords

_Op = TypeVar("_Op", bound=Callable[..., Any])
#: After this many calls without a replay, only one in `_SELDOM` is examined: perhaps no two are alike.
_LOOKS, _SELDOM = 128, 8
#: Types whose equal values are the same to an op.
_PLAIN = {type(None), bool, int, float, str, type}
#: Types of numbers.
_NUMBERS = {type(None), bool, int, float, complex}


def repeated(*outs: str) -> Callable[[_Op], _Op]:
    """Replay repeated calls of an op; `outs` are the parameters that are written.

    The op does everything in the `ArrayPlace` that `array_place` returns: launches, memory, copies. If it looks at an
    address, it asks `ArrayPlace.alignment`. All else must follow from dtypes, shapes, strides and the arguments that
    are no arrays. It may call other such ops, on its own stream. A launch may get values of a method's ``self`` if its
    `sources` name them.
    """

    def decorate(op: _Op) -> _Op:
        signature = inspect.signature(op)
        names = [name for name in signature.parameters if name != "stream"]

        def ordinary(*args: Any, stream: Any, **keywords: Any) -> Any:
            def run(stream: Any) -> Any:
                return op(*args, stream=stream, **keywords)

            arguments = dict(zip(names, (*args, *keywords.values()), strict=True))
            arguments.pop("self", None)
            return recorder.call(arguments, stream, run)

        defaults = {
            f"default_{name}": parameter.default
            for name, parameter in signature.parameters.items()
            if parameter.default is not parameter.empty
        }
        parameters, passed_arguments = [], []
        for name, parameter in signature.parameters.items():
            is_keyword = parameter.kind is parameter.KEYWORD_ONLY
            if is_keyword and "*" not in parameters:
                parameters.append("*")
            parameters.append(f"{name}=default_{name}" if f"default_{name}" in defaults else name)
            passed_arguments.append(f"{name}={name}" if is_keyword else name)
        head = f"{op.__name__}({', '.join(parameters)})"
        recorder = CallRecorder(
            CallReplay.like(head, ", ".join(passed_arguments), {"ordinary": ordinary, **defaults}), outs
        )
        return cast(_Op, functools.update_wrapper(recorder.replay.function, op))

    return decorate


class CallRecorder:
    """The ordinary calls of a function, which are recorded once they repeat.

    Parameters
    ----------
    replay : CallReplay
        Generated function that replays recorded calls.
    outs : tuple of str
        Parameters that are written.
    """

    replay: CallReplay

    def __init__(self, replay: CallReplay, outs: tuple[str, ...] = ("out",)) -> None:
        self.replay, self._outs = replay, outs
        self._calls = 0

    def call(
        self, arguments: Mapping[str, Any], stream: Any, run: Callable[[Any], Any], numbers: Sequence[str] = ()
    ) -> Any:
        """Make a call in full, ``run(stream)``, and return its result. Never replays a recorded call.

        If calls with these arguments repeat, one of them is logged, and later calls may be replayed.

        Parameters
        ----------
        arguments : mapping
            Arguments of the call, by their names in the generated function.
        stream : stream or None
            Stream of the call; None: CuPy's current stream.
        run : callable
            Function that makes the call on a stream.
        numbers : sequence of str
            Names of arguments that are passed first to all kernels. Numbers among them may differ in each call.
        """
        cupy = sys.modules.get("cupy") if stream is None else None
        self._calls += 1
        if cupy is None or (self._calls > _LOOKS and self._calls % _SELDOM) or current_log() is not None:
            return run(stream)
        arrays: list[Any] = []
        varying = [arguments[name] for name in numbers]
        rest = [value for name, value in arguments.items() if name not in numbers]
        try:
            key = _key_of(varying, cupy.ndarray, arrays, True), _key_of(rest, cupy.ndarray, arrays)
        except RecursionError:  # lists in lists, which no op takes
            return run(stream)
        if None in key or not (arrays or devices.has_gpu()):
            return run(stream)
        marked = call_key(key, arrays)
        if not self.replay.should_record(marked):
            return run(stream)
        with logging() as log:
            # With an explicit stream, ops that it calls do not use their own replays, which no log would record.
            result = run(cupy.cuda.get_current_stream())
        self._calls = 0
        if log.is_whole:
            log.name_numbers(numbers)
            self._record(log, marked, arguments, result, numbers)
        else:
            self.replay.postpone(marked)
        return result

    def _record(self, log: Log, key: Any, arguments: Mapping[str, Any], result: Any, numbers: Sequence[str]) -> None:
        cupy = sys.modules["cupy"]
        arrays, same, checks = [], [], []
        for name, value in arguments.items():
            if type(value) is cupy.ndarray:
                arrays.append((name, value))
            elif type(value) in (list, tuple) and any(type(item) is cupy.ndarray for item in value):
                checks += [f"{name}.__class__ is {type(value).__name__}", f"len({name}) == {len(value)}"]
                arrays += [(f"{name}[{k}]", item) for k, item in enumerate(value)]
            elif name not in numbers:
                same.append((name, value))
        if any(type(array) is not cupy.ndarray for _, array in arrays):
            self.replay.postpone(key)
            return
        argument_ids = {id(array) for _, array in arrays}
        workspaces = {id(array): array for array in log.persistent if id(array) not in argument_ids}
        stream = cupy.cuda.get_current_stream()
        self.replay.record(
            RecordedCall(
                key,
                stream,
                tuple(log.steps),
                tuple(arrays),
                tuple([name for name, _ in arrays if name.partition("[")[0] in self._outs]),
                tuple(log.new),
                tuple(workspaces.values()),
                result,
                tuple(same),
                tuple(checks),
                tuple(log.aligned),
                tuple(log.maps),
            )
        )


def _key_of(values: Any, array: type, arrays: list[Any], varying: bool = False) -> Any:
    """Return a hashable key of argument values, or None if a value is of a type that cannot be compared safely.

    Parameters
    ----------
    values : iterable
        Argument values. Tuples and lists are entered.
    array : type
        Class of arrays. The key of an array is its dtype, shape, strides and alignment.
    arrays : list
        List to which the arrays among the values are appended.
    varying : bool
        Whether numbers of one type share a key. Then other values than arrays and numbers give None.
    """
    keys: list[Any] = []
    for value in values:
        value_class = value.__class__
        if value_class is array:
            arrays.append(value)
            # The alignment may decide what is launched.
            keys.append((value.dtype, value.shape, value.strides, value.data.ptr & 15))
        elif varying:
            if value_class not in _NUMBERS and not isinstance(value, np.generic):
                return None
            keys.append((value_class, getattr(value, "dtype", None)))
        elif value_class in _PLAIN or value is MISSING or isinstance(value, np.dtype):
            keys.append((value_class, value))
        elif value_class is tuple or value_class is list:
            inner = _key_of(value, array, arrays)
            if inner is None:
                return None
            keys.append((value_class, inner))
        else:
            return None
    return tuple(keys)


class ArrayFunction(Function):
    """A function of arrays: ``f(*inputs, out=None, stream=None, **options)``, whose repeated calls are replayed.

    A derived class has `_ordinary`, which makes a call in full, and `_job`, which plans calls with arguments of new
    dtypes or layouts.

    Parameters
    ----------
    name : str
        Name of the function.
    takes : sequence of str
        Names of its input arrays.
    outputs : sequence of str
        Names of output arrays that may follow the inputs.
    **own : object
        Further attributes.
    """

    #: Keywords beside `out` and `stream`, with their defaults.
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
            arguments = {**dict(zip(inputs, args, strict=True)), "out": out}
            return recorder.call(arguments | dict(zip(cls._OPTIONS, options, strict=True)), stream, run, inputs)

        count = len(takes)
        inputs = tuple([f"a{k}" for k in range(count)])
        recorder = CallRecorder(CallReplay(count, ordinary, cls._OPTIONS))
        self = super().__new__(cls, recorder.replay.function)
        self.__dict__.update(_jobs={}, __name__=name, _takes=tuple(takes), _outputs=tuple(outputs), **own)
        return self

    def _shown_parameters(self) -> Iterable[Parameter]:
        for name in self._takes:
            yield Parameter(name, Parameter.POSITIONAL_ONLY)
        for name in self._outputs:
            yield Parameter(name, Parameter.POSITIONAL_ONLY, default=None)
        yield from keywords({"out": None, "stream": None, **self._OPTIONS})

    def _ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
        """Make a call in full, all in its `ArrayPlace`; the inputs are the kernels' first arguments."""
        raise NotImplementedError

    def _job(self, *of: Any) -> Any:
        """Plan the calls whose arguments have the types, dtypes and layouts in `of`."""
        raise NotImplementedError

    def _job_of(self, key: Any, *of: Any) -> Any:
        """Return the job of calls with the same `key`, planned from `of` if the key is new."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= self._MOST_JOBS:
                self._jobs.clear()
            job = self._jobs[key] = self._job(*of)
        return job
