"""Elements chosen by their indices."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, Literal

import numpy as np

from cudakit.arrays.layout import axis_of, is_row_major, merged, one_axis, span, steps_of
from cudakit.arrays.output import target
from cudakit.arrays.place import array_place
from cudakit.arrays.plans import Job, views_or_none
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, BoundsError, shortened
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.delivery import delivered
from cudakit.ops.move_plan import word_of
from cudakit.ops.transpose import copy
from cudakit.types.checked import array_of, text_of

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
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    indices : array, int or list of int
        Of an integer dtype, any shape; of an int alone, the dimension goes.
    axis : int, optional
        Of x, which the dimensions of `indices` replace. Left out: x is taken as one dimension.
    mode : {"wrap", "clip", "raise"}
        What an index beyond the ends means. ``wrap``: modulo n, so that −1 is the last. ``clip``: the nearest end, and
        negative ones the first. ``raise``: an error below −n and from n on; it waits for the device and reads a flag,
        costs more for that, and cannot be captured in a graph. NumPy's default is ``raise``; here it is ``wrap``, which
        gives the same for all indices for which NumPy's does not raise.
    out : array, optional
        Of the result's shape, and x's dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous.

    Raises
    ------
    ArgumentError
        Also for an empty axis that is taken from.
    BoundsError
        For an index out of bounds, of mode ``raise``.
    """
    result, flag = _taken(x, indices, axis, mode, out=out, stream=stream)
    if flag is not None:
        place, (x, flag) = array_place("take", stream, ("x", x), ("flag", flag))
        if place.download(flag)[0]:
            size = x.size if axis is None else x.shape[axis]
            raise BoundsError(f"take: an index is out of bounds for {size} elements")
    return result


@repeated("out")
def _taken(
    x: Any, indices: Any, axis: int | None, mode: str, *, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """What was taken, and where mode raise has a number that is not 0 for an index out of bounds."""
    if isinstance(indices, int | list | np.integer) and not isinstance(indices, bool):
        place, (x,) = array_place("take", stream, ("x", x))
        indices = place.upload(array_of("take: indices", indices))
    else:
        place, (x, indices) = array_place("take", stream, ("x", x), ("indices", indices))
    axis, mode = one_axis("take", axis), text_of("take: mode", mode)
    if not indices.flags.c_contiguous:
        indices = copy(indices, stream=place.stream)
    kind = x.dtype, x.shape, x.strides, indices.dtype, indices.shape, axis, mode
    alignment = place.alignment(x)
    job, copies = _job(*kind, alignment)
    to = target("take", place, out, job.shape, x.dtype, x, indices, contiguous=True)
    if job.kernel is None:
        return to.result, None
    if out is not None:
        job, copies = _job(*kind, min(alignment, place.alignment(to.written)))
    source = copy(x, stream=place.stream) if copies else x
    flag = None
    if mode == "raise":
        flag = place.empty(1, np.uint32)
        place.clear(flag)
    place.launch(job.kernel, job.config, *job.seen((source, indices, to.written)), flag, *job.numbers)
    return delivered(place, to), flag


@functools.lru_cache(4096)
def _job(
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    index_dtype: np.dtype,
    index_shape: tuple[int, ...],
    axis: int | None,
    mode: str,
    alignment: int,
) -> tuple[Job, bool]:
    """What a call of one kind does, x and the result being aligned so, and whether x is copied for it."""
    word = word_of("take", dtype)
    if mode not in _MODES:
        raise ArgumentError(f"take: mode {shortened(mode)}; there are {', '.join(_MODES)}")
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
    numbers = (n, prod(index_shape), *(each // wide for each in (inner, *direct, readable, size)))
    index = "unsigned int" if size < 2**32 - _PACK else "unsigned long long"
    kernel = Kernel.from_template("take/along")[
        word, index_dtype, index, f"cudakit::beyond::{_MODES[mode]}", _ITEMS, _BLOCK
    ]
    launch = config(-(-size * dtype.itemsize // (_PACK * _BLOCK * _ITEMS)), _BLOCK)
    view = None if copies or is_row_major(shape, steps) else (0, reach)
    return Job(result, (), kernel, launch, numbers=numbers, views=views_or_none((view, None, None))), copies


def _steps_of_three(shape: tuple[int, ...], steps: tuple[int, ...], along: int) -> tuple[int, int] | None:
    """Steps from row to row and along the axis; None where x is not rows, the axis, and neighbours after it."""
    (_, outer), (_, inner) = merged(shape[:along], steps[:along]), merged(shape[along + 1 :], steps[along + 1 :])
    if len(outer) > 1 or inner not in ((), (1,)) or min(*outer, steps[along], 0) < 0:
        return None
    return (outer[0] if outer else 0), steps[along]
