"""Elements chosen by a mask."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.output import check_apart, checked_output, overlaps, target
from cudakit.arrays.place import array_place, as_array, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.cast import cast
from cudakit.ops.delivery import delivered
from cudakit.ops.move_plan import word_of
from cudakit.ops.transpose import copy

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
    """out[: count] = x[where], the chosen elements in their order; count = the number of them.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    where : array of bool
        Of the shape of `x`; of numbers: what is not 0 is chosen.
    out : array, optional
        One dimension, C-contiguous, of x's dtype. It takes as many as it has room for; its elements past the count stay
        as they are. Where it overlaps `x` or `where`, they are copied first.
    count : array of int64, optional
        Of one element: the number of chosen ones, whether `out` had room for them or not.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array, or (out, count)
        Without `out` and `count`: ``x[where]``, as NumPy has it; this waits for the device, to know how long it is, and
        the memory behind it is as large as x. With one of them: both, the other one made here, and nothing is waited
        for, so that it can be captured in a graph.

    Raises
    ------
    ArgumentError

    Notes
    -----
    A single pass with decoupled look-back (Merrill and Garland, 2016). What is not C-contiguous is copied first.
    """
    result, counted = _chosen(x, where, out=out, count=count, stream=stream)
    if out is not None or count is not None:
        return result, counted
    return result[: int(array_place("compact", stream, ("count", counted))[0].download(counted))]


@repeated("out", "count")
def _chosen(x: Any, where: Any, *, out: Any = None, count: Any = None, stream: Any = None) -> tuple[Any, Any]:
    """The chosen elements, with room after them, and their number."""
    place, (x, where) = array_place("compact", stream, ("x", x), ("where", where))
    if (where.dtype.kind not in "biuf" and where.dtype.name != "bfloat16") or where.shape != x.shape:
        raise ArgumentError(
            f"compact: where must be bools or numbers of shape {x.shape}, got {where.dtype} of shape {where.shape}"
        )
    room: tuple[int, ...] = (x.size,) if out is None else as_array("compact", "out", out)[0].shape
    if len(room) != 1:
        raise ArgumentError(f"compact: out must have one dimension, got shape {room}")
    dtype = x.dtype
    result = place.empty(room, dtype) if out is None else checked_output("compact", place, out, room, dtype)
    counted = target("compact", place, count, () if count is None else _one(count), _INT64, x, where, most=x.size)
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


def _one(count: Any) -> tuple[int, ...]:
    """Shape of an array of one element."""
    shape: tuple[int, ...] = as_array("compact", "count", count)[0].shape
    if shape not in ((), (1,)):
        raise ArgumentError(f"compact: count must have one element, got shape {shape}")
    return shape


@functools.lru_cache(1024)
def _launch(dtype: np.dtype, size: int, device: int | str) -> tuple[Kernel, Config, int]:
    """The kernel, its launch, and bytes of status."""
    word = word_of("compact", dtype)
    rounds, block, resident, ahead = _SHAPES[dtype.itemsize]
    tiles = -(-size // (rounds * block * 16))
    wide = size >= 2**32
    kernel = Kernel.from_template("compact/selected")[
        word, "unsigned long long" if wide else "unsigned int", rounds, block, resident, ahead
    ]
    blocks = max(1, min(tiles, _BLOCKS * multiprocessors_of(device)))
    return kernel, config(blocks, block), _STATUS_HEADER + 8 * (1 + wide) * tiles
