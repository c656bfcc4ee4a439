"""A reduction's call: from an array and its axes to a kernel's launch, decided once for each kind of call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from operator import index
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, without
from cudakit.arrays.place import multiprocessors_of, output, place_of
from cudakit.arrays.reduce_jobs import Launch, Reduction, planned
from cudakit.errors import ArgumentError
from cudakit.types.cpp import spelling


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
    if any(extent > 1 and step % dtype.itemsize for extent, step in zip(shape, strides, strict=True)):
        raise ArgumentError(f"{op}: x has strides {strides} in bytes, not whole elements of {dtype}; copy it")
    reduction = choose(op, dtype, option)
    target = without(shape, axes, keepdims)
    rows, length = prod(target), prod(shape[d] for d in axes)
    if length == 0 and not reduction.empty:
        raise ArgumentError(f"{op}: x has shape {shape}: no elements along axis {axis}; {op} of nothing is undefined")
    if rows == 0:
        return _Job(target, reduction.dtype, None, None)
    return _Job(target, reduction.dtype, *planned(reduction, dtype, shape, strides, axes, multiprocessors_of(device)))
