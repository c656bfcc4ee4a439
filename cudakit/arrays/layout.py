"""Shapes and strides of an op's arrays: axes, merged dimensions, the memory that an array reaches."""

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
    """The axes that `axis` names of an array of `ndim` dimensions, ascending; all of them for None.

    Raises
    ------
    AxisError
        For an axis out of range.
    ArgumentError
        For one named twice, and for what is none.
    """
    return tuple(range(ndim)) if axis is None else tuple(sorted(axes_in_order(op, "axis", axis, ndim)))


def axes_in_order(op: str, name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """The axes that the argument `name` of an op names, each from 0.

    Raises
    ------
    AxisError, ArgumentError
        As `axes_of` does.
    """
    try:
        named = axes if isinstance(axes, list | tuple) else (axes,)
        found: tuple[int, ...] = normalize_axis_tuple([_index(each) for each in named], ndim)
        return found
    except (ValueError, TypeError, OverflowError) as error:
        kind = AxisError if isinstance(error, np.exceptions.AxisError | OverflowError) else ArgumentError
        raise kind(f"{op}: {name} {shortened(axes)} of an array of {ndim} dimensions: {error_text(error)}") from None


def axis_of(op: str, axis: int, ndim: int) -> int:
    """The one axis that `axis` names, from 0.

    Raises
    ------
    ArgumentError
    """
    number = one_axis(op, axis)
    if number is None:
        raise ArgumentError(f"{op}: axis must be an int, got None")
    return axes_of(op, number, ndim)[0]


def one_axis(op: str, axis: Any) -> int | None:
    """An axis, or None, in a form that can be hashed.

    Raises
    ------
    ArgumentError
    """
    found = integers(op, "axis", axis)
    if not (found is None or isinstance(found, int)):
        raise ArgumentError(f"{op}: axis must be an int or None, got {shortened(axis)}")
    return found


def integers(op: str, name: str, value: Any) -> Axis:
    """An int, several, or None, in a form that can be hashed; a bool, which a cache would take for 0 or 1, is none.

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
            return tuple([_index(each) for each in value])
    except TypeError:
        pass
    raise ArgumentError(f"{op}: {name} must be an int, several, or None, got {shortened(value)}")


def _index(value: Any) -> int:
    if isinstance(value, bool | np.bool_):  # before NumPy 2.3 those of NumPy's are numbers too
        raise TypeError("a bool is no axis")
    return index(value)


def without(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """`shape` without its `axes`, or with 1 in their place."""
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes)


def merged(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Fewest dimensions that walk the same elements in the same order, for arrays of one shape.

    Parameters
    ----------
    shape : sequence of int
    *strides : sequence of int
        Of each array, in elements.

    Returns
    -------
    tuple
        (shape, strides of the first array, …); no dimension has extent 1, and none at all are left of one element.
    """
    kept: list[list[int]] = []  # [extent, stride in each array]
    for extent, *steps in zip(shape, *strides, strict=True):
        if extent == 1:
            continue
        if kept and all(outer == inner * extent for outer, inner in zip(kept[-1][1:], steps, strict=True)):
            kept[-1] = [kept[-1][0] * extent, *steps]
        else:
            kept.append([extent, *steps])
    columns = list(zip(*kept, strict=True)) if kept else [()] * (1 + len(strides))
    return tuple(tuple(column) for column in columns)


def element_strides(array: object) -> tuple[int, ...]:
    """Strides of an array in elements."""
    strides: tuple[int, ...] = array.strides  # type: ignore[attr-defined]
    size: int = array.dtype.itemsize  # type: ignore[attr-defined]
    return tuple(step // size for step in strides)


def steps_of(op: str, dtype: np.dtype, strides: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements.

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
    """Steps of a C-contiguous array in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def is_row_major(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether an array is C-contiguous."""
    own = row_major(shape)
    return all(n == 1 or step == wanted for n, step, wanted in zip(shape, steps, own, strict=True))


def span(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, int]:
    """Elements of memory before an array's first element that it reaches, and all that it reaches, gaps included."""
    if 0 in shape:
        return 0, 0
    below = sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)
    above = sum((n - 1) * step for n, step in zip(shape, steps, strict=True) if step > 0)
    return below, below + above + 1


def view_of(shape: Sequence[int], steps: Sequence[int], dtype: np.dtype | None = None) -> tuple[int, int] | None:
    """What `flat` needs of an array that a kernel cannot take as it is; None where it can.

    It can take one that is C-contiguous; on the emulator a struct without dimensions would go by value.
    """
    is_struct = dtype is not None and dtype.names is not None and not shape
    return None if is_row_major(shape, steps) and not is_struct else span(shape, steps)


def flat(array: Any, below: int, count: int) -> Any:
    """The memory that an array reaches, as a contiguous array of `count` elements from `below` before its first on."""
    if isinstance(array, np.ndarray):
        ways: tuple[Any, ...] = tuple([slice(None, None, -1 if step < 0 else 1) for step in array.strides])
        upward = array[(*ways, ...)]
        return np.lib.stride_tricks.as_strided(upward, (count,), (array.itemsize,), writeable=array.flags.writeable)
    memory = array.data
    if below:
        memory = memory - below * array.itemsize
    return sys.modules["cupy"].ndarray((count,), array.dtype, memory)


def record(**fields: Any) -> Any:
    """Numbers and lists of numbers as a struct of long long that a kernel takes by value."""
    kinds = [(name, np.int64, np.shape(value)) for name, value in fields.items()]
    record = np.zeros((), kinds)
    for name, value in fields.items():
        record[name] = value
    found: Any = record[()]
    return found
