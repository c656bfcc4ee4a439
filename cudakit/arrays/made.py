"""Calls that were made, as those are told of them who may freeze them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cudakit.arrays.place import Place
from cudakit.jit.load.config import Config
from cudakit.kernel.kernel import Kernel
from cudakit.streams.order.order import order


class Made(NamedTuple):
    """A call that was made: what it launched, and with which of the caller's arguments.

    Attributes
    ----------
    key : object
        Tells calls of one kind from others.
    kernel, stream, config : object
        As they were launched.
    passed : tuple
        Arguments of the kernel.
    given : tuple of str or None
        For each of them what it was made from: the caller's argument (an expression of the generated function),
        ``"new"`` for a new array, None for what is the same each time.
    owners : tuple
        The caller's arguments themselves, and new arrays.
    outs : tuple
        The arrays given for outputs, or None.
    same : tuple of (str, object)
        Other arguments of the caller's, and the objects that they must be.
    """

    key: Any
    kernel: Kernel
    stream: Any
    config: Any
    passed: tuple[Any, ...]
    given: tuple[str | None, ...]
    owners: tuple[Any, ...]
    outs: tuple[Any, ...] | None
    same: tuple[tuple[str, Any], ...] = ()


class Calls(Protocol):
    """Who is told of calls that may be frozen."""

    def is_due(self, key: Any) -> bool: ...
    def freeze(self, made: Made) -> None: ...


class Renamed(NamedTuple):
    """Is told of the calls of one function, which another makes for its own, and tells of them as the other's.

    Attributes
    ----------
    calls : Calls
        Who is told of them.
    given : int
        Arguments of the other's call.
    places : tuple of int
        Those among them that the one's inputs are.
    same : tuple of (str, object)
        Those that are constants, as in `Made`.
    """

    calls: Calls
    given: int
    places: tuple[int, ...]
    same: tuple[tuple[str, Any], ...]

    def _key(self, key: Any) -> Any:
        return key, self.given, self.places, tuple([id(value) for _, value in self.same])

    def is_due(self, key: Any) -> bool:
        return self.calls.is_due(self._key(key))

    def freeze(self, made: Made) -> None:
        names = {f"a{k}": f"a{place}" for k, place in enumerate(self.places)}
        given = tuple([source and names.get(source, source) for source in made.given])
        self.calls.freeze(made._replace(key=self._key(made.key), given=given, same=self.same))


class Launched(NamedTuple):
    """A launch that was all of a call."""

    kernel: Kernel
    config: Config | None
    passed: tuple[Any, ...]


def tell(
    calls: Calls,
    key: Any,
    launched: Launched,
    args: tuple[Any, ...],
    place: Place,
    values: Sequence[Any],
    outs: tuple[Any, ...] | None,
    results: Sequence[Any],
    same: tuple[tuple[str, Any], ...],
) -> None:
    """Tell `calls` of a call on CuPy's current stream, if it may be frozen: each array was passed on as it lies."""
    if place.xp is np or not place.current or (outs is not None and any(out is None for out in outs)):
        return
    array = place.xp.ndarray
    arrays = [x for x in (*args, *(outs or ())) if isinstance(x, array)]
    marked = mark(key, arrays, outs)
    if not calls.is_due(marked):
        return
    for x, value in zip((*args, *(outs or ())), (*values[: len(args)], *(results if outs else ())), strict=True):
        if x is not value and not (isinstance(x, array) and x.data.ptr == value.data.ptr):
            return
    rest = (None,) * (len(launched.passed) - len(args) - len(results))
    from_caller = (*sources(len(args), outs, len(results)), *rest)
    owners = (*args, *(outs or results), *rest)
    kernel, config, passed = launched
    calls.freeze(Made(marked, kernel, place.stream, config, passed, from_caller, owners, outs, same))


def sources(inputs: int, outs: Sequence[Any] | None, outputs: int) -> tuple[str, ...]:
    """The expressions by which the generated function has its arguments: inputs, then outputs."""
    named = tuple(f"a{k}" for k in range(inputs))
    if outs is None:
        return (*named, *["new"] * outputs)
    return (*named, *(["out"] if outputs == 1 else [f"out[{k}]" for k in range(outputs)]))


def mark(key: Any, arrays: Sequence[Any], outs: Sequence[Any] | None) -> Any:
    """What tells a call from others: its kind and, with several streams, where outputs are given, the arrays too."""
    return key if outs is None or order().single else (key, *map(id, arrays))
