"""How a scan of several arrays runs: along one long line, or many lines by rows or columns of memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from cudakit.arrays.job import Launch
from cudakit.arrays.layout import merged, record
from cudakit.arrays.place import device_limits
from cudakit.arrays.reduction_plan import Array
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config

# Of <cudakit/scan/line_scan.cuh>: warps that scan and that reduce, and what a tile takes in shared memory at most.
# Two more load and look back.
# With keys the warp that looks back has registers to spare where two reduce (H200: 3228 GB/s beside 3083 with four).
_SCANNERS, _REDUCERS, _KEYED_REDUCERS, _MOST_STAGES, _TILE_BYTES = 16, 4, 2, 8, 32 << 10
_STATUS_HEADER, _ROWS_THREADS, _STRETCH_ALIGNMENT = 256, 256, 128
#: What variables of a block take of its shared memory at most; totals of two tiles of columns.
_STATIC_BYTES, _TOTALS_BYTES = 48 << 10, 40 << 10
# What a lane keeps of items in registers, and of items and the elements read ahead; of a column, what a thread does;
# fewer lines than so many are no columns.
_ITEM_WORDS, _KEPT_BYTES, _THREAD_BYTES, _LEAST_COLUMNS = 32, 128, 64, 8
#: Largest item, by the shared memory that tiles' parts take.
_MOST_ITEM_BYTES = 128
#: Blocks that the emulator is given at once: it runs all threads of a launch side by side.
_EMULATED_BLOCKS = 4
#: How an output is written: `writing` in <cudakit/scan/result.cuh>.
PACKED, DIRECT, RAW, _NEIGHBOURS = 0, 1, 2, 3


class Writer(NamedTuple):
    """An output of a call: its array (None of a raw one) and how it is written."""

    array: Array | None
    writing: int


class ScanTask(NamedTuple):
    """What is scanned, and what by.

    Attributes
    ----------
    readers : sequence of Array or None
        None for what is the same for all elements.
    writers : sequence of Writer
    item_bytes : int
        Size of what is combined.
    device : int or str
        As a `ArrayPlace` names it.
    keys : Array or None
        Whose runs of equal neighbours are scanned each for itself; the last of what the kernel reads.
    block : int or None
        Threads of a block, whole warps; None for what is best.
    """

    readers: Sequence[Array | None]
    writers: Sequence[Writer]
    item_bytes: int
    device: int | str
    keys: Array | None = None
    block: int | None = None


def backward(array: Array, axis: int, n: int) -> Array:
    """An array with the `n` elements along an axis in the other order."""
    step = array.steps[axis]
    steps = tuple(-each if d == axis else each for d, each in enumerate(array.steps))
    return array._replace(start=array.start + (n - 1) * step, steps=steps)


def plan_scan(op: str, task: ScanTask, shape: tuple[int, ...], axis: int) -> Launch:
    """The launch of a scan along `axis` that has elements. ``{}`` in `Launch.how` stands for the pass.

    Raises
    ------
    ArgumentError
        For a state that is too large, or too large for blocks of so many threads; for blocks too small to share a line.
    """
    if task.item_bytes > _MOST_ITEM_BYTES:
        raise ArgumentError(
            f"{op}: what is combined has {task.item_bytes} bytes; a scan takes {_MOST_ITEM_BYTES} at most"
        )
    return _ScanPlan(op, task, shape, axis).launch()


class _ScanPlan:
    def __init__(self, op: str, task: ScanTask, shape: tuple[int, ...], axis: int) -> None:
        self.op, self.task = op, task
        self.readers = [*task.readers, *([] if task.keys is None else [task.keys])]
        arrays = [*self.readers, *(writer.array for writer in task.writers)]
        steps = [array.steps if array else (0,) * len(shape) for array in arrays]
        others = [d for d in range(len(shape)) if d != axis]
        extents, *kept = merged([shape[d] for d in others], *([each[d] for d in others] for each in steps))
        self.extents = extents or (1,)
        self.others = [each or (0,) for each in kept]
        # Where a line is one element, as if it had a neighbour: the kernel is that of longer lines.
        self.along = [
            each[axis] if shape[axis] > 1 or not array else 1 for each, array in zip(steps, arrays, strict=True)
        ]
        self.n, self.lines = shape[axis], prod(extents)
        self.item_words = -(-task.item_bytes // 4)
        self.limits = device_limits(task.device)
        self.blocks = _EMULATED_BLOCKS if isinstance(task.device, str) else self.limits.multiprocessors
        # Of the arrays whose elements come by shared memory: keys always do.
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
            # As many that scan for each that reduces.
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
        """Neighbours of a lane: 16 bytes of what it reads, no more than 32 of what it writes, nor of registers."""
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
        # Neighbours in memory belong to different lines, of most arrays.
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
        return self._made("by_line", shape, launch, status_bytes, stages=stages)

    def _stage_bytes(self) -> int:
        """Of a tile's elements in shared memory, as `stretch_bytes` in <cudakit/scan/one_line.cuh> has them."""
        if not self.staged:
            return 0
        first = self.staged[0]
        begins = first.names is None and 16 % first.itemsize == 0  # tiles do at 16 bytes of it
        ahead = self.task.keys is not None  # the key before a tile's first
        return self.tile * self.element_bytes + _STRETCH_ALIGNMENT * (len(self.staged) - begins + ahead)

    def _rows(self) -> Launch:
        packs = -(-self.n // self.vector)
        most = max(1, _KEPT_BYTES // (self.vector * (4 * self.item_words + self.element_bytes)))
        rank, threads = len(self.extents), self.task.block or _ROWS_THREADS
        if packs <= 32 * min(4, most):
            width, rows = min(32, 1 << (packs - 1).bit_length()), -(-packs // 32)
            at_once = max(1, min(4, most) // rows)
            shape = f"{rank}, {self.vector}, {threads // 32}, {width}, {rows}, {at_once}"
            blocks = -(-self.lines * width // (threads * at_once))
            resident = max(1, (1024 if rows == 1 else 768) // threads)
            return self._made("by_short_rows", shape, config(min(blocks, resident * self.blocks), threads), 0)
        rows = min(4, most, -(-packs // threads))
        shape = f"{rank}, {self.vector}, {threads // 32}, {rows}"
        blocks = min(self.lines, max(1, 1024 // threads) * self.blocks)
        return self._made("by_scan_rows", shape, config(blocks, threads), 0)

    def _columns(self) -> Launch:
        strips = -(-self.lines // 32)
        rows = max(1, _THREAD_BYTES // (4 * max(1, self.item_words)))
        warps = 32 if self.item_words <= 2 and strips <= self.blocks // 2 else 16 if self.item_words <= 8 else 8
        # Totals of two tiles lie in shared memory.
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
        return self._made("by_scan_columns", shape, launch, status_bytes, along=sharing)

    def _check(self, fits: bool, why: str) -> None:
        if not fits:
            raise ArgumentError(f"{self.op}: block_size {self.task.block}: {why}; give another, or leave it out")

    def _made(
        self, name: str, shape: str, launch: Config, status_bytes: int, stages: int = 0, along: int = 1
    ) -> Launch:
        inputs, writers = len(self.readers), self.task.writers
        spacings = sum(
            (0 if step == 1 else 1 if step == 0 else 2) << 2 * k for k, step in enumerate(self.along[:inputs])
        )
        writings = sum(
            (_NEIGHBOURS if writer.writing == PACKED and step == 1 else writer.writing) << 2 * k
            for k, (writer, step) in enumerate(zip(writers, self.along[inputs:], strict=True))
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
            packed=not any(each % self.vector for each in whole),
        )
        how = f"cudakit::{name}<cudakit::scan_pass::{{}}, {spacings}, {writings}, {shape}>"
        return Launch(how, launch, status_bytes, layout)
