"""Calls of a kind that was made before, on contiguous arrays of CuPy's: found by few looks at their arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from cudakit.generate.folding import Given
from cudakit.ops.place import Place

_MOST_KINDS = 4096


class _Job(Protocol):
    """What a call of one kind does."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtypes(self) -> tuple[np.dtype, ...]: ...


_J = TypeVar("_J", bound=_Job)


class Found(NamedTuple, Generic[_J]):
    """A call that was found: its job, where it runs, and the arrays of its outputs."""

    job: _J
    place: Place
    results: list[Any]


class Again(Generic[_J]):
    """Kinds of calls, by what else decides them and their inputs' dtypes and shapes.

    Parameters
    ----------
    in_place : bool
        Whether an output may be an input itself.
    """

    def __init__(self, in_place: bool = False) -> None:
        self._in_place = in_place
        self._kinds: dict[Any, _J] = {}

    def find(self, args: tuple[Any, ...], options: tuple[Any, ...], out: Any) -> Found[_J] | None:
        """The call, if it is of a kind that is known; outputs are new, or `out` where that is as a new one would be."""
        module = sys.modules["cupy"]
        kind = module.ndarray
        key = [*options]
        for x in args:
            if x.__class__ is not kind or not x._c_contiguous:
                return None
            key += (x.dtype, x.shape)
        if not args:
            return None
        device = args[0].data.device_id
        try:
            job = self._kinds.get((*key, device))
        except TypeError:  # of several axes in a list
            return None
        if job is None:
            return None
        place = Place(module, module.cuda.get_current_stream(), True, device)
        if out is None:
            return Found(job, place, [kind(job.shape, dtype) for dtype in job.dtypes])
        results = [out] if out.__class__ is kind else [*out] if out.__class__ is tuple else []
        if len(results) != len(job.dtypes):
            return None
        for result, dtype in zip(results, job.dtypes, strict=True):
            if result.__class__ is not kind or result.dtype != dtype or result.shape != job.shape:
                return None
            if not result._c_contiguous or self._overlaps(result, args):
                return None
        return Found(job, place, results)

    def _overlaps(self, result: Any, args: Sequence[Any]) -> bool:
        """Whether an output lies where an input does, without being it where it may be."""
        start = result.data.ptr
        end = start + result.nbytes
        for x in args:
            first = x.data.ptr
            if first < end and start < first + x.nbytes and not (self._in_place and x is result):
                return True
        return False

    def remember(self, job: _J, given: Given, options: tuple[Any, ...], outs: Sequence[np.dtype | None] | None) -> None:
        """Take note of a call that was made, with outputs of these dtypes (None: new ones)."""
        place = given.place
        if place.xp is np or not place.current or (outs is not None and tuple(outs) != job.dtypes):
            return
        key = [*options]
        for x in given.values:
            if not isinstance(x, place.xp.ndarray) or not x.flags.c_contiguous:
                return
            key += (x.dtype, x.shape)
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[(*key, place.device)] = job
