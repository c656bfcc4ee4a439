"""How a reduction runs: its axes as rows or columns of memory, a kernel for them, a launch that fills the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import merged
from cudakit.arrays.place import TICKETS
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel

#: Bytes of one load, loads that a thread has in flight, and threads that a multiprocessor holds at once.
PACK = 16
_ITEMS, _THREADS = 8, 1024
_MOST_BLOCKS = 2**31 - 1


class Reduction(NamedTuple):
    """What becomes of the elements.

    Attributes
    ----------
    reducer : str
        A reducer of ``<cudakit/reduce/reducer.cuh>``.
    dtype : numpy.dtype
        Of the result.
    state_bytes : int
        Size of the reducer's State.
    ddof : float
        What the number of elements is lessened by, for the divisor.
    empty : bool
        Whether no elements have a result.
    in_order : bool
        Whether elements must be numbered as NumPy numbers them.
    """

    reducer: str
    dtype: np.dtype
    state_bytes: int
    ddof: float = 0.0
    empty: bool = True
    in_order: bool = False


class Launch(NamedTuple):
    """A kernel with its launch: `numbers` follow inputs, output and workspace."""

    kernel: Kernel
    config: Config
    workspace_bytes: int
    numbers: tuple[int | float, ...]


def planned(
    reduction: Reduction,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axes: tuple[int, ...],
    units: int,
) -> tuple[Launch, Callable[[Any], Any] | None]:
    """The launch for an array, and the view of it that the kernel takes."""
    steps = [step // dtype.itemsize for step in strides]
    kept = [d for d in range(len(shape)) if d not in axes]
    inner = list(axes)
    if not reduction.in_order:
        inner.sort(key=lambda d: -abs(steps[d]))
    kept_shape, kept_steps = merged([shape[d] for d in kept], [steps[d] for d in kept])
    shape_within, steps_within = merged([shape[d] for d in inner], [steps[d] for d in inner])
    rows, length = prod(kept_shape), prod(shape_within)
    if length == 0:
        return _row_launch(reduction, dtype, rows, 0, 0, units), None
    view = _flat(shape, steps)
    if steps_within in ((), (1,)) and len(kept_steps) <= 1 and min(kept_steps, default=1) > 0:
        return _row_launch(reduction, dtype, rows, length, kept_steps[0] if kept_steps else 0, units), view
    if len(steps_within) == 1 and len(kept_steps) in (1, 2) and kept_steps[-1] == 1:
        outer_step, step = kept_steps[0] if len(kept_steps) == 2 else 0, steps_within[0]
        if outer_step >= 0 and step > 0:
            sizes = rows // kept_shape[-1], length, kept_shape[-1], outer_step, step
            return _column_launch(reduction, dtype, *sizes, units), view
    return _view_launch(reduction, dtype, (kept_shape, kept_steps), (shape_within, steps_within), units)


def _flat(shape: Sequence[int], steps: Sequence[int]) -> Callable[[Any], Any] | None:
    """What makes of an array with no negative strides the stretch of memory that it lies in; None: it is that."""
    extents, apart = merged(shape, steps)
    if apart in ((), (1,)):
        return None
    size = 1 + sum((extent - 1) * step for extent, step in zip(extents, apart, strict=True))
    return lambda x: _strided_view(x, (size,), (x.dtype.itemsize,))


class Spread(NamedTuple):
    """How rows are spread over threads: WIDTH, BLOCK and ITEMS of the kernels, blocks of the launch, parts of a row."""

    width: int
    block: int
    items: int
    blocks: int
    parts: int


def spread_rows(rows: int, loads: int, units: int, state_bytes: int = 16) -> Spread:
    """How `rows` rows of `loads` loads each, reduced to `state_bytes`, fill `units` multiprocessors."""
    if rows > 1 and loads <= 32 * _ITEMS:
        # A few loads a thread rather than one: fewer lanes have less to combine.
        width = min(32, _power_of_two(-(-loads // 4)))
        block, items = 256, min(_ITEMS, _power_of_two(-(-loads // width)))
        return Spread(width, block, items, min(-(-rows // (block // width)), 64 * units), 1)
    # Where states take more registers than 1024 threads have, small blocks leave fewer of them unused.
    block = 128 if loads <= 16 * 128 else 256 if loads < 512 * _ITEMS or state_bytes > 8 else 512
    # One wave of large blocks has the fewest states to combine; several even out what rows leave over.
    waves = 2 if block < 512 else 1 if rows == 1 else 4
    # A block that has only a few loads a thread to do is done before another one could help it.
    parts = max(1, min(waves * (_THREADS // block) * units // rows, loads // 1024)) if rows <= TICKETS else 1
    return Spread(block, block, _ITEMS, min(rows * parts, _MOST_BLOCKS), parts)


class SpreadColumns(NamedTuple):
    """How columns are spread over threads: WIDTH, HEIGHT, BLOCK and ITEMS of the kernel, blocks, parts of a column."""

    width: int
    height: int
    block: int
    items: int
    blocks: int
    parts: int


def spread_columns(count: int, outer: int, length: int, inner: int, units: int) -> SpreadColumns:
    """How `outer` sets of `inner` columns, `count` of them a thread, fill `units` multiprocessors."""
    block, across = 512, _power_of_two(-(-inner // count))
    items = min(_ITEMS, _power_of_two(length))
    height = min(block // min(across, 64), _power_of_two(-(-length // items)))
    width = min(across, block // height)
    groups = min(block // width // height, _power_of_two(outer))
    height = block // width // groups
    tiles = -(-outer // groups) * -(-inner // (width * count))
    parts = 1
    if tiles <= TICKETS:
        parts = max(1, min(2 * (_THREADS // block) * units // tiles, length // (height * items)))
    return SpreadColumns(width, height, block, items, min(tiles * parts, _MOST_BLOCKS), parts)


def _power_of_two(number: int) -> int:
    """The least that is not below `number`."""
    return 1 << (number - 1).bit_length() if number > 1 else 1


def kernel_of(name: str, *arguments: Any) -> Kernel:
    """A kernel of ``templates/reduce.cuh`` with its template arguments."""
    return Kernel.from_template(f"reduce/{name}")[arguments]


def _row_launch(reduction: Reduction, dtype: np.dtype, rows: int, length: int, step: int, units: int) -> Launch:
    count = PACK // dtype.itemsize
    # What of a short row lies before and after its aligned packs costs more than smaller packs do.
    while count > 1 and rows > 1 and length < 64 * count and (length % count or step % count):
        count //= 2
    spread = spread_rows(rows, -(-length // count), units, reduction.state_bytes)
    kernel = kernel_of("rows", dtype, reduction.dtype, reduction.reducer, count, *spread[:3])
    numbers = (rows, length, step, spread.parts, max(length - reduction.ddof, 0.0))
    return Launch(kernel, config(spread.blocks, spread.block), _partial_bytes(reduction, rows, spread.parts), numbers)


def _partial_bytes(reduction: Reduction, results: int, parts: int) -> int:
    return results * parts * reduction.state_bytes if parts > 1 else 0


def _column_launch(
    reduction: Reduction,
    dtype: np.dtype,
    outer: int,
    length: int,
    inner: int,
    outer_step: int,
    step: int,
    units: int,
) -> Launch:
    # Each thread has a state for each of its columns in registers.
    count = min(8 if dtype.itemsize == 1 else 4, PACK // dtype.itemsize)
    while count > 1 and (count * reduction.state_bytes > 64 or inner % count or step % count or outer_step % count):
        count //= 2
    spread = spread_columns(count, outer, length, inner, units)
    shape = config(spread.blocks, spread.block)
    arguments = (dtype, reduction.dtype, reduction.reducer, count, *spread[:4])
    numbers = (outer, length, inner, outer_step, step, spread.parts, max(length - reduction.ddof, 0.0))
    partial_bytes = _partial_bytes(reduction, outer * inner, spread.parts)
    return Launch(kernel_of("columns", *arguments), shape, partial_bytes, numbers)


def _view_launch(
    reduction: Reduction,
    dtype: np.dtype,
    kept: tuple[tuple[int, ...], ...],
    within: tuple[tuple[int, ...], ...],
    units: int,
) -> tuple[Launch, Callable[[Any], Any]]:
    rows, length = prod(kept[0]), prod(within[0])
    shape, steps = (kept[0] + within[0], kept[1] + within[1]) if within[0] else (kept[0] + (1,), kept[1] + (1,))
    nearest = min((abs(step), d >= len(kept[0])) for d, step in enumerate(steps))
    # Where neighbours in memory belong to different results, a thread each, once there are enough to fill the device.
    apart = not nearest[1] and rows >= 512 * units
    spread = spread_rows(rows, 1 if apart else length, units)
    arguments = (dtype, len(shape), len(kept[0]), reduction.dtype, reduction.reducer, *spread[:2], _ITEMS)
    numbers = (rows, length, spread.parts, max(length - reduction.ddof, 0.0))
    partial_bytes = _partial_bytes(reduction, rows, spread.parts)
    launch = Launch(kernel_of("views", *arguments), config(spread.blocks, spread.block), partial_bytes, numbers)
    strides = tuple(step * dtype.itemsize for step in steps)
    return launch, lambda x: _strided_view(x, shape, strides)


def _strided_view(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
    import cupy

    return cupy.lib.stride_tricks.as_strided(x, shape, strides)
