"""Calls that were made, as those are told of them who may freeze them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cudakit.arrays.log import Launched, Step
from cudakit.arrays.place import Place


class Made(NamedTuple):
    """A call that was made: what it did, and with which of the caller's arguments.

    Attributes
    ----------
    key : object
        Tells calls of one kind from others.
    stream : object
        CuPy's current one, which all was done on.
    steps : tuple of Step
        What it did, in this order. All arrays in it lie in the memory of one of those below.
    arrays : tuple of (str, array)
        The caller's arrays, each with the generated function's expression for it.
    outs : tuple of str
        Which of these are written.
    new, kept : tuple of array
        Arrays made for the call, and those that are kept from call to call.
    result : array or tuple of array
        What it gave back.
    same : tuple of (str, object)
        The caller's other arguments, and the values that they must have.
    checks : tuple of str
        What else must be true of the caller's arguments.
    aligned : tuple of (arrays, int)
        Arrays whose addresses' greatest common power of two (16 at most) must be that.
    """

    key: Any
    stream: Any
    steps: tuple[Step, ...]
    arrays: tuple[tuple[str, Any], ...]
    outs: tuple[str, ...]
    new: tuple[Any, ...]
    kept: tuple[Any, ...]
    result: Any
    same: tuple[tuple[str, Any], ...] = ()
    checks: tuple[str, ...] = ()
    aligned: tuple[tuple[tuple[Any, ...], int], ...] = ()

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where all these arrays lie: the caller's, the new ones, those that are kept."""
        return tuple([array.data.ptr for array in (*(each for _, each in self.arrays), *self.new, *self.kept)])


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
        arrays = tuple([(names.get(source, source), array) for source, array in made.arrays])
        steps = tuple([self._renamed(step, names) if isinstance(step, Launched) else step for step in made.steps])
        # `out` is the other's own.
        same = (*self.same, *((source, value) for source, value in made.same if source == "out"))
        self.calls.freeze(made._replace(key=self._key(made.key), arrays=arrays, steps=steps, same=same))

    @staticmethod
    def _renamed(step: Launched, names: dict[str, str]) -> Launched:
        return step._replace(sources=tuple([source and names.get(source, source) for source in step.sources]))


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
    """Tell `calls` of a call on CuPy's current stream that was one launch."""
    if place.xp is np or not place.current or (outs is not None and any(out is None for out in outs)):
        return
    array = place.xp.ndarray
    given = sources(len(args), outs, len(results))
    arrays = [(source, x) for source, x in zip(given, (*args, *(outs or ())), strict=False) if isinstance(x, array)]
    marked = mark(key, [x for _, x in arrays])
    if not calls.is_due(marked):
        return
    numbers = tuple([None if isinstance(x, array) else source for source, x in zip(given, args, strict=False)])
    rest = (None,) * (len(launched.passed) - len(args))
    made = tuple(results) if outs is None else ()
    known = {id(x) for x in (*args, *(outs or ()), *made, *values)}
    passed = launched.passed
    kept = tuple([x for x in passed[len(args) + len(results) :] if isinstance(x, array) and id(x) not in known])
    step = launched._replace(sources=(*numbers, *rest))
    given_outs = given[len(args) :] if outs is not None else ()
    result = (tuple(results) if len(results) > 1 else results[0]) if outs is None else outs
    checks: tuple[str, ...] = ()
    if outs is None:
        same = (*same, ("out", None))
    elif len(outs) == 1:
        result = outs[0]
    else:
        checks = ("out.__class__ is tuple", f"len(out) == {len(outs)}")
    calls.freeze(Made(marked, place.stream, (step,), tuple(arrays), given_outs, made, kept, result, same, checks))


def sources(inputs: int, outs: Sequence[Any] | None, outputs: int) -> tuple[str, ...]:
    """The expressions by which the generated function has its arguments: inputs, then outputs."""
    named = tuple(f"a{k}" for k in range(inputs))
    if outs is None:
        return named
    return (*named, *(["out"] if outputs == 1 else [f"out[{k}]" for k in range(outputs)]))


def mark(key: Any, arrays: Sequence[Any]) -> Any:
    """What tells a call from others: its kind, and which of its arrays are one."""
    found = [*map(id, arrays)]
    return key if len(set(found)) == len(found) else (key, *map(found.index, found))
