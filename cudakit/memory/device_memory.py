"""Memory of a GPU beyond plain arrays: boxes that the driver copies, surfaces, and managed memory.

A box is rows of bytes, at a pitch, in slices. Surfaces are arrays in the driver's own layout. The driver moves managed
memory between host and device as it is used. New arrays are CuPy's, whose memory belongs to a stream.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import cupy
import numpy as np

from cudakit.errors import ArgumentError, LaunchError
from cudakit.memory import accounting
from cudakit.memory.accounting import free_on_device, ledger, spares
from cudakit.streams import devices, streams
from cudakit.streams.streams import DeviceStream

#: Bytes from row to row that the driver copies by.
_MOST_PITCH = 2**31 - 1


class Box(NamedTuple):
    """A box of memory: rows of bytes at a pitch, in slices.

    Attributes
    ----------
    space : {"host", "device", "array"}
        Memory of the box. ``array``: in the driver's own layout, which has no pitch.
    address : int
        Address of the first byte, or the handle of an array.
    width, height, depth : int
        Bytes of a row, number of rows of a slice, number of slices.
    pitch, slice : int
        Bytes from row to row and from slice to slice; the latter is a multiple of the former.
    """

    space: Literal["host", "device", "array"]
    address: int
    width: int
    height: int
    depth: int
    pitch: int
    slice: int


def boxes_of(
    shape: Sequence[int], itemsize: int, *strides: Sequence[int]
) -> tuple[tuple[int, int, int], list[tuple[int, int]]] | None:
    """Return arrays of one shape as boxes of the same extents.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays, without zeros.
    itemsize : int
        Bytes of an element.
    *strides : sequence of int
        Strides of each array in bytes.

    Returns
    -------
    extents : (int, int, int)
        Width in bytes, height, depth.
    pitches : list of (int, int)
        Pitch and slice of each array.
    None
        If an array has no such layout.
    """
    width, axes = itemsize, [axis for axis, extent in enumerate(shape) if extent != 1]
    while axes and all(steps[axes[-1]] == width for steps in strides):
        width *= shape[axes.pop()]
    # From the innermost on: (extent, steps), with axes joined that all arrays step through as through one.
    outer: list[tuple[int, tuple[int, ...]]] = []
    for axis in reversed(axes):
        steps = tuple(stride[axis] for stride in strides)
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
    """Enqueue the copy of a box to a box of the same extents, on the stream with the driver's `handle`.

    The copy is ordered by that stream alone.

    Raises
    ------
    LaunchError
        The driver refuses the copy.
    """
    from cuda.bindings import driver

    if target.height * target.depth == 1 and "array" not in (target.space, source.space):
        # Of any size, which rows are not.
        places = [driver.CUdeviceptr(box.address) for box in (target, source)]
        (status,) = driver.cuMemcpyAsync(*places, target.width, driver.CUstream(handle))
    else:
        (status,) = driver.cuMemcpy3DAsync(_described(target, source), driver.CUstream(handle))
    if int(status) != 0:
        size = f"{target.width} bytes × {target.height} × {target.depth}"
        raise LaunchError(f"the driver does not copy {size}: {status.name}")


def _described(target: Box, source: Box) -> Any:
    """Return the driver's structure (``CUDA_MEMCPY3D``) for the copy of a box to another."""
    from cuda.bindings import driver

    memory_types = driver.CUmemorytype
    description = driver.CUDA_MEMCPY3D()
    description.WidthInBytes, description.Height, description.Depth = target.width, target.height, target.depth
    for side, box in (("src", source), ("dst", target)):
        if box.space == "array":
            setattr(description, f"{side}MemoryType", memory_types.CU_MEMORYTYPE_ARRAY)
            setattr(description, f"{side}Array", driver.CUarray(box.address))
            continue
        setattr(description, f"{side}Pitch", box.pitch)
        setattr(description, f"{side}Height", box.slice // box.pitch)
        if box.space == "host":
            setattr(description, f"{side}MemoryType", memory_types.CU_MEMORYTYPE_HOST)
            setattr(description, f"{side}Host", box.address)
        else:
            setattr(description, f"{side}MemoryType", memory_types.CU_MEMORYTYPE_DEVICE)
            setattr(description, f"{side}Device", driver.CUdeviceptr(box.address))
    return description


def box_of(array: Any, extents: tuple[int, int, int], pitch: int, step: int) -> Box:
    """Return the box of a NumPy or a CuPy array, from its first element on.

    `extents`, `pitch` and `step` become the box's extents, pitch and slice, as `boxes_of` returns them, in bytes.
    """
    if isinstance(array, np.ndarray):
        return Box("host", int(array.__array_interface__["data"][0]), *extents, pitch, step)
    return Box("device", int(array.data.ptr), *extents, pitch, step)


def device_array(shape: tuple[int, ...], dtype: np.dtype, target: DeviceStream) -> Any:
    """Return a new CuPy array whose memory belongs to a stream.

    Raises
    ------
    LaunchError
        The device has not enough memory.
    """
    is_current = cupy.cuda.get_current_stream(target.device_id).ptr == target.handle
    with contextlib.nullcontext() if is_current else streams.cupy_stream(target.core):
        try:
            return cupy.ndarray(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError:
            spares().drop()
        try:
            return cupy.ndarray(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError as error:
            size = math.prod(shape) * dtype.itemsize
            raise accounting.out_of_device_memory(size, target.device_id) from error


_FORMATS = {
    "u1": "UNSIGNED_INT8", "u2": "UNSIGNED_INT16", "u4": "UNSIGNED_INT32",
    "i1": "SIGNED_INT8", "i2": "SIGNED_INT16", "i4": "SIGNED_INT32", "f2": "HALF", "f4": "FLOAT",
}  # fmt: skip


class LayeredArray:
    """An array of layers in the driver's layout, for which cuda.core has no class. Freed with its last reference.

    Attributes
    ----------
    handle : int
        Handle of the array in the driver.
    """

    handle: int

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, channels: int) -> None:
        from cuda.bindings import driver

        description = driver.CUDA_ARRAY3D_DESCRIPTOR()
        description.Width, description.Height, description.Depth = (
            shape[-1],
            shape[1] if len(shape) == 3 else 0,
            shape[0],
        )
        description.Format = getattr(driver.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[dtype.str[1:]]}")
        description.NumChannels = channels
        description.Flags = driver.CUDA_ARRAY3D_LAYERED | driver.CUDA_ARRAY3D_SURFACE_LDST
        status, handle = driver.cuArray3DCreate(description)
        _check(status, f"a layered surface of shape {shape}")
        self.handle, self._destroy = int(handle), driver.cuArrayDestroy

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._destroy(self.handle)


class LayeredSurface:
    """The driver's surface object of a `LayeredArray`, with the interface of cuda.core's ``SurfaceObject``."""

    handle: int

    def __init__(self, array: LayeredArray) -> None:
        from cuda.bindings import driver

        description = driver.CUDA_RESOURCE_DESC()
        description.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        description.res.array.hArray = driver.CUarray(array.handle)
        status, handle = driver.cuSurfObjectCreate(description)
        _check(status, "a layered surface")
        self.handle, self._array, self._destroy = int(handle), array, driver.cuSurfObjectDestroy

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._destroy(self.handle)


class Resource:
    """The source of a surface, as in cuda.core's objects: the order between streams reads its handle."""

    def __init__(self, source: Any) -> None:
        self.source = source


class SurfaceObject:
    """A surface of a GPU.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array that was copied to the surface.
    dtype : numpy.dtype
        Dtype of a component.
    channels : int
        Number of components of an element.
    layered : bool
        Whether the first axis counts layers.
    device_id : int
        Number of the GPU.
    handle : int
        Number by which a kernel accesses the surface.
    resource : object
        Owner of the memory. `resource.source` is the array in the driver's layout.
    """

    resource: Resource
    shape: tuple[int, ...]
    dtype: np.dtype
    channels: int
    layered: bool
    device_id: int

    def __init__(
        self,
        surface: Any,
        source: Any,
        shape: tuple[int, ...],
        dtype: np.dtype,
        channels: int,
        layered: bool,
        device: int,
    ) -> None:
        self._surface, self.resource = surface, Resource(source)
        self.shape, self.dtype, self.channels, self.layered, self.device_id = shape, dtype, channels, layered, device
        self.handle: int = int(surface.handle)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def box(self) -> Box:
        """The whole surface as a box, for copies."""
        texels = self.shape if self.channels == 1 else self.shape[:-1]
        depth, height, width = self.extents(texels)
        size = width * self.channels * self.dtype.itemsize
        return Box("array", int(self.resource.source.handle), size, height, depth, 0, 0)

    def extents(self, texels: tuple[int, ...]) -> tuple[int, int, int]:
        """Return (depth or number of layers, height, width) of an array of texels.

        `texels` is the array's shape without the axis of channels, in NumPy's order: width last. Missing axes count as
        1. A layered surface of shape (layers, width) has height 1.
        """
        if self.layered and len(texels) == 2:
            return texels[0], 1, texels[1]
        depth, height, width = (1, 1, *texels)[-3:]
        return depth, height, width


def make(array: Any, shape: tuple[int, ...], channels: int, layered: bool) -> SurfaceObject:
    """Return a surface with a copy of a CuPy array, whose shape without channels is `shape`. Wait for the copy."""
    from cuda.core.texture import OpaqueArrayOptions, ResourceDescriptor

    device_id = array.device.id
    with devices.on_device(device_id):
        source: Any
        surface: Any
        if layered:
            source = LayeredArray(shape, array.dtype, channels)
            surface = LayeredSurface(source)
        else:
            device = devices.current_device()
            options = OpaqueArrayOptions(shape[::-1], array.dtype, channels, is_surface_load_store=True)
            source = device.create_opaque_array(options)
            surface = device.create_surface_object(resource=ResourceDescriptor.from_opaque_array(source))
        result = SurfaceObject(surface, source, tuple(array.shape), array.dtype, channels, layered, device_id)
        # The elements may be any stream's work, and any stream's kernels may use the surface.
        array.device.synchronize()
        current = streams.of_handle(cupy.cuda.get_current_stream().ptr)
        contiguous = cupy.ascontiguousarray(array)
        whole = result.box
        copy_box(whole, Box("device", contiguous.data.ptr, whole.width, whole.height, whole.depth, whole.width,
                            whole.width * whole.height), streams.handle_of(current))  # fmt: skip
        current.sync()
    return result


def _check(status: Any, action: str) -> None:
    if int(status) != 0:
        raise LaunchError(f"the driver does not make {action}: {status.name}")


class _Managed:
    """Managed memory, counted during its lifetime.

    Not of cuda.core's pool: when a freed block of it was allocated again, kernels did not see what the host wrote there
    (driver 580.159.04, one H100, bare cuda.core 1.2.0, 2026-11-26). `tests/memory/test_memory.py` holds this.
    """

    def __init__(self, size: int, device_id: int) -> None:
        self.memory, self.device_id, self.size = cupy.cuda.ManagedMemory(size), device_id, size
        self._count = ledger.add_managed  # held: at the interpreter's end the module may be gone
        self._count(device_id, size)

    def __del__(self) -> None:
        if hasattr(self, "_count"):
            self._count(self.device_id, -self.size)


def managed_array(size: int, shape: tuple[int, ...], dtype: np.dtype, target: DeviceStream) -> Any:
    """Return a CuPy array in new managed memory of `size` bytes, for the stream's device.

    Raises
    ------
    LaunchError
        The array is larger than the free memory of the device, or than the limit allows.
    """
    with ledger.lock:
        device_id, size_before = target.device_id, ledger.managed.get(target.device_id, 0)
        most = ledger.limits["managed"]
        free, _ = free_on_device()
        # Pages that nobody has touched yet take none of what is free: all that was promised is taken off.
        if size > free - size_before:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for; device {device_id} has {free:,} free, of which "
                f"{size_before:,} are promised to managed arrays; free arrays, or work in chunks"
            )
        if most is not None and size_before + size > most:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for and {size_before:,} are held: ck.memory.limit allows "
                f"{most:,}"
            )
        owner = _Managed(max(1, size), device_id)
        ledger.buffers[owner.memory.ptr] = owner
    memory = cupy.cuda.UnownedMemory(owner.memory.ptr, owner.size, owner, device_id)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def prefetch(array: Any, target: DeviceStream, to: str) -> None:
    """Enqueue the move of a managed array to the stream's device (`to` is ``"device"``), or else to the host.

    Raises
    ------
    ArgumentError
        The array is not one that `managed_array` made.
    """
    from cuda.core import Device, Host, ManagedBuffer

    is_cupy = type(array).__module__.partition(".")[0] == "cupy"
    owner = ledger.buffers.get(array.data.mem.ptr) if is_cupy else None
    if owner is None:
        raise ArgumentError('prefetch takes an array of ck.empty(shape, dtype, kind="managed")')
    buffer = ManagedBuffer.from_handle(owner.memory.ptr, owner.size, owner=owner)
    buffer.prefetch(Device(target.device_id) if to == "device" else Host(), stream=target.core)
