"""The greatest or least few along an axis."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.output import check_apart, target
from cudakit.arrays.place import ArrayPlace, array_place, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.delivery import delivered
from cudakit.ops.sort_plan import LONGEST_ROW, Sorting, lines_of, order_of, sort_rows
from cudakit.types.checked import flag, whole

_INT64 = np.dtype(np.int64)
#: Rows of up to so many elements are sorted, and the first of them stored; so are rows that one block sorts, where one
#: element in so many is wanted, or more.
_SORTED, _MANY = 128, 4
#: Keys a thread and threads a block, by the most keys that its registers keep; the last is for more, too.
_BLOCKS = ((1024, 8, 128), (2048, 8, 256), (4096, 8, 512), (8192, 8, 1024), (16_384, 16, 1024))
#: Blocks a multiprocessor that rows are cut up for where they are few, and fewest elements of a segment.
_BUSY, _LEAST = 4, 8192


@repeated("out")
def topk(
    x: Any,
    k: int,
    axis: int | None = -1,
    *,
    largest: bool = True,
    sorted: bool = True,
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """The k greatest elements of x along `axis`, and their indices, as torch.topk has them.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    k : int
        From 0 to the extent of the axis.
    axis : int or None
        None: of all elements, in one dimension.
    largest : bool
        False: the k least.
    sorted : bool
        Whether they are in order: the greatest first, or the least. Otherwise in any.
    out : (array, array), optional
        For the elements and the indices; None for one that is to be made here.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    (array, array)
        Of x's dtype and int64. NaN counts as greater than any number. Of equal elements those at the least indices are
        taken, and they are in the order of these: the same on each run.

    Raises
    ------
    ArgumentError
        For k out of range, an axis that is not there, a dtype that is not sorted, outputs that do not fit.

    Notes
    -----
    By radix select: up to 16384 elements are read once. A row of its own is cut up, and the first of its parts compete.
    """
    op = "topk"
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype, flag(f"{op}: largest", largest))
    is_sorted = flag(f"{op}: sorted", sorted)
    lines = lines_of(op, x.shape, axis)
    number = whole(f"{op}: k", k)
    if number > lines.size:
        raise ArgumentError(f"{op}: k is {number}, more than the {lines.size} elements along axis {axis}")
    outs = (None, None) if out is None else out
    if not isinstance(outs, tuple | list) or len(outs) != 2:
        raise ArgumentError(f"{op}: out must be two, for elements and indices, got {type(out).__name__}")
    check_apart(op, outs)
    chosen = lines.cut(number)
    to_keys = target(op, place, outs[0], chosen.shape, x.dtype, x)
    to_index = target(op, place, outs[1], chosen.shape, _INT64, x, most=lines.size - 1)
    if lines.rows * number:
        keys, index = chosen.written(place, to_keys), chosen.written(place, to_index)
        own = lines.brought(op, place, x)
        if lines.size <= _SORTED or lines.size <= min(LONGEST_ROW, _MANY * number):
            sort_rows(op, place, order, lines, Sorting(True, _INT64, True), own, None, keys, index, number)
        elif is_sorted and number > 1:
            found, found_index = place.empty(chosen.lined, x.dtype), place.empty(chosen.lined, _INT64)
            _select(place, order, lines.rows, lines.size, number, own, found, found_index)
            sort_rows(op, place, order, chosen, Sorting(True, _INT64), found, found_index, keys, index)
        else:
            _select(place, order, lines.rows, lines.size, number, own, keys, index)
        chosen.laid(op, place, keys, to_keys)
        chosen.laid(op, place, index, to_index)
    return delivered(place, to_keys), delivered(place, to_index)


def _select(place: ArrayPlace, order: str, rows: int, size: int, k: int, x: Any, keys: Any, index: Any) -> None:
    """The first k of each row, in no order; of few rows by way of the first of their segments."""
    source = None
    while True:
        segments = _segments(rows, size, k, place.device)
        kernel, launch = _launch(order, x.dtype.itemsize, rows * segments, -(-size // segments))
        last = segments == 1
        to = (keys, index) if last else [place.empty((rows, segments * k), each.dtype) for each in (keys, index)]
        place.launch(kernel, launch, x, source, *to, size, segments, k)
        if last:
            return
        x, source = to
        size = segments * k


def _segments(rows: int, size: int, k: int, device: int | str) -> int:
    """Parts that a row is cut into, so that all multiprocessors have blocks: 1, or such as leave far fewer keys."""
    wanted = -(-_BUSY * multiprocessors_of(device) // rows)
    return max(1, min(wanted, size // max(_LEAST, 4 * k)))


@functools.lru_cache(1024)
def _launch(order: str, itemsize: int, blocks: int, length: int) -> tuple[Kernel, Config]:
    most, items, block = next((each for each in _BLOCKS if length <= each[0]), _BLOCKS[-1])
    # 32 registers a thread are enough for 8 keys of 4 bytes, unless it sums for many digits, too.
    resident = max(1, (2048 if items * itemsize <= 32 and block > 128 else 1024) // block)
    kernel = Kernel.from_template("topk/first")[order, length <= most, items, block, resident]
    return kernel, config(blocks, block)
