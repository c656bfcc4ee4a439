"""Copies, transpositions, conversions between dtypes, and the delivery of an op's result to its `out`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import (
    Axis,
    axes_in_order,
    integers,
    is_row_major,
    merged,
    record,
    row_major,
    span,
    steps_of,
    view_of,
)
from cudakit.arrays.output import Target, number_of, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job, views_or_none
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.types.checked import dtype_of, flag

#: A shape, strides, steps or axes.
Ints: TypeAlias = tuple[int, ...]
#: The unsigned word that kernels move for elements of a size in bytes: one specialization serves all such dtypes.
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "uint4"}
#: Side of the square tile of a transposition, and threads of its block, by the size of an element in bytes.
_TILES = {1: (128, 256), 2: (128, 512), 4: (64, 256), 8: (32, 256), 16: (16, 128)}
#: Fewest elements across a tile for which a tile is worth its while.
_NARROWEST = 8
#: Threads of a block, and bytes that a thread moves.
_BLOCK, _PACK = 256, 16


class Dimension(NamedTuple):
    """A dimension of a mapping from indices of the result to indices of the input.

    It holds the extents of result and input, the input's step in elements, the map's shift, and the result's step.
    """

    extent: int
    x_extent: int
    x_step: int
    shift: int = 0
    out_step: int = 0

    @property
    def is_plain(self) -> bool:
        """True if result and input have the same elements in the same order along this dimension."""
        return self.extent == self.x_extent and self.shift == 0


def word_of(op: str, dtype: np.dtype) -> str:
    """Return the C++ word type that kernels move for an element of `dtype`.

    Raises
    ------
    ArgumentError
        The element has another size than 1, 2, 4, 8 or 16 bytes.
    """
    word = _WORDS.get(dtype.itemsize)
    if word is None or dtype.hasobject:
        raise ArgumentError(
            f"{op}: elements of {dtype} are {dtype.itemsize} bytes; what can be moved has 1, 2, 4, 8 or 16"
        )
    return word


@functools.lru_cache(4096)
def copy_job(op: str, dtype: np.dtype, shape: Ints, strides: Ints, order: Ints | None, out_strides: Ints | None) -> Job:
    """Return the job out[k] = x[k], for an array of `shape` and `strides`.

    `order` is the order of x's dimensions in the result; None: unchanged. `out_strides` None: a C-contiguous result.
    """
    word = word_of(op, dtype)
    steps = steps_of(op, dtype, strides)
    x_start = span(shape, steps)[0]
    x_view = view_of(shape, steps)
    if order is not None:
        shape, steps = tuple(shape[d] for d in order), tuple(steps[d] for d in order)
    if 0 in shape:
        return Job(shape)
    to = row_major(shape) if out_strides is None else steps_of(op, dtype, out_strides)
    views = views_or_none((x_view, view_of(shape, to)))
    extents, x_merged, out_merged = merged(shape, steps, to)
    if {x_merged, out_merged} <= {(), (1,)}:
        kernel = Kernel.from_template("move/copied")[word]
        size = prod(shape)
        return Job(shape, (), kernel, _cover(size, dtype.itemsize), numbers=(size,), views=views)
    tile = _tile_job(word, dtype.itemsize, extents, x_merged, out_merged, x_start, span(shape, to)[0])
    if tile is not None:
        kernel, launch, numbers = tile
        return Job(shape, (), kernel, launch, numbers=numbers, views=views)
    dimensions = [Dimension(n, n, step) for n, step in zip(shape, steps, strict=True)]
    job = mapped_job(op, "identity", dtype, shape, steps, dimensions, out_strides)
    return job._replace(views=views)


def _cover(size: int, itemsize: int) -> Config:
    """Return a launch with enough threads for `size` elements of `itemsize` bytes. Each thread moves 16 bytes."""
    return config(-(-size * itemsize // (_PACK * _BLOCK)), _BLOCK)


def _tile_job(
    word: str, itemsize: int, shape: Ints, x_steps: Ints, out_steps: Ints, x_start: int, out_start: int
) -> tuple[Kernel, Config, tuple[Any, ...]] | None:
    """Return kernel, launch and last arguments of a transposition by tiles or in registers.

    Return None if rows are not contiguous on both sides. Steps and starts are in elements.
    """
    if out_steps[-1] != 1 or 1 not in x_steps[:-1]:
        return None
    across = x_steps.index(1)
    rows, columns = shape[-1], shape[across]
    around = [d for d in range(len(shape) - 1) if d != across]
    pitches = x_steps[-1], out_steps[across]
    is_simple = len(around) <= 1 and x_start == out_start == 0
    steps = (x_steps[around[0]], out_steps[around[0]]) if around and is_simple else (0, 0)
    if min(rows, columns) < _NARROWEST:
        few, length, pitch = (columns, rows, pitches[1]) if columns < rows else (rows, columns, pitches[0])
        if not is_simple or few != pitches[columns >= rows]:
            return None
        batch = prod(shape[d] for d in around)
        launch = config(-(-length * itemsize // (_PACK * _BLOCK)) * batch, _BLOCK)
        kernel = Kernel.from_template("transpose/interleaved")[word, few, "true" if columns < rows else "false", _BLOCK]
        return kernel, launch, (length, pitch, *steps)
    side, block = _TILES[itemsize]
    tiles = -(-rows // side) * -(-columns // side) * prod(shape[d] for d in around)
    launch = config(tiles, block)
    if is_simple:
        return Kernel.from_template("transpose/tiled")[word, side, block], launch, (rows, columns, *pitches, *steps)
    around = around or [len(shape)]
    x_steps, out_steps, shape = (*x_steps, 0), (*out_steps, 0), (*shape, 1)
    layout = record(
        rows=rows,
        columns=columns,
        x_pitch=pitches[0],
        out_pitch=pitches[1],
        shape=[shape[d] for d in around],
        x=[x_steps[d] for d in around],
        out=[out_steps[d] for d in around],
    )
    kernel = Kernel.from_template("transpose/tiled_around")[
        {"W": word, "SIDE": side, "RANK": len(around), "BLOCK": block}
    ]
    return kernel, launch, (x_start, out_start, layout)


def mapped_job(
    op: str,
    mapping: str,
    dtype: np.dtype,
    x_shape: Ints,
    x_steps: Ints,
    dimensions: Sequence[Dimension],
    out_strides: Ints | None,
    *,
    start: int = 0,
    fuses: bool = False,
    fill: bytes = b"",
) -> Job:
    """Return the job out[k₀, …] = x[m(k₀), …], where m is `mapping`, the name of a map of ``move.cuh``.

    Parameters
    ----------
    x_shape, x_steps : tuple of int
        Shape and steps of the input.
    dimensions : sequence of Dimension
        Dimensions of the result. The function sets their `out_step`.
    out_strides : tuple of int or None
        Strides of the result in bytes. None: the result is C-contiguous.
    start : int
        Number of elements from the first element of the input to the element where all mapped indices are 0.
    fuses : bool
        Whether the map treats whole rows as it treats elements. A mapped dimension may then be merged with the
        plain dimensions inside it.
    fill : bytes
        Bytes of the fill value.
    """
    word = word_of(op, dtype)
    shape = tuple(d.extent for d in dimensions)
    if 0 in shape:
        return Job(shape)
    to = row_major(shape) if out_strides is None else steps_of(op, dtype, out_strides)
    below, count = span(x_shape, x_steps)
    out_below = span(shape, to)[0]
    fused = _fused([d._replace(out_step=step) for d, step in zip(dimensions, to, strict=True)], fuses)
    size = prod(shape)
    dense = tuple(d.out_step for d in fused) == row_major([d.extent for d in fused])
    narrow = max(size, *(2 * (d.x_extent + d.extent) for d in fused)) < 2**31
    layout = record(
        shape=[d.extent for d in fused],
        x=[d.x_step for d in fused],
        out=[d.out_step for d in fused],
        extent=[d.x_extent for d in fused],
        shift=[d.shift for d in fused],
        divisor=[_divisor(d.extent) if narrow else 0 for d in fused],
        fill=np.frombuffer(fill.ljust(16, b"\0"), np.int64),
    )
    index = "int" if narrow else "long long"
    names = {"W": word, "RANK": len(fused), "Map": f"cudakit::{mapping}", "Index": index, "DENSE": dense}
    thread_elements = _PACK // dtype.itemsize if dense else 1
    views = views_or_none((view_of(x_shape, x_steps), view_of(shape, to)))
    launch, numbers = (
        config(-(-size // (thread_elements * _BLOCK)), _BLOCK),
        (below + start, count, out_below, size, layout),
    )
    return Job(shape, (), Kernel.from_template("move/mapped")[names], launch, numbers=numbers, views=views)


def _divisor(extent: int) -> int:
    """Return one number with which ``<cudakit/elementwise/walk.cuh>`` divides numbers of 31 bits by `extent`.

    Its upper 32 bits are a shift, the lower bits a factor.
    """
    shift = (extent - 1).bit_length()
    return shift << 32 | ((1 << 32) * ((1 << shift) - extent) // extent + 1)


def _fused(dimensions: Sequence[Dimension], fuses: bool) -> list[Dimension]:
    """Return the dimensions of a mapping, merged as far as possible. At least one dimension remains.

    `fuses`: a mapped dimension may be merged with the plain dimensions inside it.
    """
    fused: list[Dimension] = []
    for inner in dimensions:
        if inner.extent == inner.x_extent == 1:
            continue
        if fused and inner.is_plain and (fused[-1].is_plain or fuses):
            outer, n = fused[-1], inner.extent
            if outer.x_step == inner.x_step * n and outer.out_step == inner.out_step * n:
                fused[-1] = Dimension(
                    outer.extent * n, outer.x_extent * n, inner.x_step, outer.shift * n, inner.out_step
                )
                continue
        fused.append(inner)
    return fused or [Dimension(1, 1, 1, 0, 1)]


#: Packs of the wider type a thread, and threads of a block: 4070 to 4300 GB/s on an H200.
_CAST_PACKS, _CAST_BLOCK = 2, 128


@functools.lru_cache(4096)
def cast_job(
    source: np.dtype, shape: Ints, strides: Ints, target: np.dtype, saturate: bool, out_strides: Ints | None
) -> Job:
    """Return the job out[k] = x[k] as a number of `target`, for an array of dtype `source`.

    `saturate`: numbers out of range become the nearest integer. `out_strides` None: a C-contiguous result.
    """
    types = number_of("cast", source), number_of("cast", target)
    if not (source.isnative and target.isnative):
        raise ArgumentError(f"cast: {source.str} to {target.str}: bytes in the other order are not converted")
    if source == target:
        return copy_job("cast", source, shape, strides, None, out_strides)
    if 0 in shape:
        return Job(shape)
    x = steps_of("cast", source, strides)
    to = row_major(shape) if out_strides is None else steps_of("cast", target, out_strides)
    widest = max(source.itemsize, target.itemsize)
    arguments = (*types, "true" if saturate and target.kind in "iu" else "false")
    if is_row_major(shape, x) and is_row_major(shape, to):
        size = prod(shape)
        kernel = Kernel.from_template("cast/contiguous")[(*arguments, _CAST_PACKS, _CAST_BLOCK)]
        launch = config(-(-size * widest // (_PACK * _CAST_PACKS * _CAST_BLOCK)), _CAST_BLOCK)
        return Job(shape, (), kernel, launch, numbers=(size,))
    (below, _), (out_below, _) = span(shape, x), span(shape, to)
    extents, x_steps, out_steps = merged(shape, x, to)
    size = prod(extents)
    layout = record(shape=extents, x=x_steps, out=out_steps)
    kernel = Kernel.from_template("cast/strided")[
        (*arguments, len(extents), "int" if size < 2**31 - _PACK else "long long")
    ]
    views = views_or_none((view_of(shape, x), view_of(shape, to)))
    return Job(shape, (), kernel, _cover(size, widest), numbers=(below, out_below, size, layout), views=views)


# --- delivery ---------------------------------------------------------------------------------------------------------


def delivered(place: ArrayPlace, target: Target) -> Any:
    """Return the caller's output. Results that a kernel wrote elsewhere are copied or cast to it first."""
    written, result = target
    if written is not result:
        layout = written.shape, written.strides
        to = None if result.flags.c_contiguous else result.strides
        if written.dtype == result.dtype:
            job = copy_job("copy", written.dtype, *layout, None, to)
        else:
            job = cast_job(written.dtype, *layout, result.dtype, False, to)
        job.run(place, written, result)
    return result


def moved(
    op: str, place: ArrayPlace, x: Any, out: Any, job_of: Callable[..., Job], *of: Any, dtype: np.dtype | None = None
) -> Any:
    """Launch the job that `job_of` makes, and return its result: `out` after checks, or a new array.

    The job is `job_of(dtype, shape and strides of x, *of, strides of out)`. For a C-contiguous result the strides are
    None. `dtype` is the dtype of the result. Default: the dtype of `x`.
    """
    key = x.dtype, x.shape, x.strides, *of
    job = job_of(*key, None)
    if out is None:
        result = place.empty(job.shape, x.dtype if dtype is None else dtype)
        job.run(place, x, result)
        return result
    to = target(op, place, out, job.shape, x.dtype if dtype is None else dtype, x)
    if not to.written.flags.c_contiguous:
        job = job_of(*key, to.written.strides)
    job.run(place, x, to.written)
    return delivered(place, to)


# --- ops --------------------------------------------------------------------------------------------------------------


@repeated("out")
def copy(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] in a new C-contiguous array, at the speed of the memory.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous copy of x.

    Raises
    ------
    ArgumentError
        The elements have another size, or `out` does not fit.
    """
    place, (x,) = array_place("copy", stream, ("x", x))
    return moved("copy", place, x, out, partial(copy_job, "copy"), None)


@repeated("out")
def transpose(x: Any, axes: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…] = x, where dimension d of the result is dimension axes[d] of `x`, in a new C-contiguous array.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    axes : sequence of int, optional
        Permutation of x's dimensions; negative numbers count from the last. Default: the dimensions in reverse
        order.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array of x's dtype.

    Raises
    ------
    ArgumentError
        The axes are no permutation, the elements have another size, or `out` does not fit.

    Notes
    -----
    Unlike NumPy's, the result is a copy and never a view.

    Dimensions that stay neighbours are merged. The merged array is then moved in one of four ways:

    - a copy, if nothing is left to transpose;
    - a transposition by tiles in shared memory (Ruetsch and Micikevicius, 2009);
    - a transposition in registers, if a side has fewer than 8 elements (pixels and planes, for example);
    - a copy element by element, if neither array has neighbouring elements in memory.

    Transpositions are repeated over the other dimensions.
    """
    place, (x,) = array_place("transpose", stream, ("x", x))
    order = _permutation(integers("transpose", "axes", axes), x.ndim)
    return moved("transpose", place, x, out, partial(copy_job, "transpose"), order)


@functools.lru_cache
def _permutation(axes: Axis, ndim: int) -> Ints:
    if axes is None:
        return tuple(range(ndim))[::-1]
    order = axes_in_order("transpose", "axes", axes, ndim)
    if len(order) != ndim:
        raise ArgumentError(f"transpose: axes {axes} name {len(order)} of {ndim} dimensions; name each once")
    return order


@repeated("out")
def cast(x: Any, dtype: Any, saturate: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] as a number of `dtype`.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point (float16 and bfloat16 too) or complex.
    dtype : dtype
        Dtype of the result: any of the dtypes of `x`.
    saturate : bool
        Whether a number out of the range of an integer dtype becomes the nearest integer in range, and NaN becomes
        zero. It has no effect on other target dtypes.
    out : array, optional
        Output array: shape of `x`, any strides; of dtype `dtype`.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous copy, even if the dtype stays the same.

    Raises
    ------
    ArgumentError
        A dtype cannot be cast, or `out` does not fit.

    Notes
    -----
    - To floating point: rounded to the nearest, ties to even. A number that is too large becomes infinite.
    - To bfloat16: by way of float32, as in ml_dtypes.
    - To bool: whether the number is not 0. NaN is not 0: it becomes True.
    - To an integer dtype without `saturate`: integers wrap around, and floating point is rounded toward zero.
    - Complex to real: the imaginary part is dropped, without a warning.

    Without `saturate`, a floating-point number out of range is clamped to 32 bits, and the result is the low bits of
    the clamped number. NaN gives 0 or the lowest number. For uint32 and wider integers the clamp is to 64 bits. For
    uint64 it is from 0 to the greatest uint64. Within 32 (64) bits this is NumPy's result on x86-64. Beyond, NumPy's
    result is undefined.
    """
    saturate = flag("cast: saturate", saturate)
    place, (x,) = array_place("cast", stream, ("x", x))
    target = dtype if isinstance(dtype, np.dtype) else dtype_of("cast: dtype", dtype)
    return moved("cast", place, x, out, cast_job, target, saturate, dtype=target)
