"""Kernels over the rows of a matrix."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import cudakit as ck
from rowkit.arrays import empty_like, on_host, stream_for

Array = TypeVar("Array")
_FOLDER = Path(__file__).parent
_BLOCK = 256
_DTYPES = ("float32", "float64")

_OPTIONS = ck.CompileOptions(
    include_paths=[_FOLDER / "include"],
    cache=os.environ.get("ROWKIT_CACHE_DIR"),  # None: where all of the user's kernels are
)

# Made at import: that reads the file, and neither compiles nor touches a GPU.
_rescale = ck.Kernel.from_file(_FOLDER / "rows.cu", "rescale", options=_OPTIONS)["BLOCK":_BLOCK]


def include_path() -> Path:
    """The folder of this library's headers, for kernels of its users: ``#include <rowkit/scale.cuh>``."""
    return _FOLDER / "include"


def rescale(x: Array, *, out: Array | None = None, stream: Any = None) -> Array:
    """Each row of `x` brought to 0 … 1: (x − min) / (max − min) along the last axis.

    Parameters
    ----------
    x : array (rows, columns), float32 or float64, C-contiguous
        Of NumPy, CuPy or torch.
    out : array, optional
        Where the result goes, like `x`; it may be `x`.
    stream : stream, optional
        Of cuda.core, CuPy, torch or cudakit; default: the current one of the array's library. Work is waited for
        only where the arrays are in host memory.

    Returns
    -------
    array
        Of the same kind, shape and dtype.

    Raises
    ------
    ValueError
        `x` is no matrix, or has no columns.
    TypeError
        Another dtype; and what a kernel cannot take (cudakit.ArgumentError).
    """
    given: Any = x
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"rescale: x is (rows, columns) with at least one column, got shape {tuple(given.shape)}")
    if str(given.dtype).removeprefix("torch.") not in _DTYPES:
        raise TypeError(f"rescale: x is of {' or '.join(_DTYPES)}, got {given.dtype}")
    target = stream_for(given, stream)
    result: Array = empty_like(given) if out is None else out
    config = ck.config(given.shape[0], _BLOCK)
    host = on_host(given)
    if host is None:
        _rescale(target, config, given, result, given.shape[1])
    else:
        device = ck.to_device(host, target)
        _rescale(target, config, device, device, given.shape[1])
        ck.to_host(device, target, out=on_host(result))  # waits
    return result


def prewarm(archs: Iterable[str] = ()) -> None:
    """Compile all kernels into the cache, for each arch (``"sm_90"``), or for the device that is here."""
    ck.prewarm([_rescale[np.dtype(name)] for name in _DTYPES], archs=archs)
