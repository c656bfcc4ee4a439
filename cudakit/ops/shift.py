"""Moves along axes: flip, roll."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, axis_of, integers, steps_of
from cudakit.arrays.place import array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.ops.delivery import moved
from cudakit.ops.move_plan import Dimension, mapped_job
from cudakit.ops.transpose import copy


@repeated("out")
def flip(x: Any, axis: Axis = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, k, …] = x[…, n − 1 − k, …] along each of the axes.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    axis : int or sequence of int, optional
        Left out: all axes.
    out : array, optional
        Of the shape of `x`, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous. Unlike NumPy's, a copy and never a view.

    Raises
    ------
    ArgumentError
    """
    place, (x,) = array_place("flip", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    axes = integers("flip", "axis", axis)
    return moved("flip", place, x, out, lambda to: _flip_job(dtype, shape, strides, axes, to))


@functools.lru_cache(4096)
def _flip_job(
    dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], axis: Axis, out_strides: tuple[int, ...] | None
) -> Job:
    axes = axes_of("flip", axis, len(shape))
    steps = steps_of("flip", dtype, strides)
    start = sum((shape[d] - 1) * steps[d] for d in axes if shape[d])
    dimensions = [
        Dimension(n, n, -step if d in axes else step) for d, (n, step) in enumerate(zip(shape, steps, strict=True))
    ]
    return mapped_job("flip", "identity", dtype, shape, steps, dimensions, out_strides, start=start)


@repeated("out")
def roll(x: Any, shift: int | Sequence[int], axis: Axis = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, (k + shift) mod n, …] = x[…, k, …] along each of the axes.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    shift : int or sequence of int
        Places, negative to the front; one for all axes, or one for each.
    axis : int or sequence of int, optional
        An axis named twice is moved twice, as NumPy has it. Left out: `x` is rolled as if it had one dimension.
    out : array, optional
        Of the shape of `x`, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous.

    Raises
    ------
    ArgumentError
        Also for numbers of shifts and axes that do not fit.
    """
    place, (x,) = array_place("roll", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    shifts, axes = integers("roll", "shift", shift), integers("roll", "axis", axis)
    if axes is None:
        # Neighbours in the order of one dimension: only C-contiguous memory has them side by side.
        if out is not None and not getattr(out, "flags", x.flags).c_contiguous:
            return copy(roll(x, shift, stream=place.stream), out=out, stream=place.stream)
        if not x.flags.c_contiguous:
            x = copy(x, stream=place.stream)
            strides = x.strides
    return moved("roll", place, x, out, lambda to: _roll_job(dtype, shape, strides, shifts, axes, to))


@functools.lru_cache(4096)
def _roll_job(
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    shift: Axis,
    axis: Axis,
    out_strides: tuple[int, ...] | None,
) -> Job:
    steps = steps_of("roll", dtype, strides)
    total = [0] * len(shape)
    if shift is None:
        raise ArgumentError("roll: shift is None; give a number of places, or one for each axis")
    if axis is None:
        return _roll_flat(dtype, shape, shift if isinstance(shift, int) else sum(shift), out_strides)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts {shifts} for {len(axes)} axes {axes}; give one, or as many")
    for each, places in zip(axes, shifts, strict=True):
        total[axis_of("roll", each, len(shape))] += places
    dimensions = [
        Dimension(n, n, step, places % n if n else 0) for n, step, places in zip(shape, steps, total, strict=True)
    ]
    return mapped_job("roll", "rolled", dtype, shape, steps, dimensions, out_strides, fuses=True)


def _roll_flat(dtype: np.dtype, shape: tuple[int, ...], shift: int, out_strides: tuple[int, ...] | None) -> Job:
    """A roll of C-contiguous memory as one dimension."""
    size = prod(shape)
    if out_strides is not None:
        raise ArgumentError("roll: out must be C-contiguous where x is rolled as one dimension (no axis)")
    job = mapped_job(
        "roll", "rolled", dtype, (size,), (1,), [Dimension(size, size, 1, shift % size if size else 0)], None
    )
    return job._replace(shape=shape)
