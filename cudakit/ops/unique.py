"""Runs of equal elements, and the elements that there are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.place import ArrayPlace, array_place, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
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
    *,
    equal_nan: bool = True,
    stream: Any = None,
) -> Any:
    """The elements that there are, each once, in order, as `numpy.unique` has it.

    Parameters
    ----------
    x : array
        Any shape and strides, taken as one dimension; bool, integers, float16, bfloat16, float32 or float64.
    return_index : bool
        Whether to return the index of each one's first occurrence.
    return_inverse : bool
        Whether to return, in x's shape, where in the result each element of x is.
    return_counts : bool
        Whether to return how often each occurs.
    equal_nan : bool
        Whether NaN are one element; else each is one.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array, or tuple of array
        The elements, then what else was asked for, int64, in the order of the parameters.

    Raises
    ------
    ArgumentError
        For a dtype that is not sorted.

    Notes
    -----
    By `sort`, and a pass over the result. Waits for the device, to know how many there are. Unlike NumPy's there is no
    `axis`. Of −0 and 0 the first that occurs is given.
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
