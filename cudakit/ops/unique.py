"""Runs of equal elements, distinct elements, and positions of elements in a sorted array."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, Literal

import numpy as np

from cudakit.arrays.layout import axis_of, one_axis
from cudakit.arrays.output import target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import cast, copy, delivered
from cudakit.ops.sort import Sorting, argsort, lines_of, order_of, sort_rows
from cudakit.ops.take import look_back, take
from cudakit.types.checked import flag, is_one_of, text_of

_INT64 = np.dtype(np.int64)
#: Elements a thread, threads a block, blocks a multiprocessor.
_ITEMS, _BLOCK, _BLOCKS = 8, 256, 4


def run_length(x: Any, *, return_starts: bool = False, stream: Any = None) -> tuple[Any, ...]:
    """Return runs of equal neighbours: their values and their lengths.

    Parameters
    ----------
    x : array
        Input of any shape and strides, taken as one dimension; bool, integers, float16, bfloat16, float32 or
        float64.
    return_starts : bool
        Whether to return the index of each run's first element, too.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    values, counts : array
        First element of each run, of x's dtype. Length of each run, in int64.
    starts : array
        Index of each run's first element, in int64. Only with `return_starts`.

    Raises
    ------
    ArgumentError
        The dtype cannot be sorted.

    Notes
    -----
    NaN are equal here, and so are −0 and 0. The call waits for the device to learn the number of runs. A single pass
    with decoupled look-back (Merrill and Garland, 2016).
    """
    op = "run_length"
    wants_starts = flag(f"{op}: return_starts", return_starts)
    values, starts, count, _, _ = _find_runs(op, x, False, False, False, stream=stream)
    place, _ = array_place(op, stream, ("x", values))
    number = int(place.download(count)[0])
    runs = values[:number], _lengths(place, starts, number)
    return (*runs, starts[:number]) if wants_starts else runs


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    stream: Any = None,
) -> Any:
    """Return the distinct elements of x in order, as ``numpy.unique``, or the distinct slices along an axis.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    return_index : bool
        Whether to return the index of the first occurrence of each distinct element, too.
    return_inverse : bool
        Whether to return the index in the result of each element of x (in x's shape) or of each slice, too.
    return_counts : bool
        Whether to return the number of occurrences of each distinct element, too.
    axis : int or None
        Axis of the slices. None: the elements of x, as one dimension. Slices ``x[i]`` are ordered by their first
        elements, then by their second elements, and so on.
    equal_nan : bool
        Whether all NaN are one element; otherwise each NaN is an element of its own. As in NumPy, slices with NaN
        are never equal.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, or tuple of array
        Distinct elements or slices, then the other requested arrays in the order of the parameters, in int64.

    Raises
    ------
    ArgumentError
        The dtype cannot be sorted, or the axis is out of range.

    Notes
    -----
    Elements are sorted by `sort`, then the result is read once. With an axis, indices are sorted as many times as a
    slice has elements. The call waits for the device to learn the number of distinct elements. If both −0 and 0 occur,
    the result is the one that occurs first.
    """
    op = "unique"
    options = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    wants = [flag(f"{op}: {name}", value) for name, value in options.items()]
    apart = not flag(f"{op}: equal_nan", equal_nan)
    if (along := one_axis(op, axis)) is not None:
        return _slices(op, x, along, *wants, stream=stream)
    values, starts, count, index, inverse = _find_runs(
        op, x, True, wants[0] or wants[1], wants[1], apart, stream=stream
    )
    place, _ = array_place(op, stream, ("x", values))
    number = int(place.download(count)[0])
    results = [values[:number]]
    if wants[0]:
        with place.inside():
            results.append(index[starts[:number]])
    if wants[1]:
        results.append(inverse)
    if wants[2]:
        results.append(_lengths(place, starts, number))
    return tuple(results) if len(results) > 1 else results[0]


def _slices(
    op: str, x: Any, axis: int, wants_index: bool, wants_inverse: bool, wants_counts: bool, *, stream: Any
) -> Any:
    """Return the result of `unique` with an axis: the distinct slices, and the other requested arrays.

    Slices are rows, which are sorted by one column after the other, the first column last.
    """
    place, (x,) = array_place(op, stream, ("x", x))
    order_of(op, x.dtype)
    axis, xp = axis_of(op, axis, x.ndim), place.xp
    with place.inside():
        moved = xp.moveaxis(x, axis, 0)
        size, rest = moved.shape[0], moved.shape[1:]
        rows = xp.ascontiguousarray(moved).reshape(size, prod(rest))
        order = xp.arange(size)
        for column in reversed(range(rows.shape[1])):
            order = order[argsort(rows[order, column], stream=stream)]
        ordered = rows[order]
        is_first = xp.ones(size, np.bool_)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(1)
        starts = xp.flatnonzero(is_first)
        results = [xp.moveaxis(ordered[starts].reshape(-1, *rest) if prod(rest) else moved[: starts.size], 0, axis)]
        if wants_index:
            results.append(order[starts])
        if wants_inverse:
            inverse = xp.empty(size, _INT64)
            inverse[order] = xp.cumsum(is_first) - 1
            results.append(inverse)
        if wants_counts:
            results.append(xp.diff(starts, append=xp.full(1, size)))
    return tuple(results) if len(results) > 1 else results[0]


def _lengths(place: ArrayPlace, starts: Any, number: int) -> Any:
    """Return the lengths of the first `number` runs. `starts` also has the end of the last run behind its start."""
    with place.inside():
        return place.xp.diff(starts[: number + 1])


@repeated()
def _find_runs(
    op: str, x: Any, sorts: bool, wants_index: bool, wants_inverse: bool, apart: bool = False, *, stream: Any = None
) -> tuple[Any, Any, Any, Any, Any]:
    """Return five arrays: values and starts of runs, their number, the indices that sort x, and each element's run.

    Values and starts have room after the last run. The last two are None if they are not wanted. `sorts`: x is sorted
    first. `apart`: each NaN is a run of its own.
    """
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype)
    lines = lines_of(op, x.shape, None)
    size = lines.size
    values, starts, count = place.empty(size, x.dtype), place.empty(size + 1, _INT64), place.empty(1, _INT64)
    index = place.empty(size, _INT64) if wants_index else None
    inverse = place.empty(x.shape, _INT64) if wants_inverse else None
    if size == 0:
        place.clear(count)
        place.clear(starts)
        return values, starts, count, index, inverse
    own = lines.contiguous_rows(op, place, x)
    if sorts:
        ordered = place.empty(size, x.dtype)
        sorting = Sorting(True, _INT64, True) if wants_index else Sorting(True)
        sort_rows(op, place, order, lines, sorting, (own, None, ordered, index))
        own = ordered
    kernel, launch, status_bytes = _launch(order, size, apart, place.device)
    status = place.status(status_bytes)
    place.launch(kernel, launch, own, values, starts, count, index if wants_inverse else None, inverse, status, size)
    return values, starts, count, index, inverse


@functools.lru_cache(1024)
def _launch(order: str, size: int, apart: bool, device: int | str) -> tuple[Kernel, Config, int]:
    """Return the kernel that finds runs, its configuration, and the bytes of memory for the status of its blocks.

    `order` is the C++ type that compares elements. `apart`: each NaN is a run of its own.
    """
    index, launch, status_bytes = look_back(size, _ITEMS * _BLOCK, _BLOCK, _BLOCKS, device)
    return Kernel.from_template("runs/begun")[order, index, apart, _ITEMS, _BLOCK], launch, status_bytes


# --- searchsorted -----------------------------------------------------------------------------------------------------


_SIDES = {"left": False, "right": True}


@repeated("out")
def searchsorted(
    a: Any, v: Any, side: Literal["left", "right"] = "left", sorter: Any = None, *, out: Any = None, stream: Any = None
) -> Any:
    """out[k] = index of v[k] in the sorted a: a[out − 1] < v ≤ a[out] (left), a[out − 1] ≤ v < a[out] (right).

    Parameters
    ----------
    a : array
        Sorted array of one dimension, in the order of `sort`; bool, integers, float16, bfloat16, float32 or
        float64. The order is not checked.
    v : array or number
        Values to find, of any shape and strides. They are compared with `a` in NumPy's common dtype of both.
    side : {"left", "right"}
        Whether the index is before equal elements (left) or after them (right).
    sorter : array of integers, optional
        Indices that sort `a`, as `argsort` returns them, of the length of `a`. Indices out of range are clipped.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Indices in int64: array of the shape of `v`.

    Raises
    ------
    ArgumentError
        A dtype cannot be sorted, the dtypes have no common dtype, `a` or `sorter` has another shape, or `side` is
        unknown.
    """
    op = "searchsorted"
    side = text_of(f"{op}: side", side)  # type: ignore[assignment]
    if not is_one_of(side, _SIDES):
        raise ArgumentError(f"{op}: side {shortened(side)}; expected left or right")
    if isinstance(v, int | float | np.number):
        v = array_place(op, stream, ("a", a))[0].upload(np.asarray(v))
    named_arrays = [("a", a), ("v", v), *([] if sorter is None else [("sorter", sorter)])]
    place, (a, v, *rest) = array_place(op, stream, *named_arrays)
    if a.ndim != 1:
        raise ArgumentError(f"{op}: a has shape {a.shape}; it takes one dimension")
    common = _common(op, a.dtype, v.dtype)
    order = order_of(op, common)
    to = target(op, place, out, v.shape, _INT64, a, v, most=a.size, contiguous=True)
    if rest:
        (by,) = rest
        if by.dtype.kind not in "iu" or by.shape != a.shape:
            raise ArgumentError(f"{op}: sorter is {by.dtype} of shape {by.shape}; give integers of a's shape {a.shape}")
        a = take(a, by, 0, "clip", stream=place.stream) if a.size else a
    if v.size:
        arrays = [_ready(array, common, place.stream) for array in (a, v)]
        _job(order, a.size, v.shape, _SIDES[side]).run(place, *arrays, to.written)
    return delivered(place, to)


def _ready(x: Any, dtype: np.dtype, stream: Any) -> Any:
    if x.dtype != dtype:
        return cast(x, dtype, stream=stream)
    return x if x.flags.c_contiguous else copy(x, stream=stream)


def _common(op: str, a: np.dtype, v: np.dtype) -> np.dtype:
    order_of(op, a, name="a")
    order_of(op, v, name="v")
    try:
        return np.promote_types(a, v)
    except TypeError:
        raise ArgumentError(
            f"{op}: a is {a} and v is {v}, which have no common dtype; cast one (ck.ops.cast)"
        ) from None


@functools.lru_cache(1024)
def _job(order: str, size: int, shape: tuple[int, ...], is_right: bool) -> Job:
    number = prod(shape)
    kernel = Kernel.from_template("search/bounds")[order, is_right]
    return Job(shape, (), kernel, config(-(-number // _BLOCK), _BLOCK), numbers=(size, number))
