"""PyCUDA's copies between host and device memory. Copies that are not asynchronous wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import array_at
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import default_stream, finish_all, stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.memory.memory import copy, to_device, to_host


def _bytes(name: str, host: Any, writeable: bool = False) -> np.ndarray:
    """Return the memory of a host array or buffer as a one-dimensional uint8 array.

    Raises
    ------
    ArgumentError
        If it is no contiguous buffer, or read-only and would be written.
    """
    try:
        view = memoryview(host)
    except TypeError:
        raise ArgumentError(f"{name}: expected a NumPy array or a buffer, got {shortened(host)}") from None
    if writeable and view.readonly:
        raise ArgumentError(f"{name}: the host array is read-only; give another")
    if isinstance(host, np.ndarray):
        if host.flags.f_contiguous and not host.flags.c_contiguous:
            host = host.T
        if not host.flags.c_contiguous:
            raise ArgumentError(f"{name}: the host array is not contiguous; give numpy.ascontiguousarray(a)")
        flat: np.ndarray = host.reshape(-1).view(np.uint8)
        return flat
    return np.frombuffer(view, np.uint8)


def memcpy_htod(dest: Any, src: Any) -> None:
    """Copy a host array to the device, and wait."""
    host = _bytes("memcpy_htod", src)
    if host.size:
        with translated():
            stream = default_stream()
            to_device(host, stream, out=array_at(dest, host.size, np.uint8))
            stream.sync()


def memcpy_htod_async(dest: Any, src: Any, stream: Any = None) -> None:
    """Enqueue the copy of a host array to the device."""
    host = _bytes("memcpy_htod_async", src)
    if host.size:
        with translated():
            to_device(host, stream_of(stream), out=array_at(dest, host.size, np.uint8))


def memcpy_dtoh(dest: Any, src: Any) -> None:
    """Copy device memory to a host array, and wait."""
    host = _bytes("memcpy_dtoh", dest, True)
    finish_all()
    if host.size:
        with translated():
            to_host(array_at(src, host.size, np.uint8), default_stream(), out=host)


def memcpy_dtoh_async(dest: Any, src: Any, stream: Any = None) -> None:
    """Enqueue the copy of device memory to a host array, which is complete once the stream was waited for."""
    host = _bytes("memcpy_dtoh_async", dest, True)
    if host.size:
        with translated():
            to_host(array_at(src, host.size, np.uint8), stream_of(stream), out=host, wait=False)


def memcpy_dtod(dest: Any, src: Any, size: int) -> None:
    """Copy device memory to device memory."""
    memcpy_dtod_async(dest, src, size)


def memcpy_dtod_async(dest: Any, src: Any, size: int, stream: Any = None) -> None:
    """Enqueue the copy of device memory to device memory."""
    with translated():
        copy(array_at(dest, size, np.uint8), array_at(src, size, np.uint8), stream_of(stream))
