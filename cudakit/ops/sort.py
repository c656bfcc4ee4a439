"""Sorts along an axis: of elements, indices, and values by keys. Selection of the greatest or least elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import axis_of, integers, one_axis
from cudakit.arrays.output import Target, as_dtype, check_apart, target
from cudakit.arrays.place import ArrayPlace, array_place, device_limits, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.arrays.tunable import Choice, planned
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, copy_job, delivered, word_of
from cudakit.types.checked import flag, whole
from cudakit.types.cpp import NARROW

#: Most keys of a row that lanes sort by comparing each key with all, and threads of the block.
_SHORT, _SHORT_BLOCK = 32, 256
#: Rows that one block sorts: most keys, keys of a thread, threads of the block.
_ROWS = ((64, 2, 32), (128, 4, 32), (512, 4, 128), (1024, 4, 256), (2048, 8, 256), (4096, 16, 256))
#: Longer rows are sorted a digit at a time, by several blocks.
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
_DIGITS_SHAPE = Choice(
    "sort",
    {"items": (8, 11, 14, 17, 21, 24, 28, 32), "block": (256, 320, 384, 512), "resident": (1, 2, 3, 4)},
    where=lambda items, block, resident: items * block <= 12 << 10 and block * resident <= 1536,
)
#: Rows of fewer tiles than this have such that the last one is about as full as the others, by so many keys a thread.
_EVEN, _STEP = 6, 4
#: Keys a thread of the kernel that counts; threads, blocks a multiprocessor and bytes of counters for few keys, and for
#: so many that each block has time for more counters.
_COUNT_ITEMS = 16
_FEW, _MANY, _MANY_KEYS = (512, 2, 32 << 10), (1024, 1, 128 << 10), 1 << 22
#: Keys of a row that words of 32 bits are enough for.
_NARROW = 1 << 30


@functools.lru_cache(1024)
def order_of(op: str, dtype: np.dtype, is_descending: bool = False, name: str = "x") -> str:
    """Return the struct of <cudakit/sort/order.cuh> that orders elements of a dtype.

    Raises
    ------
    ArgumentError
        The dtype cannot be sorted.
    """
    if dtype.isnative and dtype.name in (*NARROW, "float32", "float64"):
        infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
        order = f"cudakit::float_order<{word_of(op, dtype)}, {infinity:#x}>"
    elif dtype.isnative and dtype.kind in "iu":
        order = f"cudakit::{'un' * (dtype.kind == 'u')}signed_order<{word_of(op, dtype)}>"
    elif dtype.kind == "b":
        order = "cudakit::truth_order"
    else:
        hint = "; sort by its real part, or its magnitude (sort_by_key)" if dtype.kind == "c" else ""
        raise ArgumentError(
            f"{op}: {name} has dtype {dtype}; bool, integers, float16, bfloat16, float32 and float64 are sorted{hint}"
        )
    return f"cudakit::descending<{order}>" if is_descending else order


class Lines(NamedTuple):
    """An array as rows along one axis. Without an axis the array is one row.

    Attributes
    ----------
    shape : tuple of int
        Shape of the result: the array's own, or one dimension.
    order : tuple of int or None
        Dimensions of the array with the axis last. None: the axis is the last already.
    rows, size : int
        Number of rows, and elements of a row.
    """

    shape: Ints
    order: Ints | None
    rows: int
    size: int

    @property
    def row_shape(self) -> Ints:
        """The shape with the axis last."""
        return self.shape if self.order is None else tuple([self.shape[d] for d in self.order])

    def cut(self, most: int) -> Self:
        """Return these lines with only the first `most` elements of each row."""
        if self.order is None:
            return self._replace(shape=(*self.shape[:-1], most), size=most)
        axis = self.order[-1]
        return self._replace(shape=tuple([most if d == axis else n for d, n in enumerate(self.shape)]), size=most)

    def contiguous_rows(self, op: str, place: ArrayPlace, x: Any) -> Any:
        """Return an input as contiguous rows: itself, or a copy."""
        if self.order is None and x.flags.c_contiguous:
            return x
        job = copy_job(op, x.dtype, x.shape, x.strides, self.order, None)
        result = place.empty(job.shape, x.dtype)
        job.run(place, x, result)
        return result

    def row_buffer(self, place: ArrayPlace, to: Target) -> Any:
        """Return memory for contiguous rows of a result: the target, or a buffer that `store` copies to it."""
        if self.order is None and to.written.flags.c_contiguous:
            return to.written
        return place.empty(self.row_shape, to.written.dtype)

    def store(self, op: str, place: ArrayPlace, rows: Any, to: Target) -> None:
        """Copy rows from a buffer to the target."""
        if rows is not to.written:
            back = None if self.order is None else tuple(int(d) for d in np.argsort(self.order))
            job = copy_job(op, rows.dtype, rows.shape, rows.strides, back, to.written.strides)
            job.run(place, rows, to.written)


def lines_of(op: str, shape: Ints, axis: Any) -> Lines:
    """Return an array of `shape` as rows along `axis`.

    Raises
    ------
    ArgumentError
        The axis is out of range.
    """
    return _lines(op, shape, one_axis(op, axis))


@functools.lru_cache(4096)
def _lines(op: str, shape: Ints, axis: int | None) -> Lines:
    if axis is None:
        return Lines((prod(shape),), None, 1, prod(shape))
    at = axis_of(op, axis, len(shape))
    order = None if at == len(shape) - 1 else (*(d for d in range(len(shape)) if d != at), at)
    return Lines(shape, order, prod(shape[:at]) * prod(shape[at + 1 :]), shape[at])


class Sorting(NamedTuple):
    """Outputs of a sort: sorted keys, and values or indices that are moved with the keys.

    Attributes
    ----------
    keys : bool
        Whether sorted keys are an output.
    values : numpy.dtype or None
        Dtype of the values that are moved with the keys, or with `is_index` of the keys' indices. None: keys only.
    is_index : bool
        Whether the values are the indices of the keys.
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
def _row_pass(op: str, order: str, sorting: Sorting, rows: int, size: int) -> tuple[_Pass, Ints]:
    """Return the launch for rows that a block, or some lanes, sort by themselves, and its last arguments."""
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


@planned(4096)
def _plan(op: str, order: str, dtype: np.dtype, sorting: Sorting, rows: int, size: int, device: int | str) -> _Plan:
    word = np.dtype(np.uint32 if size < _NARROW else np.uint64)
    carried = sorting.values
    if sorting.is_index:
        carried = np.dtype(np.uint32 if size <= 1 << 32 else np.uint64)
    widest = max(dtype.itemsize, 0 if carried is None else carried.itemsize)
    form = f"{dtype.itemsize} bytes{'' if carried is None else f' with {carried.itemsize}'}"
    default = _SHAPES[widest, carried is not None]
    items, block, resident = _DIGITS_SHAPE.point(form, rows * size, device, default)
    tiles = -(-size // (block * items))
    if tiles < _EVEN:
        items = min(items, -(-size // (block * tiles * _STEP)) * _STEP)
    number = dtype.itemsize
    passes = []
    for k in range(number):
        source = target = "unsigned char"
        carrier = "cudakit::no_values"
        if carried is not None:
            assert sorting.values is not None
            source = word_of(op, carried)
            target = word_of(op, sorting.values) if k == number - 1 else source
            carrier = f"cudakit::{'indices' if sorting.is_index and k == 0 else 'elements'}<{source}>"
        kernel = Kernel.from_template("sort/digit")[
            order, carrier, target, word, sorting.keys or k < number - 1, items, block, resident
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
    arrays: Sequence[Any],
    most: int | None = None,
) -> None:
    """Sort contiguous rows. For rows of up to `LONGEST_ROW` keys, only the first `most` are stored.

    Parameters
    ----------
    arrays : sequence of array or None
        Keys, values, sorted keys, sorted values. None for arrays that `sorting` does not need. Outputs overlap no
        input.
    """
    keys, values, keys_out, values_out = arrays
    rows, size = lines.rows, lines.size
    if rows * size == 0:
        return
    if size <= LONGEST_ROW:
        launch, last = _row_pass(op, order, sorting, rows, size)
        stored = size if most is None else most
        place.launch(launch.kernel, launch.config, *arrays, size, stored, *last)
        return
    if sorting.values is not None and not sorting.is_index and sorting.values.itemsize > 8:
        _gather(op, place, order, lines, sorting, arrays)
        return
    plan = _plan(op, order, keys.dtype, sorting, rows, size, place.device)
    state, spare = place.empty(plan.state, plan.word), place.empty(plan.spare, plan.word)
    place.clear(state)
    place.launch(plan.counts.kernel, plan.counts.config, keys, state, size, rows, plan.blocks)
    number = len(plan.passes)
    # Two arrays in turns, of which the result is the last one's.
    key_turns = [place.empty(lines.row_shape, keys.dtype) for _ in range(min(number - 1, 1 if sorting.keys else 2))]
    key_turns = [keys_out, *key_turns] if sorting.keys else [None, *key_turns]
    value_turns = []
    if plan.carried is not None:
        own = sorting.values == plan.carried
        value_turns = [place.empty(lines.row_shape, plan.carried) for _ in range(min(number - 1, 1 if own else 2))]
        value_turns = [values_out, *value_turns]
    for k, launch in enumerate(plan.passes):
        to = _turn(key_turns, number - 1 - k), _turn(value_turns, number - 1 - k)
        place.launch(launch.kernel, launch.config, keys, values, *to, state, spare, size, rows, plan.tiles, k)
        keys, values = to


def _turn(arrays: list[Any], last: int) -> Any:
    """Return the array of `arrays` that a pass writes if `last` more passes follow it. The last pass writes the first.

    Return None if there are no arrays.
    """
    if not arrays:
        return None
    if last == 0 or len(arrays) < 3:
        return arrays[last % 2] if len(arrays) > 1 else arrays[0]
    return arrays[1 + last % 2]


def _gather(op: str, place: ArrayPlace, order: str, lines: Lines, sorting: Sorting, arrays: Sequence[Any]) -> None:
    """Sort indices with the keys, then gather the values by them: for values too wide to be moved with the keys."""
    keys, values, keys_out, values_out = arrays
    index = place.empty(lines.row_shape, _INT64)
    by_index = Sorting(sorting.keys, index.dtype, True)
    sort_rows(op, place, order, lines, by_index, (keys, None, keys_out, index))
    kernel = Kernel.from_template("sort/gathered")[word_of(op, values.dtype), index.dtype]
    all = lines.rows * lines.size
    place.launch(kernel, config(-(-all // 256), 256), values, index, values_out, lines.size, all)


_INT64 = np.dtype(np.int64)


@repeated("out")
def sort(x: Any, axis: int | None = -1, *, descending: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Return the elements of x in order along `axis`, as ``numpy.sort``: NaN last.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    axis : int or None
        Axis along which to sort. None: all elements, in one dimension.
    descending : bool
        Whether to sort from the greatest to the least element. NaN counts as greater than any number, so NaN come
        first. Equal elements stay in their order.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast). It may be `x` itself.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array of x's dtype. Elements keep all their bits. The sort is always stable: −0 and 0 are equal
        and stay in their order, and so do NaN.

    Raises
    ------
    ArgumentError
        The axis is out of range, the dtype cannot be sorted (complex …), or `out` does not fit.

    Notes
    -----
    The sort is a radix sort. Rows of up to 4096 elements are read and written once.

    Longer rows are read once, then read and written once for each byte of an element. A byte that all elements share is
    skipped by a copy. Longer rows take as much extra memory as x.

    An axis other than the last is copied first, and so is an array that is not C-contiguous.

    Adinets and Merrill, Onesweep: a faster least significant digit radix sort for GPUs (2022).
    """
    return _ordered("sort", x, axis, descending, out, stream)


@repeated("out")
def partition(x: Any, kth: Any, axis: int | None = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Return the elements of x along `axis`, with the elements at `kth` in their sorted place.

    No element before `kth` is greater, and none after it is less.

    Parameters
    ----------
    x, axis, out, stream
        As for `sort`.
    kth : int or sequence of int
        Indices of the elements to put in their sorted place; negative indices count from the end.

    Returns
    -------
    array
        One of the results that ``numpy.partition`` allows: all of x, sorted. `topk` is faster for a few of the
        greatest or least elements.

    Raises
    ------
    ArgumentError
        As for `sort`, or `kth` is out of range.
    """
    _check_kth("partition", x, kth, axis)
    return _ordered("partition", x, axis, False, out, stream)


@repeated("out")
def argsort(
    x: Any, axis: int | None = -1, *, descending: bool = False, dtype: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Return the indices that sort x along `axis`, as ``numpy.argsort(kind="stable")``: NaN last.

    Parameters
    ----------
    x, axis, descending, stream
        As for `sort`.
    dtype : dtype, optional
        Dtype of the indices: an integer dtype of 32 or 64 bits. Default: int64.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).

    Returns
    -------
    array
        Indices. The sort is always stable: indices of equal elements ascend, with `descending`, too.

    Raises
    ------
    ArgumentError
        As for `sort`, or the dtype cannot hold the indices.
    """
    return _ordered("argsort", x, axis, descending, out, stream, partial(index_dtype, "argsort", dtype))


@repeated("out")
def argpartition(
    x: Any, kth: Any, axis: int | None = -1, *, dtype: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Return indices that put x in an order that `partition` allows: the indices of `argsort`.

    Parameters, result and errors are as for `argsort` and `partition`.
    """
    _check_kth("argpartition", x, kth, axis)
    return _ordered("argpartition", x, axis, False, out, stream, partial(index_dtype, "argpartition", dtype))


@repeated("out")
def sort_by_key(
    keys: Any, values: Any, axis: int | None = -1, *, descending: bool = False, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """Sort keys along `axis`, and values with them. Values with equal keys keep their order.

    Parameters
    ----------
    keys : array
        Keys: an array that `sort` takes.
    values : array
        Values: array of the shape of `keys`; elements of 1, 2, 4, 8 or 16 bytes.
    axis, descending, stream
        As for `sort`.
    out : (array, array), optional
        Output arrays for the keys and for the values. None for an output that the call allocates.

    Returns
    -------
    (array, array)
        Sorted keys, and the values in the order of their keys.

    Raises
    ------
    ArgumentError
        As for `sort`, or the values have another shape.
    """
    op = "sort_by_key"
    place, (keys, values) = array_place(op, stream, ("keys", keys), ("values", values))
    if values.shape != keys.shape:
        raise ArgumentError(f"{op}: values have shape {values.shape}, keys have {keys.shape}; they go together")
    outs = _two_outs(op, out, "keys and values")
    order = order_of(op, keys.dtype, flag(f"{op}: descending", descending), "keys")
    lines = lines_of(op, keys.shape, axis)
    to_keys = target(op, place, outs[0], lines.shape, keys.dtype, keys, values)
    to_values = target(op, place, outs[1], lines.shape, values.dtype, keys, values)
    sorted_keys, sorted_values = lines.row_buffer(place, to_keys), lines.row_buffer(place, to_values)
    own_keys, own_values = lines.contiguous_rows(op, place, keys), lines.contiguous_rows(op, place, values)
    arrays = own_keys, own_values, sorted_keys, sorted_values
    sort_rows(op, place, order, lines, Sorting(True, values.dtype), arrays)
    lines.store(op, place, sorted_keys, to_keys)
    lines.store(op, place, sorted_values, to_values)
    return delivered(place, to_keys), delivered(place, to_values)


def _ordered(op: str, x: Any, axis: int | None, is_descending: bool, out: Any, stream: Any, index: Any = None) -> Any:
    """Return the sorted elements, or with `index` their indices.

    `index` returns the dtype of indices for a number of elements.
    """
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype, flag(f"{op}: descending", is_descending))
    lines = lines_of(op, x.shape, axis)
    dtype, most = (x.dtype, None) if index is None else (index(lines.size), lines.size - 1)
    to = target(op, place, out, lines.shape, dtype, x, most=most)
    result, own = lines.row_buffer(place, to), lines.contiguous_rows(op, place, x)
    sorting, outs = (Sorting(True), (result, None)) if index is None else (Sorting(False, dtype, True), (None, result))
    sort_rows(op, place, order, lines, sorting, (own, None, *outs))
    lines.store(op, place, result, to)
    return delivered(place, to)


def _two_outs(op: str, out: Any, names: str) -> Sequence[Any]:
    """Return the two outputs of an op with two results.

    Raises
    ------
    ArgumentError
    """
    outs = (None, None) if out is None else out
    if not isinstance(outs, tuple | list) or len(outs) != 2:
        raise ArgumentError(f"{op}: out must be two, for {names}, got {type(out).__name__}")
    check_apart(op, outs)
    return outs


def index_dtype(op: str, dtype: Any, size: int) -> np.dtype:
    """Return the dtype of indices below `size`: int64, or `dtype`.

    Raises
    ------
    ArgumentError
        The dtype cannot hold the indices.
    """
    if dtype is None:
        return _INT64
    result = as_dtype(op, dtype)
    if result.kind not in "iu" or result.itemsize < 4 or not result.isnative or size - 1 > np.iinfo(result).max:
        raise ArgumentError(
            f"{op}: dtype is {result}; those of {size} are int32, int64 or unsigned ones, that hold them"
        )
    return result


def _check_kth(op: str, x: Any, kth: Any, axis: int | None) -> None:
    """Check that all of `kth` are within the axis.

    Raises
    ------
    ArgumentError
    """
    positions = integers(op, "kth", kth)
    shape = getattr(x, "shape", ())
    size = lines_of(op, tuple(shape), axis).size
    for position in (positions,) if isinstance(positions, int) else positions or ():
        if not -size <= position < size:
            raise ArgumentError(f"{op}: kth {shortened(position)} is out of range for {size} elements")
    if positions is None:
        raise ArgumentError(f"{op}: kth is None; give an index, or several")


# --- topk -------------------------------------------------------------------------------------------------------------


#: Rows of up to so many elements are sorted, and the first of them stored; so are rows that one block sorts, where one
#: element in so many is wanted, or more.
_SORTED, _SHARE = 128, 4
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
    """Return the k greatest elements of x along `axis`, and their indices, as ``torch.topk``.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    k : int
        Number of elements to return, from 0 to the extent of the axis.
    axis : int or None
        Axis along which to select. None: all elements, in one dimension.
    largest : bool
        Whether to return the greatest elements; otherwise the least.
    sorted : bool
        Whether the elements are in order, from the greatest to the least (`largest`) or from the least to the
        greatest. Otherwise they are in any order.
    out : (array, array), optional
        Output arrays for the elements and for the indices. None for an output that the call allocates.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    (array, array)
        Elements in x's dtype, and indices in int64. NaN counts as greater than any number. Of equal elements, the
        elements with the least indices are selected, in ascending order of the indices. Every run gives the same
        result.

    Raises
    ------
    ArgumentError
        k or the axis is out of range, the dtype cannot be sorted, or the outputs do not fit.

    Notes
    -----
    The selection is a radix select: up to 16384 elements are read once. A single long row is cut into segments. The
    first k elements of each segment are then compared.
    """
    op = "topk"
    place, (x,) = array_place(op, stream, ("x", x))
    order = order_of(op, x.dtype, flag(f"{op}: largest", largest))
    is_sorted = flag(f"{op}: sorted", sorted)
    lines = lines_of(op, x.shape, axis)
    number = whole(f"{op}: k", k)
    if number > lines.size:
        raise ArgumentError(f"{op}: k is {number}, more than the {lines.size} elements along axis {axis}")
    outs = _two_outs(op, out, "elements and indices")
    chosen = lines.cut(number)
    to_keys = target(op, place, outs[0], chosen.shape, x.dtype, x)
    to_index = target(op, place, outs[1], chosen.shape, _INT64, x, most=lines.size - 1)
    if lines.rows * number:
        keys, index = chosen.row_buffer(place, to_keys), chosen.row_buffer(place, to_index)
        own = lines.contiguous_rows(op, place, x)
        if lines.size <= _SORTED or lines.size <= min(LONGEST_ROW, _SHARE * number):
            sort_rows(op, place, order, lines, Sorting(True, _INT64, True), (own, None, keys, index), number)
        elif is_sorted and number > 1:
            unsorted, unsorted_index = place.empty(chosen.row_shape, x.dtype), place.empty(chosen.row_shape, _INT64)
            _select(place, order, lines.rows, lines.size, number, own, unsorted, unsorted_index)
            sort_rows(op, place, order, chosen, Sorting(True, _INT64), (unsorted, unsorted_index, keys, index))
        else:
            _select(place, order, lines.rows, lines.size, number, own, keys, index)
        chosen.store(op, place, keys, to_keys)
        chosen.store(op, place, index, to_index)
    return delivered(place, to_keys), delivered(place, to_index)


def _select(place: ArrayPlace, order: str, rows: int, size: int, k: int, x: Any, keys: Any, index: Any) -> None:
    """Write the first k elements of each row of `x` to `keys`, and their indices to `index`, in no order.

    If there are few rows, each is cut into segments. The first k of each segment are then compared by another launch.
    """
    source = None
    while True:
        segments = _segments(rows, size, k, place.device)
        kernel, launch = _launch(order, x.dtype.itemsize, rows * segments, -(-size // segments))
        last = segments == 1
        to = (keys, index) if last else [place.empty((rows, segments * k), array.dtype) for array in (keys, index)]
        place.launch(kernel, launch, x, source, *to, size, segments, k)
        if last:
            return
        x, source = to
        size = segments * k


def _segments(rows: int, size: int, k: int, device: int | str) -> int:
    """Return the number of parts of a row: enough to occupy all multiprocessors, or 1."""
    parts = -(-_BUSY * multiprocessors_of(device) // rows)
    return max(1, min(parts, size // max(_LEAST, 4 * k)))


@functools.lru_cache(1024)
def _launch(order: str, itemsize: int, blocks: int, length: int) -> tuple[Kernel, Config]:
    most, items, block = next((entry for entry in _BLOCKS if length <= entry[0]), _BLOCKS[-1])
    # 32 registers a thread are enough for 8 keys of 4 bytes, unless it sums for many digits, too.
    resident = max(1, (2048 if items * itemsize <= 32 and block > 128 else 1024) // block)
    kernel = Kernel.from_template("topk/first")[order, length <= most, items, block, resident]
    return kernel, config(blocks, block)
