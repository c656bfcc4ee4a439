"""Sorts along an axis: elements, their indices, or values by keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.layout import integers
from cudakit.arrays.output import as_dtype, check_apart, target
from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.ops.delivery import delivered
from cudakit.ops.sort_plan import Sorting, lines_of, order_of, sort_rows
from cudakit.types.checked import flag

_INT64 = np.dtype(np.int64)


@repeated("out")
def sort(x: Any, axis: int | None = -1, *, descending: bool = False, out: Any = None, stream: Any = None) -> Any:
    """The elements of x in order along `axis`, as `numpy.sort` has it: NaN last.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    axis : int or None
        None: all elements, in one dimension.
    descending : bool
        The greatest first: NaN, which counts as greater than any number, then the numbers; equal elements stay in
        their order here, too.
    out : array, optional
        Of the result's shape, and its dtype or one that it is cast to within its kind; any strides. It may be x.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        Every element with all its bits. Always stable: −0 and 0 are equal and stay in their order, and so do NaN.

    Raises
    ------
    ArgumentError
        For an axis that is not there, a dtype that is not sorted (complex …), an `out` that does not fit.

    Notes
    -----
    By radix. Rows of up to 4096 elements are read and written once; longer ones read once, then read and written for
    each byte of an element (copied where all share it), which takes as much memory as x has beside it. An axis other
    than the last, and what is not C-contiguous, is copied first.

    Adinets and Merrill, Onesweep: a faster least significant digit radix sort for GPUs (2022).
    """
    return _sorted("sort", x, axis, descending, out, stream)


@repeated("out")
def partition(x: Any, kth: Any, axis: int | None = -1, *, out: Any = None, stream: Any = None) -> Any:
    """The elements of x along `axis` with those at `kth` where `sort` has them, none greater before, none less after.

    Parameters
    ----------
    x, axis, out, stream
        As for `sort`.
    kth : int or sequence of int
        Negative ones count from the end.

    Returns
    -------
    array
        One of the results that `numpy.partition` allows: all of x in order. For the greatest or least few, `topk` takes
        less time.

    Raises
    ------
    ArgumentError
        As for `sort`, and for a `kth` out of range.
    """
    _check_kth("partition", x, kth, axis)
    return _sorted("partition", x, axis, False, out, stream)


@repeated("out")
def argsort(
    x: Any, axis: int | None = -1, *, descending: bool = False, dtype: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Indices that put x in order along `axis`, as ``numpy.argsort(kind="stable")`` has it: NaN last.

    Parameters
    ----------
    x, axis, descending, stream
        As for `sort`.
    dtype : dtype, optional
        Of the indices: an integer one of 32 or 64 bits. Left out: int64.
    out : array, optional
        For the indices.

    Returns
    -------
    array
        Always stable: indices of equal elements ascend, with `descending`, too.

    Raises
    ------
    ArgumentError
        As for `sort`, and for a dtype that does not hold the indices.
    """
    return _arranged("argsort", x, axis, descending, dtype, out, stream)


@repeated("out")
def argpartition(
    x: Any, kth: Any, axis: int | None = -1, *, dtype: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Indices that bring x in an order that `partition` allows: that of `argsort`.

    Parameters, result and errors are those of `argsort` and `partition`.
    """
    _check_kth("argpartition", x, kth, axis)
    return _arranged("argpartition", x, axis, False, dtype, out, stream)


@repeated("out")
def sort_by_key(
    keys: Any, values: Any, axis: int | None = -1, *, descending: bool = False, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """Keys in order along `axis`, and values with them: the values whose keys are equal stay in their order.

    Parameters
    ----------
    keys : array
        As `sort` takes them.
    values : array
        Of the shape of `keys`; elements of 1, 2, 4, 8 or 16 bytes.
    axis, descending, stream
        As for `sort`.
    out : (array, array), optional
        For the keys and the values; None for one that is to be made here.

    Returns
    -------
    (array, array)

    Raises
    ------
    ArgumentError
        As for `sort`, and for values of another shape.
    """
    op = "sort_by_key"
    place, (keys, values) = array_place(op, stream, ("keys", keys), ("values", values))
    if values.shape != keys.shape:
        raise ArgumentError(f"{op}: values have shape {values.shape}, keys have {keys.shape}; they go together")
    outs = (None, None) if out is None else out
    if not isinstance(outs, tuple | list) or len(outs) != 2:
        raise ArgumentError(f"{op}: out must be two, for keys and values, got {type(out).__name__}")
    check_apart(op, outs)
    order = order_of(op, keys.dtype, flag(f"{op}: descending", descending), "keys")
    lines = lines_of(op, keys.shape, axis)
    to_keys = target(op, place, outs[0], lines.shape, keys.dtype, keys, values)
    to_values = target(op, place, outs[1], lines.shape, values.dtype, keys, values)
    made_keys, made_values = lines.written(place, to_keys), lines.written(place, to_values)
    own_keys, own_values = lines.brought(op, place, keys), lines.brought(op, place, values)
    sorting = Sorting(True, values.dtype)
    sort_rows(op, place, order, lines, sorting, own_keys, own_values, made_keys, made_values)
    lines.laid(op, place, made_keys, to_keys)
    lines.laid(op, place, made_values, to_values)
    return delivered(place, to_keys), delivered(place, to_values)


def _sorted(op: str, x: Any, axis: int | None, is_descending: bool, out: Any, stream: Any) -> Any:
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype, flag(f"{op}: descending", is_descending))
    lines = lines_of(op, x.shape, axis)
    to = target(op, place, out, lines.shape, x.dtype, x)
    made = lines.written(place, to)
    sort_rows(op, place, order, lines, Sorting(True), lines.brought(op, place, x), None, made, None)
    lines.laid(op, place, made, to)
    return delivered(place, to)


def _arranged(op: str, x: Any, axis: int | None, is_descending: bool, dtype: Any, out: Any, stream: Any) -> Any:
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype, flag(f"{op}: descending", is_descending))
    lines = lines_of(op, x.shape, axis)
    index = index_dtype(op, dtype, lines.size)
    to = target(op, place, out, lines.shape, index, x, most=lines.size - 1)
    made = lines.written(place, to)
    sort_rows(op, place, order, lines, Sorting(False, index, True), lines.brought(op, place, x), None, None, made)
    lines.laid(op, place, made, to)
    return delivered(place, to)


def index_dtype(op: str, dtype: Any, size: int) -> np.dtype:
    """The dtype of indices below `size`: int64, or what is asked for.

    Raises
    ------
    ArgumentError
    """
    if dtype is None:
        return _INT64
    found = as_dtype(op, dtype)
    if found.kind not in "iu" or found.itemsize < 4 or not found.isnative or size - 1 > np.iinfo(found).max:
        raise ArgumentError(
            f"{op}: dtype is {found}; those of {size} are int32, int64 or unsigned ones, that hold them"
        )
    return found


def _check_kth(op: str, x: Any, kth: Any, axis: int | None) -> None:
    """Check that all of `kth` are within the axis.

    Raises
    ------
    ArgumentError
    """
    found = integers(op, "kth", kth)
    shape = getattr(x, "shape", ())
    size = lines_of(op, tuple(shape), axis).size
    for each in (found,) if isinstance(found, int) else found or ():
        if not -size <= each < size:
            raise ArgumentError(f"{op}: kth {shortened(each)} is out of range for {size} elements")
    if found is None:
        raise ArgumentError(f"{op}: kth is None; give an index, or several")
