"""Launch plans shared by families of calls; how reductions and scans traverse their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import flat, merged, record, span, steps_of, view_of
from cudakit.arrays.place import TICKETS, ArrayPlace, device_limits
from cudakit.arrays.tunable import Choice
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel


class Launch(NamedTuple):
    """A launch of a kernel that can traverse its arrays in several ways.

    Attributes
    ----------
    how : str
        Way of traversal, as a type of the templates.
    config : Config
        Launch configuration.
    scratch_bytes : int
        Memory that the kernel needs beside its arrays.
    layout : numpy.void
        Argument `layout` of the kernel.
    """

    how: str
    config: Config
    scratch_bytes: int
    layout: Any


class Job(NamedTuple):
    """Shape and dtypes of the results and, if there are elements, the launch that computes them.

    Attributes
    ----------
    shape : tuple of int
        Shape of the results.
    dtypes : tuple of numpy.dtype
        Dtypes of the results.
    kernel, config
        Kernel and configuration; None if there is nothing to launch.
    scratch_bytes : int
        Memory that the kernel needs beside its arrays.
    numbers : tuple
        Last arguments of the kernel, the same for all such calls.
    views : tuple or None
        Arguments of `flat` for each array; None if all arrays are passed as they are.
    first : Kernel or None
        Kernel that is launched before, with the same arguments.
    kept_bytes : int
        Size of the data that the first kernel leaves for the second.
    most : int or None
        Greatest possible index, if results are indices.
    """

    shape: tuple[int, ...]
    dtypes: tuple[np.dtype, ...] = ()
    kernel: Kernel | None = None
    config: Config | None = None
    scratch_bytes: int = 0
    numbers: tuple[Any, ...] = ()
    views: tuple[tuple[int, int] | None, ...] | None = None
    first: Kernel | None = None
    kept_bytes: int = 0
    most: int | None = None

    def run(self, place: ArrayPlace, *arrays: Any) -> None:
        """Launch on arrays only, if there is anything to launch."""
        if self.kernel is not None:
            operands = arrays if self.views is None else self.operands(arrays)
            place.launch(self.kernel, self.config, *operands, *self.numbers)

    def operands(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays as the kernel takes them: itself, or the memory that it spans (`flat`), for each array."""
        if self.views is None:
            return arrays
        return [x if view is None else flat(x, *view) for x, view in zip(arrays, self.views, strict=True)]


def views_or_none(views: Sequence[tuple[int, int] | None]) -> tuple[tuple[int, int] | None, ...] | None:
    """Return `Job.views`, or None if no array needs a view."""
    return tuple(views) if any(view is not None for view in views) else None


# Reductions: as rows, columns or views of memory, with a launch that fills the device.

#: Bytes of one load, loads that a thread has in flight, and threads that a multiprocessor holds at once.
_PACK, _ITEMS, _THREADS = 16, 8, 1024
_COLUMN_THREADS = 512
_LONG_ROWS = Choice("long rows", {"block": (128, 256, 512, 1024), "waves": (1, 2, 3, 4, 8), "items": (4, _ITEMS)})
_SHORT_ROWS = Choice(
    "short rows", {"width": (1, 2, 4, 8, 16, 32), "block": (128, 256, 512), "items": (1, 2, 4, _ITEMS)}
)
_LONG_COLUMNS = Choice("columns", {"block": (128, 256, 512, 1024), "waves": (1, 2, 3, 4, 8)})
_MOST_BLOCKS = 2**31 - 1
#: Largest state for which columns, each with a state in a thread's registers, are worthwhile; maximum of shared memory
#: for the states of a block.
_COLUMN_BYTES, _SHARED_BYTES = 64, 48 << 10
#: Spacing of an input's elements: `spacing` in <cudakit/reduce/several.cuh>.
_ADJACENT, _SAME, _APART = 0, 1, 2


class Array(NamedTuple):
    """An input array of a call, as a launch sees it.

    Attributes
    ----------
    dtype : numpy.dtype
        Dtype of the elements.
    steps : tuple of int
        Strides in elements, for each dimension of the inputs' common shape.
    start : int
        Offset of the first element from the begin of the memory that the array spans.
    view : (int, int) or None
        Arguments of `flat`; None if the array is C-contiguous.
    """

    dtype: np.dtype
    steps: tuple[int, ...]
    start: int
    view: tuple[int, int] | None


class _Spread(NamedTuple):
    """The distribution of rows or columns over threads.

    WIDTH, BLOCK, ITEMS and (for columns) HEIGHT of the kernels, blocks of the launch, parts of a row or column.
    """

    width: int
    block: int
    items: int
    blocks: int
    parts: int
    height: int = 1


class ReductionTask(NamedTuple):
    """The inputs and the reducer of a reduction.

    Attributes
    ----------
    arrays : sequence of Array or None
        Input arrays; None for a value that is the same for all elements.
    state_bytes : int
        Size of the reducer's state.
    units : int
        Number of multiprocessors.
    loads : int
        Loads that a thread has in flight, over all arrays. Eight spill registers if states or expressions need many,
        and 2 × 2 reach 4590 GB/s on an H200 where 2 × 4 reach 3580.
    block : int or None
        Threads of a block, in whole warps; None for the best number.
    tuned : (str, int, int or str) or None
        Reducer and dtype, number of elements, and device, by which tuned points are looked up. None: defaults.
    """

    arrays: Sequence[Array | None]
    state_bytes: int
    units: int
    loads: int = 4
    block: int | None = None
    tuned: tuple[str, int, int | str] | None = None

    def point(self, choice: Choice, form: str, default: Any, fits: Callable[..., bool] | None = None) -> Any:
        """Return the tuned point of a choice, or the default."""
        if self.tuned is None:
            return default
        reducer, size, device = self.tuned
        return choice.point(f"{reducer}, {form}", size, device, default, fits)

    def items(self, spread: _Spread) -> int:
        """Return the number of loads of each array that a thread has in flight: at most `loads` over all arrays."""
        several = sum(array is not None for array in self.arrays)
        return min(_ITEMS if several <= 1 else max(1, self.loads // several), spread.items)

    def launch(self, how: str, spread: _Spread, results: int, **layout: Any) -> Launch:
        """Return the launch that computes `results` results in the way `how`, with threads as in `spread`.

        If several blocks share a result, each leaves its state in the workspace. `layout` has further fields of the
        kernel's argument `layout`.
        """
        starts = [array.start if array else 0 for array in self.arrays]
        scratch_bytes = results * spread.parts * self.state_bytes if spread.parts > 1 else 0
        shape = config(spread.blocks, spread.block)
        return Launch(f"cudakit::{how}", shape, scratch_bytes, record(start=starts, **layout, parts=spread.parts))


def array_of(op: str, description: tuple[np.dtype, tuple[int, ...], tuple[int, ...]], shape: Sequence[int]) -> Array:
    """Describe an array by dtype, shape and strides in bytes, broadcast to the common `shape`.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    dtype, extents, strides = description
    steps = steps_of(op, dtype, [0 if n == 1 else step for n, step in zip(extents, strides, strict=True)])
    new = (0,) * (len(shape) - len(steps))
    return Array(dtype, new + steps, span(extents, steps)[0], view_of(extents, steps))


def plan_reduction(task: ReductionTask, shape: tuple[int, ...], axes: tuple[int, ...], in_order: bool) -> Launch:
    """Plan the launch of a reduction over `axes`.

    `in_order`: the reduced elements must be numbered in row-major order.
    """
    steps = [array.steps if array else (0,) * len(shape) for array in task.arrays]
    kept_axes = [d for d in range(len(shape)) if d not in axes]
    inner = list(axes)
    if not in_order:
        inner.sort(key=lambda d: -max(abs(step[d]) for step in steps))
    kept_shape, *kept_steps = merged([shape[d] for d in kept_axes], *([step[d] for d in kept_axes] for step in steps))
    shape_within, *within = merged([shape[d] for d in inner], *([step[d] for d in inner] for step in steps))
    rows, length = prod(kept_shape), prod(shape_within)
    if len(shape_within) <= 1 and len(kept_shape) <= 1:
        along = [step[0] if step else 0 for step in within]
        if all(step in (0, 1) for step in along):
            row_steps = [step[0] if step else 0 for step in kept_steps]
            return _rows(task, rows, length, along, row_steps)
    fits = task.state_bytes <= min(_COLUMN_BYTES, _SHARED_BYTES // (task.block or _COLUMN_THREADS))
    if len(shape_within) == 1 and 1 <= len(kept_shape) <= 2 and length > 0 and fits:
        across = [step[-1] for step in kept_steps]
        if all(step in (0, 1) for step in across) and any(across):
            outer_steps = [step[0] if len(step) == 2 else 0 for step in kept_steps]
            sizes = rows // kept_shape[-1], length, kept_shape[-1]
            return _columns(task, *sizes, across, outer_steps, [step[0] for step in within])
    if not shape_within:
        shape_within, within = (1,), [(1,)] * len(steps)
    both = [first + second for first, second in zip(kept_steps, within, strict=True)]
    return _views(task, kept_shape + shape_within, len(kept_shape), both, rows, length)


def plan_segments(task: ReductionTask, rows: int, length: int) -> Launch:
    """Plan the launch of a reduction of one-dimensional arrays of `length` elements, cut into `rows` segments."""
    steps = [array.steps[0] if array else 0 for array in task.arrays]
    spacings = _spacings(steps)
    count = _count(task.arrays, steps) if _APART not in spacings else 1
    spread = _spread_rows(task, rows, -(-length // max(1, rows * count)), task.state_bytes)
    how = f"by_segments<{_coded(spacings)}, {count}, {spread.width}, {spread.block}, {task.items(spread)}>"
    return task.launch(how, spread, rows, step=steps, rows=rows, length=length)


def _rows(task: ReductionTask, rows: int, length: int, steps: list[int], row_steps: list[int]) -> Launch:
    count = _count(task.arrays, steps)
    apart = [row for array, step, row in zip(task.arrays, steps, row_steps, strict=True) if array and step == 1]
    # In every row, all arrays must have the same alignment to their words.
    while count > 1 and rows > 1 and any((row - apart[0]) % count for row in apart):
        count //= 2
    # The unaligned ends of a short row cost more than smaller packs do.
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
    extents = [inner]
    for array, step, *others in zip(task.arrays, across, steps, outer_steps, strict=True):
        extents += others if array and step == 1 else []
    block, waves = task.point(
        _LONG_COLUMNS,
        f"lines of {_power_of_two(length)}",
        (task.block or _COLUMN_THREADS, 2),
        fits=lambda block: task.state_bytes <= _SHARED_BYTES // block,
    )
    most = min(_COLUMN_BYTES, _SHARED_BYTES // block)
    while count > 1 and (count * task.state_bytes > most or any(extent % count for extent in extents)):
        count //= 2
    spread = _spread_columns(task, count, outer, length, inner, block, waves)
    sizes = f"{count}, {spread.width}, {spread.height}, {spread.block}, {task.items(spread)}"
    how = f"by_columns<{_coded(_spacings(across))}, {sizes}>"
    layout = {"step": steps, "outer_step": outer_steps, "outer": outer, "length": length, "inner": inner}
    return task.launch(how, spread, outer * inner, **layout)


def _views(
    task: ReductionTask,
    shape: tuple[int, ...],
    kept_dimensions: int,
    steps: Sequence[tuple[int, ...]],
    rows: int,
    length: int,
) -> Launch:
    nearest = [(abs(step), d >= kept_dimensions) for array_steps in steps for d, step in enumerate(array_steps) if step]
    # If adjacent elements belong to different results, one thread for each result, once they fill the device.
    apart = bool(nearest) and not min(nearest)[1] and rows >= 512 * task.units
    spread = _spread_rows(task, rows, 1 if apart else length)
    how = f"by_views<{len(shape)}, {kept_dimensions}, {spread.width}, {spread.block}, {task.items(spread)}>"
    return task.launch(how, spread, rows, shape=shape, steps=steps, rows=rows, length=length)


def _spacings(steps: Sequence[int]) -> list[int]:
    return [_ADJACENT if step == 1 else _SAME if step == 0 else _APART for step in steps]


def _coded(spacings: Sequence[int]) -> int:
    return sum(spacing << 2 * k for k, spacing in enumerate(spacings))


def _count(arrays: Sequence[Array | None], steps: Sequence[int]) -> int:
    """Return the number of elements that a thread loads at once, for strides `steps` in elements.

    It fills 16 bytes of the widest dtype among arrays with stride 1. It is 1 if there is no such array, or if one has
    structs or larger elements.
    """
    dtypes = [array.dtype for array, step in zip(arrays, steps, strict=True) if array and step == 1]
    if not dtypes or any(dtype.names is not None or dtype.itemsize > _PACK for dtype in dtypes):
        return 1
    return _PACK // max(dtype.itemsize for dtype in dtypes)


def _spread_rows(task: ReductionTask, rows: int, loads: int, state_bytes: int = 16) -> _Spread:
    """Choose threads and blocks for `rows` rows of `loads` loads each, so that all multiprocessors have work.

    `state_bytes` is the size of the reducer's state. A long row may be shared by several blocks.
    """
    units = task.units
    if rows > 1 and loads <= 32 * _ITEMS:
        # A few loads a thread rather than one: fewer lanes have less to combine.
        width = min(32, _power_of_two(-(-loads // 4)))
        default = width, task.block or 256, min(_ITEMS, _power_of_two(-(-loads // width)))
        width, block, items = task.point(_SHORT_ROWS, f"{_power_of_two(loads)} loads", default)
        return _Spread(width, block, items, min(-(-rows // (block // width)), 64 * units), 1)
    # States that need more registers than 1024 threads have: small blocks leave fewer registers unused.
    best = 128 if loads <= 16 * 128 else 256 if loads < 512 * _ITEMS or state_bytes > 8 else 512
    block = task.block or best
    # One wave of large blocks has the fewest states to combine; several waves even out the rows' remainders.
    waves = 2 if block < 512 else 1 if rows == 1 else 4
    form = "one row" if rows == 1 else f"rows of {_power_of_two(loads)} loads"
    block, waves, items = task.point(_LONG_ROWS, form, (block, waves, _ITEMS))
    # A block with only a few loads a thread is done before another block could help it.
    parts = max(1, min(waves * (_THREADS // block) * units // rows, loads // 1024)) if rows <= TICKETS else 1
    return _Spread(block, block, items, min(rows * parts, _MOST_BLOCKS), parts)


def _spread_columns(
    task: ReductionTask, count: int, outer: int, length: int, inner: int, block: int, waves: int
) -> _Spread:
    """Choose threads and blocks for `outer` sets of `inner` columns of `length` elements each.

    A thread takes `count` adjacent columns. Long columns may be shared by several blocks, as many as `waves` for each
    multiprocessor.
    """
    # Rows of threads are halved, so that their number is a power of two; the other factor widens the rows.
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
        parts = max(1, min(waves * (_THREADS // block) * task.units // tiles, length // (height * items)))
    return _Spread(width, block, items, min(tiles * parts, _MOST_BLOCKS), parts, height)


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below `number`."""
    return 1 << (number - 1).bit_length() if number > 1 else 1


# Scans: along one long line, or along many lines by rows or columns of memory.

# As in <cudakit/scan/line_scan.cuh>: warps that scan, warps that reduce, and maximum of shared memory of a tile. Two
# more warps load and look back. With keys, the warp that looks back has registers to spare if two warps reduce (H200:
# 3228 GB/s beside 3083 with four).
_SCANNERS, _REDUCERS, _KEYED_REDUCERS, _MOST_STAGES, _TILE_BYTES = 16, 4, 2, 8, 32 << 10
_STATUS_HEADER, _ROWS_THREADS, _STRETCH_ALIGNMENT = 256, 256, 128
#: Maximum of shared memory for a block's variables, and for the totals of two tiles of columns.
_STATIC_BYTES, _TOTALS_BYTES = 48 << 10, 40 << 10
# Maxima for a lane: words of items in registers, and bytes of items and of the elements read ahead. Bytes of a column
# for a thread. Least number of lines for columns.
_ITEM_WORDS, _KEPT_BYTES, _THREAD_BYTES, _LEAST_COLUMNS = 32, 128, 64, 8
#: Largest item, by the shared memory that tiles' parts take.
_MOST_ITEM_BYTES = 128
#: Blocks at once on the emulator, which runs all threads of a launch side by side.
_EMULATED_BLOCKS = 4
#: How an output is written: `writing` in <cudakit/scan/result.cuh>.
PACKED, DIRECT, RAW, _NEIGHBOURS = 0, 1, 2, 3


class Writer(NamedTuple):
    """An output of a scan: its array (None for a raw output), and a code for how it is written, such as `PACKED`."""

    array: Array | None
    writing: int


class ScanTask(NamedTuple):
    """The inputs and outputs of a scan.

    Attributes
    ----------
    readers : sequence of Array or None
        Input arrays; None for a value that is the same for all elements.
    writers : sequence of Writer
        Outputs.
    item_bytes : int
        Size of the items that are combined.
    device : int or str
        Device name of an `ArrayPlace`.
    keys : Array or None
        Keys: each run of equal neighbouring keys is scanned by itself. They are the last array that the kernel reads.
    block : int or None
        Threads of a block, in whole warps; None for the best number.
    """

    readers: Sequence[Array | None]
    writers: Sequence[Writer]
    item_bytes: int
    device: int | str
    keys: Array | None = None
    block: int | None = None


def backward(array: Array, axis: int, n: int) -> Array:
    """Return an array with the order of its `n` elements along an axis reversed."""
    step = array.steps[axis]
    steps = tuple(-stride if d == axis else stride for d, stride in enumerate(array.steps))
    return array._replace(start=array.start + (n - 1) * step, steps=steps)


def plan_scan(op: str, task: ScanTask, shape: tuple[int, ...], axis: int) -> Launch:
    """Plan the launch of a non-empty scan along `axis`. ``{}`` in `Launch.how` stands for the pass.

    Raises
    ------
    ArgumentError
        If the items are too large, alone or for a block of the requested number of threads. If a block is too small to
        share a line.
    """
    if task.item_bytes > _MOST_ITEM_BYTES:
        raise ArgumentError(f"{op}: an item of the scan has {task.item_bytes} bytes; the limit is {_MOST_ITEM_BYTES}")
    return _ScanPlan(op, task, shape, axis).launch()


class _ScanPlan:
    def __init__(self, op: str, task: ScanTask, shape: tuple[int, ...], axis: int) -> None:
        self.op, self.task = op, task
        self.readers = [*task.readers, *([] if task.keys is None else [task.keys])]
        arrays = [*self.readers, *(writer.array for writer in task.writers)]
        steps = [array.steps if array else (0,) * len(shape) for array in arrays]
        others = [d for d in range(len(shape)) if d != axis]
        extents, *other_steps = merged([shape[d] for d in others], *([step[d] for d in others] for step in steps))
        self.extents = extents or (1,)
        self.others = [step or (0,) for step in other_steps]
        # A line of one element is treated as if it had a neighbour: the kernel is that of longer lines.
        self.along = [
            step[axis] if shape[axis] > 1 or not array else 1 for step, array in zip(steps, arrays, strict=True)
        ]
        self.n, self.lines = shape[axis], prod(extents)
        self.item_words = -(-task.item_bytes // 4)
        self.limits = device_limits(task.device)
        self.blocks = _EMULATED_BLOCKS if isinstance(task.device, str) else self.limits.multiprocessors
        # Arrays whose elements are staged in shared memory; keys always are.
        self.staged = [
            array.dtype
            for array, step in zip(self.readers, self.along, strict=False)
            if array and (step or array is task.keys)
        ]
        self.element_bytes = sum(dtype.itemsize for dtype in self.staged)
        self.vector = self._vector()
        self.reducers = _REDUCERS if task.keys is None else _KEYED_REDUCERS
        self.scanners = _SCANNERS
        if task.block is not None:
            # The same number of scanning warps for each reducing warp.
            rest = max(2, task.block // 32 - 2)
            self.reducers = next(k for k in range(min(self.reducers, rest // 2), 0, -1) if rest % k == 0)
            self.scanners = rest - self.reducers
        row = 32 * self.vector
        fits = [
            rows
            for rows in (2, 4)
            if rows * self.scanners * row * self.element_bytes <= _TILE_BYTES
            and rows * self.vector * self.item_words <= _ITEM_WORDS
        ]
        self.scan_rows = max(fits, default=1)
        self.tile = self.scanners * self.scan_rows * row

    def _vector(self) -> int:
        """Return the number of adjacent elements that a lane takes at once.

        It reads at most 16 bytes of an array, and writes at most 32. Registers bound it. It is 1 for structs.
        """
        readers, writers = self.task.readers, self.task.writers
        read = max((a.dtype.itemsize for a in readers if a), default=4)
        written = max((w.array.dtype.itemsize for w in writers if w.array and w.writing == PACKED), default=read)
        if read & (read - 1) or read > 16 or any(a.dtype.names is not None for a in readers if a):
            return 1
        vector = 16 // read if 2 * read >= written else 32 // written
        while vector > 1 and vector * self.item_words > _ITEM_WORDS:
            vector //= 2
        return max(1, vector)

    def launch(self) -> Launch:
        nearest = [
            (min((abs(step) for step in rest if step), default=0), abs(step))
            for rest, step in zip(self.others, self.along, strict=True)
            if step
        ]
        # For most arrays, adjacent elements belong to different lines.
        beside = 2 * sum(0 < rest < own for rest, own in nearest) > len(nearest)
        across = beside and self.lines >= _LEAST_COLUMNS and self.item_words <= 16
        if self.lines == 1 or (2 * self.lines <= self.blocks and self.n >= 4 * self.tile and not across):
            return self._line()
        return self._columns() if across else self._rows()

    def _line(self) -> Launch:
        tiles, lines = self.n // self.tile + 2, self.lines
        blocks = min(-(-self.n // self.tile), max(1, self.blocks // lines))
        stage = self._stage_bytes()
        static = 32 * _MOST_STAGES + 2 * _MOST_STAGES * self.scanners * self.task.item_bytes + 1024
        most = min(_MOST_STAGES, (self.limits.shared_bytes - static) // stage) if stage else _MOST_STAGES
        threads = 32 * (2 + self.reducers + self.scanners)
        if self.task.block is not None:
            self._check(threads == self.task.block, f"one line takes {threads} threads at least")
            self._check(
                static <= _STATIC_BYTES and most > 0, f"parts of a line take {static + stage} bytes of shared memory"
            )
        stages = min(most, -(-tiles // blocks))
        launch = config((blocks, lines), threads, stages * stage, cooperative=tiles > blocks > 1)
        shape = f"{len(self.extents)}, {self.vector}, {self.scan_rows}, {self.scanners}, {self.reducers}"
        status_bytes = _STATUS_HEADER + 8 * self.item_words * tiles * lines
        return self._scan_launch("by_line", shape, launch, status_bytes, stages=stages)

    def _stage_bytes(self) -> int:
        """Return the bytes of shared memory for the elements of a tile; 0 if no array is staged in shared memory.

        `stretch_bytes` in <cudakit/scan/one_line.cuh> computes the same.
        """
        if not self.staged:
            return 0
        first = self.staged[0]
        begins = first.names is None and 16 % first.itemsize == 0  # tiles begin at a multiple of 16 bytes
        ahead = self.task.keys is not None  # the key before a tile's first
        return self.tile * self.element_bytes + _STRETCH_ALIGNMENT * (len(self.staged) - begins + ahead)

    def _rows(self) -> Launch:
        packs = -(-self.n // self.vector)
        most = max(1, _KEPT_BYTES // (self.vector * (4 * self.item_words + self.element_bytes)))
        rank, threads = len(self.extents), self.task.block or _ROWS_THREADS
        if packs <= 32 * min(4, most):
            width, rows = min(32, _power_of_two(packs)), -(-packs // 32)
            at_once = max(1, min(4, most) // rows)
            shape = f"{rank}, {self.vector}, {threads // 32}, {width}, {rows}, {at_once}"
            blocks = -(-self.lines * width // (threads * at_once))
            resident = max(1, (1024 if rows == 1 else 768) // threads)
            return self._scan_launch("by_short_rows", shape, config(min(blocks, resident * self.blocks), threads), 0)
        rows = min(4, most, -(-packs // threads))
        shape = f"{rank}, {self.vector}, {threads // 32}, {rows}"
        blocks = min(self.lines, max(1, 1024 // threads) * self.blocks)
        return self._scan_launch("by_scan_rows", shape, config(blocks, threads), 0)

    def _columns(self) -> Launch:
        strips = -(-self.lines // 32)
        rows = max(1, _THREAD_BYTES // (4 * max(1, self.item_words)))
        warps = 32 if self.item_words <= 2 and strips <= self.blocks // 2 else 16 if self.item_words <= 8 else 8
        # Shared memory holds the totals of two tiles.
        while warps * 64 * self.task.item_bytes > _TOTALS_BYTES:
            warps //= 2
        if self.task.block is not None:
            warps = self.task.block // 32
            took = warps * 64 * self.task.item_bytes
            self._check(took <= _STATIC_BYTES, f"parts of columns take {took} bytes of shared memory")
        tiles = -(-self.n // (warps * rows))
        sharing = max(1, min(tiles, self.blocks // strips, 5 * warps))
        status_bytes = _STATUS_HEADER + (8 * self.item_words * tiles * self.lines if sharing > 1 else 0)
        launch = config(strips * sharing, 32 * warps, cooperative=sharing > 1)
        shape = f"{len(self.extents)}, {'true' if sharing > 1 else 'false'}, {warps}, {rows}"
        return self._scan_launch("by_scan_columns", shape, launch, status_bytes, along=sharing)

    def _check(self, fits: bool, why: str) -> None:
        if not fits:
            raise ArgumentError(f"{self.op}: block_size {self.task.block}: {why}; give another, or leave it out")

    def _scan_launch(
        self, name: str, shape: str, launch: Config, status_bytes: int, stages: int = 0, along: int = 1
    ) -> Launch:
        inputs, writers = len(self.readers), self.task.writers
        spacings = _coded(_spacings(self.along[:inputs]))
        writings = _coded(
            [
                _NEIGHBOURS if writer.writing == PACKED and step == 1 else writer.writing
                for writer, step in zip(writers, self.along[inputs:], strict=True)
            ]
        )
        starts = [array.start if array else 0 for array in (*self.readers, *(w.array for w in writers))]
        whole = [self.n, *(step for rest in self.others for step in rest)]
        layout = record(
            start=starts[:inputs],
            step=self.along[:inputs],
            steps=self.others[:inputs],
            out_start=starts[inputs:],
            out_step=self.along[inputs:],
            out_steps=self.others[inputs:],
            shape=self.extents,
            length=self.n,
            lines=self.lines,
            stages=stages,
            along=along,
            packed=not any(stride % self.vector for stride in whole),
        )
        how = f"cudakit::{name}<cudakit::scan_pass::{{}}, {spacings}, {writings}, {shape}>"
        return Launch(how, launch, status_bytes, layout)
