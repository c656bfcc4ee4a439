"""Memory of devices and of the host: new arrays, copies between the two, and what is held.

Device memory is CuPy's, from its pool. Pinned memory is pooled by `cudakit.memory.pinned`. Managed memory is
cuda.core's, pooled by the driver. On the emulator, and where there is no GPU, every array is NumPy's, and counted and
limited all the same.

`register` page-locks host arrays that exist already: devices copy from and to them by themselves, and kernels reach
them.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
import weakref
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from cudakit.errors import ArgumentError, LaunchError, raise_launch_error, shortened
from cudakit.memory import pinned
from cudakit.memory.accounting import tell_emulator
from cudakit.memory.backend import backend_of, stream_or_current
from cudakit.memory.host_arrays import KINDS, Kind, host_array
from cudakit.streams import devices
from cudakit.types.arguments import Exported, count_registered
from cudakit.types.checked import dtype_of, flag, is_one_of


class Registered:
    """An array's memory, page-locked until `close`, the end of a ``with``, or until nobody refers to this.

    Attributes
    ----------
    array : numpy.ndarray
    """

    def __init__(self, array: np.ndarray, address: int | None) -> None:
        self.array = array
        self._end = None if address is None else weakref.finalize(self, _unlock, address, array)

    def close(self) -> None:
        """Give the memory back to the host's paging, once all devices are through with it; once is enough."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> np.ndarray:
        return self.array

    def __exit__(self, *_: object) -> None:
        self.close()


def register(array: np.ndarray) -> Registered:
    """Page-lock the memory of a host array where it is.

    Copies from and to it are then what they are for ``ck.empty(kind="pinned")``: straight and asynchronous. Kernels on
    a GPU take the array as it is, and read and write it over the bus. To lock takes about a millisecond for some MiB:
    it is for arrays that another library has made, and that are used often. Where there is no GPU nothing is locked.

    Parameters
    ----------
    array : numpy.ndarray
        Writable, of any strides; the whole extent of its elements is locked. Keep it as it is meanwhile.

    Returns
    -------
    Registered
        For ``with``, which gives the array; or to be kept, and closed. It waits for all that the GPUs were given before
        it unlocks.

    Raises
    ------
    ArgumentError
        For what is no host array, is empty or read-only.
    LaunchError
        Where the driver does not lock it: a part is locked already, or there is too much.

    Examples
    --------
    >>> with ck.memory.register(frame):
    ...     x = ck.to_device(frame, stream)
    """
    host = host_array("register", "array", array)
    if not host.flags.writeable:
        raise ArgumentError("register: array is read-only, and devices may write to what is page-locked; give a copy")
    if not host.nbytes:
        raise ArgumentError("register: array is empty")
    if not devices.has_gpu():
        tell_emulator(host)
        return Registered(host, None)
    from cuda.bindings import driver

    devices.current_device()
    low, high = np.lib.array_utils.byte_bounds(host)
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    (status,) = driver.cuMemHostRegister(low, high - low, flags)
    if int(status) != 0:
        hint = "; a part of it is page-locked already" if "ALREADY" in status.name else ""
        raise LaunchError(f"register: the driver does not page-lock {high - low:,} bytes: {status.name}{hint}")
    count_registered(1)
    return Registered(host, low)


def _unlock(address: int, array: np.ndarray) -> None:
    """Unlock memory that `array` holds, after all that may use it."""
    from cuda.bindings import driver

    for device_id in range(devices.device_count()):
        with devices.on_device(device_id):
            devices.current_device().sync()
    driver.cuMemHostUnregister(address)
    count_registered(-1)


#: Of NumPy's arrays; CuPy has fewer in some versions.
_MOST_DIMENSIONS = 64
#: Bytes of which the rows of pitched arrays are multiples, as the driver's own have them.
_PITCH = 512

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
    if not is_one_of(kind, KINDS):
        raise ArgumentError(f"kind is one of 'device', 'pinned', 'managed', got {shortened(kind)}")
    try:
        extents = tuple(operator.index(extent) for extent in (shape if isinstance(shape, tuple | list) else (shape,)))
    except TypeError:
        raise ArgumentError(f"shape is an int or a tuple of ints, got {shortened(shape)}") from None
    if any(extent < 0 for extent in extents):
        raise ArgumentError(f"shape has a negative extent: {shortened(extents)}")
    if len(extents) > _MOST_DIMENSIONS:
        raise ArgumentError(f"shape has {len(extents)} extents, and an array {_MOST_DIMENSIONS} at most")
    found = dtype_of("empty: dtype", dtype)
    if found.hasobject or not found.itemsize:
        raise ArgumentError(f"dtype is {found}, which no device holds; take a dtype of numbers or of records")
    size = math.prod(extents) * found.itemsize
    if size > sys.maxsize:
        taken = f"{size:,} bytes, " if size < 2**128 else ""
        raise LaunchError(f"shape {shortened(extents)} of {found} takes {taken}more than any memory has")
    if kind == "pinned":
        made = pinned.lend(pinned.take(size), extents, found)
        tell_emulator(made)
        return made if stream is None and devices.has_gpu() else backend_of(stream).handed_out(made, stream)
    return backend_of(stream).empty(extents, found, kind, stream)


def empty_pitched(shape: tuple[int, ...], dtype: Any, kind: Kind = "device", stream: Any = None) -> Any:
    """A new array whose rows begin at multiples of 512 bytes, not initialised; as `empty` otherwise.

    Parameters
    ----------
    shape : tuple of int, (…, height, width)

    Returns
    -------
    cupy.ndarray or numpy.ndarray
        A view of an array with longer rows, which is its ``base``: for kernels that take ``cudakit::strided<T, RANK>``,
        or, given ``base``, the pitch ``strides[-2]``.

    Raises
    ------
    ArgumentError
        For fewer than two dimensions, and as `empty` does.
    LaunchError
    """
    if not isinstance(shape, tuple | list) or len(shape) < 2:
        raise ArgumentError(f"shape is a tuple of two or more ints, (…, height, width), got {shortened(shape)}")
    itemsize = dtype_of("empty_pitched: dtype", dtype).itemsize
    unit = math.lcm(_PITCH, itemsize or 1) // (itemsize or 1)
    *outer, width = shape
    if not hasattr(width, "__index__") or width < 0:
        raise ArgumentError(f"shape has positive ints as extents, got {shortened(shape)}")
    return empty((*outer, -(-width // unit) * unit), dtype, kind, stream)[..., :width]


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
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ndarray):
        from cudakit.emulator import face

        return face.host_view(array)
    if not hasattr(array, "__cuda_array_interface__"):
        raise ArgumentError(f"host_view takes a managed array, got {type(array).__name__}")
    from cuda.bindings import driver

    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    interface = array.__cuda_array_interface__
    status, managed = driver.cuPointerGetAttribute(attribute, interface["data"][0])
    if int(status) != 0 or not managed:
        raise ArgumentError(
            'host_view: the array is not in managed memory; make it with ck.empty(shape, dtype, kind="managed"), or '
            "copy it with ck.to_host(x, stream)"
        )
    return np.asarray(Exported(array, {**interface, "version": 3})).view(array.dtype)


def prefetch(array: Any, stream: Any, to: Literal["device", "host"] = "device") -> None:
    """Put on `stream` that a managed array is moved to the stream's device, or to the host; no effect on what it holds.

    Raises
    ------
    ArgumentError
        For an array that `empty` did not make as managed, and another `to`.
    """
    if not is_one_of(to, ("device", "host")):
        raise ArgumentError(f"a managed array is moved to 'device' or 'host', got {shortened(to)}")
    backend_of(stream).prefetch(array, stream, to)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


def to_device(array: Any, stream: Any = None, out: Any = None) -> Any:
    """A copy of an array on the stream's device, put on the stream; ready for whatever the stream is given next.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray
        Of a host array any shape, strides and dtype. It has been read when this returns, unless it is pinned and
        C-contiguous: then it is read when the stream comes to it, and must stay as it is until then. A CuPy array may
        be on another device, and is C-contiguous then: it is copied straight, where the driver lets the two devices
        reach each other, after all that other streams do to it.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator's where there is no GPU.
    out : cupy.ndarray, optional
        What the elements are copied to, of the same shape and dtype; any strides. Or another object with
        ``__cuda_array_interface__`` or DLPack; a NumPy array on the emulator. Default: a new array.

    Returns
    -------
    cupy.ndarray
        `out`, where it was given; else C-contiguous. A NumPy array on the emulator.

    Raises
    ------
    ArgumentError
        For something that is no array of the two, and an `out` that does not fit, is read-only or on another device.
    LaunchError
        Where the device has not that much memory; and while the stream is being captured, for an array that is not
        pinned and C-contiguous.
    """
    stream = stream_or_current(stream)
    backend = backend_of(stream)
    if hasattr(array, "__cuda_array_interface__"):
        return backend.across(array, stream, out)
    return backend.to_device(host_array("to_device", "array", array), stream, out)


def to_host(array: Any, stream: Any = None, out: np.ndarray | None = None, wait: bool = True) -> np.ndarray:
    """A copy of a device array in host memory, after what the stream has to do so far.

    Parameters
    ----------
    array : cupy.ndarray
        Or another object with ``__cuda_array_interface__`` or DLPack; strided arrays are made contiguous on the
        device first. On the emulator, a NumPy array.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator's for a NumPy array.
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
        While the stream is being captured, unless `out` is pinned and C-contiguous and nobody waits; and where work
        that the stream was given before has failed.
    """
    wait = flag("to_host: wait", wait)
    stream = stream_or_current(stream, array)
    try:
        return backend_of(stream).to_host(array, stream, out, wait)
    except Exception as error:
        raise_launch_error(error)
        raise


def copy(target: Any, source: Any, stream: Any = None) -> None:
    """Put the copy ``target = source`` on a stream, in the order between streams; of arrays anywhere, and surfaces.

    A part of a host array in pinned memory (``ck.empty(kind="pinned")``, `register`) and a part of a device array are
    copied from and to each other by the device in one go, if each has rows of whole elements at one pitch, in slices
    at another, as the parts of 2-D and 3-D arrays and those of `empty_pitched` have; nothing is staged. All else goes
    through staging memory, as `to_device` and `to_host` do it. `source` and `target` may overlap.

    Parameters
    ----------
    target, source : numpy.ndarray, cupy.ndarray or surface
        Of the same shape and dtype; any strides. One of them, at least, is on the stream's device; on the emulator both
        are NumPy arrays or surfaces. A host array that is copied from has been read when this returns, unless it is
        pinned; one that is copied to is complete after ``stream.sync()``, and must not be touched before.
    stream : stream, optional
        Left out: CuPy's current stream; the emulator's for NumPy arrays and where there is no GPU.

    Raises
    ------
    ArgumentError
        Where the two do not fit each other, the target is read-only, or neither is on the stream's device.
    LaunchError
        While the stream is being captured, for host arrays that are not pinned.

    Examples
    --------
    >>> ck.memory.copy(x[10:20, 5:35], frame[:10, :30], stream)
    """
    stream = stream_or_current(stream, source if isinstance(target, np.ndarray) else target)
    try:
        backend_of(stream).transfer(target, source, stream)
    except Exception as error:
        raise_launch_error(error)
        raise


def _let_go(array: Any, stream: Any) -> None:
    """Leave an array empty, so that its memory is free after what the stream has to do, and once no view is left."""
    if isinstance(array, np.ndarray):
        lease = array.base
        while isinstance(lease, np.ndarray):
            lease = lease.base
        if isinstance(lease, pinned.Lease) and stream is not None:
            lease.after = backend_of(stream).mark(stream)
        # What unpickling does: the array lets go of its memory, and its views, which refer to the owner, keep it.
        array.__setstate__((1, (0,), array.dtype, False, b""))  # type: ignore[arg-type]  # wants a NumPy bool
        return
    backend_of(stream).release(array, stream)


def copy_in(host: np.ndarray, device: Any, stream: Any) -> None:
    """Put the copy ``device = host`` on `stream`, which alone orders it; both C-contiguous, of the same size.

    Parameters
    ----------
    host : numpy.ndarray
        In pinned memory; of other memory the copy is right, but the call waits for it. On the emulator, any.
    device : cupy.ndarray
        On the emulator, a NumPy array.
    stream : stream
    """
    backend_of(stream).copy("copy_in", host, device, stream)


def copy_out(device: Any, host: np.ndarray, stream: Any) -> None:
    """Put the copy ``host = device`` on `stream`, which alone orders it; as `copy_in`."""
    backend_of(stream).copy("copy_out", device, host, stream)
