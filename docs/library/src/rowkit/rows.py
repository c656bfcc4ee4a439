"""Functions on the rows of a matrix."""

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

_BUNDLE = _FOLDER / "rows.ckb"  # which a wheel has
_OPTIONS = ck.CompileOptions(
    bundle=_BUNDLE if _BUNDLE.is_file() else None,
    include_paths=[_FOLDER / "include"],
    cache=os.environ.get("ROWKIT_CACHE_DIR"),  # None: the user's cache
)

# This reads the file at import. It neither compiles nor touches a GPU.
_template = ck.Kernel.from_file(_FOLDER / "rows.cu", "rescale", options=_OPTIONS)
_rescale = _template["BLOCK":_BLOCK]


def include_path() -> Path:
    """Return the folder of the headers, for ``#include <rowkit/scale.cuh>``."""
    return _FOLDER / "include"


def rescale(x: Array, *, out: Array | None = None, stream: Any = None) -> Array:
    """Scale each row of `x` to 0 … 1: (x − min) / (max − min) along the last axis.

    Parameters
    ----------
    x : array (rows, columns), float32 or float64, C-contiguous
        An array of NumPy, CuPy or torch.
    out : array, optional
        Array for the result, of the shape and dtype of `x`; it may be `x`.
    stream : stream, optional
        A stream of cuda.core, CuPy, torch or cudakit. Default: the current stream of
        the array's library. The function waits only for arrays in host memory.

    Returns
    -------
    array
        The scaled rows, in an array of the same library, shape and dtype.

    Raises
    ------
    ValueError
        `x` is not a matrix, or has no columns.
    TypeError
        Another dtype, or an argument that the kernel refuses (cudakit.ArgumentError).
    """
    matrix: Any = x
    shape = tuple(matrix.shape)
    if len(shape) != 2 or shape[1] == 0:
        expected = "(rows, columns) with at least one column"
        raise ValueError(f"rescale: expected x of shape {expected}, got {shape}")
    if str(matrix.dtype).removeprefix("torch.") not in _DTYPES:
        expected = " or ".join(_DTYPES)
        raise TypeError(f"rescale: expected x of {expected}, got {matrix.dtype}")
    work_stream = stream_for(matrix, stream)
    result: Array = empty_like(matrix) if out is None else out
    config = ck.config(shape[0], _BLOCK)
    host = on_host(matrix)
    if host is None:
        _rescale(work_stream, config, matrix, result, shape[1])
    else:
        device = ck.to_device(host, work_stream)
        _rescale(work_stream, config, device, device, shape[1])
        ck.to_host(device, work_stream, out=on_host(result))  # waits
    return result


def prewarm(archs: Iterable[str] = ()) -> None:
    """Compile all kernels into the cache, for each arch, or for the current device."""
    ck.prewarm([_rescale[np.dtype(name)] for name in _DTYPES], archs=archs)
