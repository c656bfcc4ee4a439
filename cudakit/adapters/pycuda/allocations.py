"""Device memory by address: what PyCUDA's pointers point to."""

from __future__ import annotations

import bisect
import ctypes
import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.errors import LogicError, call, translated
from cudakit.adapters.pycuda.streams import default_stream
from cudakit.errors import ArgumentError, shortened
from cudakit.memory.backend import backend_of
from cudakit.memory.memory import empty
from cudakit.streams.devices import has_gpu

_BYTE = np.dtype(np.uint8)


class DeviceAllocation:
    """Device memory. ``int(allocation)`` is its address.

    Parameters
    ----------
    array : array
        One-dimensional uint8 array of cudakit's that has the memory.

    Attributes
    ----------
    array : array
        That array; None once the memory is freed.
    address, size : int
        Address of the first byte, and number of bytes.
    views : dict
        Arrays that view the whole memory, by shape, dtype and strides.
    """

    def __init__(self, array: Any) -> None:
        self.array: Any = array
        self.views: dict[tuple[Any, ...], Any] = {}
        self.address: int = address_of_array(array)
        self.size: int = int(array.nbytes)
        memory.add(self)

    def __int__(self) -> int:
        return self.address

    __index__ = __int__
    __long__ = __int__

    def __repr__(self) -> str:
        return (
            f"<DeviceAllocation of {self.size} bytes at {self.address:#x}{'' if self.array is not None else ', freed'}>"
        )

    def __del__(self) -> None:
        if getattr(self, "array", None) is not None:
            memory.remove(self)

    def free(self) -> None:
        """Free the memory.

        Raises
        ------
        LogicError
            If it is free already.
        """
        if self.array is None:
            raise LogicError(f"the device memory at {self.address:#x} is free already; free it once")
        memory.remove(self)
        self.array = None
        self.views.clear()
        self.__class__ = FREED.get(type(self), type(self))  # which prepared calls look at

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """Return a buffer whose address is the device's, for libraries that take such an address."""
        return memoryview((ctypes.c_ubyte * size).from_address(self.address + offset))


class FreedAllocation(DeviceAllocation):
    """Device memory that was freed."""


FREED: dict[type, Any] = {DeviceAllocation: FreedAllocation}


class PointerHolderBase:
    """A base for classes of programs whose `get_pointer` returns the address of device memory."""

    def get_pointer(self) -> int:
        """Return the address."""
        raise NotImplementedError("a PointerHolderBase needs a method get_pointer")

    def __int__(self) -> int:
        return int(self.get_pointer())

    __index__ = __int__
    __long__ = __int__

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """Return a buffer whose address is the device's."""
        return memoryview((ctypes.c_ubyte * size).from_address(int(self) + offset))


class Memory:
    """The allocations that are alive, by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._alive: dict[int, weakref.ref[DeviceAllocation]] = {}

    def add(self, allocation: DeviceAllocation) -> None:
        """Enter an allocation."""
        if allocation.address not in self._alive:
            bisect.insort(self._starts, allocation.address)
        self._alive[allocation.address] = weakref.ref(allocation)

    def remove(self, allocation: DeviceAllocation) -> None:
        """Remove an allocation."""
        entry = self._alive.get(allocation.address)
        if entry is not None and entry() in (None, allocation):
            del self._alive[allocation.address]
            self._starts.remove(allocation.address)

    def at(self, address: int) -> DeviceAllocation | None:
        """Return the allocation that has the byte at an address, or None."""
        place = bisect.bisect_right(self._starts, address)
        if not place:
            return None
        entry = self._alive.get(self._starts[place - 1])
        allocation = entry() if entry is not None else None
        if allocation is None or not address <= allocation.address + max(allocation.size - 1, 0):
            return None
        return allocation


memory: Memory = Memory()


def address_of_array(array: Any) -> int:
    """Return the address of an array's first element, in either place."""
    return int(array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr)


def address_of(pointer: Any) -> int:
    """Return the address that a pointer of PyCUDA's has: an allocation, a GPUArray, or an int.

    Raises
    ------
    ArgumentError
        For another object.
    """
    if isinstance(pointer, DeviceAllocation):
        if pointer.array is None:
            raise LogicError(f"invalid argument: the device memory at {pointer.address:#x} was freed")
        return pointer.address
    if hasattr(pointer, "gpudata"):
        return 0 if pointer.gpudata is None else address_of(pointer.gpudata)
    if hasattr(pointer, "get_pointer"):
        return int(pointer.get_pointer())
    if hasattr(pointer, "__index__") and not isinstance(pointer, bool):
        return int(pointer.__index__())
    if hasattr(pointer, "__int__") and not isinstance(pointer, np.ndarray | float | bool | np.floating):
        return int(pointer)
    raise ArgumentError(
        f"expected device memory (an allocation of mem_alloc, a GPUArray or its address), got {shortened(pointer)}"
    )


def allocation_at(address: int) -> DeviceAllocation:
    """Return the allocation that has an address; on a GPU also memory that is not of this module.

    Raises
    ------
    LogicError
        On the emulator, if no allocation has the address.
    """
    allocation = memory.at(address)
    if allocation is not None and allocation.array is not None:
        return allocation
    if has_gpu():
        return Foreign(address)
    raise LogicError(f"invalid argument: no device memory is at {address:#x}: it was freed, or is memory of the host")


class Foreign(DeviceAllocation):
    """Memory of a GPU that another library or the driver has allocated."""

    def __init__(self, address: int) -> None:
        import cupy
        from cuda.bindings import driver

        status, start, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
        if int(status) != 0:
            raise LogicError(f"invalid argument: no device memory is at {address:#x} ({status.name})")
        region = cupy.cuda.UnownedMemory(int(start), int(size), self)
        self.address: int = int(start)
        self.size: int = int(size)
        self.array: Any = cupy.ndarray((self.size,), np.uint8, memptr=cupy.cuda.MemoryPointer(region, 0))

    def __del__(self) -> None:
        pass


def device_dtype(dtype: Any) -> np.dtype:
    """Return a dtype of elements in device memory.

    Raises
    ------
    ArgumentError
        For a dtype of Python objects.
    """
    result: np.dtype = np.dtype(dtype)
    if result.hasobject:
        raise ArgumentError(f"dtype {result} is of Python objects, which no device holds; take a dtype of numbers")
    return result


def array_at(pointer: Any, shape: int | Sequence[int], dtype: Any, strides: Sequence[int] | None = None) -> Any:
    """Return an array of cudakit's that views device memory: CuPy's on a GPU, the emulator's device array else.

    Parameters
    ----------
    pointer : DeviceAllocation, GPUArray or int
        Address of the first element, anywhere inside an allocation.
    shape : int or sequence of int
        Shape of the array.
    dtype : dtype
        Dtype of the elements.
    strides : sequence of int, optional
        Strides in bytes. Default: those of a C-contiguous array.

    Raises
    ------
    LogicError
        If no allocation has these bytes.
    """
    extents = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    element, address = device_dtype(dtype), address_of(pointer)
    if not math.prod(extents) or not element.itemsize:
        return empty(extents, element, stream=default_stream())
    allocation = allocation_at(address)
    offset = address - allocation.address
    low, high = _bounds(extents, element.itemsize, strides)
    if offset + low < 0 or offset + high > allocation.size:
        raise LogicError(
            f"invalid argument: {high - low} bytes from {address + low:#x} on are not inside the allocation of "
            f"{allocation.size} bytes at {allocation.address:#x}"
        )
    steps = None if strides is None else tuple(map(int, strides))
    if isinstance(allocation.array, np.ndarray):
        plain = np.ndarray(extents, element, allocation.array, offset, steps)
        return plain.view(type(allocation.array))
    import cupy

    return cupy.ndarray(extents, element, memptr=allocation.array.data + offset, strides=steps)


def rest_at(pointer: Any, dtype: Any) -> Any:
    """Return the array of all whole elements from a pointer to the end of its allocation."""
    address, element = address_of(pointer), np.dtype(dtype)
    allocation = allocation_at(address)
    return array_at(address, (allocation.address + allocation.size - address) // element.itemsize, element)


def _bounds(shape: Sequence[int], itemsize: int, strides: Sequence[int] | None) -> tuple[int, int]:
    """Return the first byte, and one past the last byte, of an array relative to its first element."""
    if strides is None:
        return 0, math.prod(shape) * itemsize
    spans = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True)]
    return sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans) + itemsize


def variable_at(address: int, size: int) -> DeviceAllocation:
    """Return the memory of a module's variable as an allocation, which is known by its address from now on."""
    if not size:
        return DeviceAllocation(empty(0, np.uint8, stream=default_stream()))
    if has_gpu():
        import cupy

        region = cupy.cuda.UnownedMemory(address, size, None)
        return Variable(cupy.ndarray((size,), np.uint8, memptr=cupy.cuda.MemoryPointer(region, 0)))
    from cudakit.emulator.face import as_device, bytes_at

    return Variable(as_device(bytes_at(None, address, size)))


class Variable(DeviceAllocation):
    """The memory of a module's variable, which lives as long as the module."""


def mem_alloc(bytes: int) -> DeviceAllocation:
    """Allocate device memory, not initialised.

    Raises
    ------
    MemoryError
        If there is not that much.
    """
    size = operator.index(bytes)
    if size <= 0:
        raise LogicError(f"cuMemAlloc failed: invalid argument: {size} bytes; allocate 1 or more")
    stream = default_stream()
    with translated():
        return DeviceAllocation(backend_of(stream).empty((size,), _BYTE, "device", stream))


def repeated_word(data: bytes) -> bytes | None:
    """Return the word of 1, 2 or 4 bytes that bytes repeat; None if there is none."""
    return next((data[:width] for width in (1, 2, 4) if data == data[:width] * (len(data) // width)), None)


def set_elements(array: Any, number: Any) -> None:
    """Set all elements of a contiguous device array to a NumPy scalar, on CuPy's current stream.

    Of numbers of up to 4 bytes the driver sets the words. It needs no kernel, which takes device memory when it is
    loaded, so that a program can fill a device whose memory is used up.
    """
    word = None if isinstance(array, np.ndarray) else repeated_word(number.tobytes())
    if isinstance(array, np.ndarray) or ((word is None or array.data.ptr % len(word)) and number != 0):
        array.fill(number)
        return
    import cupy

    if word is None or array.data.ptr % len(word):  # a zero with a sign, which CuPy's fill would leave out
        words = np.frombuffer(number.tobytes(), np.uint8 if array.itemsize % 8 else np.uint64)
        parts = cupy.ndarray((array.size, len(words)), words.dtype, array.data)
        for column, part in enumerate(words):
            parts[:, column].fill(part)
        return
    from cuda.bindings import driver

    target, stream = driver.CUdeviceptr(array.data.ptr), driver.CUstream(cupy.cuda.get_current_stream().ptr)
    count = array.nbytes // len(word)
    call(f"cuMemsetD{8 * len(word)}Async", target, int.from_bytes(word, "little"), count, stream)
