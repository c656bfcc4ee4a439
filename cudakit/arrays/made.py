"""Calls that were made, as those are told of them who may freeze them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cudakit.arrays.log import Step


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


def mark(key: Any, arrays: Sequence[Any]) -> Any:
    """What tells a call from others: its kind, and which of its arrays are one."""
    found = [*map(id, arrays)]
    return key if len(set(found)) == len(found) else (key, *map(found.index, found))
