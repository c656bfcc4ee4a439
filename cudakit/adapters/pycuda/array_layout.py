"""Shapes, strides and offsets of GPUArrays, computed by NumPy without a look at any memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, BoundsError, shortened


class Layout(NamedTuple):
    """Shape, strides in bytes, and the offset in bytes of the first element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


class ArrayFlags:
    """Memory order of an array.

    Attributes
    ----------
    c_contiguous, f_contiguous : bool
        Whether the elements follow each other in C order, and in Fortran order.
    forc : bool
        Whether one of both is true.
    """

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.c_contiguous: bool = _is_dense(shape[::-1], strides[::-1], itemsize)
        self.f_contiguous: bool = _is_dense(shape, strides, itemsize)
        self.forc: bool = self.c_contiguous or self.f_contiguous

    def __repr__(self) -> str:
        return f"  C_CONTIGUOUS : {self.c_contiguous}\n  F_CONTIGUOUS : {self.f_contiguous}"


def _is_dense(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return whether elements follow each other; the first axis is the fastest. Axes of one element have any stride."""
    expected = itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if extent != 1:
            if stride != expected and 0 not in shape:
                return False
            expected *= extent
    return True


def extents_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of Python ints; `shape` is an int, a sequence or a NumPy array.

    Raises
    ------
    ArgumentError
        An extent is negative or no int.
    """
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    try:
        extents = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
    except TypeError:
        raise ArgumentError(f"GPUArray: shape is an int or a tuple of ints, got {shortened(shape)}") from None
    if any(extent < 0 for extent in extents):
        raise ArgumentError(f"GPUArray: shape has a negative extent: {shortened(extents)}")
    return extents


def dense_strides(shape: Sequence[int], itemsize: int, order: str) -> tuple[int, ...]:
    """Return the strides of a contiguous array in C or Fortran order. An axis of no element counts as one of one.

    Raises
    ------
    ArgumentError
        The order is neither "C" nor "F".
    """
    if order not in ("C", "F"):
        raise ArgumentError(f"GPUArray: order is 'C' or 'F', got {shortened(order)}")
    extents = [max(extent, 1) for extent in shape]
    if order == "F":
        return tuple(itemsize * math.prod(extents[:axis]) for axis in range(len(extents)))
    return tuple(itemsize * math.prod(extents[axis + 1 :]) for axis in range(len(extents)))


def packed_strides(array: Any) -> tuple[int, ...]:
    """Return the strides that an array's elements have without gaps, with its axes in the order of their strides."""
    strides = [0] * len(array.shape)
    step = array.dtype.itemsize
    for axis in sorted(range(len(strides)), key=lambda axis: (abs(array.strides[axis]), array.shape[axis], axis)):
        strides[axis] = step
        step *= max(array.shape[axis], 1)
    return tuple(strides)


class _Ghost:
    """An array interface whose memory is never read."""

    def __init__(self, layout: Layout, itemsize: int) -> None:
        self.__array_interface__ = {
            "shape": layout.shape, "strides": layout.strides, "typestr": f"|V{itemsize}", "version": 3,
            "data": (1 << 62, True),
        }  # fmt: skip


def select(layout: Layout, itemsize: int, index: Any) -> Layout:
    """Return the layout of a part of an array; `index` has ints, slices, ``...`` and ``np.newaxis``.

    Raises
    ------
    BoundsError
        An index is out of bounds, of another type, or there are too many.
    """
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        if isinstance(part, bool | np.bool_) or not (
            part is None or part is Ellipsis or isinstance(part, int | np.integer | slice)
        ):
            raise BoundsError(
                f"GPUArray: an index is an int, a slice, ... or np.newaxis, got {type(part).__name__}; "
                "for an array of indices call gpuarray.take"
            )
    ghost = np.asarray(_Ghost(layout, itemsize))
    # The ellipsis makes one element a view, too: NumPy would read it otherwise.
    parts = parts if any(part is Ellipsis for part in parts) else (*parts, Ellipsis)
    try:
        view = ghost[parts]
    except IndexError as error:
        raise BoundsError(f"GPUArray: {error}") from None
    return Layout(view.shape, view.strides, view.__array_interface__["data"][0] - (1 << 62) if view.size else 0)


def reshaped(size: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape of `size` elements, with the extent -1 computed.

    Raises
    ------
    ArgumentError
        Two extents are unknown, or the shape has another number of elements.
    """
    extents = list(map(operator.index, shape))
    if extents.count(-1) > 1:
        raise ArgumentError("reshape: one extent at most may be -1")
    rest = math.prod(extent for extent in extents if extent != -1)
    if -1 in extents and rest:
        extents[extents.index(-1)] = size // rest
    if math.prod(extents) != size or any(extent < 0 for extent in extents):
        raise ArgumentError(f"reshape: {size} elements do not fit the shape {tuple(shape)}")
    return tuple(extents)


def of_itemsize(layout: Layout, itemsize: int, new_itemsize: int) -> Layout:
    """Return the layout of the same bytes as elements of another size; the axis with the smallest stride changes.

    Raises
    ------
    ArgumentError
        The bytes of that axis are no whole number of new elements.
    """
    if itemsize == new_itemsize:
        return layout
    shape, strides = list(layout.shape), list(layout.strides)
    axis = min(range(len(shape)), key=lambda axis: abs(strides[axis]), default=None)
    if axis is None or abs(strides[axis]) != itemsize or shape[axis] * itemsize % new_itemsize:
        raise ArgumentError(
            f"view: elements of {new_itemsize} bytes do not fit shape {layout.shape} of elements of {itemsize} bytes"
        )
    shape[axis] = shape[axis] * itemsize // new_itemsize
    strides[axis] = strides[axis] * new_itemsize // itemsize
    return Layout(tuple(shape), tuple(strides))
