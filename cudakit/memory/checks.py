"""What is given to copies, checked: host arrays, outputs, streams that are captured."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, LaunchError
from cudakit.places import is_capturing
from cudakit.types.arguments import as_numpy, refuse_masked


def refuse_captured_copy(name: str, stream: Any) -> None:
    """Raise where the stream is captured, and the copy is not one that the driver makes by itself.

    Raises
    ------
    LaunchError
    """
    if is_capturing(stream):
        raise LaunchError(
            f"{name}: the stream is being captured into a graph, which copies from and to pinned, C-contiguous arrays "
            "only and cannot wait for the host; give an array of ck.empty(kind='pinned'), with wait=False, or copy "
            "outside of the capture"
        )


def host_array(name: str, parameter: str, value: Any) -> np.ndarray:
    """`value` as a NumPy array that a device can hold.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        found: np.ndarray | None = value
    else:
        found = as_numpy(value) if not hasattr(value, "__cuda_array_interface__") else None
    if found is None:
        hint = "; make one with numpy.asarray" if isinstance(value, list | tuple | int | float) else ""
        raise ArgumentError(f"{name}: {parameter} is {type(value).__name__}, and a NumPy array is wanted{hint}")
    if found.dtype.hasobject:
        raise ArgumentError(f"{name}: {parameter} has dtype {found.dtype}, which no device holds; convert it")
    return found


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`out`, or a new host array where there is none.

    Raises
    ------
    ArgumentError
        Where it does not fit, or is read-only.
    """
    if out is None:
        return np.empty(shape, dtype)
    check_host_output("to_host", out, shape, dtype)
    return out


def check_host_output(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that a host array can be copied to.

    Raises
    ------
    ArgumentError
        Where it is none, does not fit, or is read-only.
    """
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"{name}: out is {type(out).__name__}, and a NumPy array is wanted")
    refuse_masked(out)
    check_fits(name, out, shape, dtype)
    if not out.flags.writeable:
        raise ArgumentError(f"{name}: out is read-only; give another array")


def check_fits(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Check that an output has the shape and dtype of what is copied there.

    Raises
    ------
    ArgumentError
    """
    if out.shape != shape or out.dtype != dtype:
        raise ArgumentError(
            f"{name}: out has shape {out.shape} and dtype {out.dtype}, the array {shape} and {dtype}; "
            "give one that fits"
        )


def check_copy(target: Any, source: Any) -> None:
    """Check that a target has the shape and dtype of a source, and can be written.

    Raises
    ------
    ArgumentError
    """
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ArgumentError(
            f"copy: target has shape {target.shape} and dtype {target.dtype}, source {source.shape} and "
            f"{source.dtype}; give two that fit"
        )
    if isinstance(target, np.ndarray) and not target.flags.writeable:
        raise ArgumentError("copy: target is read-only; give another array")
