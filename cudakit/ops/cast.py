"""Conversions between dtypes."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.elements import number_of
from cudakit.arrays.job import Job, views_or_none
from cudakit.arrays.layout import merged
from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.arrays.views import is_row_major, record, row_major, span, steps_of, view_of
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.move_plan import copy_job, moved

#: 16 bytes of the wider type at a time, so many a thread, and threads of a block: 4070 to 4300 GB/s on an H200.
_PACK, _ITEMS, _BLOCK, _STRIDED_BLOCK = 16, 2, 128, 256


@repeated("out")
def cast(x: Any, dtype: Any, saturate: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] as a number of `dtype`.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers, floating point (float16 and bfloat16 too) or complex.
    dtype : dtype
        Any of these too.
    saturate : bool
        To integers: a number out of range becomes the nearest in it, NaN becomes 0. Otherwise integers wrap around;
        floating point goes toward zero, and what is out of range is what the device's conversion makes of it: the low
        bits of the number clamped to 32 bits (to 64 for uint32 and wider; uint64 from 0 up to its own greatest), where
        NaN is 0 or the lowest. That is NumPy's result on x86-64 for numbers within 32 (64) bits, beyond which NumPy's
        is undefined. To other dtypes it does nothing.
    out : array, optional
        Of the shape of `x` and of `dtype`; any strides. It must not overlap `x`.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous; a copy, also where the dtype stays.

    Raises
    ------
    ArgumentError

    Notes
    -----
    To floating point: to the nearest, ties to even; too large a number is infinite. To bfloat16 by way of float32, as
    ml_dtypes has it. To bool: whether the number is not 0 (NaN is not). Complex to real drops the imaginary part; no
    warning is given.
    """
    place, (x,) = array_place("cast", stream, ("x", x))
    target = dtype if isinstance(dtype, np.dtype) else _dtype(dtype)
    source, shape, strides = x.dtype, x.shape, x.strides
    return moved(
        "cast", place, x, out, lambda to: _cast_job(source, target, bool(saturate), shape, strides, to), target
    )


def _dtype(given: Any) -> np.dtype:
    try:
        found: np.dtype = np.dtype(given)
    except TypeError as error:
        raise ArgumentError(f"cast: dtype {given!r}: {error}") from None
    return found


@functools.lru_cache(4096)
def _cast_job(
    source: np.dtype,
    target: np.dtype,
    saturate: bool,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    out_strides: tuple[int, ...] | None,
) -> Job:
    types = number_of("cast", source), number_of("cast", target)
    if not (source.isnative and target.isnative):
        raise ArgumentError(f"cast: {source.str} to {target.str}: bytes in the other order are not converted")
    if source == target:
        return copy_job("cast", source, shape, strides, None, out_strides)
    if 0 in shape:
        return Job(shape)
    x = steps_of("cast", source, strides)
    to = row_major(shape) if out_strides is None else steps_of("cast", target, out_strides)
    widest = max(source.itemsize, target.itemsize)
    arguments = (*types, "true" if saturate and target.kind in "iu" else "false")
    if is_row_major(shape, x) and is_row_major(shape, to):
        size = prod(shape)
        kernel = Kernel.from_template("cast/contiguous")[(*arguments, _ITEMS, _BLOCK)]
        launch = config(-(-size * widest // (_PACK * _ITEMS * _BLOCK)), _BLOCK)
        return Job(shape, (), kernel, launch, numbers=(size,))
    (below, _), (out_below, _) = span(shape, x), span(shape, to)
    extents, x_steps, out_steps = merged(shape, x, to)
    if not extents:
        extents, x_steps, out_steps = (1,), (1,), (1,)
    size = prod(extents)
    layout = record(shape=extents, x=x_steps, out=out_steps)
    kernel = Kernel.from_template("cast/strided")[
        (*arguments, len(extents), "int" if size < 2**31 - _PACK else "long long")
    ]
    launch = config(-(-size * widest // (_PACK * _STRIDED_BLOCK)), _STRIDED_BLOCK)
    views = views_or_none((view_of(shape, x), view_of(shape, to)))
    return Job(shape, (), kernel, launch, numbers=(below, out_below, size, layout), views=views)
