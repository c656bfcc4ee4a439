"""Which kernel of `templates/softmax.cuh` or `templates/norm.cuh` does an op on rows, for a layout and a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.config import config
from cudakit.errors import ArgumentError
from cudakit.kernel import Kernel
from cudakit.ops.layout import Axis, axes_of, merged, without
from cudakit.ops.place import device_limits

#: C++ type of a dtype, and the type of its arithmetic; integers are computed as float64.
_DOUBLE = ("double", "double")
_TYPES = {
    "float16": ("__half", "float"),
    "bfloat16": ("__nv_bfloat16", "float"),
    "float32": ("float", "float"),
    "float64": _DOUBLE,
}
#: Dtypes of a weight and a bias.
PARAMETER_TYPES = tuple(_TYPES)

#: Bytes of a row's values that a thread keeps in registers, and threads of a block that does a row.
_BYTES_OF_THREAD, _BLOCK = 64, 512
#: Blocks of a cluster that a device of compute capability 9.0 surely runs.
_CLUSTER = 8
#: Threads and elements a thread of the kernels for any layout.
_LINES_BLOCK, _LINES_ITEMS = 512, 16


class Op(NamedTuple):
    """An operation on rows.

    Attributes
    ----------
    name : str
        Its struct in the template, and what messages call it.
    template : str
    per_row : bool
        Whether it gives one value a row.
    state_items : int
        Numbers of the arithmetic's type in its state.
    weighted : bool
        Whether it takes a weight and a bias, which number a row's elements in C order.
    """

    name: str
    template: str
    per_row: bool
    state_items: int
    weighted: bool


SOFTMAX = Op("softmax", "softmax", False, 2, False)
LOG_SOFTMAX = Op("log_softmax", "softmax", False, 2, False)
LOGSUMEXP = Op("logsumexp", "softmax", True, 2, False)
LAYERNORM = Op("layernorm", "norm", False, 3, True)
RMSNORM = Op("rmsnorm", "norm", False, 2, True)


class Job(NamedTuple):
    """What a call of one kind does.

    Attributes
    ----------
    shape, dtype
        Of the result.
    order : tuple of int or None
        Axes of a new result from the slowest to the fastest, as they are in x; None for C order.
    row_shape : tuple of int
        What a weight must have.
    launch : callable
        ``launch(place, x, result, *parameters)``.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...] | None
    row_shape: tuple[int, ...]
    launch: Callable[..., None]


class Key(NamedTuple):
    """All that a job depends on.

    Attributes
    ----------
    strides, out_strides : tuple of int
        In bytes; `out_strides` None for a new result.
    alignment : int
        Of all addresses, in bytes: a power of two, 16 at most.
    parameters : tuple of dtype or None
        Of weight and bias; empty for an op that takes none.
    """

    op: Op
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axis: Axis
    keepdims: bool
    device: int | str
    out_strides: tuple[int, ...] | None
    alignment: int
    parameters: tuple[np.dtype | None, ...]


@functools.lru_cache(4096)
def job_of(*fields: Any) -> Job:
    """The job of a kind of call, of which the fields of a `Key` are given.

    Raises
    ------
    ArgumentError
        For an axis that is not there, and a dtype that the op has no arithmetic for.
    """
    key = Key(*fields)
    op, dtype, shape = key.op, key.dtype, key.shape
    result_dtype = _result_dtype(op, dtype)
    axes = axes_of(op.name, key.axis, len(shape))
    result_shape = without(shape, axes, key.keepdims) if op.per_row else shape
    order = None if op.per_row or key.out_strides else _dense_order(key)
    if key.out_strides is None:
        out_strides = _packed(result_shape, result_dtype.itemsize, order or range(len(result_shape)))
    else:
        out_strides = key.out_strides
    if op.per_row:
        out_strides = _spread(out_strides, axes, len(shape), key.keepdims)
    row_shape = tuple(shape[axis] for axis in axes)
    if 0 in result_shape:
        return Job(result_shape, result_dtype, order, row_shape, _nothing)
    launch = _rows(key, axes, out_strides, result_dtype) or _lines(key, axes, out_strides, result_dtype)
    return Job(result_shape, result_dtype, order, row_shape, launch)


def _nothing(*arguments: Any) -> None:
    """What there is to do for an empty result."""


def _result_dtype(op: Op, dtype: np.dtype) -> np.dtype:
    if dtype.name in _TYPES:
        return dtype
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    raise ArgumentError(
        f"{op.name}: x has dtype {dtype}; expected float16, bfloat16, float32, float64, bool or integers"
    )


def _dense_order(key: Key) -> tuple[int, ...] | None:
    """Axes from the slowest to the fastest where x fills its memory in another order than C's."""
    extent = key.dtype.itemsize
    order = sorted(range(len(key.shape)), key=lambda axis: (-abs(key.strides[axis]), axis))
    for axis in reversed(order):
        if key.shape[axis] != 1 and key.strides[axis] != extent:
            return None
        extent *= key.shape[axis]
    return None if order == sorted(order) else tuple(order)


def _packed(shape: Sequence[int], itemsize: int, order: Sequence[int]) -> tuple[int, ...]:
    """Strides in bytes of a new array whose axes lie in `order` in memory."""
    strides = [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = itemsize
        itemsize *= max(1, shape[axis])
    return tuple(strides)


def _spread(strides: Sequence[int], axes: Sequence[int], ndim: int, keepdims: bool) -> tuple[int, ...]:
    """Strides of a result of one value a row, over the dimensions of x."""
    left = iter(stride for d, stride in enumerate(strides) if not keepdims or d not in axes)
    return tuple(0 if d in axes else next(left) for d in range(ndim))


class _Layout(NamedTuple):
    """Dimensions of x and the result, the lines' first; strides in elements of each."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    axes: tuple[int, ...]


def _layout(key: Key, axes: tuple[int, ...], out_strides: Sequence[int], result: np.dtype) -> _Layout:
    """Fewest dimensions, those of the lines from the farthest apart to the nearest."""
    x = [stride // key.dtype.itemsize for stride in key.strides]
    out = [stride // result.itemsize for stride in out_strides]

    def picked(which: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        found = merged(*([values[d] for d in which] for values in (key.shape, x, out)))
        return found if found[0] else ((1,), (0,), (0,))

    across = sorted((d for d in range(len(x)) if d not in axes), key=lambda d: -abs(x[d]))
    # A weight numbers the elements in C order; without one, any order will do.
    along = axes if any(key.parameters) else tuple(sorted(axes, key=lambda d: -abs(x[d])))
    outer, inner = picked(across), picked(along)
    return _Layout(outer[0], inner[0], outer[1] + inner[1], outer[2] + inner[2], (*across, *along))


def _functor(key: Key, aligned: bool = False) -> list[Any]:
    """Template arguments from the op on: the types of weight and bias, if it takes them, and its struct.

    `aligned` says that neighbouring parameters are read as one.
    """
    cpp, arithmetic = _TYPES.get(key.dtype.name, _DOUBLE)
    if not key.op.weighted:
        return [f"cudakit::{key.op.name}<{cpp}, {arithmetic}>"]
    types = ["void" if given is None else _TYPES[given.name][0] for given in key.parameters]
    return [*types, f"cudakit::{key.op.name}<{arithmetic}, {', '.join(types)}, {str(aligned).lower()}>"]


def _rows(key: Key, axes: tuple[int, ...], out_strides: Sequence[int], result: np.dtype) -> Callable[..., None] | None:
    """By the kernel for rows of neighbours; None where they are not that, or too long."""
    outer, inner, x, out, axes_in_memory = _layout(key, axes, out_strides, result)
    if len(outer) > 1 or len(inner) > 1:
        return None
    (rows,), (length,) = outer, inner
    in_memory = [axis for axis in axes_in_memory if key.shape[axis] != 1]
    turned = None if in_memory == sorted(in_memory) else axes_in_memory
    if key.op.per_row:
        fits = (out[0] == 1 or rows == 1) and not turned
    else:
        fits = (out[1] == 1 or length == 1) and (out[0] == length or rows == 1)
    if not fits or not (x[1] == 1 or length == 1) or not (x[0] == length or rows == 1) or length >= 1 << 31:
        return None
    shape = _group(key, length, max(key.dtype.itemsize, result.itemsize))
    if shape is None:
        return None
    group, block, packs, count, ragged = shape
    kernel = Kernel.from_template(f"{key.op.template}/rows")[
        key.dtype, result, *_functor(key, not ragged), group, block, packs, count, ragged
    ]
    blocks = -(-rows * group // block)
    where = config(blocks, block, cluster=group // block if group > block else None)

    def launch(place: Any, x: Any, out: Any, *parameters: Any) -> None:
        if turned:
            x, out = x.transpose(turned), out.transpose(turned)
        kernel(place.stream, where, x, out, rows, length, *parameters)

    return launch


def _group(key: Key, length: int, itemsize: int) -> tuple[int, int, int, int, bool] | None:
    """Threads of a row, threads of a block, packs of a thread, elements of a pack and whether rows begin inside packs.

    None for a row that is too long.
    """
    count = max(1, min(16, key.alignment) // itemsize)
    ragged = length % count != 0
    packs = -(-max(1, length + (count - 1) * ragged) // count)
    arithmetic = 8 if _TYPES.get(key.dtype.name, _DOUBLE) == _DOUBLE else 4
    most = max(1, _BYTES_OF_THREAD // (count * arithmetic))  # packs of a thread
    threads = _power_of_two(-(-packs // most))
    if threads <= 32:
        group = min(32, _power_of_two(packs))
        return group, 128, -(-packs // group), count, ragged
    if threads <= _BLOCK:
        return threads, threads, -(-packs // threads), count, ragged
    clustered = device_limits(key.device).compute_capability >= (9, 0)
    if threads <= _BLOCK * _CLUSTER and clustered:
        return threads, _BLOCK, -(-packs // threads), count, ragged
    return None


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _lines(key: Key, axes: tuple[int, ...], out_strides: Sequence[int], result: np.dtype) -> Callable[..., None]:
    """By the kernels for lines of any layout and length."""
    outer, inner, x_strides, out_steps, _ = _layout(key, axes, out_strides, result)
    shape, rank = (*outer, *inner), len(outer) + len(inner)
    out_shape = (*outer, *[1] * len(inner)) if key.op.per_row else shape
    count, length = prod(outer), prod(inner)
    # Neighbouring threads take neighbouring elements: along the line, or those of lines side by side.
    beside = count > 1 and 0 < abs(x_strides[len(outer) - 1]) < (abs(x_strides[-1]) if length > 1 else 2)
    width = min(32, _power_of_two(count)) if beside else 1
    items = _LINES_ITEMS if len(inner) == 1 else 4  # else there are that many divisions
    block = max(128, min(_LINES_BLOCK, _power_of_two(-(-max(1, length) // items)) * width))
    tail = (len(inner), width, block, items)
    template = Kernel.from_template
    blocks = -(-count // width)
    tiles = -(-length // (block // width * items))
    parts = min(tiles, -(-4 * device_limits(key.device).multiprocessors // blocks), 1024)
    x_bytes = tuple(step * key.dtype.itemsize for step in x_strides)
    out_bytes = tuple(step * result.itemsize for step in out_steps)
    functor = _functor(key)

    def views(place: Any, x: Any, out: Any) -> tuple[Any, Any]:
        strided = place.xp.lib.stride_tricks.as_strided
        return strided(x, shape, x_bytes), strided(out, out_shape, out_bytes)

    if parts < 4:
        kernel = template(f"{key.op.template}/lines")[key.dtype, result, rank, *functor, *tail]
        where = config(blocks, block)

        def launch(place: Any, x: Any, out: Any, *parameters: Any) -> None:
            kernel(place.stream, where, *views(place, x, out), *parameters)

        return launch

    first = template(f"{key.op.template}/parts")[key.dtype, rank, functor[-1], *tail]
    second = template(f"{key.op.template}/join")[key.dtype, result, rank, *functor, *tail]
    split, joined = config((blocks, parts), block), config((blocks, 1 if key.op.per_row else parts), block)
    state_bytes = count * parts * key.op.state_items * 8

    def launch_both(place: Any, x: Any, out: Any, *parameters: Any) -> None:
        x, out = views(place, x, out)
        states = place.workspace(state_bytes)
        first(place.stream, split, x, states)
        second(place.stream, joined, x, out, states, parts, *parameters)

    return launch_both
