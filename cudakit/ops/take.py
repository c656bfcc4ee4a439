"""Elements selected by their indices, or by a mask."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, Literal

import numpy as np

from cudakit.arrays.layout import axis_of, is_row_major, merged, one_axis, span, steps_of
from cudakit.arrays.output import check_apart, checked_output, overlaps, target
from cudakit.arrays.place import array_place, as_array, multiprocessors_of
from cudakit.arrays.plans import Job, views_or_none
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, BoundsError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, cast, copy, delivered, word_of
from cudakit.types.checked import array_of, text_of
from cudakit.types.cpp import is_real

_ITEMS, _BLOCK, _PACK = 4, 256, 16
_MODES = {"wrap": "wrap", "clip": "clip", "raise": "check"}


def take(
    x: Any,
    indices: Any,
    axis: int | None = None,
    mode: Literal["wrap", "clip", "raise"] = "wrap",
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[o…, k…, i…] = x[o…, indices[k…], i…]

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    indices : array, int or list of int
        Indices of an integer dtype and any shape. A single int removes the dimension.
    axis : int, optional
        Axis of x that the dimensions of `indices` replace. Default: x is taken as one dimension.
    mode : {"wrap", "clip", "raise"}
        Rule for an index out of bounds:

        - ``wrap``: modulo n, so that −1 is the last element.
        - ``clip``: the nearest end; negative indices are the first element.
        - ``raise``: an error for indices below −n and from n on. This mode waits for the device, costs more, and
          cannot be captured in a graph.
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
        The arguments do not fit, or elements are taken from an empty axis.
    BoundsError
        An index is out of bounds, with mode ``raise``.

    Notes
    -----
    NumPy's default `mode` is ``raise``. Both defaults give the same result unless NumPy raises.
    """
    result, flag = _gathered(x, indices, axis, mode, out=out, stream=stream)
    if flag is not None:
        place, (x, flag) = array_place("take", stream, ("x", x), ("flag", flag))
        if place.download(flag)[0]:
            size = x.size if axis is None else x.shape[axis]
            raise BoundsError(f"take: an index is out of bounds for {size} elements")
    return result


@repeated("out")
def _gathered(
    x: Any, indices: Any, axis: int | None, mode: str, *, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """Return the gathered elements, and for mode raise a flag that is not 0 if an index is out of bounds, else None."""
    if isinstance(indices, int | list | np.integer) and not isinstance(indices, bool):
        place, (x,) = array_place("take", stream, ("x", x))
        indices = place.upload(array_of("take: indices", indices))
    else:
        place, (x, indices) = array_place("take", stream, ("x", x), ("indices", indices))
    axis, mode = one_axis("take", axis), text_of("take: mode", mode)
    if not indices.flags.c_contiguous:
        indices = copy(indices, stream=place.stream)
    key = x.dtype, x.shape, x.strides, indices.dtype, indices.shape, axis, mode
    alignment = place.alignment(x)
    job, copies = _job(*key, alignment)
    to = target("take", place, out, job.shape, x.dtype, x, indices, contiguous=True)
    if job.kernel is None:
        return to.result, None
    if out is not None:
        job, copies = _job(*key, min(alignment, place.alignment(to.written)))
    source = copy(x, stream=place.stream) if copies else x
    flag = None
    if mode == "raise":
        flag = place.empty(1, np.uint32)
        place.clear(flag)
    place.launch(job.kernel, job.config, *job.operands((source, indices, to.written)), flag, *job.numbers)
    return delivered(place, to), flag


@functools.lru_cache(4096)
def _job(
    dtype: np.dtype,
    shape: Ints,
    strides: Ints,
    index_dtype: np.dtype,
    index_shape: Ints,
    axis: int | None,
    mode: str,
    alignment: int,
) -> tuple[Job, bool]:
    """Return the job of a `take` call, and whether x must be copied first.

    `alignment` is the alignment of the addresses in bytes.
    """
    word = word_of("take", dtype)
    if mode not in _MODES:
        raise ArgumentError(f"take: mode {shortened(mode)}; expected one of {', '.join(_MODES)}")
    if index_dtype.kind not in "iu":
        raise ArgumentError(f"take: indices are of {index_dtype}; give integers")
    steps = steps_of("take", dtype, strides)
    if axis is None:
        before, n, after = shape[:0], prod(shape), shape[:0]
    else:
        along = axis_of("take", axis, len(shape))
        before, n, after = shape[:along], shape[along], shape[along + 1 :]
    result = (*before, *index_shape, *after)
    size = prod(result)
    if size == 0:
        return Job(result), False
    if n == 0:
        raise ArgumentError("take: there is nothing to take from an empty axis")
    direct = None if axis is None else _steps_of_three(shape, steps, along)
    copies = direct is None and not is_row_major(shape, steps)
    inner = prod(after)
    if direct is None:
        direct = n * inner, inner
    reach = span(shape, steps)[1]
    readable = prod(shape) if copies else reach
    # Elements that always lie together are taken as one, of 16 bytes at most.
    wide = gcd(alignment // gcd(alignment, dtype.itemsize), inner, *direct, readable)
    if wide > 1:
        word = word_of("take", np.dtype((np.void, wide * dtype.itemsize)))
    numbers = (n, prod(index_shape), *(elements // wide for elements in (inner, *direct, readable, size)))
    index = "unsigned int" if size < 2**32 - _PACK else "unsigned long long"
    kernel = Kernel.from_template("take/along")[
        word, index_dtype, index, f"cudakit::beyond::{_MODES[mode]}", _ITEMS, _BLOCK
    ]
    launch = config(-(-size * dtype.itemsize // (_PACK * _BLOCK * _ITEMS)), _BLOCK)
    view = None if copies or is_row_major(shape, steps) else (0, reach)
    return Job(result, (), kernel, launch, numbers=numbers, views=views_or_none((view, None, None))), copies


def _steps_of_three(shape: Ints, steps: Ints, along: int) -> tuple[int, int] | None:
    """Return two steps in elements for x seen in three dimensions: from row to row, and along the axis `along`.

    The three dimensions are those before the axis merged, the axis, and those after it. Return None unless the first
    can be merged, the last are contiguous, and no step is negative.
    """
    (_, outer), (_, inner) = merged(shape[:along], steps[:along]), merged(shape[along + 1 :], steps[along + 1 :])
    if len(outer) > 1 or inner not in ((), (1,)) or min(*outer, steps[along], 0) < 0:
        return None
    return (outer[0] if outer else 0), steps[along]


# --- compact ----------------------------------------------------------------------------------------------------------


#: Rounds of 16 elements a thread, threads of a block, blocks that registers must do for on a multiprocessor, and
#: whether tiles are drawn ahead, by the size of an element in bytes: the fastest of those tried on an H200.
_SHAPES = {
    1: (4, 256, 3, False),
    2: (4, 256, 2, False),
    4: (2, 256, 4, True),
    8: (1, 256, 4, False),
    16: (1, 128, 4, True),
}
#: Blocks a multiprocessor, by their shared memory; more would wait for tiles that others have.
_BLOCKS = 6
_STATUS_HEADER = 256
_BOOL, _INT64 = np.dtype(bool), np.dtype(np.int64)


def compact(x: Any, where: Any, *, out: Any = None, count: Any = None, stream: Any = None) -> Any:
    """out[: count] = x[where], the selected elements in their order; count = their number.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    where : array of bool
        Mask of the elements to select: array of the shape of `x`. Numbers select where they are not 0.
    out : array, optional
        Output array for the elements: one dimension, C-contiguous, of x's dtype. Elements that do not fit are not
        written. Elements of `out` past the count stay as they are. If `out` overlaps `x` or `where`, they are
        copied first.
    count : array of int64, optional
        Output array of one element for the number of selected elements, whether `out` has room for them or not.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, or (out, count)
        Without `out` and `count`: ``x[where]``, as in NumPy. The call then waits for the device to learn the
        length. The memory behind the result is as large as x.

        With `out` or `count`: both arrays; the call allocates the other one. It does not wait, and can be captured
        in a graph.

    Raises
    ------
    ArgumentError
        The mask has another shape, or `out` or `count` does not fit.

    Notes
    -----
    A single pass with decoupled look-back (Merrill and Garland, 2016). Arrays that are not C-contiguous are copied
    first.
    """
    result, counted = _chosen(x, where, out=out, count=count, stream=stream)
    if out is not None or count is not None:
        return result, counted
    return result[: int(array_place("compact", stream, ("count", counted))[0].download(counted))]


@repeated("out", "count")
def _chosen(x: Any, where: Any, *, out: Any = None, count: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """Return the selected elements, with room after them, and their number."""
    place, (x, where) = array_place("compact", stream, ("x", x), ("where", where))
    if not is_real(where.dtype) or where.shape != x.shape:
        raise ArgumentError(
            f"compact: where must be bools or numbers of shape {x.shape}, got {where.dtype} of shape {where.shape}"
        )
    room: Ints = (x.size,) if out is None else as_array("compact", "out", out)[0].shape
    if len(room) != 1:
        raise ArgumentError(f"compact: out must have one dimension, got shape {room}")
    dtype = x.dtype
    result = place.empty(room, dtype) if out is None else checked_output("compact", place, out, room, dtype)
    shape: Ints = () if count is None else as_array("compact", "count", count)[0].shape
    if shape not in ((), (1,)):
        raise ArgumentError(f"compact: count must have one element, got shape {shape}")
    counted = target("compact", place, count, shape, _INT64, x, where, most=x.size)
    check_apart("compact", (out, count))
    if not result.flags.c_contiguous:
        raise ArgumentError(f"compact: out has strides {result.strides}; give contiguous memory")
    size: int = x.size
    if where.dtype != _BOOL:
        where = cast(where, _BOOL, stream=place.stream)
    # Elements of out past the count stay: it is written itself.
    if not x.flags.c_contiguous or (out is not None and overlaps(result, x)):
        x = copy(x, stream=place.stream)
    if not where.flags.c_contiguous or (out is not None and overlaps(result, where)):
        where = copy(where, stream=place.stream)
    kernel, launch, status_bytes = _launch(x.dtype, size, place.device)
    place.launch(kernel, launch, x, where, result, counted.written, place.status(status_bytes), size, room[0])
    return result, delivered(place, counted)


@functools.lru_cache(1024)
def _launch(dtype: np.dtype, size: int, device: int | str) -> tuple[Kernel, Config, int]:
    """Return the kernel of `compact`, its configuration, and the bytes of memory for the status of its blocks."""
    rounds, block, resident, ahead = _SHAPES[dtype.itemsize]
    index, launch, status_bytes = look_back(size, rounds * block * 16, block, _BLOCKS, device)
    names = word_of("compact", dtype), index, rounds, block, resident, ahead
    return Kernel.from_template("compact/selected")[names], launch, status_bytes


def look_back(size: int, tile: int, block: int, resident: int, device: int | str) -> tuple[str, Config, int]:
    """Return the C++ index type, configuration and status bytes of a one-pass kernel with decoupled look-back.

    `tile` is the number of elements of a tile, `resident` the number of blocks for each multiprocessor. Blocks tell
    each other the state of their tiles in the status memory.
    """
    tiles, is_wide = -(-size // tile), size >= 2**32
    blocks = max(1, min(tiles, resident * multiprocessors_of(device)))
    index = "unsigned long long" if is_wide else "unsigned int"
    return index, config(blocks, block), _STATUS_HEADER + 8 * (1 + is_wide) * tiles
