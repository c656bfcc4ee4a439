"""How an op's result is brought to `out`, and ops that launch one job from an array to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.arrays.output import Target, target
from cudakit.arrays.place import ArrayPlace
from cudakit.arrays.plans import Job
from cudakit.ops.cast_plan import cast_job
from cudakit.ops.move_plan import copy_job


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
