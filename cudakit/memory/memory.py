"""Memory of devices and of the host: new arrays, copies between the two, and what is held.

Device memory is CuPy's, from its pool. Pinned memory is pooled by `cudakit.memory.pinned`. Managed memory is
cuda.core's, pooled by the driver. On the emulator, and where there is no GPU, every array is NumPy's, and counted and
limited all the same.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import sys
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, LaunchError
from cudakit.memory import accounting as holdings
from cudakit.memory import managed, pinned
from cudakit.memory.accounting import Report, limit, report, trim
from cudakit.memory.spare_buffers import spares
from cudakit.places import is_capturing, place_of
from cudakit.streams import capture_state as capturing
from cudakit.streams import devices, streams
from cudakit.streams.order import ranges as spans
from cudakit.streams.order.order import order
from cudakit.streams.streams import Known, current_streams, is_emulated, known
from cudakit.streams.witnesses import doing, watched

__all__ = ["Report", "allocated", "empty", "host_view", "limit", "prefetch", "report", "to_device", "to_host", "trim"]

Kind: TypeAlias = Literal["device", "pinned", "managed"]
_KINDS = ("device", "pinned", "managed")


# ── new arrays ───────────────────────────────────────────────────────────────────────────────────────────────────


def empty(shape: int | tuple[int, ...], dtype: Any, kind: Kind = "device", stream: Any = None) -> Any:
    """A new C-contiguous array, not initialised.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    kind : {"device", "pinned", "managed"}
        ``"device"``: a CuPy array, from CuPy's pool.
        ``"pinned"``: a NumPy array in pinned host memory, which devices copy from and to at full speed and
        asynchronously. It returns to cudakit's pool when the array and all views of it are gone.
        ``"managed"``: a CuPy array in memory that the driver moves between host and device as it is used; `host_view`
        is the same memory as a NumPy array, `prefetch` moves it ahead of use.
    stream : stream, optional
        Where device and managed memory is used first; default: CuPy's current one. With an emulated stream, or where
        there is no GPU, every kind is a NumPy array.

    Returns
    -------
    cupy.ndarray or numpy.ndarray

    Raises
    ------
    ArgumentError
        For a kind that there is not, a shape that is none, and a dtype of Python objects.
    LaunchError
        Where there is not that much memory, or `limit` forbids it; says what was asked for and what is held. Managed
        memory is refused beyond what the device has free, though the driver would give it.
    """
    if kind not in _KINDS:
        raise ArgumentError(f"kind is one of 'device', 'pinned', 'managed', got {kind!r}")
    try:
        extents = tuple(operator.index(extent) for extent in (shape if isinstance(shape, tuple | list) else (shape,)))
    except TypeError:
        raise ArgumentError(f"shape is an int or a tuple of ints, got {shape!r}") from None
    if any(extent < 0 for extent in extents):
        raise ArgumentError(f"shape has a negative extent: {extents}")
    found = np.dtype(dtype)
    if found.hasobject:
        raise ArgumentError(f"dtype is {found}, which no device holds; take a dtype of numbers or of records")
    size = math.prod(extents) * found.itemsize
    emulated = is_emulated(stream) or (stream is None and not devices.has_gpu())
    if emulated and kind != "pinned":
        return holdings.emulated_array(extents, found, kind)
    if kind == "pinned":
        if not emulated:
            devices.require_gpu()
        return _pinned_array(pinned.take(size), extents, found)
    target = known(_current_stream() if stream is None else stream)
    with devices.on_device(target.device_id):
        if kind == "device":
            return device_array(extents, found, target)
        return managed.managed_array(size, extents, found, target)


@contextlib.contextmanager
def allocated(shape: int | tuple[int, ...], dtype: Any, kind: Kind = "device", stream: Any = None) -> Iterator[Any]:
    """A block with an array of its own, as `empty` makes it, that is left without one.

    At the block's end the array is empty (of shape ``(0,)``), and its memory is given back once `stream` has done
    what it was given so far and no view of the array is left.

    Yields
    ------
    cupy.ndarray or numpy.ndarray

    Examples
    --------
    >>> with ck.allocated((1 << 20,), np.float32, kind="pinned") as frame:
    ...     ck.to_host(x, stream, out=frame)
    """
    array = empty(shape, dtype, kind, stream)
    if isinstance(array, np.ndarray):
        array = array.view()  # never the owner of its memory, which `_let_go` would free under its views
    try:
        yield array
    finally:
        _let_go(array, stream)


def host_view(array: Any) -> np.ndarray:
    """The memory of a managed array as a NumPy array; before touching it, wait for its stream and those that use it.

    Raises
    ------
    ArgumentError
        For an array that is not in managed memory.
    """
    return array if isinstance(array, np.ndarray) else managed.host_view(array)


def prefetch(array: Any, stream: Any, to: Literal["device", "host"] = "device") -> None:
    """Put on `stream` that a managed array is moved to the stream's device, or to the host; no effect on what it holds.

    Raises
    ------
    ArgumentError
        For an array that `empty` did not make as managed, and another `to`.
    """
    if to not in ("device", "host"):
        raise ArgumentError(f"a managed array is moved to 'device' or 'host', got {to!r}")
    if not is_emulated(stream):
        managed.prefetch(array, known(stream), to)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


def to_device(array: Any, stream: Any) -> Any:
    """A copy of a host array on the stream's device, put on the stream; ready for whatever the stream is given next.

    Parameters
    ----------
    array : numpy.ndarray
        Any shape, strides and dtype. It has been read when this returns, unless it is pinned and C-contiguous: then it
        is read when the stream comes to it, and must stay as it is until then.
    stream : stream

    Returns
    -------
    cupy.ndarray
        C-contiguous; a NumPy array on the emulator.

    Raises
    ------
    ArgumentError
        For something that is no host array.
    LaunchError
        Where the device has not that much memory; and while the stream is being captured, for an array that is not
        pinned and C-contiguous.
    """
    host = _host_array("to_device", "array", array)
    if is_emulated(stream):
        _refuse_capture("to_device", stream, host)
        copied = holdings.emulated_array(host.shape, host.dtype)
        if (capture := place_of(stream).capture(stream)) is not None:
            capture.copy(stream, host, copied)
            return copied
        with doing("copy", "to_device", stream, (host,), (copied,), host.nbytes):
            np.copyto(copied, host)
        return copied
    staging, target = _staging(), known(stream)
    with devices.on_device(target.device_id):
        if capturing.is_captured(target.handle):
            _refuse_capture("to_device", stream, host)
        made = device_array(host.shape, host.dtype, target)
        pointer = made.data.ptr
        use = order().before(target, (), ((pointer, pointer + host.nbytes),), _producers(target))
        with (
            doing("copy", "to_device", stream, (host,), (made,), host.nbytes) if watched() else contextlib.nullcontext()
        ):
            staging.upload(host, pointer, target)
        order().after(use, (made,))
    return made


def to_host(array: Any, stream: Any, out: np.ndarray | None = None, wait: bool = True) -> np.ndarray:
    """A copy of a device array in host memory, after what the stream has to do so far.

    Parameters
    ----------
    array : cupy.ndarray
        Or another object with ``__cuda_array_interface__`` or DLPack; strided arrays are made contiguous on the
        device first. On the emulator, a NumPy array.
    stream : stream
    out : numpy.ndarray, optional
        What the elements are copied to, of the same shape and dtype; any strides. Default: a new array.
    wait : bool
        Whether the copy is complete when this returns: it waits for this copy, not for what the stream is given
        later. Without, the copy is complete after ``stream.sync()``, or after an event recorded on the stream from
        now on; `out` must not be touched before.

    Returns
    -------
    numpy.ndarray
        `out`, where it was given.

    Raises
    ------
    ArgumentError
        For something that is no device array, and an `out` that does not fit or is read-only.
    LaunchError
        While the stream is being captured, unless `out` is pinned and C-contiguous and nobody waits.
    """
    if is_emulated(stream):
        _refuse_capture("to_host", stream, None if wait else out)
        given = _host_array("to_host", "array", array)
        made = _output(out, given.shape, given.dtype)
        if (capture := place_of(stream).capture(stream)) is not None:
            capture.copy(stream, given, made)
            return made
        with doing("copy", "to_host", stream, (given,), (made,), given.nbytes):
            np.copyto(made, given)
        if wait:
            stream.sync()
        return made
    staging, target = _staging(), known(stream)
    with devices.on_device(target.device_id):
        if capturing.is_captured(target.handle):
            _refuse_capture("to_host", stream, None if wait else out)
        found = source = _device_array(array)
        made = _output(out, found.shape, found.dtype)
        use = order().before(target, (spans.cupy_span(found),), (), _producers(target))
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


@functools.cache
def _staging() -> Any:
    """How copies are made on a GPU, which only those need who have one."""
    from cudakit.memory import staging

    return staging


def _producers(target: Known) -> tuple[int, ...]:
    """Streams on which CuPy may have used its arrays unseen; see `Order.before`."""
    return tuple(current_streams(("cupy",), target.device_id))


def _pinned_array(block: pinned.Block, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array over a block, which is given back when the array and all its views are gone."""
    size = math.prod(shape) * dtype.itemsize
    return np.asarray(pinned.Lease(block, size)).view(dtype).reshape(shape)


def _let_go(array: Any, stream: Any) -> None:
    """Leave an array empty, so that its memory is free after what the stream has to do, and once no view is left."""
    if isinstance(array, np.ndarray):
        lease = array.base
        while isinstance(lease, np.ndarray):
            lease = lease.base
        if isinstance(lease, pinned.Lease) and stream is not None and not is_emulated(stream):
            lease.after = known(stream).core.record()
        # What unpickling does: the array lets go of its memory, and its views, which refer to the owner, keep it.
        array.__setstate__((1, (0,), array.dtype, False, b""))  # type: ignore[arg-type]  # wants a NumPy bool
        return
    given = stream if stream is not None else sys.modules["cupy"].cuda.get_current_stream()
    with order().around(given, (), (array,)):
        pass
    with streams.cupy_stream(known(given).core):
        # The constructor once more, which appends to the shape that is there.
        array._init((0,), array.dtype)
    array.shape = (0,)
    # Launches that know the array by its identity would give kernels its former address.
    order().unsettle()


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
            raise holdings.out_of_device_memory(size, target.device_id) from error


def _current_stream() -> Any:
    import cupy

    return cupy.cuda.get_current_stream()


def _refuse_capture(name: str, stream: Any, host: np.ndarray | None) -> None:
    """Raise where the stream is captured and the copy is not one that the driver makes by itself."""
    if not is_capturing(stream):
        return
    if isinstance(host, np.ndarray):
        if is_emulated(stream):
            return
        from cudakit.memory import staging

        if staging.is_direct(host):
            return
    raise LaunchError(
        f"{name}: the stream is being captured into a graph, which copies from and to pinned, C-contiguous arrays only "
        "and cannot wait for the host; give an array of ck.empty(kind='pinned'), with wait=False, or copy outside of "
        "the capture"
    )


def _host_array(name: str, parameter: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        found: np.ndarray | None = value
    else:
        from cudakit.types.host import as_numpy

        found = as_numpy(value) if not hasattr(value, "__cuda_array_interface__") else None
    if found is None:
        hint = "; make one with numpy.asarray" if isinstance(value, list | tuple | int | float) else ""
        raise ArgumentError(f"{name}: {parameter} is {type(value).__name__}, and a NumPy array is wanted{hint}")
    if found.dtype.hasobject:
        raise ArgumentError(f"{name}: {parameter} has dtype {found.dtype}, which no device holds; convert it")
    return found


def _device_array(value: Any) -> Any:
    import cupy

    if isinstance(value, cupy.ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return cupy.asarray(value)
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return cupy.from_dlpack(value)
    raise ArgumentError(f"to_host: array is {type(value).__name__}, and the stream is a GPU's: a CuPy array is wanted")


def _output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"to_host: out is {type(out).__name__}, and a NumPy array is wanted")
    if out.shape != shape or out.dtype != dtype:
        raise ArgumentError(
            f"to_host: out has shape {out.shape} and dtype {out.dtype}, the array {shape} and {dtype}; "
            "give one that fits"
        )
    if not out.flags.writeable:
        raise ArgumentError("to_host: out is read-only; give another array")
    return out
