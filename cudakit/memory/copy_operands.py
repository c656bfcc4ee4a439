"""What is copied from and to on the host, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, LaunchError


def host_array(name: str, value: Any) -> np.ndarray:
    """The host array that is given to `name`.

    Raises
    ------
    ArgumentError
        For something else, and for one of Python objects.
    """
    if isinstance(value, np.ndarray):
        found: np.ndarray | None = value
    else:
        from cudakit.types.host import as_numpy

        found = as_numpy(value) if not hasattr(value, "__cuda_array_interface__") else None
    if found is None:
        hint = "; make one with numpy.asarray" if isinstance(value, list | tuple | int | float) else ""
        raise ArgumentError(f"{name}: array is {type(value).__name__}, and a NumPy array is wanted{hint}")
    if found.dtype.hasobject:
        raise ArgumentError(f"{name}: array has dtype {found.dtype}, which no device holds; convert it")
    return found


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Where `to_host` copies to: `out`, or a new array.

    Raises
    ------
    ArgumentError
        Where `out` does not fit, or cannot be written.
    """
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"to_host: out is {type(out).__name__}, and a NumPy array is wanted")
    if out.shape != shape or out.dtype != dtype:
        raise ArgumentError(
            f"to_host: out has shape {out.shape} and dtype {out.dtype}, the array {shape} and {dtype}; "
            "give one that fits"
        )
    if not out.flags.writeable:
        raise ArgumentError("to_host: out is read-only; give another array")
    return out


def not_capturable(name: str) -> LaunchError:
    """The error for a copy on a captured stream that the driver does not make by itself."""
    return LaunchError(
        f"{name}: the stream is being captured into a graph, which copies from and to pinned, C-contiguous arrays only "
        "and cannot wait for the host; give an array of ck.empty(kind='pinned'), with wait=False, or copy outside of "
        "the capture"
    )
