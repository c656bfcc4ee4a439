"""How a reduction runs: its axes as rows or columns of memory, a kernel for them, and the launch that fills the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from operator import index
from typing import Any, NamedTuple

import numpy as np

from cudakit.config import Config, config
from cudakit.errors import ArgumentError
from cudakit.kernel import Kernel
from cudakit.ops.layout import Axis, axes_of, merged, without
from cudakit.ops.place import TICKETS, multiprocessors_of, output, place_of
from cudakit.types import spelling

#: Bytes of one load, loads that a thread has in flight, threads of a large block, and blocks a multiprocessor: two
#: waves of 1024 threads. Measured on an H200: 4461 GB/s; blocks of 256, one wave: 4454; CUB: 4326.
_PACK, _ITEMS, _BLOCK, _BLOCKS = 16, 8, 512, 4


class Reduction(NamedTuple):
    """What becomes of the elements.

    Attributes
    ----------
    reducer : str
        A reducer of ``<cudakit/reducer.cuh>``.
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


class _Job(NamedTuple):
    """What a call of one kind does; `view` makes of the input what the kernel takes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    launch: Launch | None
    view: Callable[[Any], Any] | None


def reduced(
    op: str,
    choose: Callable[..., Reduction],
    option: Any,
    x: Any,
    axis: Axis,
    keepdims: bool,
    out: Any,
    stream: Any,
) -> Any:
    """`x` reduced over `axis`.

    Parameters
    ----------
    choose : callable
        ``choose(op, dtype, option)``: the `Reduction` of elements of a dtype. Called once for each `option`, which is
        hashable.

    Raises
    ------
    ArgumentError
    """
    place, (x,) = place_of(op, stream, ("x", x))
    if axis is not None and axis.__class__ is not int:
        axis = _hashable(op, axis)
    job = _job(op, choose, option, x.dtype, x.shape, x.strides, axis, keepdims, place.device)
    result = output(op, place, out, job.shape, job.dtype, x)
    if job.launch is not None:
        kernel, shape, workspace_bytes, numbers = job.launch
        seen = x if job.view is None else job.view(x)
        workspace = place.workspace(workspace_bytes) if workspace_bytes else None
        kernel(place.stream, shape, seen, result, workspace, *numbers)
    return result


def cpp(op: str, dtype: np.dtype, what: str = "x") -> str:
    """The C++ type of numbers of a dtype.

    Raises
    ------
    ArgumentError
        For a dtype that is no number's, or not in the device's byte order.
    """
    spelled = spelling(dtype) if dtype.kind in "biufc" or dtype.name == "bfloat16" else None
    if spelled is None:
        raise ArgumentError(f"{op}: {what} has dtype {dtype}; it takes bool, integers, floating point or complex")
    return spelled


def accumulator(op: str, dtype: np.dtype) -> tuple[str, int]:
    """What a sum of a result's dtype is kept in, and its size in bytes."""
    if dtype.kind in "biu":
        return ("unsigned long long" if dtype.kind == "u" else "long long"), 8
    return ("float", 4) if dtype.itemsize == 2 else (cpp(op, dtype), dtype.itemsize)


def _hashable(op: str, axis: Any) -> Axis:
    try:
        return index(axis)
    except TypeError:
        pass
    try:
        return tuple(index(each) for each in axis)
    except TypeError:
        raise ArgumentError(f"{op}: axis must be an int, several, or None, got {axis!r}") from None


@functools.lru_cache(4096)
def _job(
    op: str,
    choose: Callable[..., Reduction],
    option: Any,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axis: Axis,
    keepdims: bool,
    device: int | str,
) -> _Job:
    axes = axes_of(op, axis, len(shape))
    reduction = choose(op, dtype, option)
    target = without(shape, axes, keepdims)
    rows, length = prod(target), prod(shape[d] for d in axes)
    if length == 0 and rows and not reduction.empty:
        raise ArgumentError(f"{op}: x has shape {shape}: no elements along axis {axis}, and {op} of nothing is undefined")
    if rows == 0:
        return _Job(target, reduction.dtype, None, None)
    return _Job(target, reduction.dtype, *_planned(reduction, dtype, shape, strides, axes, multiprocessors_of(device)))


def _planned(
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
        return row_launch(reduction, "rows", (dtype,), rows, 0, 1, units), None
    view = _reordered(shape, steps)
    if steps_within in ((), (1,)) and kept_steps in ((), (length,)):
        return row_launch(reduction, "rows", (dtype,), rows, length, _PACK // dtype.itemsize, units), view
    if len(steps_within) == 1 and kept_steps[-1:] == (1,) and steps_within[0] == kept_shape[-1]:
        outer, across = rows // kept_shape[-1], kept_shape[-1]
        if kept_steps[:-1] in ((), (length * across,)) and (outer == 1 or length >= 16 or across >= 128):
            return _column_launch(reduction, dtype, outer, length, across, units), view
    return _view_launch(reduction, dtype, (kept_shape, kept_steps), (shape_within, steps_within), units)


def _reordered(shape: Sequence[int], steps: Sequence[int]) -> Callable[[Any], Any] | None:
    """What makes an array that has no gaps C-contiguous: None, or a transposition."""
    order = sorted(range(len(shape)), key=lambda d: (shape[d] != 1, -steps[d]))
    wide = [d for d in range(len(shape)) if shape[d] != 1]
    if sorted(wide, key=lambda d: -steps[d]) == wide:
        return None
    return lambda x: x.transpose(order)


class Spread(NamedTuple):
    """How rows are spread over threads: WIDTH, BLOCK and ITEMS of the kernels, blocks of the launch, parts of a row."""

    width: int
    block: int
    items: int
    blocks: int
    parts: int


def spread_rows(rows: int, loads: int, units: int) -> Spread:
    """How `rows` rows of `loads` loads each fill `units` multiprocessors."""
    if rows > 1 and loads <= 32 * _ITEMS:
        width = min(32, _power_of_two(loads))
        block, items = 256, _power_of_two(-(-loads // width))
        return Spread(width, block, items, min(-(-rows // (block // width)), 64 * units), 1)
    block = min(_BLOCK, max(128, _power_of_two(-(-loads // _ITEMS))))
    parts = max(1, min(_BLOCKS * units // rows, -(-loads // block))) if rows <= TICKETS else 1
    blocks = rows * parts if parts > 1 else min(rows, 8192 // block * units)
    return Spread(block, block, _ITEMS, blocks, parts)


def _power_of_two(number: int) -> int:
    """The least that is not below `number`."""
    return 1 << (number - 1).bit_length()


def row_launch(
    reduction: Reduction, name: str, first: tuple[Any, ...], rows: int, length: int, per_load: int, units: int
) -> Launch:
    """The launch of the kernel `name`, whose template arguments begin with `first`, for rows of `length` elements."""
    spread = spread_rows(rows, max(1, -(-length // per_load)), units)
    numbers = (rows, length, spread.parts, max(length - reduction.ddof, 0.0))
    kernel = kernel_of(name, *first, reduction.dtype, reduction.reducer, spread.width, spread.block, spread.items)
    size = rows * spread.parts * reduction.state_bytes if spread.parts > 1 else 0
    return Launch(kernel, config(spread.blocks, spread.block), size, numbers)


def kernel_of(name: str, *arguments: Any) -> Kernel:
    """A kernel of ``templates/reduce.cuh`` with its template arguments."""
    return Kernel.from_template(f"reduce/{name}")[arguments]


def _column_launch(reduction: Reduction, dtype: np.dtype, outer: int, length: int, inner: int, units: int) -> Launch:
    count = _PACK // dtype.itemsize
    # Each thread has a state for each of its columns, in registers, and then in 48 KiB of shared memory with the block's.
    while count > 1 and (inner % count or count * reduction.state_bytes > 64):
        count //= 2
    block = _BLOCK if count * reduction.state_bytes * _BLOCK <= 48 * 1024 else _BLOCK // 2
    across = _power_of_two(-(-inner // count))
    # 64 threads side by side; more, where there is too little along `length` for the others.
    width = min(across, max(64, min(block, block * _ITEMS // _power_of_two(length))))
    tiles = outer * -(-inner // (width * count))
    parts = 1
    if tiles <= TICKETS:
        parts = max(1, min(_BLOCKS * units // tiles, length * width // (block * _ITEMS)))
    kernel = kernel_of("columns", dtype, reduction.dtype, reduction.reducer, count, width, block, _ITEMS)
    numbers = (outer, length, inner, parts, max(length - reduction.ddof, 0.0))
    workspace_bytes = outer * parts * inner * reduction.state_bytes if parts > 1 else 0
    return Launch(kernel, config(min(tiles * parts, 2**31 - 1), block), workspace_bytes, numbers)


def _view_launch(
    reduction: Reduction,
    dtype: np.dtype,
    kept: tuple[tuple[int, ...], ...],
    within: tuple[tuple[int, ...], ...],
    units: int,
) -> tuple[Launch, Callable[[Any], Any]]:
    rows, length = prod(kept[0]), prod(within[0])
    shape, steps = (kept[0] + within[0], kept[1] + within[1]) if within[0] else (kept[0] + (1,), kept[1] + (1,))
    first = (dtype, len(shape), len(kept[0]))
    nearest = min((abs(step), d >= len(kept[0])) for d, step in enumerate(steps))
    # Where neighbours in memory belong to different results, a thread each, once there are enough to fill the device.
    scattered = not nearest[1] and rows >= 512 * units
    launch = row_launch(reduction, "views", first, rows, length, length if scattered else 1, units)
    strides = tuple(step * dtype.itemsize for step in steps)
    return launch, lambda x: _strided_view(x, shape, strides)


def _strided_view(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    if isinstance(x, np.ndarray):
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
    import cupy

    return cupy.lib.stride_tricks.as_strided(x, shape, strides)
