"""How a reduction of arrays runs: as rows, columns or views of memory, and the launch that fills the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.job import Launch
from cudakit.arrays.layout import merged, record, span, steps_of, view_of
from cudakit.arrays.place import TICKETS
from cudakit.jit.load.config import config

#: Bytes of one load, loads that a thread has in flight, and threads that a multiprocessor holds at once.
_PACK, _ITEMS, _THREADS = 16, 8, 1024
_COLUMN_THREADS = 512
_MOST_BLOCKS = 2**31 - 1
#: Largest state that columns, each with its own in a thread's registers, are worth their while with; what those of a
#: block take of its shared memory at most.
_COLUMN_BYTES, _SHARED_BYTES = 64, 48 << 10
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
        What `flat` needs; None where it is C-contiguous.
    """

    dtype: np.dtype
    steps: tuple[int, ...]
    start: int
    view: tuple[int, int] | None


class _Spread(NamedTuple):
    """How rows are spread over threads: WIDTH, BLOCK and ITEMS of the kernels, blocks of the launch, parts of a row."""

    width: int
    block: int
    items: int
    blocks: int
    parts: int


class _SpreadColumns(NamedTuple):
    """How columns are spread over threads: WIDTH, HEIGHT, BLOCK and ITEMS of the kernel, blocks, parts of a column."""

    width: int
    height: int
    block: int
    items: int
    blocks: int
    parts: int


class ReductionTask(NamedTuple):
    """What is reduced, and what by.

    Attributes
    ----------
    arrays : sequence of Array or None
        None for what is the same for all elements.
    state_bytes : int
        Size of what is known of some of the elements.
    units : int
        Multiprocessors.
    loads : int
        Of several arrays, all that a thread has in flight: eight spill registers where states or expressions take many,
        and 2 × 2 reach 4590 GB/s on an H200 where 2 × 4 do 3580.
    block : int or None
        Threads of a block, whole warps; None for what is best.
    """

    arrays: Sequence[Array | None]
    state_bytes: int
    units: int
    loads: int = 4
    block: int | None = None

    def items(self, spread: _Spread | _SpreadColumns) -> int:
        """Loads of each array that a thread has in flight."""
        several = sum(array is not None for array in self.arrays)
        return min(_ITEMS if several <= 1 else max(1, self.loads // several), spread.items)

    def launch(self, how: str, spread: _Spread | _SpreadColumns, results: int, **layout: Any) -> Launch:
        """A launch of `results`, whose parts leave their states in the workspace."""
        starts = [array.start if array else 0 for array in self.arrays]
        scratch_bytes = results * spread.parts * self.state_bytes if spread.parts > 1 else 0
        shape = config(spread.blocks, spread.block)
        return Launch(f"cudakit::{how}", shape, scratch_bytes, record(start=starts, **layout, parts=spread.parts))


def array_of(op: str, kind: tuple[np.dtype, tuple[int, ...], tuple[int, ...]], shape: Sequence[int]) -> Array:
    """An array, by dtype, shape and strides in bytes, among others of a common `shape`.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    dtype, extents, strides = kind
    steps = steps_of(op, dtype, [0 if n == 1 else step for n, step in zip(extents, strides, strict=True)])
    new = (0,) * (len(shape) - len(steps))
    return Array(dtype, new + steps, span(extents, steps)[0], view_of(extents, steps))


def plan_reduction(task: ReductionTask, shape: tuple[int, ...], axes: tuple[int, ...], in_order: bool) -> Launch:
    """The launch of a reduction over `axes`.

    `in_order`: the reduced elements must be numbered in row-major order.
    """
    steps = [array.steps if array else (0,) * len(shape) for array in task.arrays]
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
            return _rows(task, rows, length, along, row_steps)
    fits = task.state_bytes <= min(_COLUMN_BYTES, _SHARED_BYTES // (task.block or _COLUMN_THREADS))
    if len(shape_within) == 1 and 1 <= len(kept_shape) <= 2 and length > 0 and fits:
        across = [each[-1] for each in kept_steps]
        if all(step in (0, 1) for step in across) and any(across):
            outer_steps = [each[0] if len(each) == 2 else 0 for each in kept_steps]
            sizes = rows // kept_shape[-1], length, kept_shape[-1]
            return _columns(task, *sizes, across, outer_steps, [each[0] for each in within])
    if not shape_within:
        shape_within, within = (1,), [(1,)] * len(steps)
    both = [first + second for first, second in zip(kept_steps, within, strict=True)]
    return _views(task, kept_shape + shape_within, len(kept_shape), both, rows, length)


def plan_segments(task: ReductionTask, rows: int, length: int) -> Launch:
    """The launch of a reduction of `rows` stretches of one dimension of `length`."""
    steps = [array.steps[0] if array else 0 for array in task.arrays]
    spacings = _spacings(steps)
    count = _count(task.arrays, steps) if _APART not in spacings else 1
    spread = _spread_rows(task, rows, -(-length // max(1, rows * count)), task.state_bytes)
    how = f"by_segments<{_coded(spacings)}, {count}, {spread.width}, {spread.block}, {task.items(spread)}>"
    return task.launch(how, spread, rows, step=steps, rows=rows, length=length)


def _rows(task: ReductionTask, rows: int, length: int, steps: list[int], row_steps: list[int]) -> Launch:
    count = _count(task.arrays, steps)
    apart = [row for array, step, row in zip(task.arrays, steps, row_steps, strict=True) if array and step == 1]
    # All arrays must lie alike to their words in every row.
    while count > 1 and rows > 1 and any((row - apart[0]) % count for row in apart):
        count //= 2
    # What of a short row lies before and after its aligned packs costs more than smaller packs do.
    while count > 1 and rows > 1 and length < 64 * count and (length % count or any(row % count for row in apart)):
        count //= 2
    spread = _spread_rows(task, rows, -(-length // count), task.state_bytes)
    spacings = _coded(_spacings(steps))
    how = f"by_rows<{spacings}, {count}, {spread.width}, {spread.block}, {task.items(spread)}>"
    return task.launch(how, spread, rows, step=steps, row_step=row_steps, rows=rows, length=length)


def _columns(
    task: ReductionTask,
    outer: int,
    length: int,
    inner: int,
    across: list[int],
    outer_steps: list[int],
    steps: list[int],
) -> Launch:
    widest = max(array.dtype.itemsize for array in task.arrays if array)
    # Each thread has a state for each of its columns in registers.
    count = min(8 if widest == 1 else 4, _count(task.arrays, across))
    lying = [inner]
    for array, step, *others in zip(task.arrays, across, steps, outer_steps, strict=True):
        lying += others if array and step == 1 else []
    most = min(_COLUMN_BYTES, _SHARED_BYTES // (task.block or _COLUMN_THREADS))
    while count > 1 and (count * task.state_bytes > most or any(each % count for each in lying)):
        count //= 2
    spread = _spread_columns(task, count, outer, length, inner)
    sizes = f"{count}, {spread.width}, {spread.height}, {spread.block}, {task.items(spread)}"
    how = f"by_columns<{_coded(_spacings(across))}, {sizes}>"
    layout = {"step": steps, "outer_step": outer_steps, "outer": outer, "length": length, "inner": inner}
    return task.launch(how, spread, outer * inner, **layout)


def _views(
    task: ReductionTask, shape: tuple[int, ...], kept: int, steps: Sequence[tuple[int, ...]], rows: int, length: int
) -> Launch:
    nearest = [(abs(step), d >= kept) for each in steps for d, step in enumerate(each) if step]
    # Where neighbours in memory belong to different results, a thread each, once there are enough to fill the device.
    apart = bool(nearest) and not min(nearest)[1] and rows >= 512 * task.units
    spread = _spread_rows(task, rows, 1 if apart else length)
    how = f"by_views<{len(shape)}, {kept}, {spread.width}, {spread.block}, {task.items(spread)}>"
    return task.launch(how, spread, rows, shape=shape, steps=steps, rows=rows, length=length)


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


def _spread_rows(task: ReductionTask, rows: int, loads: int, state_bytes: int = 16) -> _Spread:
    """How `rows` rows of `loads` loads each, reduced to `state_bytes`, fill all multiprocessors."""
    units = task.units
    if rows > 1 and loads <= 32 * _ITEMS:
        # A few loads a thread rather than one: fewer lanes have less to combine.
        width = min(32, _power_of_two(-(-loads // 4)))
        block, items = task.block or 256, min(_ITEMS, _power_of_two(-(-loads // width)))
        return _Spread(width, block, items, min(-(-rows // (block // width)), 64 * units), 1)
    # Where states take more registers than 1024 threads have, small blocks leave fewer of them unused.
    best = 128 if loads <= 16 * 128 else 256 if loads < 512 * _ITEMS or state_bytes > 8 else 512
    block = task.block or best
    # One wave of large blocks has the fewest states to combine; several even out what rows leave over.
    waves = 2 if block < 512 else 1 if rows == 1 else 4
    # A block that has only a few loads a thread to do is done before another one could help it.
    parts = max(1, min(waves * (_THREADS // block) * units // rows, loads // 1024)) if rows <= TICKETS else 1
    return _Spread(block, block, _ITEMS, min(rows * parts, _MOST_BLOCKS), parts)


def _spread_columns(task: ReductionTask, count: int, outer: int, length: int, inner: int) -> _SpreadColumns:
    """How `outer` sets of `inner` columns, `count` of them a thread, fill all multiprocessors."""
    block = task.block or _COLUMN_THREADS
    # Rows of threads are halved: what a block has beside a power of two stands side by side.
    power = block & -block
    across = _power_of_two(-(-inner // (count * (block // power))))
    items = min(_ITEMS, _power_of_two(length))
    height = min(max(1, power // min(across, 64)), _power_of_two(-(-length // items)))
    width = min(across, power // height)
    groups = min(power // width // height, _power_of_two(outer))
    height = power // width // groups
    width *= block // power
    tiles = -(-outer // groups) * -(-inner // (width * count))
    parts = 1
    if tiles <= TICKETS:
        parts = max(1, min(2 * (_THREADS // block) * task.units // tiles, length // (height * items)))
    return _SpreadColumns(width, height, block, items, min(tiles * parts, _MOST_BLOCKS), parts)


def _power_of_two(number: int) -> int:
    """The least that is not below `number`."""
    return 1 << (number - 1).bit_length() if number > 1 else 1
