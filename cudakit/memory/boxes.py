"""Boxes of memory, as the driver copies them in one go: rows of bytes, at a pitch, in slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cudakit.errors import LaunchError

#: Bytes from row to row that the driver copies by.
_MOST_PITCH = 2**31 - 1


class Box(NamedTuple):
    """Rows of bytes.

    Attributes
    ----------
    kind : {"host", "device", "array"}
        ``array``: in the driver's own layout, which has no pitch.
    address : int
        Of the first byte; the handle of an array.
    width, height, depth : int
        Bytes of a row, rows of a slice, slices.
    pitch, slice : int
        Bytes from row to row and from slice to slice; the latter is a multiple of the former.
    """

    kind: Literal["host", "device", "array"]
    address: int
    width: int
    height: int
    depth: int
    pitch: int
    slice: int


def boxes_of(
    shape: Sequence[int], itemsize: int, *strides: Sequence[int]
) -> tuple[tuple[int, int, int], list[tuple[int, int]]] | None:
    """Arrays of one shape as boxes of the same extents.

    Parameters
    ----------
    shape : sequence of int
        Without zeros.
    itemsize : int
    *strides : sequence of int
        Of each array, in bytes.

    Returns
    -------
    extents : (int, int, int)
        Width in bytes, height, depth.
    pitches : list of (int, int)
        Of each array, pitch and slice.
    None
        Where an array is no such box.
    """
    width, axes = itemsize, [axis for axis, extent in enumerate(shape) if extent != 1]
    while axes and all(steps[axes[-1]] == width for steps in strides):
        width *= shape[axes.pop()]
    # From the innermost on: (extent, steps), with axes joined that all arrays step through as through one.
    outer: list[tuple[int, tuple[int, ...]]] = []
    for axis in reversed(axes):
        steps = tuple(each[axis] for each in strides)
        if outer and all(step == outer[-1][0] * inner for step, inner in zip(steps, outer[-1][1], strict=True)):
            outer[-1] = (outer[-1][0] * shape[axis], outer[-1][1])
        else:
            outer.append((shape[axis], steps))
    if len(outer) > 2:
        return None
    height, rows = outer[0] if outer else (1, (width,) * len(strides))
    depth, slices = outer[1] if len(outer) > 1 else (1, tuple(row * height for row in rows))
    for row, step in zip(rows, slices, strict=True):
        if row < width or step % row or step < row * height or (row > _MOST_PITCH and height * depth > 1):
            return None
    return (width, height, depth), list(zip(rows, slices, strict=True))


def copy_box(target: Box, source: Box, handle: int) -> None:
    """Put the copy of a box to one of the same extents on a stream, which alone orders it."""
    from cuda.bindings import driver

    if target.height * target.depth == 1 and "array" not in (target.kind, source.kind):
        # Of any size, which rows are not.
        places = [driver.CUdeviceptr(box.address) for box in (target, source)]
        (status,) = driver.cuMemcpyAsync(*places, target.width, driver.CUstream(handle))
    else:
        (status,) = driver.cuMemcpy3DAsync(_described(target, source), driver.CUstream(handle))
    if int(status) != 0:
        size = f"{target.width} bytes × {target.height} × {target.depth}"
        raise LaunchError(f"the driver does not copy {size}: {status.name}")


def _described(target: Box, source: Box) -> Any:
    """The driver's description of a copy."""
    from cuda.bindings import driver

    kinds = driver.CUmemorytype
    wanted = driver.CUDA_MEMCPY3D()
    wanted.WidthInBytes, wanted.Height, wanted.Depth = target.width, target.height, target.depth
    for side, box in (("src", source), ("dst", target)):
        if box.kind == "array":
            setattr(wanted, f"{side}MemoryType", kinds.CU_MEMORYTYPE_ARRAY)
            setattr(wanted, f"{side}Array", driver.CUarray(box.address))
            continue
        setattr(wanted, f"{side}Pitch", box.pitch)
        setattr(wanted, f"{side}Height", box.slice // box.pitch)
        if box.kind == "host":
            setattr(wanted, f"{side}MemoryType", kinds.CU_MEMORYTYPE_HOST)
            setattr(wanted, f"{side}Host", box.address)
        else:
            setattr(wanted, f"{side}MemoryType", kinds.CU_MEMORYTYPE_DEVICE)
            setattr(wanted, f"{side}Device", driver.CUdeviceptr(box.address))
    return wanted


def box_of(array: Any, extents: tuple[int, int, int], pitch: int, step: int) -> Box:
    """The box of a NumPy or a CuPy array."""
    if isinstance(array, np.ndarray):
        return Box("host", int(array.__array_interface__["data"][0]), *extents, pitch, step)
    return Box("device", int(array.data.ptr), *extents, pitch, step)
