"""PyCUDA's copies and fills. Those that are not asynchronous wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import DeviceAllocation, address_of, allocation_at, array_at, mem_alloc
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import default_stream, finish_all, stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.memory import memory
from cudakit.places import using
from cudakit.streams import devices

__all__ = [
    "from_device", "from_device_like", "mem_alloc_like", "mem_alloc_pitch", "mem_get_address_range", "memcpy_dtod",
    "memcpy_dtod_async", "memcpy_dtoh", "memcpy_dtoh_async", "memcpy_htod", "memcpy_htod_async", "memcpy_peer",
    "memcpy_peer_async", "memset_d16", "memset_d16_async", "memset_d2d16", "memset_d2d16_async", "memset_d2d32",
    "memset_d2d32_async", "memset_d2d8", "memset_d2d8_async", "memset_d32", "memset_d32_async", "memset_d8",
    "memset_d8_async", "to_device",
]  # fmt: skip


def bytes_of(name: str, host: Any, writeable: bool = False) -> np.ndarray:
    """Return the memory of a host array or buffer as a one-dimensional uint8 array.

    Raises
    ------
    ArgumentError
        If it is no contiguous buffer, or read-only and would be written.
    """
    if isinstance(host, np.ndarray):
        if not (host.flags.f_contiguous or host.flags.c_contiguous):
            raise ArgumentError(f"{name}: the host array is not contiguous; give numpy.ascontiguousarray(a)")
        if writeable and not host.flags.writeable:
            raise ArgumentError(f"{name}: the host array is read-only; give another")
        flat: np.ndarray = host.reshape(-1, order="A").view(np.uint8)
        return flat
    if isinstance(host, np.generic) and not writeable:
        return np.frombuffer(host.tobytes(), np.uint8)
    try:
        view = memoryview(host)
    except TypeError:
        raise ArgumentError(f"{name}: expected a NumPy array or a buffer, got {shortened(host)}") from None
    if writeable and view.readonly:
        raise ArgumentError(f"{name}: the buffer is read-only; give another")
    return np.frombuffer(view, np.uint8)


def finish_earlier() -> None:
    """Wait for the work that a copy which names no stream comes after."""
    if devices.has_gpu():
        with translated():
            default_stream().sync()
    else:
        finish_all()  # the default stream waits for all


def memcpy_htod(dest: Any, src: Any) -> None:
    """Copy a host array to the device, and wait."""
    memcpy_htod_async(dest, src)
    finish_earlier()


def memcpy_htod_async(dest: Any, src: Any, stream: Any = None) -> None:
    """Enqueue the copy of a host array to the device."""
    host = bytes_of("memcpy_htod", src)
    if host.size:
        with translated():
            memory.to_device(host, stream_of(stream), out=array_at(dest, host.size, np.uint8))


def memcpy_dtoh(dest: Any, src: Any) -> None:
    """Copy device memory to a host array, and wait."""
    _to_host(dest, src, None, True)
    finish_earlier()


def memcpy_dtoh_async(dest: Any, src: Any, stream: Any = None) -> None:
    """Enqueue the copy of device memory to a host array, which is complete once the stream was waited for."""
    _to_host(dest, src, stream, False)


def _to_host(dest: Any, src: Any, stream: Any, wait: bool) -> None:
    host = bytes_of("memcpy_dtoh", dest, True)
    if host.size:
        with translated():
            memory.to_host(array_at(src, host.size, np.uint8), stream_of(stream), out=host, wait=wait)


def memcpy_dtod(dest: Any, src: Any, size: int) -> None:
    """Copy device memory to device memory."""
    memcpy_dtod_async(dest, src, size)


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Any = None) -> None:
    """Enqueue the copy of device memory to device memory."""
    with translated():
        memory.copy(array_at(dest, size, np.uint8), array_at(src, size, np.uint8), stream_of(stream))


def memcpy_peer(dest: Any, src: Any, size: int, dest_context: Any = None, src_context: Any = None) -> None:
    """Copy memory of one device to that of another."""
    memcpy_dtod_async(dest, src, size)


def memcpy_peer_async(
    dest: Any, src: Any, size: int, dest_context: Any = None, src_context: Any = None, stream: Any = None
) -> None:
    """Enqueue the copy of memory of one device to that of another."""
    memcpy_dtod_async(dest, src, size, stream)


def _fill(dest: Any, data: int, shape: Any, dtype: str, stream: Any, pitch: int | None = None) -> None:
    element = np.dtype(dtype)
    value = int(data) & ((1 << 8 * element.itemsize) - 1)
    with translated(), using(stream_of(stream)):
        array_at(dest, shape, element, None if pitch is None else (pitch, element.itemsize)).fill(value)


def memset_d8(dest: Any, data: int, size: int) -> None:
    """Set `size` bytes."""
    _fill(dest, data, size, "u1", None)


def memset_d16(dest: Any, data: int, size: int) -> None:
    """Set `size` numbers of 16 bits."""
    _fill(dest, data, size, "u2", None)


def memset_d32(dest: Any, data: int, size: int) -> None:
    """Set `size` numbers of 32 bits."""
    _fill(dest, data, size, "u4", None)


def memset_d8_async(dest: Any, data: int, size: int, stream: Any = None) -> None:
    """Enqueue `memset_d8`."""
    _fill(dest, data, size, "u1", stream)


def memset_d16_async(dest: Any, data: int, size: int, stream: Any = None) -> None:
    """Enqueue `memset_d16`."""
    _fill(dest, data, size, "u2", stream)


def memset_d32_async(dest: Any, data: int, size: int, stream: Any = None) -> None:
    """Enqueue `memset_d32`."""
    _fill(dest, data, size, "u4", stream)


def memset_d2d8(dest: Any, pitch: int, data: int, width: int, height: int) -> None:
    """Set `width` bytes in each of `height` rows, which begin `pitch` bytes apart."""
    _fill(dest, data, (height, width), "u1", None, pitch)


def memset_d2d16(dest: Any, pitch: int, data: int, width: int, height: int) -> None:
    """Set `width` numbers of 16 bits in each of `height` rows, which begin `pitch` bytes apart."""
    _fill(dest, data, (height, width), "u2", None, pitch)


def memset_d2d32(dest: Any, pitch: int, data: int, width: int, height: int) -> None:
    """Set `width` numbers of 32 bits in each of `height` rows, which begin `pitch` bytes apart."""
    _fill(dest, data, (height, width), "u4", None, pitch)


def memset_d2d8_async(dest: Any, pitch: int, data: int, width: int, height: int, stream: Any = None) -> None:
    """Enqueue `memset_d2d8`."""
    _fill(dest, data, (height, width), "u1", stream, pitch)


def memset_d2d16_async(dest: Any, pitch: int, data: int, width: int, height: int, stream: Any = None) -> None:
    """Enqueue `memset_d2d16`."""
    _fill(dest, data, (height, width), "u2", stream, pitch)


def memset_d2d32_async(dest: Any, pitch: int, data: int, width: int, height: int, stream: Any = None) -> None:
    """Enqueue `memset_d2d32`."""
    _fill(dest, data, (height, width), "u4", stream, pitch)


def mem_alloc_like(ary: Any) -> DeviceAllocation:
    """Allocate as many bytes as an array has."""
    return mem_alloc(ary.nbytes)


#: Bytes of which the rows of pitched memory are multiples.
_PITCH = 512


def mem_alloc_pitch(width: int, height: int, access_size: int) -> tuple[DeviceAllocation, int]:
    """Allocate `height` rows of `width` bytes. Return the memory and its pitch, the bytes from row to row."""
    if access_size not in (4, 8, 16):
        raise ArgumentError(f"mem_alloc_pitch: access_size is 4, 8 or 16, got {shortened(access_size)}")
    pitch = -(-int(width) // _PITCH) * _PITCH
    return mem_alloc(pitch * int(height)), pitch


def mem_get_address_range(devptr: Any) -> tuple[int, int]:
    """Return the address and the bytes of the allocation that has an address."""
    allocation = allocation_at(address_of(devptr))
    return allocation.address, allocation.size


def to_device(bf_obj: Any) -> DeviceAllocation:
    """Return device memory with a copy of a host array or buffer."""
    data = memoryview(bf_obj).tobytes()
    result = mem_alloc(len(data))
    memcpy_htod(result, data)
    return result


def from_device(devptr: Any, shape: Any, dtype: Any, order: Any = "C") -> np.ndarray:
    """Return a host array with a copy of device memory."""
    result = np.empty(shape, dtype, order)
    memcpy_dtoh(result, devptr)
    return result


def from_device_like(devptr: Any, other_ary: np.ndarray) -> np.ndarray:
    """Return a host array like another one, with a copy of device memory."""
    result = np.empty_like(other_ary)
    memcpy_dtoh(result, devptr)
    return result
