"""How a sort runs: the order of a dtype's elements, and the launches that put rows in it."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import axis_of, one_axis
from cudakit.arrays.output import Target
from cudakit.arrays.place import ArrayPlace, device_limits, multiprocessors_of
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.move_plan import copy_job, word_of

#: Rows of up to so many keys are sorted by lanes that compare each with all, in blocks of so many threads.
_SHORT, _SHORT_BLOCK = 32, 256
#: Keys a thread and threads a block for rows of up to so many keys, which one block sorts.
_ROWS = ((64, 2, 32), (128, 4, 32), (512, 4, 128), (1024, 4, 256), (2048, 8, 256), (4096, 16, 256))
#: Rows of more keys are sorted a digit at a time, by as many blocks as it takes.
LONGEST_ROW = _ROWS[-1][0]
#: Of templates/sort.cuh: digits, counters before all else.
_DIGITS, _COUNTERS = 256, 64
#: Keys a thread, threads a block, and blocks a multiprocessor that registers must do for, by the bytes of the widest of
#: keys and values and whether there are values. The best of some measured on an H200, without spills to speak of.
_SHAPES = {
    (1, False): (32, 384, 2),
    (2, False): (21, 384, 3),
    (4, False): (21, 384, 3),
    (8, False): (14, 384, 3),
    (1, True): (21, 384, 2),
    (2, True): (21, 384, 2),
    (4, True): (21, 384, 2),
    (8, True): (14, 384, 2),
}
#: Rows of fewer tiles than this have such that the last one is about as full as the others, by so many keys a thread.
_EVEN, _STEP = 6, 4
#: Keys a thread of the kernel that counts; threads, blocks a multiprocessor and bytes of counters for few keys, and for
#: so many that each block has time for more counters.
_COUNT_ITEMS = 16
_FEW, _MANY, _MANY_KEYS = (512, 2, 32 << 10), (1024, 1, 128 << 10), 1 << 22
#: Keys of a row that words of 32 bits are enough for.
_NARROW = 1 << 30
#: Bits of infinity.
_INFINITE = {"float16": "0x7c00", "bfloat16": "0x7f80", "float32": "0x7f800000", "float64": "0x7ff0000000000000"}


@functools.lru_cache(1024)
def order_of(op: str, dtype: np.dtype, is_descending: bool = False, name: str = "x") -> str:
    """The struct of <cudakit/sort/order.cuh> for elements of a dtype.

    Raises
    ------
    ArgumentError
        For a dtype that is not sorted.
    """
    if dtype.isnative and dtype.name in _INFINITE:
        found = f"cudakit::float_order<{word_of(op, dtype)}, {_INFINITE[dtype.name]}>"
    elif dtype.isnative and dtype.kind in "iu":
        found = f"cudakit::{'un' * (dtype.kind == 'u')}signed_order<{word_of(op, dtype)}>"
    elif dtype.kind == "b":
        found = "cudakit::truth_order"
    else:
        hint = "; sort by its real part, or its magnitude (sort_by_key)" if dtype.kind == "c" else ""
        raise ArgumentError(
            f"{op}: {name} has dtype {dtype}; bool, integers, float16, bfloat16, float32 and float64 are sorted{hint}"
        )
    return f"cudakit::descending<{found}>" if is_descending else found


class Lines(NamedTuple):
    """An array as rows along one axis, or, without one, as one row.

    Attributes
    ----------
    shape : tuple of int
        Of the result: the array's own, or one dimension.
    order : tuple of int or None
        Its dimensions with the axis last; None where it is.
    rows, size : int
    """

    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    rows: int
    size: int

    @property
    def lined(self) -> tuple[int, ...]:
        """The shape with the axis last."""
        return self.shape if self.order is None else tuple([self.shape[d] for d in self.order])

    def cut(self, most: int) -> Self:
        """The first `most` of each row."""
        if self.order is None:
            return self._replace(shape=(*self.shape[:-1], most), size=most)
        axis = self.order[-1]
        return self._replace(shape=tuple([most if d == axis else n for d, n in enumerate(self.shape)]), size=most)

    def brought(self, op: str, place: ArrayPlace, x: Any) -> Any:
        """An input as contiguous rows: itself, or a copy."""
        if self.order is None and x.flags.c_contiguous:
            return x
        job = copy_job(op, x.dtype, x.shape, x.strides, self.order, None)
        made = place.empty(job.shape, x.dtype)
        job.run(place, x, made)
        return made

    def written(self, place: ArrayPlace, to: Target) -> Any:
        """Where contiguous rows of a result are written: the target, or memory from which `laid` brings them there."""
        if self.order is None and to.written.flags.c_contiguous:
            return to.written
        return place.empty(self.lined, to.written.dtype)

    def laid(self, op: str, place: ArrayPlace, rows: Any, to: Target) -> None:
        """Bring rows that were written to the target."""
        if rows is not to.written:
            back = None if self.order is None else tuple(int(d) for d in np.argsort(self.order))
            job = copy_job(op, rows.dtype, rows.shape, rows.strides, back, to.written.strides)
            job.run(place, rows, to.written)


def lines_of(op: str, shape: tuple[int, ...], axis: Any) -> Lines:
    """An array of `shape` as rows along `axis`.

    Raises
    ------
    ArgumentError
    """
    return _lines(op, shape, one_axis(op, axis))


@functools.lru_cache(4096)
def _lines(op: str, shape: tuple[int, ...], axis: int | None) -> Lines:
    if axis is None:
        return Lines((prod(shape),), None, 1, prod(shape))
    at = axis_of(op, axis, len(shape))
    order = None if at == len(shape) - 1 else (*(d for d in range(len(shape)) if d != at), at)
    return Lines(shape, order, prod(shape[:at]) * prod(shape[at + 1 :]), shape[at])


class Sorting(NamedTuple):
    """What goes with the keys of a sort.

    Attributes
    ----------
    keys : bool
        Whether sorted keys are wanted.
    values : numpy.dtype or None
        Of the values that go with the keys, which are arrays'; or, with `is_index`, of the keys' indices.
    is_index : bool
    """

    keys: bool
    values: np.dtype | None = None
    is_index: bool = False


class _Pass(NamedTuple):
    kernel: Kernel
    config: Config


class _Plan(NamedTuple):
    """Launches for rows that are sorted digit by digit."""

    counts: _Pass
    passes: tuple[_Pass, ...]
    word: np.dtype
    state: int
    spare: int
    tiles: int
    blocks: int
    carried: np.dtype | None


@functools.lru_cache(4096)
def _row_pass(op: str, order: str, sorting: Sorting, rows: int, size: int) -> tuple[_Pass, tuple[int, ...]]:
    """The launch for rows that are sorted by a block each, or by some lanes, and its last arguments."""
    out = "unsigned char" if sorting.values is None else word_of(op, sorting.values)
    carried = "cudakit::no_values"
    if sorting.values is not None:
        carried = "cudakit::indices<unsigned int>" if sorting.is_index else f"cudakit::elements<{out}>"
    types = order, carried, out, sorting.keys
    if size <= _SHORT:
        width = 1 << (size - 1).bit_length()
        kernel = Kernel.from_template("sort/short_rows")[(*types, width, _SHORT_BLOCK)]
        return _Pass(kernel, config(-(-rows * width // _SHORT_BLOCK), _SHORT_BLOCK)), (rows,)
    items, block = next((items, block) for most, items, block in _ROWS if size <= most)
    kernel = Kernel.from_template("sort/rows")[(*types, items, block)]
    return _Pass(kernel, config(rows, block)), ()


@functools.lru_cache(4096)
def _plan(op: str, order: str, dtype: np.dtype, sorting: Sorting, rows: int, size: int, device: int | str) -> _Plan:
    word = np.dtype(np.uint32 if size < _NARROW else np.uint64)
    carried = sorting.values
    if sorting.is_index:
        carried = np.dtype(np.uint32 if size <= 1 << 32 else np.uint64)
    widest = max(dtype.itemsize, 0 if carried is None else carried.itemsize)
    items, block, resident = _SHAPES[widest, carried is not None]
    tiles = -(-size // (block * items))
    if tiles < _EVEN:
        items = min(items, -(-size // (block * tiles * _STEP)) * _STEP)
    number = dtype.itemsize
    passes = []
    for k in range(number):
        source = target = "unsigned char"
        what = "cudakit::no_values"
        if carried is not None:
            assert sorting.values is not None
            source = word_of(op, carried)
            target = word_of(op, sorting.values) if k == number - 1 else source
            what = f"cudakit::{'indices' if sorting.is_index and k == 0 else 'elements'}<{source}>"
        kernel = Kernel.from_template("sort/digit")[
            order, what, target, word, sorting.keys or k < number - 1, items, block, resident
        ]
        passes.append(_Pass(kernel, config(rows * tiles, block)))
    has_room = device_limits(device).shared_bytes > _MANY[2]
    threads, resident, counter_bytes = _MANY if rows * size >= _MANY_KEYS and has_room else _FEW
    copies = min(32, counter_bytes // (4 * number * _DIGITS))
    blocks = max(1, min(-(-size // (threads * _COUNT_ITEMS)), -(-resident * multiprocessors_of(device) // rows)))
    counts = Kernel.from_template("sort/counts")[order, word, copies, _COUNT_ITEMS, threads]
    status = rows * tiles * _DIGITS
    return _Plan(
        _Pass(counts, config(rows * blocks, threads, 4 * copies * number * _DIGITS)),
        tuple(passes),
        word,
        _COUNTERS + rows * number * _DIGITS + status,
        status,
        tiles,
        blocks,
        carried,
    )


def sort_rows(
    op: str,
    place: ArrayPlace,
    order: str,
    lines: Lines,
    sorting: Sorting,
    keys: Any,
    values: Any,
    keys_out: Any,
    values_out: Any,
    most: int | None = None,
) -> None:
    """Put contiguous rows in order; of rows of up to `LONGEST_ROW` keys only the first `most` are stored.

    Parameters
    ----------
    keys, values, keys_out, values_out : array or None
        None for those that `sorting` does without. Outputs overlap no input.
    """
    rows, size = lines.rows, lines.size
    if rows * size == 0:
        return
    if size <= LONGEST_ROW:
        launch, last = _row_pass(op, order, sorting, rows, size)
        stored = size if most is None else most
        place.launch(launch.kernel, launch.config, keys, values, keys_out, values_out, size, stored, *last)
        return
    if sorting.values is not None and not sorting.is_index and sorting.values.itemsize > 8:
        _gather(op, place, order, lines, sorting, keys, values, keys_out, values_out)
        return
    plan = _plan(op, order, keys.dtype, sorting, rows, size, place.device)
    state, spare = place.empty(plan.state, plan.word), place.empty(plan.spare, plan.word)
    place.clear(state)
    place.launch(plan.counts.kernel, plan.counts.config, keys, state, size, rows, plan.blocks)
    number = len(plan.passes)
    # Two arrays in turns, of which the result is the last one's.
    key_turns = [place.empty(lines.lined, keys.dtype) for _ in range(min(number - 1, 1 if sorting.keys else 2))]
    key_turns = [keys_out, *key_turns] if sorting.keys else [None, *key_turns]
    value_turns = []
    if plan.carried is not None:
        own = sorting.values == plan.carried
        value_turns = [place.empty(lines.lined, plan.carried) for _ in range(min(number - 1, 1 if own else 2))]
        value_turns = [values_out, *value_turns]
    for k, launch in enumerate(plan.passes):
        to = _turn(key_turns, number - 1 - k), _turn(value_turns, number - 1 - k)
        place.launch(launch.kernel, launch.config, keys, values, *to, state, spare, size, rows, plan.tiles, k)
        keys, values = to


def _turn(arrays: list[Any], last: int) -> Any:
    """What a pass writes after which `last` more come: in the end the first of the arrays."""
    if not arrays:
        return None
    if last == 0 or len(arrays) < 3:
        return arrays[last % 2] if len(arrays) > 1 else arrays[0]
    return arrays[1 + last % 2]


def _gather(
    op: str,
    place: ArrayPlace,
    order: str,
    lines: Lines,
    sorting: Sorting,
    keys: Any,
    values: Any,
    keys_out: Any,
    values_out: Any,
) -> None:
    """Sort indices along, and take the values by them at the end: for values that are too wide to go along."""
    index = place.empty(lines.lined, np.dtype(np.int64))
    by_index = Sorting(sorting.keys, index.dtype, True)
    sort_rows(op, place, order, lines, by_index, keys, None, keys_out, index)
    kernel = Kernel.from_template("sort/gathered")[word_of(op, values.dtype), index.dtype]
    all = lines.rows * lines.size
    place.launch(kernel, config(-(-all // 256), 256), values, index, values_out, lines.size, all)
