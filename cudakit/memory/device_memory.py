"""Arrays and copies on a GPU: device memory from CuPy's pool, and how it is moved; see `cudakit.memory.memory`."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory import accounting, managed, pinned, staging
from cudakit.memory.copy_operands import not_capturable, output
from cudakit.memory.spare_buffers import spares
from cudakit.streams import capture_state, devices, streams
from cudakit.streams.order import ranges
from cudakit.streams.order.order import order
from cudakit.streams.streams import Known, current_streams, known
from cudakit.streams.witnesses import doing, watched


def empty(shape: tuple[int, ...], dtype: np.dtype, kind: str, stream: Any) -> Any:
    """A new array, not initialised, in memory of a kind; of a stream, or of CuPy's current one."""
    size = math.prod(shape) * dtype.itemsize
    if kind == "pinned":
        devices.require_gpu()
        return pinned.lend(pinned.take(size), shape, dtype)
    target = known(_current_stream() if stream is None else stream)
    with devices.on_device(target.device_id):
        if kind == "device":
            return device_array(shape, dtype, target)
        return managed.managed_array(size, shape, dtype, target)


def device_array(shape: tuple[int, ...], dtype: np.dtype, target: Known) -> Any:
    """A new CuPy array whose memory belongs to a stream.

    Raises
    ------
    LaunchError
        Where there is not that much memory.
    """
    import cupy

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


def to_device(host: np.ndarray, stream: Any) -> Any:
    """A copy of a host array, put on a stream."""
    target = known(stream)
    with devices.on_device(target.device_id):
        if capture_state.is_captured(target.handle) and not staging.is_direct(host):
            raise not_capturable("to_device")
        made = device_array(host.shape, host.dtype, target)
        pointer = made.data.ptr
        use = order().before(target, (), ((pointer, pointer + host.nbytes),), _producers(target))
        with (
            doing("copy", "to_device", stream, (host,), (made,), host.nbytes) if watched() else contextlib.nullcontext()
        ):
            staging.upload(host, pointer, target)
        order().after(use, (made,))
    return made


def to_host(array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
    """A copy of a device array, put on a stream, and waited for if `wait`."""
    target = known(stream)
    with devices.on_device(target.device_id):
        if capture_state.is_captured(target.handle):
            direct = not wait and isinstance(out, np.ndarray) and staging.is_direct(out)
            if not direct:
                raise not_capturable("to_host")
        found = source = _device_array(array)
        made = output(out, found.shape, found.dtype)
        use = order().before(target, (ranges.cupy_span(found),), (), _producers(target))
        if not found._c_contiguous:
            with streams.cupy_stream(target.core):
                source = found.copy(order="C")
        with (
            doing("copy", "to_host", stream, (array,), (made,), found.nbytes) if watched() else contextlib.nullcontext()
        ):
            (staging.fetch if wait else staging.deliver)(source.data.ptr, made, target)
        order().after(use, (found,))
    if not wait:
        order().hold(target.core, source)
    return made


def prefetch(array: Any, stream: Any, to: str) -> None:
    """Move a managed array, on a stream."""
    managed.prefetch(array, known(stream), to)


def event_after(stream: Any) -> Any:
    """An event after what a stream was given so far."""
    return known(stream).core.record()


def let_go(array: Any, stream: Any) -> None:
    """Leave a CuPy array empty; its memory is free after what the stream has to do, and once no view is left."""
    given = stream if stream is not None else _current_stream()
    with order().around(given, (), (array,)):
        pass
    with streams.cupy_stream(known(given).core):
        # The constructor once more, which appends to the shape that is there.
        array._init((0,), array.dtype)
    array.shape = (0,)
    # Launches that know the array by its identity would give kernels its former address.
    order().unsettle()


def _producers(target: Known) -> tuple[int, ...]:
    """Streams on which CuPy may have used its arrays unseen; see `Order.before`."""
    return tuple(current_streams(("cupy",), target.device_id))


def _current_stream() -> Any:
    import cupy

    return cupy.cuda.get_current_stream()


def _device_array(value: Any) -> Any:
    import cupy

    if isinstance(value, cupy.ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return cupy.asarray(value)
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return cupy.from_dlpack(value)
    raise ArgumentError(f"to_host: array is {type(value).__name__}, and the stream is a GPU's: a CuPy array is wanted")
