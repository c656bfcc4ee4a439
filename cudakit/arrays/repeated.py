"""Ops whose calls, made again with the same kinds of arguments, take the frozen short way."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from cudakit.arrays.frozen import Frozen
from cudakit.arrays.log import Log, current_log, logging
from cudakit.arrays.made import Made, mark

_Op = TypeVar("_Op", bound=Callable[..., Any])
#: After so many calls of which nothing came, only one in `_SELDOM` is looked at: it may be that none is like another.
_LOOKS, _SELDOM = 128, 8
#: Types of which two equal values are the same to an op.
_PLAIN = {type(None), bool, int, float, str, type}


def repeated(*outs: str) -> Callable[[_Op], _Op]:
    """Let an op be frozen; `outs` are its parameters that are written.

    The op does everything in the `Place` that `place_of` gives it: launches, memory, copies; where it looks at an
    address, it asks `Place.alignment`. All else must follow from dtypes, shapes, strides and the arguments that are no
    arrays. It may call other such ops, on its own stream.
    """

    def decorate(op: _Op) -> _Op:
        repeats = _Repeats(op, outs)
        signature = inspect.signature(op)
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
        repeats.frozen = Frozen.like(head, ", ".join(passed), {"ordinary": repeats.ordinary, **defaults})
        return cast(_Op, functools.update_wrapper(repeats.frozen.function, op))

    return decorate


class _Repeats:
    """The calls of an op that are not frozen."""

    frozen: Frozen

    def __init__(self, op: Callable[..., Any], outs: tuple[str, ...]) -> None:
        self._op, self._outs = op, outs
        self._calls = 0
        self._names = tuple(name for name in inspect.signature(op).parameters if name != "stream")

    def ordinary(self, *given: Any, stream: Any, **named: Any) -> Any:
        """A call in full; one that has come often enough is told to `Frozen`."""
        cupy = sys.modules.get("cupy") if stream is None else None
        self._calls += 1
        if cupy is None or (self._calls > _LOOKS and self._calls % _SELDOM):
            return self._op(*given, stream=stream, **named)
        arguments = (*given, *named.values())
        arrays: list[Any] = []
        key = _kind(arguments, cupy.ndarray, arrays)
        if key is None or not arrays or current_log() is not None:
            return self._op(*given, stream=None, **named)
        marked = mark(key, arrays)
        if not self.frozen.is_due(marked):
            return self._op(*given, stream=None, **named)
        with logging() as log:
            # On a stream that is named, ops that it calls do not take their own short way, of which no log would tell.
            result = self._op(*given, stream=cupy.cuda.get_current_stream(), **named)
        self._calls = 0
        if log.is_whole:
            self._tell(log, marked, dict(zip(self._names, arguments, strict=True)), result)
        else:
            self.frozen.put_off(marked)
        return result

    def _tell(self, log: Log, key: Any, arguments: dict[str, Any], result: Any) -> None:
        cupy = sys.modules["cupy"]
        arrays, same, checks = [], [], []
        for name, value in arguments.items():
            if type(value) is cupy.ndarray:
                arrays.append((name, value))
            elif type(value) in (list, tuple) and any(type(each) is cupy.ndarray for each in value):
                checks += [f"{name}.__class__ is {type(value).__name__}", f"len({name}) == {len(value)}"]
                arrays += [(f"{name}[{k}]", each) for k, each in enumerate(value)]
            else:
                same.append((name, value))
        if any(type(array) is not cupy.ndarray for _, array in arrays):
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
                self._outs,
                tuple(log.new),
                tuple(kept.values()),
                result,
                tuple(same),
                tuple(checks),
                tuple(log.aligned),
            )
        )


def _kind(values: Any, array: type, arrays: list[Any]) -> Any:
    """What tells calls with such values from others; None where there may be more to see. Arrays go to `arrays`."""
    found: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is array:
            arrays.append(value)
            # How it is aligned may decide what is launched.
            found.append((value.dtype, value.shape, value.strides, value.data.ptr & 15))
        elif kind in _PLAIN or isinstance(value, np.dtype):
            found.append((kind, value))
        elif kind is tuple or kind is list:
            inner = _kind(value, array, arrays)
            if inner is None:
                return None
            found.append((kind, inner))
        else:
            return None
    return tuple(found)
