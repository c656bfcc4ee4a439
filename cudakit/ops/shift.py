"""Moves along axes: flip, roll, pad."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from cudakit.arrays.job import Job
from cudakit.arrays.layout import Axis, axes_of, axis_of, integers
from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.arrays.views import steps_of
from cudakit.errors import ArgumentError
from cudakit.ops.move_plan import Dimension, mapped_job
from cudakit.ops.target import moved
from cudakit.ops.transpose import copy
from cudakit.types.checked import text_of

#: The map of ``move.cuh`` for each mode of `pad`, and whether whole rows behave under it as their elements do.
_MODES = {
    "constant": ("padded_constant", True),
    "edge": ("padded_edge", False),
    "reflect": ("padded_reflect", False),
    "wrap": ("padded_wrap", True),
}


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


@repeated("out")
def pad(
    x: Any,
    width: Any,
    mode: Literal["constant", "edge", "reflect", "wrap"] = "constant",
    value: Any = 0,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[k] = x[m(k − before)], m making an index of x of those that are not, or out[k] = value there.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    width : int, (before, after) or a sequence of such pairs, one a dimension
        Elements added at the ends of each dimension, as for NumPy's `pad`.
    mode : {"constant", "edge", "reflect", "wrap"}
        `value`; the first or last element; the array mirrored at these, without repeating them; the array repeated.
    value : number
        Of mode constant; converted to x's dtype.
    out : array, optional
        Of the result's shape, and x's dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous, of x's dtype. NumPy's other modes, and one value for each end, are not there.

    Raises
    ------
    ArgumentError
        Also for negative widths, and for an empty dimension that would be padded with its own elements.
    """
    place, (x,) = array_place("pad", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    widths = width if width.__class__ is int else _pairs(width)
    text_of("pad: mode", mode)
    fill = b"" if value.__class__ is int and value == 0 else _bytes_of(value, dtype)
    return moved("pad", place, x, out, lambda to: _pad_job(dtype, shape, strides, widths, mode, fill, to))


def _pairs(width: Any) -> Any:
    try:
        numbers = np.asarray(width)
        if numbers.dtype.kind not in "iu" or numbers.ndim > 2:
            raise ValueError("whole numbers are wanted")
    except ValueError as error:
        raise ArgumentError(
            f"pad: width {width!r}: {error}; give an int, (before, after), or a pair a dimension"
        ) from None
    flat = numbers.tolist()
    return tuple(tuple(pair) for pair in flat) if numbers.ndim == 2 else tuple(flat) if numbers.ndim else flat


def _bytes_of(value: Any, dtype: np.dtype) -> bytes:
    try:
        return np.array(value, dtype).reshape(()).tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"pad: value {value!r} is no {dtype}: {error}") from None


@functools.lru_cache(4096)
def _pad_job(
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    width: Any,
    mode: str,
    fill: bytes,
    out_strides: tuple[int, ...] | None,
) -> Job:
    if mode not in _MODES:
        raise ArgumentError(f"pad: mode {mode!r}; there are {', '.join(_MODES)}")
    try:
        widths = np.broadcast_to(np.array(width), (len(shape), 2)).tolist()
    except ValueError:
        raise ArgumentError(
            f"pad: width {width} does not fit an array of {len(shape)} dimensions; give an int, (before, after), or a "
            "pair a dimension"
        ) from None
    steps = steps_of("pad", dtype, strides)
    for d, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            raise ArgumentError(f"pad: width {(before, after)} of dimension {d} is negative; slice the array instead")
        if before + after and not shape[d] and mode != "constant":
            raise ArgumentError(f"pad: dimension {d} is empty, mode {mode} has nothing to fill it with; use constant")
    mapping, fuses = _MODES[mode]
    dimensions = [
        Dimension(before + n + after, n, step, before)
        for n, step, (before, after) in zip(shape, steps, widths, strict=True)
    ]
    return mapped_job("pad", mapping, dtype, shape, steps, dimensions, out_strides, fuses=fuses, fill=fill)
