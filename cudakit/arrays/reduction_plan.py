"""How a reduction of several arrays runs: as rows, columns or views of memory, and the launch that fills the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import merged
from cudakit.arrays.reduce_jobs import spread_columns, spread_rows
from cudakit.jit.load.config import Config, config
from cudakit.ops.move_plan import is_row_major, record, span, steps_of

#: Bytes of one load, and loads that a thread has in flight.
_PACK, _ITEMS = 16, 8
#: Largest state that columns, each with its own in a thread's registers, are worth their while with.
_COLUMN_BYTES = 64
#: How an input's elements lie: `spacing` in <cudakit/reduce/several.cuh>.
_ADJACENT, _SAME, _APART = 0, 1, 2


class Array(NamedTuple):
    """An input array of a call as a launch sees it.

    Attributes
    ----------
    dtype : numpy.dtype
    steps : tuple of int
        In elements, one for each dimension of the shape that all inputs have together.
    start : int
        Its first element, counted from where the memory that it reaches begins.
    view : (int, int) or None
        What `moving.flat` needs; None where it is C-contiguous.
    """

    dtype: np.dtype
    steps: tuple[int, ...]
    start: int
    view: tuple[int, int] | None


class Launch(NamedTuple):
    """What a call of one kind launches.

    Attributes
    ----------
    how : str
        A type of <cudakit/reduce/expression.cuh>.
    config : Config
    partials : int
        States that the workspace must hold.
    layout : numpy.void
        The kernel's last argument.
    """

    how: str
    config: Config
    partials: int
    layout: Any


def array_of(op: str, kind: tuple[np.dtype, tuple[int, ...], tuple[int, ...]], shape: Sequence[int]) -> Array:
    """An input, by dtype, shape and strides in bytes, among others of a common `shape`.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    dtype, extents, strides = kind
    own = steps_of(op, dtype, strides)
    below, count = span(extents, own)
    steps = tuple(0 if n == 1 else step for n, step in zip(extents, own, strict=True))
    steps = (0,) * (len(shape) - len(steps)) + steps
    return Array(dtype, steps, below, None if is_row_major(extents, own) else (below, count))


def plan(
    arrays: Sequence[Array | None],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    in_order: bool,
    state_bytes: int,
    units: int,
) -> Launch:
    """The launch of a reduction over `axes`; no array stands for what is the same for all elements.

    `in_order`: the reduced elements must be numbered in row-major order.
    """
    steps = [array.steps if array else (0,) * len(shape) for array in arrays]
    kept = [d for d in range(len(shape)) if d not in axes]
    inner = list(axes)
    if not in_order:
        inner.sort(key=lambda d: -max(abs(each[d]) for each in steps))
    kept_shape, *kept_steps = merged([shape[d] for d in kept], *([each[d] for d in kept] for each in steps))
    shape_within, *within = merged([shape[d] for d in inner], *([each[d] for d in inner] for each in steps))
    rows, length = prod(kept_shape), prod(shape_within)
    if len(shape_within) <= 1 and len(kept_shape) <= 1:
        along = [each[0] if each else 0 for each in within]
        if all(step in (0, 1) for step in along):
            row_steps = [each[0] if each else 0 for each in kept_steps]
            return _rows(arrays, rows, length, along, row_steps, units)
    if len(shape_within) == 1 and 1 <= len(kept_shape) <= 2 and length > 0 and state_bytes <= _COLUMN_BYTES:
        across = [each[-1] for each in kept_steps]
        if all(step in (0, 1) for step in across) and any(across):
            outer_steps = [each[0] if len(each) == 2 else 0 for each in kept_steps]
            sizes = rows // kept_shape[-1], length, kept_shape[-1]
            down = [each[0] for each in within]
            return _columns(arrays, *sizes, across, outer_steps, down, state_bytes, units)
    if not shape_within:
        shape_within, within = (1,), [(1,)] * len(steps)
    both = [first + second for first, second in zip(kept_steps, within, strict=True)]
    return _views(arrays, kept_shape + shape_within, len(kept_shape), both, rows, length, units)


def segments(arrays: Sequence[Array | None], rows: int, length: int, units: int) -> Launch:
    """The launch of a reduction of `rows` stretches of one dimension of `length`."""
    steps = [array.steps[0] if array else 0 for array in arrays]
    spacings = _spacings(steps)
    count = _count(arrays, steps) if _APART not in spacings else 1
    per_row = -(-length // max(1, rows * count))
    spread = spread_rows(rows, per_row, units)
    how = f"cudakit::by_segments<{_coded(spacings)}, {count}, {spread.width}, {spread.block}, {_items(arrays, spread)}>"
    layout = record(start=_starts(arrays), step=steps, rows=rows, length=length, parts=spread.parts)
    partials = rows * spread.parts if spread.parts > 1 else 0
    return Launch(how, config(spread.blocks, spread.block), partials, layout)


def _rows(
    arrays: Sequence[Array | None], rows: int, length: int, steps: list[int], row_steps: list[int], units: int
) -> Launch:
    count = _count(arrays, steps)
    apart = [row for array, step, row in zip(arrays, steps, row_steps, strict=True) if array and step == 1]
    # All arrays must lie alike to their words in every row.
    while count > 1 and rows > 1 and any((row - apart[0]) % count for row in apart):
        count //= 2
    # What of a short row lies before and after its aligned packs costs more than smaller packs do.
    while count > 1 and rows > 1 and length < 64 * count and (length % count or any(row % count for row in apart)):
        count //= 2
    spread = spread_rows(rows, -(-length // count), units)
    spacings = _coded(_spacings(steps))
    how = f"cudakit::by_rows<{spacings}, {count}, {spread.width}, {spread.block}, {_items(arrays, spread)}>"
    layout = record(start=_starts(arrays), step=steps, row_step=row_steps, rows=rows, length=length, parts=spread.parts)
    partials = rows * spread.parts if spread.parts > 1 else 0
    return Launch(how, config(spread.blocks, spread.block), partials, layout)


def _columns(
    arrays: Sequence[Array | None],
    outer: int,
    length: int,
    inner: int,
    across: list[int],
    outer_steps: list[int],
    steps: list[int],
    state_bytes: int,
    units: int,
) -> Launch:
    widest = max(array.dtype.itemsize for array in arrays if array)
    count = min(8 if widest == 1 else 4, _count(arrays, across))
    lying = [inner]
    for array, step, *others in zip(arrays, across, steps, outer_steps, strict=True):
        lying += others if array and step == 1 else []
    while count > 1 and (count * state_bytes > _COLUMN_BYTES or any(each % count for each in lying)):
        count //= 2
    spread = spread_columns(count, outer, length, inner, units)
    shape = f"{count}, {spread.width}, {spread.height}, {spread.block}, {_items(arrays, spread)}"
    how = f"cudakit::by_columns<{_coded(_spacings(across))}, {shape}>"
    layout = record(
        start=_starts(arrays),
        step=steps,
        outer_step=outer_steps,
        outer=outer,
        length=length,
        inner=inner,
        parts=spread.parts,
    )
    partials = outer * inner * spread.parts if spread.parts > 1 else 0
    return Launch(how, config(spread.blocks, spread.block), partials, layout)


def _views(
    arrays: Sequence[Array | None],
    shape: tuple[int, ...],
    kept: int,
    steps: Sequence[tuple[int, ...]],
    rows: int,
    length: int,
    units: int,
) -> Launch:
    nearest = [(abs(step), d >= kept) for each in steps for d, step in enumerate(each) if step]
    # Where neighbours in memory belong to different results, a thread each, once there are enough to fill the device.
    apart = bool(nearest) and not min(nearest)[1] and rows >= 512 * units
    spread = spread_rows(rows, 1 if apart else length, units)
    how = f"cudakit::by_views<{len(shape)}, {kept}, {spread.width}, {spread.block}, {_items(arrays, spread)}>"
    layout = record(start=_starts(arrays), shape=shape, steps=steps, rows=rows, length=length, parts=spread.parts)
    partials = rows * spread.parts if spread.parts > 1 else 0
    return Launch(how, config(spread.blocks, spread.block), partials, layout)


def _starts(arrays: Sequence[Array | None]) -> list[int]:
    return [array.start if array else 0 for array in arrays]


def _spacings(steps: Sequence[int]) -> list[int]:
    return [_ADJACENT if step == 1 else _SAME if step == 0 else _APART for step in steps]


def _coded(spacings: Sequence[int]) -> int:
    return sum(each << 2 * k for k, each in enumerate(spacings))


def _count(arrays: Sequence[Array | None], steps: Sequence[int]) -> int:
    """Elements of a load: 16 bytes of the widest type, of the arrays that have neighbours."""
    dtypes = [array.dtype for array, step in zip(arrays, steps, strict=True) if array and step == 1]
    if not dtypes or any(dtype.names is not None or dtype.itemsize > _PACK for dtype in dtypes):
        return 1
    return _PACK // max(dtype.itemsize for dtype in dtypes)


def _items(arrays: Sequence[Array | None], spread: Any) -> int:
    """Loads of each array that a thread has in flight.

    Of several arrays four in all: eight spill registers, and 2 × 2 reach 4590 GB/s on an H200 where 2 × 4 do 3580.
    """
    several = sum(array is not None for array in arrays)
    items: int = min(_ITEMS if several <= 1 else max(1, 4 // several), spread.items)
    return items
