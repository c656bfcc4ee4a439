"""Shapes and strides of an op's arrays: axes, merged dimensions, the memory that an array spans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from cudakit.errors import ArgumentError, AxisError, error_text, shortened

Axis: TypeAlias = int | Sequence[int] | None


def axes_of(op: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return the axes that `axis` names, for an array of `ndim` dimensions, ascending; all axes for None.

    Raises
    ------
    AxisError
        For an axis out of range.
    ArgumentError
        For an axis named twice, or something else than an axis.
    """
    return tuple(range(ndim)) if axis is None else tuple(sorted(axes_in_order(op, "axis", axis, ndim)))


def axes_in_order(op: str, name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes that an op's argument names, as numbers from 0, in the order of the argument.

    `name` is the argument's name, for errors.

    Raises
    ------
    AxisError, ArgumentError
        As `axes_of` does.
    """
    try:
        entries = axes if isinstance(axes, list | tuple) else (axes,)
        axis_numbers: tuple[int, ...] = normalize_axis_tuple([_index(entry) for entry in entries], ndim)
        return axis_numbers
    except (ValueError, TypeError, OverflowError) as error:
        error_class = AxisError if isinstance(error, np.exceptions.AxisError | OverflowError) else ArgumentError
        raise error_class(
            f"{op}: {name} {shortened(axes)} of an array of {ndim} dimensions: {error_text(error)}"
        ) from None


def axis_of(op: str, axis: int, ndim: int) -> int:
    """Return the single axis that `axis` names, as a number from 0.

    Raises
    ------
    ArgumentError
    """
    number = one_axis(op, axis)
    if number is None:
        raise ArgumentError(f"{op}: axis must be an int, got None")
    return axes_of(op, number, ndim)[0]


def one_axis(op: str, axis: Any) -> int | None:
    """Check that an axis is an int or None, and return it as a Python int or None. Its range is not checked.

    Raises
    ------
    ArgumentError
    """
    number = integers(op, "axis", axis)
    if not (number is None or isinstance(number, int)):
        raise ArgumentError(f"{op}: axis must be an int or None, got {shortened(axis)}")
    return number


def integers(op: str, name: str, value: Any) -> Axis:
    """Return an int as an int, a sequence of ints as a tuple, and None as None.

    A bool is refused: a cache would take it for 0 or 1. `name` is the argument's name, for errors.

    Raises
    ------
    ArgumentError
    """
    if value is None or value.__class__ is int:
        return value
    try:
        return _index(value)
    except TypeError:
        pass
    try:
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
            return tuple([_index(item) for item in value])
    except TypeError:
        pass
    raise ArgumentError(f"{op}: {name} must be an int, several, or None, got {shortened(value)}")


def _index(value: Any) -> int:
    if isinstance(value, bool | np.bool_):  # before NumPy 2.3, NumPy's bools are numbers too
        raise TypeError("a bool is no axis")
    return index(value)


def without(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Return `shape` without the entries at the indices `axes`. With `keepdims` these entries are 1 instead."""
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes)


def merged(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return shape and strides with the fewest dimensions that visit the same elements in the same order.

    Parameters
    ----------
    shape : sequence of int
        Common shape of the arrays.
    *strides : sequence of int
        Strides of each array, in elements.

    Returns
    -------
    tuple
        (shape, strides of the first array, …). No dimension has extent 1; a single element has no dimensions.
    """
    dimensions: list[list[int]] = []  # [extent, stride in each array]
    for extent, *steps in zip(shape, *strides, strict=True):
        if extent == 1:
            continue
        if dimensions and all(outer == inner * extent for outer, inner in zip(dimensions[-1][1:], steps, strict=True)):
            dimensions[-1] = [dimensions[-1][0] * extent, *steps]
        else:
            dimensions.append([extent, *steps])
    columns = list(zip(*dimensions, strict=True)) if dimensions else [()] * (1 + len(strides))
    return tuple(tuple(column) for column in columns)


def element_strides(array: object) -> tuple[int, ...]:
    """Return the strides of an array in elements."""
    strides: tuple[int, ...] = array.strides  # type: ignore[attr-defined]
    size: int = array.dtype.itemsize  # type: ignore[attr-defined]
    return tuple(step // size for step in strides)


def steps_of(op: str, dtype: np.dtype, strides: Sequence[int]) -> tuple[int, ...]:
    """Convert strides from bytes to elements.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    if any(step % dtype.itemsize for step in strides):
        raise ArgumentError(
            f"{op}: strides {tuple(strides)} in bytes are not whole elements of {dtype}; copy the array first"
        )
    return tuple(step // dtype.itemsize for step in strides)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def is_row_major(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Return whether an array of this shape and these strides is C-contiguous."""
    own = row_major(shape)
    return all(n == 1 or step == dense for n, step, dense in zip(shape, steps, own, strict=True))


def span(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, int]:
    """Return two numbers of elements: those in memory before the first element, and all that the array spans.

    The first number is 0 without negative strides. The second includes gaps between elements.
    """
    if 0 in shape:
        return 0, 0
    below = sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)
    above = sum((n - 1) * step for n, step in zip(shape, steps, strict=True) if step > 0)
    return below, below + above + 1


def view_of(shape: Sequence[int], steps: Sequence[int], dtype: np.dtype | None = None) -> tuple[int, int] | None:
    """Return `below` and `count` that `flat` needs for an array; None if a kernel can take the array as it is.

    Kernels take C-contiguous arrays. On the emulator, a struct without dimensions would be passed by value, so it
    needs a view too. `steps` are strides in elements.
    """
    is_struct = dtype is not None and dtype.names is not None and not shape
    return None if is_row_major(shape, steps) and not is_struct else span(shape, steps)


def flat(array: Any, below: int, count: int) -> Any:
    """Return the memory that an array spans, as a contiguous array of `count` elements.

    It begins `below` elements before the first element of `array`.
    """
    if isinstance(array, np.ndarray):
        ways: tuple[Any, ...] = tuple([slice(None, None, -1 if step < 0 else 1) for step in array.strides])
        # As bytes: NumPy has no name for float8_e5m2, by which `as_strided` would make an array.
        upward = array[(*ways, ...)].view(f"V{array.itemsize}")
        strided = np.lib.stride_tricks.as_strided(upward, (count,), (array.itemsize,), writeable=array.flags.writeable)
        return strided.view(array.dtype)
    memory = array.data
    if below:
        memory = memory - below * array.itemsize
    return sys.modules["cupy"].ndarray((count,), array.dtype, memory)


def record(**fields: Any) -> Any:
    """Return a NumPy struct with the keywords as int64 fields: numbers, and arrays of numbers for lists.

    A kernel takes the struct by value.
    """
    fields_of_dtype = [(name, np.int64, np.shape(value)) for name, value in fields.items()]
    record = np.zeros((), fields_of_dtype)
    for name, value in fields.items():
        record[name] = value
    scalar: Any = record[()]
    return scalar
