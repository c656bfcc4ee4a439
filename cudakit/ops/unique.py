"""Runs of equal elements, and the elements that there are."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.layout import axis_of, one_axis
from cudakit.arrays.place import ArrayPlace, array_place, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.sort import argsort
from cudakit.ops.sort_plan import Sorting, lines_of, order_of, sort_rows
from cudakit.types.checked import flag

_INT64 = np.dtype(np.int64)
#: Elements a thread, threads a block, blocks a multiprocessor.
_ITEMS, _BLOCK, _BLOCKS = 8, 256, 4
_STATUS_HEADER = 256


def run_length(x: Any, *, return_starts: bool = False, stream: Any = None) -> tuple[Any, ...]:
    """Runs of equal neighbours: their values and their lengths.

    Parameters
    ----------
    x : array
        Any shape and strides, taken as one dimension; bool, integers, float16, bfloat16, float32 or float64.
    return_starts : bool
        Whether to return the index of each run's first element, too.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    values, counts : array
        Of x's dtype, of each run the first element; int64.
    starts : array
        int64; with `return_starts`.

    Raises
    ------
    ArgumentError
        For a dtype that is not sorted.

    Notes
    -----
    NaN are equal here, and so are −0 and 0. Waits for the device, to know how many there are. A single pass with
    decoupled look-back (Merrill and Garland, 2016).
    """
    op = "run_length"
    wants_starts = flag(f"{op}: return_starts", return_starts)
    values, starts, count, _, _ = _begun(op, x, False, False, False, stream=stream)
    place, _ = array_place(op, stream, ("x", values))
    number = int(place.download(count)[0])
    found = values[:number], _lengths(place, starts, number)
    return (*found, starts[:number]) if wants_starts else found


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
    """The elements that there are, each once, in order, as `numpy.unique` has it; or the slices along an axis.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    return_index : bool
        Whether to return the index of each one's first occurrence.
    return_inverse : bool
        Whether to return where in the result each element of x is, in x's shape, or each slice.
    return_counts : bool
        Whether to return how often each occurs.
    axis : int or None
        None: the elements of x, as one dimension. Else the slices ``x[i]`` along that axis, ordered by their first
        elements, then by their second ones ….
    equal_nan : bool
        Whether NaN are one element; else each is one. As in NumPy slices with NaN are never equal.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array, or tuple of array
        The elements, then what else was asked for, int64, in the order of the parameters.

    Raises
    ------
    ArgumentError
        For a dtype that is not sorted, an axis that is not there.

    Notes
    -----
    By `sort`, and a pass over the result; with an axis by as many sorts of indices as a slice has elements. Waits for
    the device, to know how many there are. Of −0 and 0 the first that occurs is given.
    """
    op = "unique"
    wants = [
        flag(f"{op}: {name}", value)
        for name, value in (
            ("return_index", return_index),
            ("return_inverse", return_inverse),
            ("return_counts", return_counts),
        )
    ]
    apart = not flag(f"{op}: equal_nan", equal_nan)
    if (along := one_axis(op, axis)) is not None:
        return _slices(op, x, along, *wants, stream=stream)
    values, starts, count, index, inverse = _begun(op, x, True, wants[0] or wants[1], wants[1], apart, stream=stream)
    place, _ = array_place(op, stream, ("x", values))
    number = int(place.download(count)[0])
    found = [values[:number]]
    if wants[0]:
        with place.inside():
            found.append(index[starts[:number]])
    if wants[1]:
        found.append(inverse)
    if wants[2]:
        found.append(_lengths(place, starts, number))
    return tuple(found) if len(found) > 1 else found[0]


def _slices(
    op: str, x: Any, axis: int, wants_index: bool, wants_inverse: bool, wants_counts: bool, *, stream: Any
) -> Any:
    """`unique` along an axis: slices as rows, sorted by one column after the other, the first one last."""
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
        found = [xp.moveaxis(ordered[starts].reshape(-1, *rest) if prod(rest) else moved[: starts.size], 0, axis)]
        if wants_index:
            found.append(order[starts])
        if wants_inverse:
            inverse = xp.empty(size, _INT64)
            inverse[order] = xp.cumsum(is_first) - 1
            found.append(inverse)
        if wants_counts:
            found.append(xp.diff(starts, append=xp.full(1, size)))
    return tuple(found) if len(found) > 1 else found[0]


def _lengths(place: ArrayPlace, starts: Any, number: int) -> Any:
    """Lengths of runs, from where they begin and where the last one ends."""
    with place.inside():
        return place.xp.diff(starts[: number + 1])


@repeated()
def _begun(
    op: str, x: Any, sorts: bool, wants_index: bool, wants_inverse: bool, apart: bool = False, *, stream: Any = None
) -> tuple[Any, Any, Any, Any, Any]:
    """Values and starts of runs, with room after them; their number; indices that sort x; and runs of its elements."""
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
    own = lines.brought(op, place, x)
    if sorts:
        made = place.empty(size, x.dtype)
        sorting = Sorting(True, _INT64, True) if wants_index else Sorting(True)
        sort_rows(op, place, order, lines, sorting, own, None, made, index)
        own = made
    kernel, launch, status_bytes = _launch(order, size, apart, place.device)
    status = place.status(status_bytes)
    place.launch(kernel, launch, own, values, starts, count, index if wants_inverse else None, inverse, status, size)
    return values, starts, count, index, inverse


@functools.lru_cache(1024)
def _launch(order: str, size: int, apart: bool, device: int | str) -> tuple[Kernel, Config, int]:
    """The kernel, its launch, and bytes of status."""
    tiles = -(-size // (_ITEMS * _BLOCK))
    is_wide = size >= 2**32
    kernel = Kernel.from_template("runs/begun")[
        order, "unsigned long long" if is_wide else "unsigned int", apart, _ITEMS, _BLOCK
    ]
    blocks = min(tiles, _BLOCKS * multiprocessors_of(device))
    return kernel, config(blocks, _BLOCK), _STATUS_HEADER + 8 * (1 + is_wide) * tiles
