"""Results of an array's chunks, joined to one array."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.pipeline import transfers
from cudakit.pipeline.run import Run
from cudakit.pipeline.sinks import replacing
from cudakit.pipeline.sources import Chunks

#: Chunks that are put in their place while the next is asked for.
_UNDER_WAY = 2


def map_chunks(source: Chunks, results: Run, out: Any) -> np.ndarray:
    """Return the results of a source's chunks, without their halos, in one array.

    Parameters
    ----------
    source : Chunks
        Chunks of the input array.
    results : Run
        Results of the stages, one for each chunk, in order.
    out : numpy.ndarray, path or None
        Array for the result, or path of an ``.npy`` file for it. None: a new array.

    Returns
    -------
    numpy.ndarray
        Result: `out`, the file as a mapped array, or the new array.
    """
    if isinstance(out, (str, os.PathLike)):
        path = Path(out)
        with replacing(path) as part:
            result = _gather(source, results, lambda shape, dtype: _new_file(part, shape, dtype))
            if isinstance(result, np.memmap):
                result.flush()
            del result
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    if out is None:
        return _gather(source, results, np.empty)
    if not isinstance(out, np.ndarray) or not out.flags.writeable:
        raise ArgumentError(f"map_array: out is a writeable NumPy array or a path, got {type(out).__name__}")
    if source.halo and isinstance(source.array, np.ndarray) and np.may_share_memory(out, source.array):
        raise ArgumentError("map_array: with a halo, out cannot be the array itself: rows are read again later")

    def checked_out(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        if out.shape != shape or out.dtype != dtype:
            raise ArgumentError(
                f"map_array: out is {out.shape} of {out.dtype}; the stages give {shape} of {np.dtype(dtype)}"
            )
        return out

    return _gather(source, results, checked_out)


def _gather(source: Chunks, results: Run, make: Any) -> np.ndarray:
    output: Any = None
    under_way: deque[list[Future[None]]] = deque()
    try:
        for number, (first, start, stop, last) in enumerate(source.spans):
            result = next(results, None)
            if results.item != number:
                raise _not_one(number if result is None else min(number, results.item))
            if not isinstance(result, np.ndarray) or result.ndim == 0 or len(result) != last - first:
                shape = getattr(result, "shape", type(result).__name__)
                raise ArgumentError(
                    f"map_array: the stages were given {last - first} rows and returned {shape}; they must return as "
                    "many rows. For sums and the like, iterate over pipeline(from_array(array))"
                )
            if output is None:
                output = make((source.array.shape[0], *result.shape[1:]), result.dtype)
            # Threads put the result in its place while this one feeds the device.
            under_way.append(transfers.start(output[start:stop], result[start - first : stop - first]))
            if len(under_way) > _UNDER_WAY:
                _wait(under_way.popleft())
        for _ in results:
            raise _not_one(results.item)
    finally:
        while under_way:
            _wait(under_way.popleft())
    filled: np.ndarray = output
    return filled


def _not_one(chunk: int) -> ArgumentError:
    return ArgumentError(
        f"map_array: the stages made none or several results of chunk {chunk}; they must return one, with as many rows"
    )


def _wait(copies: list[Future[None]]) -> None:
    for copied in copies:
        copied.result()


def _new_file(path: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if 0 in shape:
        np.save(path, np.empty(shape, dtype))
        return np.empty(shape, dtype)
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
