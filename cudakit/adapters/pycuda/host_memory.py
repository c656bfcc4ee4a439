"""PyCUDA's host memory that devices reach: page-locked, registered, aligned and managed arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from cudakit.adapters.pycuda.allocations import DeviceAllocation, device_dtype, memory
from cudakit.adapters.pycuda.attributes import attribute_of
from cudakit.adapters.pycuda.enums import device_attribute
from cudakit.adapters.pycuda.errors import LogicError, call, translated
from cudakit.adapters.pycuda.streams import default_stream, finish_all, stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.memory.backend import backend_of
from cudakit.memory.memory import empty, host_view, register
from cudakit.streams import devices
from cudakit.types.checked import dtype_of

__all__ = [
    "AlignedHostAllocation", "HostAllocation", "HostPointer", "ManagedAllocation", "ManagedAllocationOrStub",
    "PagelockedHostAllocation", "RegisteredHostMemory", "aligned_empty", "aligned_empty_like", "aligned_zeros",
    "aligned_zeros_like", "managed_empty", "managed_empty_like", "managed_zeros", "managed_zeros_like",
    "pagelocked_empty", "pagelocked_empty_like", "pagelocked_zeros", "pagelocked_zeros_like", "register_host_memory",
]  # fmt: skip


class HostPointer(DeviceAllocation):
    """Host memory that kernels reach by its address: the ``base`` of an array.

    Parameters
    ----------
    array : array
        The memory as kernels take it, one-dimensional, of uint8.
    host : numpy.ndarray
        The memory as the host uses it.
    """

    __array_interface__: dict[str, Any]

    is_page_locked = True

    def __init__(self, array: Any, host: np.ndarray) -> None:
        super().__init__(array)
        self._host = host

    def get_device_pointer(self) -> int:
        """Return the address by which kernels reach the memory."""
        return self.address

    def as_array(self, shape: tuple[int, ...], dtype: np.dtype, order: str) -> np.ndarray:
        """Return the memory as an array whose ``base`` is this object."""
        strides = np.ndarray(shape, np.dtype(f"V{dtype.itemsize}"), self._host, order=_order(order)).strides
        data = (int(self._host.__array_interface__["data"][0]), False)
        self.__array_interface__ = {
            "data": data, "shape": shape, "strides": strides, "typestr": dtype.str, "descr": dtype.descr, "version": 3,
        }  # fmt: skip
        return array_of(self, dtype)


def array_of(holder: Any, dtype: np.dtype) -> np.ndarray:
    """Return the array of an object with an ``__array_interface__``; the object is the array's ``base``."""
    dtype = device_dtype(dtype)
    array = np.asarray(holder)
    array = array if array.dtype == dtype else array.view(dtype)
    viewed = backend_of(default_stream()).handed_out(array, default_stream())
    if viewed is array:
        return array
    viewed_class: Any = type(viewed)
    based: Any = viewed.view(_with_base(viewed_class))
    based.holder = holder
    return based  # type: ignore[no-any-return]


@functools.cache
def _with_base(cls: Any) -> Any:
    """Return a class of arrays that know what has not arrived in them yet, and whose base is who has the memory."""

    class Based(cls):  # type: ignore[misc]
        holder: Any = None

        def __array_finalize__(self, source: Any) -> None:
            self.holder = getattr(source, "holder", None)

        @property
        def base(self) -> Any:
            return self.holder if self.holder is not None else np.ndarray.base.__get__(self)

    Based.__name__ = Based.__qualname__ = cls.__name__
    return Based


class PagelockedHostAllocation(HostPointer):
    """Page-locked host memory. Its array keeps it; `free` gives it back before."""

    def get_flags(self) -> int:
        """Return the flags of `host_alloc_flags`: memory of all contexts, which devices reach."""
        return 3


class AlignedHostAllocation(HostPointer):
    """Aligned host memory, which devices reach once it is registered."""

    is_page_locked = False

    def __init__(self, array: Any, host: np.ndarray) -> None:
        super().__init__(array, host)
        memory.remove(self)

    def get_device_pointer(self) -> NoReturn:
        """Raise: kernels do not reach the memory."""
        raise LogicError("cuMemHostGetDevicePointer failed: invalid value: call drv.register_host_memory(a) first")


class ManagedAllocation(HostPointer):
    """Managed memory, which the host and kernels use by one address."""

    is_page_locked = False

    def attach(self, mem_flags: int, stream: Any = None) -> None:
        """Attach the memory to the host, to all streams, or to one stream: a hint, which changes no result."""
        target = stream_of(stream)
        if devices.has_gpu() and not attribute_of(0, device_attribute.CONCURRENT_MANAGED_ACCESS):
            from cuda.bindings import driver

            call("cuStreamAttachMemAsync", driver.CUstream(int(target.handle)), self.address, 0, int(mem_flags))


class RegisteredHostMemory(HostPointer):
    """Host memory of an array that is page-locked where it is."""

    def __init__(self, ary: np.ndarray) -> None:
        with translated():
            self._registered = register(ary)
        flat = ary.reshape(-1, order="A").view(np.uint8).view(np.ndarray)
        super().__init__(flat, flat)

    def unregister(self) -> None:
        """Unlock the memory."""
        finish_all()
        memory.remove(self)
        self._registered.close()


def _order(order: str) -> Any:
    if order not in ("C", "F"):
        raise ArgumentError(f"order is 'C' or 'F', got {shortened(order)}")
    return order


def _layout(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape, dtype and bytes of a new array."""
    extents = tuple(map(int, shape)) if isinstance(shape, tuple | list) else (int(shape),)
    element = dtype_of("dtype", dtype)
    return extents, element, math.prod(extents) * element.itemsize


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    """Return a page-locked host array, not initialised. Kernels reach it at ``a.base.get_device_pointer()``."""
    extents, element, size = _layout(shape, dtype)
    with translated():
        host = empty(size, np.uint8, kind="pinned", stream=default_stream())
    return PagelockedHostAllocation(host.view(np.ndarray), host).as_array(extents, element, order)


def managed_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
    """Return an array in managed memory, not initialised, which the host and kernels use."""
    extents, element, size = _layout(shape, dtype)
    with translated():
        array = empty(max(size, 1), np.uint8, kind="managed", stream=default_stream())
        default_stream().sync()
    return ManagedAllocation(array, host_view(array)).as_array(extents, element, order)


def aligned_empty(shape: Any, dtype: Any, order: str = "C", alignment: int = 4096) -> np.ndarray:
    """Return a host array, not initialised, whose address is a multiple of `alignment`."""
    extents, element, size = _layout(shape, dtype)
    room = np.empty(size + alignment, np.uint8)
    start = -int(room.__array_interface__["data"][0]) % alignment
    host = room[start : start + size]
    return AlignedHostAllocation(host, host).as_array(extents, element, order)


def register_host_memory(ary: np.ndarray, flags: int = 0) -> np.ndarray:
    """Page-lock a host array where it is, and return it as an array whose base has `unregister`."""
    order = "C" if ary.flags.c_contiguous else "F"
    return RegisteredHostMemory(ary).as_array(ary.shape, ary.dtype, order)


def _order_of(array: np.ndarray) -> str:
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ArgumentError(
            "could not detect array order: the array is not contiguous; give numpy.ascontiguousarray(a)"
        )
    return "C" if array.flags.c_contiguous else "F"


def _kin(name: str, make: Callable[..., np.ndarray], word: str) -> tuple[Any, Any, Any]:
    """Return ``zeros``, ``empty_like`` and ``zeros_like`` of a function that makes arrays; `word` names its option."""

    def zeros(shape: Any, dtype: Any, order: str = "C", **option: Any) -> np.ndarray:
        result = make(shape, dtype, order, **option)
        result.fill(0)
        return result

    def empty_like(array: np.ndarray, *option: Any, **options: Any) -> np.ndarray:
        return make(array.shape, array.dtype, _order_of(array), *option, **options)

    def zeros_like(array: np.ndarray, *option: Any, **options: Any) -> np.ndarray:
        result = empty_like(array, *option, **options)
        result.fill(0)
        return result

    result = zeros, empty_like, zeros_like
    for function, words in zip(result, ("zeros", "empty_like", "zeros_like"), strict=True):
        function.__name__ = function.__qualname__ = f"{name}_{words}"
        function.__doc__ = (
            f"Return {word} array{' of zeros' * ('zeros' in words)}{' like another' * ('like' in words)}."
        )
    return result


_Maker: TypeAlias = Callable[..., np.ndarray]
pagelocked_zeros: _Maker
pagelocked_empty_like: _Maker
pagelocked_zeros_like: _Maker
aligned_zeros: _Maker
aligned_empty_like: _Maker
aligned_zeros_like: _Maker
managed_zeros: _Maker
managed_empty_like: _Maker
managed_zeros_like: _Maker
pagelocked_zeros, pagelocked_empty_like, pagelocked_zeros_like = _kin(
    "pagelocked", pagelocked_empty, "a page-locked host"
)
aligned_zeros, aligned_empty_like, aligned_zeros_like = _kin("aligned", aligned_empty, "an aligned host")
managed_zeros, managed_empty_like, managed_zeros_like = _kin("managed", managed_empty, "a managed")

#: Other names of PyCUDA's for the same.
HostAllocation = PagelockedHostAllocation
ManagedAllocationOrStub = ManagedAllocation
