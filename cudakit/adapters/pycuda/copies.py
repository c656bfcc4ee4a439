"""PyCUDA's copies and fills. Those that are not asynchronous wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import (
    DeviceAllocation,
    address_of,
    allocation_at,
    array_at,
    mem_alloc,
    set_elements,
)
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


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Any = None) -> None:
    """Enqueue the copy of device memory to device memory."""
    with translated():
        memory.copy(array_at(dest, size, np.uint8), array_at(src, size, np.uint8), stream_of(stream))


memcpy_dtod = memcpy_dtod_async


def memcpy_peer_async(
    dest: Any, src: Any, size: int, dest_context: Any = None, src_context: Any = None, stream: Any = None
) -> None:
    """Enqueue the copy of memory of one device to that of another."""
    memcpy_dtod_async(dest, src, size, stream)


memcpy_peer = memcpy_peer_async


def _fill(dest: Any, data: int, shape: Any, bits: int, stream: Any, pitch: int | None = None) -> None:
    element = np.dtype(f"u{bits // 8}")
    value = int(data) & ((1 << bits) - 1)
    with translated(), using(stream_of(stream)):
        if pitch is None:
            set_elements(array_at(dest, shape, element), element.type(value))
        else:
            array_at(dest, shape, element, (pitch, element.itemsize)).fill(value)


def _memset(bits: int) -> Callable[..., None]:
    """Return the function that sets numbers of so many bits. It is enqueued; without a stream, on the default one."""

    def memset(dest: Any, data: int, size: int, stream: Any = None) -> None:
        """Set `size` numbers of a width."""
        _fill(dest, data, size, bits, stream)

    return memset


def _memset_rows(bits: int) -> Callable[..., None]:
    """Return the function that sets numbers of so many bits in rows."""

    def memset(dest: Any, pitch: int, data: int, width: int, height: int, stream: Any = None) -> None:
        """Set `width` numbers in each of `height` rows, which begin `pitch` bytes apart."""
        _fill(dest, data, (height, width), bits, stream, pitch)

    return memset


memset_d8: Callable[..., None] = _memset(8)
memset_d16: Callable[..., None] = _memset(16)
memset_d32: Callable[..., None] = _memset(32)
memset_d2d8: Callable[..., None] = _memset_rows(8)
memset_d2d16: Callable[..., None] = _memset_rows(16)
memset_d2d32: Callable[..., None] = _memset_rows(32)
memset_d8_async = memset_d8
memset_d16_async = memset_d16
memset_d32_async = memset_d32
memset_d2d8_async = memset_d2d8
memset_d2d16_async = memset_d2d16
memset_d2d32_async = memset_d2d32


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
