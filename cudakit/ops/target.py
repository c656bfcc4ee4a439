"""Where an op's result goes: straight to `out`, or to new memory first, and from there to `out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.job import Job
from cudakit.arrays.place import ArrayPlace, given_output, overlaps
from cudakit.errors import ArgumentError, shortened
from cudakit.ops.cast_plan import cast_job
from cudakit.ops.move_plan import copy_job

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


class Target(NamedTuple):
    """What the op writes, and what the caller gets: the same, or it is brought there by `delivered`."""

    written: Any
    result: Any


def target(
    op: str,
    place: ArrayPlace,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    *inputs: Any,
    in_place: bool = False,
    casting: Casting = "same_kind",
    most: int | None = None,
) -> Target:
    """Where a result of `shape` and `dtype` goes.

    Parameters
    ----------
    inputs : arrays
        What is read: where `out` overlaps them, the result is made elsewhere and copied there.
    in_place : bool
        Whether `out` may be one of the inputs itself (the same elements in the same order).
    casting : str
        What an `out` of another dtype must be to take the result, as `numpy.can_cast` has it.
    most : int, optional
        The greatest number that the result may have, of indices, which `out` must hold.

    Raises
    ------
    ArgumentError
        For an `out` of another shape or place or of a dtype of another kind, a read-only one, and one whose elements
        lie on each other.
    """
    if out is None:
        made = place.empty(shape, dtype)
        return Target(made, made)
    given = given_output(op, place, out, shape)
    if given.dtype == dtype:
        return Target(place.empty(shape, dtype) if overlaps(given, *inputs, in_place=in_place) else given, given)
    check_casting(op, dtype, given.dtype, casting)
    if most is not None:
        check_holds(op, "out", given.dtype, most)
    return Target(place.empty(shape, dtype), given)


def check_holds(op: str, what: str, dtype: np.dtype, most: int) -> None:
    """Raise where an integer dtype does not hold all numbers from 0 to `most`.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind in "iu" and most > np.iinfo(dtype).max:
        raise ArgumentError(f"{op}: {what} is {dtype}, which does not hold indices up to {most:,}; give a wider one")


def check_casting(op: str, dtype: np.dtype, given: np.dtype, casting: Casting = "same_kind") -> None:
    """Raise where a result of `dtype` cannot be cast to an `out` of dtype `given`.

    Raises
    ------
    ArgumentError
    """
    if not np.can_cast(dtype, given, casting):
        raise ArgumentError(
            f"{op}: out has dtype {given}, the result has {dtype}, which casting={shortened(casting)} does not take "
            "to it; "
            f"give out of {dtype}, or cast the result"
        )


def delivered(place: ArrayPlace, target: Target) -> Any:
    """The result, which was written, where the caller wants it."""
    written, result = target
    if written is not result:
        layout = written.shape, written.strides
        to = None if result.flags.c_contiguous else result.strides
        if written.dtype == result.dtype:
            job = copy_job("copy", written.dtype, *layout, None, to)
        else:
            job = cast_job(written.dtype, result.dtype, False, *layout, to)
        job.run(place, written, result)
    return result


def moved(
    op: str,
    place: ArrayPlace,
    x: Any,
    out: Any,
    job_of: Callable[[tuple[int, ...] | None], Job],
    dtype: np.dtype | None = None,
) -> Any:
    """Launch `job_of(strides of out)` on a checked `out`, or a new array; ``job_of(None)`` is for a C-contiguous one.

    `dtype` is the result's, where it is not that of `x`.
    """
    job = job_of(None)
    if out is None:
        result = place.empty(job.shape, x.dtype if dtype is None else dtype)
        job.run(place, x, result)
        return result
    to = target(op, place, out, job.shape, x.dtype if dtype is None else dtype, x)
    if not to.written.flags.c_contiguous:
        job = job_of(to.written.strides)
    job.run(place, x, to.written)
    return delivered(place, to)
