"""Memory of devices and of the host: new arrays, copies between both, and memory in use.

Device memory is from CuPy's pool. Pinned memory is pooled by `cudakit.memory.pinned`. Managed memory is cuda.core's,
pooled by the driver. On the emulator, and without a GPU, every array is a NumPy array, which is counted and limited,
too.

`register` page-locks existing host arrays: devices copy from and to them directly, and kernels can access them.
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
from cudakit.types.arguments import Exported, count_registered, is_on_device
from cudakit.types.checked import dtype_of, flag, is_one_of


class Registered:
    """The page-locked memory of an array. It is unlocked by `close`, at the end of a ``with``, or with the last
    reference.

    Attributes
    ----------
    array : numpy.ndarray
        Array whose memory is page-locked.
    """

    def __init__(self, array: np.ndarray, address: int | None) -> None:
        self.array = array
        self._end = None if address is None else weakref.finalize(self, _unlock, address, array)

    def close(self) -> None:
        """Unlock the memory, after all devices have finished their work. Further calls do nothing."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> np.ndarray:
        return self.array

    def __exit__(self, *_: object) -> None:
        self.close()


def register(array: np.ndarray) -> Registered:
    """Page-lock the memory of a host array where it is.

    Copies from and to the array are then direct and asynchronous, as for ``ck.empty(kind="pinned")``. Kernels on a
    GPU take the array as an argument, and read and write it over the bus. Locking takes about a millisecond for some
    MiB. Use it for arrays that another library has made and that are used often. Without a GPU nothing is locked.

    Parameters
    ----------
    array : numpy.ndarray
        Writable host array of any strides. The whole byte range of its elements is locked. Do not resize it while
        it is locked.

    Returns
    -------
    Registered
        Context manager whose value is the array, or an object to keep and to `close`. It waits for all work of the
        GPUs before it unlocks.

    Raises
    ------
    ArgumentError
        The argument is no host array, is empty or is read-only.
    LaunchError
        The driver does not lock the memory: a part is locked already, or it is too large.

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
    """Undo the page-locking of the memory of `array` from `address` on, after all devices have finished their work."""
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
    """Return a new C-contiguous array, not initialised.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the array.
    dtype : dtype
        Dtype of the array.
    kind : {"device", "pinned", "managed"}
        Kind of memory:

        - ``"device"``: a CuPy array, from CuPy's pool.
        - ``"pinned"``: a NumPy array in pinned host memory. Devices copy from and to it at full speed and
          asynchronously. It returns to cudakit's pool when the array and all views of it are gone.
        - ``"managed"``: a CuPy array in memory that the driver moves between host and device as it is used.
          `host_view` is the same memory as a NumPy array, `prefetch` moves it ahead of use.
    stream : stream, optional
        Stream that first uses device or managed memory. Default: CuPy's current stream. With an emulated stream, or
        without a GPU, every kind is a NumPy array.

    Returns
    -------
    cupy.ndarray or numpy.ndarray
        New array. On the emulator: a NumPy array.

    Raises
    ------
    ArgumentError
        The kind is unknown, the shape is invalid, or the dtype is of Python objects.
    LaunchError
        There is not enough memory, or `limit` forbids it. The error names the bytes requested and the bytes in use.
        Managed memory beyond the device's free memory is refused, although the driver would allocate it.
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
    element_dtype = dtype_of("empty: dtype", dtype)
    if element_dtype.hasobject or not element_dtype.itemsize:
        raise ArgumentError(f"dtype is {element_dtype}, which no device holds; take a dtype of numbers or of records")
    size = math.prod(extents) * element_dtype.itemsize
    if size > sys.maxsize:
        usage = f"{size:,} bytes, " if size < 2**128 else ""
        raise LaunchError(f"shape {shortened(extents)} of {element_dtype} takes {usage}more than any memory has")
    if kind == "pinned":
        array = pinned.lend(pinned.take(size), extents, element_dtype)
        tell_emulator(array)
        return array if stream is None and devices.has_gpu() else backend_of(stream).handed_out(array, stream)
    return backend_of(stream).empty(extents, element_dtype, kind, stream)


def empty_pitched(shape: tuple[int, ...], dtype: Any, kind: Kind = "device", stream: Any = None) -> Any:
    """Return a new array whose rows begin at multiples of 512 bytes, not initialised. Otherwise as `empty`.

    Parameters
    ----------
    shape : tuple of int, (…, height, width)
        Shape of the array, of at least two dimensions.

    Returns
    -------
    cupy.ndarray or numpy.ndarray
        View of an array with longer rows, its ``base``. Kernels take it as ``cudakit::strided<T, RANK>``, or take
        ``base`` and the pitch ``strides[-2]``.

    Raises
    ------
    ArgumentError
        There are fewer than two dimensions, or an error of `empty`.
    LaunchError
        As for `empty`.
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
    """Allocate an array for a ``with`` block, as `empty` does, and release it at the end of the block.

    At the end of the block the array becomes empty (shape ``(0,)``). Its memory is free for reuse when two things
    have happened: `stream` has finished its work so far, and the last view of the array is gone.

    Yields
    ------
    cupy.ndarray or numpy.ndarray
        Array for the block.

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
    """Return the memory of a managed array as a NumPy array.

    Before you access it, wait for its stream, and for other streams that use the array.

    Raises
    ------
    ArgumentError
        The array is not in managed memory.
    """
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ndarray):
        from cudakit.emulator import face

        return face.host_view(array)
    if not is_on_device(array):
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
    """Enqueue the move of a managed array to the stream's device, or to the host. Its elements do not change.

    Raises
    ------
    ArgumentError
        `empty` did not make the array as managed, or `to` is unknown.
    """
    if not is_one_of(to, ("device", "host")):
        raise ArgumentError(f"a managed array is moved to 'device' or 'host', got {shortened(to)}")
    backend_of(stream).prefetch(array, stream, to)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


def to_device(array: Any, stream: Any = None, out: Any = None) -> Any:
    """Copy an array to the stream's device, on the stream. Later work on the stream can use the copy.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray
        Host array of any shape, strides and dtype, or a CuPy array. The call reads a host array before it returns.
        Exception: a pinned C-contiguous array is read when the stream reaches the copy. Do not change it until
        then. A CuPy array on another device must be C-contiguous. It is copied after all work of other streams on
        it, directly if the driver allows one device to access the other.
    stream : stream, optional
        Stream of the copy. Default: CuPy's current stream, or the emulator's stream without a GPU.
    out : cupy.ndarray, optional
        Target of the copy, of the same shape and dtype; any strides. It may be another object with
        ``__cuda_array_interface__`` or DLPack, or a NumPy array on the emulator. Default: a new array.

    Returns
    -------
    cupy.ndarray
        `out`, or a new C-contiguous array. A NumPy array on the emulator.

    Raises
    ------
    ArgumentError
        The argument is neither a host array nor a CuPy array, or `out` does not fit, is read-only or is on another
        device.
    LaunchError
        The device has not enough memory. While the stream is captured: the array is not pinned and C-contiguous.
    """
    stream = stream_or_current(stream)
    backend = backend_of(stream)
    if is_on_device(array):
        return backend.across(array, stream, out)
    return backend.to_device(host_array("to_device", "array", array), stream, out)


def to_host(array: Any, stream: Any = None, out: np.ndarray | None = None, wait: bool = True) -> np.ndarray:
    """Copy a device array to host memory, after the work that the stream has so far.

    Parameters
    ----------
    array : cupy.ndarray
        Device array, or another object with ``__cuda_array_interface__`` or DLPack. Strided arrays are made
        contiguous on the device first. On the emulator: a NumPy array.
    stream : stream, optional
        Stream of the copy. Default: CuPy's current stream, or the emulator's stream for a NumPy array.
    out : numpy.ndarray, optional
        Target of the copy, of the same shape and dtype; any strides. Default: a new array.
    wait : bool
        Whether to wait for the copy. The wait does not cover work that the stream gets later. With ``wait=False`` the
        copy is complete after ``stream.sync()``, or after an event recorded on the stream later. Do not access `out`
        before.

    Returns
    -------
    numpy.ndarray
        `out`, or a new array.

    Raises
    ------
    ArgumentError
        The argument is no device array, or `out` does not fit or is read-only.
    LaunchError
        Earlier work of the stream has failed. While the stream is captured: `out` is not pinned and C-contiguous,
        or `wait` is True.
    """
    if wait is not True:
        wait = flag("to_host: wait", wait)
    if stream is None:
        stream = stream_or_current(stream, array)
    try:
        return backend_of(stream).to_host(array, stream, out, wait)
    except Exception as error:
        raise_launch_error(error)
        raise


def copy(target: Any, source: Any, stream: Any = None) -> None:
    """Enqueue the copy ``target = source`` on a stream, between arrays in any memory, and surfaces.

    The copy is ordered between streams.

    The device copies directly, in one operation, between parts of a device array and of a host array in pinned memory
    (``ck.empty(kind="pinned")``, `register`). Each part must have rows of whole elements at one pitch, in slices at
    another pitch. Parts of 2-D and 3-D arrays and arrays of `empty_pitched` have this layout. All other copies go
    through staging memory, as in `to_device` and `to_host`. `source` and `target` may overlap.

    Parameters
    ----------
    target, source : numpy.ndarray, cupy.ndarray or surface
        Arrays or surfaces of the same shape and dtype; any strides. At least one is on the stream's device. On the
        emulator both are NumPy arrays or surfaces. The call reads a host `source` before it returns, unless it is
        pinned. A host `target` is complete after ``stream.sync()``. Do not access it before.
    stream : stream, optional
        Stream of the copy. Default: CuPy's current stream; the emulator's stream for NumPy arrays and without a GPU.

    Raises
    ------
    ArgumentError
        Source and target do not fit each other, the target is read-only, or neither is on the stream's device.
    LaunchError
        While the stream is captured: a host array is not pinned.

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
    """Make an array empty (shape ``(0,)``), in place.

    Its memory is free once the stream's present work is done and the last view of the array is gone.
    """
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
    """Enqueue the copy ``device = host``, ordered by `stream` alone. Both are C-contiguous and of the same size.

    Parameters
    ----------
    host : numpy.ndarray
        Host array in pinned memory. For other memory the copy is correct, but the call waits for it. On the emulator:
        any NumPy array.
    device : cupy.ndarray
        Device array. On the emulator: a NumPy array.
    stream : stream
        Stream of the copy.
    """
    backend_of(stream).copy("copy_in", host, device, stream)


def copy_out(device: Any, host: np.ndarray, stream: Any) -> None:
    """Enqueue the copy ``host = device``, ordered by `stream` alone. As `copy_in`."""
    backend_of(stream).copy("copy_out", device, host, stream)
