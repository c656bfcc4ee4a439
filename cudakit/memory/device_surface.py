"""Surfaces of GPUs: arrays in the driver's own layout, and copies to and from them."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from cudakit.errors import LaunchError
from cudakit.memory.boxes import Box, copy_box
from cudakit.streams import devices, streams

_FORMATS = {
    "u1": "UNSIGNED_INT8", "u2": "UNSIGNED_INT16", "u4": "UNSIGNED_INT32",
    "i1": "SIGNED_INT8", "i2": "SIGNED_INT16", "i4": "SIGNED_INT32", "f2": "HALF", "f4": "FLOAT",
}  # fmt: skip


class LayeredArray:
    """An array of layers in the driver's layout, which cuda.core has none of; freed when nobody refers to it.

    Attributes
    ----------
    handle : int
    """

    handle: int

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, channels: int) -> None:
        from cuda.bindings import driver

        wanted = driver.CUDA_ARRAY3D_DESCRIPTOR()
        wanted.Width, wanted.Height, wanted.Depth = shape[-1], shape[1] if len(shape) == 3 else 0, shape[0]
        wanted.Format = getattr(driver.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[dtype.str[1:]]}")
        wanted.NumChannels = channels
        wanted.Flags = driver.CUDA_ARRAY3D_LAYERED | driver.CUDA_ARRAY3D_SURFACE_LDST
        status, made = driver.cuArray3DCreate(wanted)
        _check(status, f"a layered surface of shape {shape}")
        self.handle, self._destroy = int(made), driver.cuArrayDestroy

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._destroy(self.handle)


class LayeredSurface:
    """The driver's surface object of a `LayeredArray`; as cuda.core's ``SurfaceObject``."""

    handle: int

    def __init__(self, array: LayeredArray) -> None:
        from cuda.bindings import driver

        wanted = driver.CUDA_RESOURCE_DESC()
        wanted.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        wanted.res.array.hArray = driver.CUarray(array.handle)
        status, made = driver.cuSurfObjectCreate(wanted)
        _check(status, "a layered surface")
        self.handle, self._array, self._destroy = int(made), array, driver.cuSurfObjectDestroy

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._destroy(self.handle)


class Resource:
    """What a surface is of, where cuda.core's objects have it: the order between streams asks for its handle."""

    def __init__(self, source: Any) -> None:
        self.source = source


class SurfaceObject:
    """A surface of a GPU.

    Attributes
    ----------
    shape : tuple of int
        Of the array that it was made of.
    dtype : numpy.dtype
    channels : int
    layered : bool
    device_id : int
    handle : int
        What a kernel knows the surface by.
    resource : object
        `resource.source` is the array in the driver's layout.
    """

    resource: Resource
    shape: tuple[int, ...]
    dtype: np.dtype
    channels: int
    layered: bool
    device_id: int

    def __init__(
        self, made: Any, source: Any, shape: tuple[int, ...], dtype: np.dtype, channels: int, layered: bool, device: int
    ) -> None:
        self._made, self.resource = made, Resource(source)
        self.shape, self.dtype, self.channels, self.layered, self.device_id = shape, dtype, channels, layered, device
        self.handle: int = int(made.handle)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def box(self) -> Box:
        """All of it, for copies."""
        texels = self.shape if self.channels == 1 else self.shape[:-1]
        depth, height, width = self.extents(texels)
        size = width * self.channels * self.dtype.itemsize
        return Box("array", int(self.resource.source.handle), size, height, depth, 0, 0)

    def extents(self, texels: tuple[int, ...]) -> tuple[int, int, int]:
        """Depth or layers, height and width."""
        if self.layered and len(texels) == 2:
            return texels[0], 1, texels[1]
        depth, height, width = (1, 1, *texels)[-3:]
        return depth, height, width


def make(array: Any, shape: tuple[int, ...], channels: int, layered: bool) -> SurfaceObject:
    """A surface with a copy of a CuPy array of `shape` texels."""
    from cuda.core.texture import OpaqueArrayOptions, ResourceDescriptor

    device_id = array.device.id
    with devices.on_device(device_id):
        source: Any
        made: Any
        if layered:
            source = LayeredArray(shape, array.dtype, channels)
            made = LayeredSurface(source)
        else:
            device = devices.current_device()
            options = OpaqueArrayOptions(shape[::-1], array.dtype, channels, is_surface_load_store=True)
            source = device.create_opaque_array(options)
            made = device.create_surface_object(resource=ResourceDescriptor.from_opaque_array(source))
        found = SurfaceObject(made, source, tuple(array.shape), array.dtype, channels, layered, device_id)
        # The elements may be any stream's work, and any stream's kernels may use the surface.
        array.device.synchronize()
        current = streams.of_handle(cupy.cuda.get_current_stream().ptr)
        kept = cupy.ascontiguousarray(array)
        whole = found.box
        copy_box(whole, Box("device", kept.data.ptr, whole.width, whole.height, whole.depth, whole.width,
                            whole.width * whole.height), streams.handle_of(current))  # fmt: skip
        current.sync()
    return found


def _check(status: Any, what: str) -> None:
    if int(status) != 0:
        raise LaunchError(f"the driver does not make {what}: {status.name}")
