"""PyCUDA's arrays in the driver's layout, and its copies of boxes between these, device and host memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cudakit.adapters.pycuda.allocations import address_of, array_at
from cudakit.adapters.pycuda.copies import bytes_of, finish_earlier
from cudakit.adapters.pycuda.enums import array3d_flags, array_format, memory_type
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.adapters.pycuda.streams import default_stream, stream_of
from cudakit.errors import ArgumentError
from cudakit.memory.memory import copy, empty, to_device, to_host
from cudakit.memory.textures import surface
from cudakit.places import using

__all__ = [
    "Array", "ArrayDescriptor", "ArrayDescriptor3D", "Memcpy2D", "Memcpy3D", "Memcpy3DPeer",
    "dtype_to_array_format", "gpuarray_to_array", "make_multichannel_2d_array", "matrix_to_array", "memcpy_atoa",
    "memcpy_atod", "memcpy_atoh", "memcpy_dtoa", "memcpy_htoa", "np_to_array", "py_memcpy_atoh", "py_memcpy_htoa",
]  # fmt: skip

DTYPES = {
    "UNSIGNED_INT8": "u1", "UNSIGNED_INT16": "u2", "UNSIGNED_INT32": "u4", "SIGNED_INT8": "i1", "SIGNED_INT16": "i2",
    "SIGNED_INT32": "i4", "HALF": "f2", "FLOAT": "f4",
}  # fmt: skip


class ArrayDescriptor:
    """The layout of an `Array` of one or two dimensions.

    Attributes
    ----------
    width, height : int
        Numbers of texels; a height of 0 is one dimension.
    format : array_format
        Type of a component.
    num_channels : int
        Components of a texel.
    """

    def __init__(self) -> None:
        self.width = self.height = 0
        self.format: Any = array_format.FLOAT
        self.num_channels = 0


class ArrayDescriptor3D(ArrayDescriptor):
    """The layout of an `Array` of up to three dimensions.

    Attributes
    ----------
    depth : int
        Number of slices or layers.
    flags : int
        Flags of `array3d_flags`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.depth = self.flags = 0


class Array:
    """Memory in the driver's layout, which textures and surfaces read.

    Attributes
    ----------
    surface : surface
        cudakit's surface, which has the memory.
    """

    def __init__(self, descriptor: ArrayDescriptor) -> None:
        self._descriptor = descriptor
        width, height, depth = (int(extent) for extent in (descriptor.width, descriptor.height, self._depth))
        if not width or descriptor.num_channels not in (1, 2, 4):
            raise LogicError("cuArrayCreate failed: invalid value: give a width, and 1, 2 or 4 channels")
        self.dtype: np.dtype[Any] = np.dtype(DTYPES[array_format(int(descriptor.format)).name])
        self.channels: int = int(descriptor.num_channels)
        self.layered: bool = bool(getattr(descriptor, "flags", 0) & array3d_flags.ARRAY3D_LAYERED)
        #: Depth, height and width, in texels.
        self.box: tuple[int, int, int] = (max(depth, 1), max(height, 1), width)
        shape: tuple[int, ...] = (depth, height, width) if depth else (height, width) if height else (width,)
        if self.layered:
            shape = tuple(extent for extent in (max(depth, 1), height, width) if extent)
        shape += (self.channels,) * (self.channels > 1)
        channels: Any = self.channels
        with translated(), using(default_stream()) as xp:
            self.surface: Any = surface(xp.zeros(shape, dtype=self.dtype), channels=channels, layered=self.layered)

    @property
    def _depth(self) -> int:
        return int(getattr(self._descriptor, "depth", 0))

    @property
    def handle(self) -> int:
        """The driver's number of the array; on the emulator the number of its surface."""
        resource = getattr(self.surface, "resource", None)
        return int(self.surface.handle if resource is None else resource.source.handle)

    def free(self) -> None:
        """Free the memory."""
        if self.surface is None:
            raise LogicError("cuArrayDestroy failed: invalid resource handle: the array is free already")
        self.surface = None

    def get_descriptor(self) -> ArrayDescriptor:
        """Return the layout."""
        return self._descriptor

    def get_descriptor_3d(self) -> ArrayDescriptor3D:
        """Return the layout, with depth and flags."""
        if isinstance(self._descriptor, ArrayDescriptor3D):
            return self._descriptor
        result = ArrayDescriptor3D()
        result.__dict__.update(self._descriptor.__dict__)
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the memory as an array of numbers."""
        if self.surface is None:
            raise LogicError("invalid resource handle: the array was freed")
        return tuple(self.surface.shape)

    def bytes_on_device(self, stream: Any) -> Any:
        """Return a device array with a copy of the memory, as (slices, rows, bytes of a row)."""
        result = empty(self.shape, self.dtype, stream=stream)
        copy(result, self.surface, stream)
        return result.view(np.uint8).reshape(*self.box[:2], -1)

    def take_bytes(self, values: Any, stream: Any) -> None:
        """Copy a device array of (slices, rows, bytes of a row) into the memory."""
        copy(self.surface, values.view(self.dtype).reshape(self.shape), stream)


class _End(NamedTuple):
    """Source or target of a copy."""

    place: Any
    owner: Any


class Memcpy3D:
    """A copy of a box of bytes. Set both ends and the extents, and call it.

    Attributes
    ----------
    width_in_bytes, height, depth : int
        Extents of the box.
    src_x_in_bytes, src_y, src_z, dst_x_in_bytes, dst_y, dst_z : int
        First byte, row and slice of the box at each end.
    src_pitch, src_height, dst_pitch, dst_height : int
        Bytes from row to row, and rows from slice to slice, of host and device memory. 0: those of the box.
    """

    width_in_bytes = height = 0
    depth = 1
    src_x_in_bytes = src_y = src_z = src_lod = src_pitch = src_height = src_device = 0
    dst_x_in_bytes = dst_y = dst_z = dst_lod = dst_pitch = dst_height = dst_device = 0
    src_memory_type = dst_memory_type = memory_type.HOST

    def __init__(self) -> None:
        self._ends: dict[str, _End] = {}

    def set_src_host(self, buffer: Any) -> None:
        """Copy from a host array."""
        self._set("src", memory_type.HOST, bytes_of("Memcpy", buffer))

    def set_dst_host(self, buffer: Any) -> None:
        """Copy to a host array."""
        self._set("dst", memory_type.HOST, bytes_of("Memcpy", buffer, True))

    def set_src_device(self, devptr: Any) -> None:
        """Copy from device memory."""
        self._set("src", memory_type.DEVICE, devptr)

    def set_dst_device(self, devptr: Any) -> None:
        """Copy to device memory."""
        self._set("dst", memory_type.DEVICE, devptr)

    def set_src_array(self, ary: Array) -> None:
        """Copy from an `Array`."""
        self._set("src", memory_type.ARRAY, ary)

    def set_dst_array(self, ary: Array) -> None:
        """Copy to an `Array`."""
        self._set("dst", memory_type.ARRAY, ary)

    #: Memory that devices reach, at the host's address.
    set_src_unified = set_src_host
    set_dst_unified = set_dst_host

    def _set(self, name: str, place: Any, owner: Any) -> None:
        self._ends[name] = _End(place, owner)
        setattr(self, f"{name}_memory_type", place)
        if place == memory_type.DEVICE:
            setattr(self, f"{name}_device", address_of(owner))

    def __call__(self, stream: Any = None) -> None:
        """Copy; with a stream, enqueue the copy."""
        self._copy(stream)
        if stream is None:
            finish_earlier()

    def _copy(self, stream: Any) -> None:
        for name in ("src", "dst"):
            if name not in self._ends:
                raise LogicError(f"cuMemcpy failed: invalid value: call set_{name}_host, _device or _array before")
        target = stream_of(stream)
        box = (int(self.depth), int(self.height), int(self.width_in_bytes))
        if not all(box):
            return
        with translated():
            source, sink = self._view("src", box, target), self._view("dst", box, target)
            end = self._ends["dst"]
            if isinstance(source, np.ndarray) and self._is_host("src"):
                source = to_device(source, target)
            if self._is_host("dst"):
                result = to_host(source, target)
                sink[...] = result
                return
            if end.place == memory_type.ARRAY:
                place = self._offsets("dst")
                part = tuple(slice(first, first + extent) for first, extent in zip(place, box, strict=True))
                copy(sink[part], source, target)
                end.owner.take_bytes(sink, target)
                return
            copy(sink, source, target)

    def _is_host(self, name: str) -> bool:
        return bool(self._ends[name].place == memory_type.HOST)

    def _offsets(self, name: str) -> tuple[int, int, int]:
        z, y, x = (int(getattr(self, f"{name}_{axis}")) for axis in ("z", "y", "x_in_bytes"))
        return z, y, x

    def _view(self, name: str, box: tuple[int, int, int], stream: Any) -> Any:
        """Return the box at one end, as an array of bytes."""
        end = self._ends[name]
        z, y, x = self._offsets(name)
        if end.place == memory_type.ARRAY:
            whole = end.owner.bytes_on_device(stream)
            part = whole[z : z + box[0], y : y + box[1], x : x + box[2]]
            if part.shape != box:
                raise LogicError(
                    f"cuMemcpy failed: invalid value: a box of {box} is not inside the array {whole.shape}"
                )
            return whole if name == "dst" else part
        pitch = int(getattr(self, f"{name}_pitch")) or box[2] + x
        rows = int(getattr(self, f"{name}_height")) or box[1] + y
        start, strides = (z * rows + y) * pitch + x, (rows * pitch, pitch, 1)
        if end.place == memory_type.DEVICE:
            return array_at(int(getattr(self, f"{name}_device")) + start, box, np.uint8, strides)
        last = start + sum((extent - 1) * step for extent, step in zip(box, strides, strict=True))
        if last >= end.owner.size:
            raise LogicError(
                f"cuMemcpy failed: invalid value: a box of {box} bytes at pitch {pitch} needs {last + 1} bytes of host "
                f"memory, the array has {end.owner.size}"
            )
        return np.lib.stride_tricks.as_strided(end.owner[start:], box, strides)


class Memcpy2D(Memcpy3D):
    """A copy of a rectangle of bytes: a `Memcpy3D` of one slice."""

    def __call__(self, *arguments: Any, aligned: bool = False) -> None:
        """Copy, or with a stream, enqueue the copy; `aligned` changes nothing."""
        stream = arguments[0] if arguments and not isinstance(arguments[0], bool) else None
        super().__call__(stream)


class Memcpy3DPeer(Memcpy3D):
    """A copy of a box of bytes between devices: a `Memcpy3D`."""

    def set_src_context(self, ctx: Any) -> None:
        """Do nothing: an address says which device has it."""

    set_dst_context = set_src_context


def _copy_row(ary: Array, size: int, source: tuple[str, Any, int], target: tuple[str, Any, int]) -> None:
    """Copy bytes of the first row of an array; an end is a type of memory, the memory and the first byte."""
    row = Memcpy2D()
    for end, (noun, memory, index) in (("src", source), ("dst", target)):
        if memory is ary and ary.box[:2] != (1, 1) and index + size > ary.box[2] * ary.dtype.itemsize * ary.channels:
            raise LogicError("cuMemcpy failed: invalid value: a copy by index stays in the first row; use Memcpy2D")
        getattr(row, f"set_{end}_{noun}")(memory)
        setattr(row, f"{end}_x_in_bytes", index)
    row.width_in_bytes, row.height = size, 1
    row()


def memcpy_dtoa(ary: Array, index: int, src: Any, len: int) -> None:
    """Copy device memory to the bytes of an array from `index` on."""
    _copy_row(ary, len, ("device", src, 0), ("array", ary, index))


def memcpy_atod(dest: Any, ary: Array, index: int, len: int) -> None:
    """Copy the bytes of an array from `index` on to device memory."""
    _copy_row(ary, len, ("array", ary, index), ("device", dest, 0))


def memcpy_htoa(ary: Array, index: int, src: Any) -> None:
    """Copy a host array to the bytes of an array from `index` on."""
    _copy_row(ary, bytes_of("memcpy_htoa", src).size, ("host", src, 0), ("array", ary, index))


def memcpy_atoh(dest: Any, ary: Array, index: int) -> None:
    """Copy the bytes of an array from `index` on to a host array."""
    _copy_row(ary, bytes_of("memcpy_atoh", dest, True).size, ("array", ary, index), ("host", dest, 0))


def memcpy_atoa(dest: Array, dest_index: int, src: Array, src_index: int, len: int) -> None:
    """Copy the bytes of an array to another array."""
    _copy_row(dest, len, ("array", src, src_index), ("array", dest, dest_index))


def dtype_to_array_format(dtype: Any) -> Any:
    """Return the `array_format` of a dtype."""
    element = np.dtype(dtype)
    for name, code in DTYPES.items():
        if np.dtype(code) == element:
            return getattr(array_format, name)
    raise ArgumentError(f"cannot convert dtype {element} to an array format; 64-bit numbers are two channels of int32")


def _check_order(order: str) -> str:
    if order.upper() not in ("C", "F"):
        raise LogicError(f"order is 'C' or 'F', got {order!r}")
    return order.upper()


def _described(width: int, height: int, depth: int, dtype: np.dtype, double_hack: bool, flags: int = 0) -> Array:
    """Make an array. Numbers of 64 bits and more are components of 32 bits, if `double_hack` is true."""
    descriptor = ArrayDescriptor3D() if depth or flags else ArrayDescriptor()
    descriptor.width, descriptor.height = int(width), int(height)
    if isinstance(descriptor, ArrayDescriptor3D):
        descriptor.depth, descriptor.flags = int(depth), flags
    if double_hack and dtype.itemsize >= 8:
        descriptor.format, descriptor.num_channels = array_format.SIGNED_INT32, dtype.itemsize // 4
    else:
        descriptor.format, descriptor.num_channels = dtype_to_array_format(dtype), 1
    return Array(descriptor)


def matrix_to_array(matrix: Any, order: str, allow_double_hack: bool = False) -> Array:
    """Return an array with a copy of a matrix. With order C, x counts columns; with order F, rows."""
    order = _check_order(order)
    values = np.asarray(matrix, order=order)  # type: ignore[call-overload]
    height, width = values.shape if order == "C" else values.shape[::-1]
    result = _described(width, height, 0, values.dtype, allow_double_hack)
    _fill(result, values, None)
    return result


def make_multichannel_2d_array(ndarray: np.ndarray, order: str) -> Array:
    """Return an array with a copy of a matrix of texels: channels are the last axis (C), or the first (F)."""
    order = _check_order(order)
    height, width, channels = ndarray.shape if order == "C" else ndarray.shape[::-1]
    descriptor = ArrayDescriptor()
    descriptor.width, descriptor.height, descriptor.num_channels = width, height, channels
    descriptor.format = dtype_to_array_format(ndarray.dtype)
    result = Array(descriptor)
    _fill(result, np.asarray(ndarray, order=order), None)  # type: ignore[call-overload]
    return result


def _fill(ary: Array, host: Any, devptr: Any) -> None:
    """Copy all of an array, from a host array or from device memory."""
    whole = Memcpy3D()
    if host is not None:
        whole.set_src_host(host)
    else:
        whole.set_src_device(devptr)
    whole.set_dst_array(ary)
    whole.depth, whole.height = ary.box[:2]
    whole.width_in_bytes = ary.box[2] * ary.dtype.itemsize * ary.channels
    whole()


def _to_array(source: Any, order: str, bindable: bool, host: Any, devptr: Any) -> Array:
    _check_order(order)
    if len(source.shape) not in (2, 3):
        raise LogicError(f"arrays have 2 or 3 dimensions, got shape {source.shape}")
    depth = source.shape[0] if len(source.shape) == 3 else int(bindable)
    height, width = source.shape[-2:]
    flags = (array3d_flags.ARRAY3D_LAYERED * (len(source.shape) == 2) | array3d_flags.SURFACE_LDST) * bindable
    result = _described(width, height, depth, source.dtype, True, flags)
    _fill(result, host, devptr)
    return result


def np_to_array(nparray: np.ndarray, order: str, allowSurfaceBind: bool = False) -> Array:
    """Return an array with a copy of a host array's memory, of two or three dimensions."""
    return _to_array(nparray, order, allowSurfaceBind, nparray, None)


def gpuarray_to_array(gpuarray: Any, order: str, allowSurfaceBind: bool = False) -> Array:
    """Return an array with a copy of a GPUArray's memory, of two or three dimensions."""
    return _to_array(gpuarray, order, allowSurfaceBind, None, gpuarray)


#: Other names of PyCUDA's for the same.
py_memcpy_htoa = memcpy_htoa
py_memcpy_atoh = memcpy_atoh
