"""The array place of an op: its inputs as arrays of one place, the stream, and the memory that it allocates there."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np

from cudakit.arrays.log import Cleared, Copied, Launched, Mapped, Source, current_log, logs
from cudakit.errors import ArgumentError
from cudakit.memory.textures import tensor_map
from cudakit.places import DEVICES, emulator, place_of, refuse_capture
from cudakit.streams import devices, streams
from cudakit.streams.devices import Limits
from cudakit.streams.order import order
from cudakit.streams.streams import as_stream, cupy_stream, device_stream, require_stream
from cudakit.types.arguments import as_numpy, device_array_of, is_on_device, pointer_of, refuse_masked

#: Counters at the start of a stream's workspace, which every kernel leaves at zero.
TICKETS = 1024
_TICKET_BYTES = 4 * TICKETS
_LEAST_WORKSPACE = 1 << 20


class ArrayPlace(NamedTuple):
    """A stream, its array module (CuPy, or NumPy on the emulator), and the device.

    Attributes
    ----------
    xp : module
        CuPy or NumPy.
    stream : stream
        Stream that kernels are launched on.
    current : bool
        Whether `stream` is CuPy's current stream, so that CuPy already allocates for it.
    device : int or str
        Name of the device in caches: its ordinal, or the emulator's arch.
    """

    xp: Any
    stream: Any
    current: bool
    device: int | str

    def launch(self, kernel: Any, config: Any, *arguments: Any, sources: tuple[Source, ...] = ()) -> None:
        """Launch a kernel on the stream. `sources` has the meaning of `Launched.sources`, for replays."""
        kernel(self.stream, config, *arguments)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Allocate a C-contiguous array on the stream, not initialised."""
        # The function that xp.empty calls: half a microsecond less of Python.
        if self.xp is np:
            return emulator().empty(self.stream, shape, dtype)
        if self.current:
            return self.xp.ndarray(shape, dtype)
        with self.inside():
            return self.xp.ndarray(shape, dtype)

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager in which CuPy works on the stream."""
        if self.current:
            return contextlib.nullcontext()
        stream: contextlib.AbstractContextManager[Any] = cupy_stream(as_stream(self.stream))
        return stream

    def upload(self, array: np.ndarray) -> Any:
        """Copy a small host array to this place."""
        if self.xp is np:
            return emulator().upload(self.stream, array)
        capture = streams.current(self.stream)
        if capture is not None:
            return capture.upload(array)
        with self.inside():
            return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        """Copy a small array to host memory; this waits for the stream.

        Raises
        ------
        LaunchError
            While the stream is being captured.
        """
        refuse_capture(
            self.stream,
            "the op",
            "its result depends on numbers that the host must read (compact's count, bincount's greatest value, take's "
            "check of indices)",
            "call it outside of the block, or with the options that need no such number",
        )
        if self.xp is np:
            return np.asarray(array)
        with self.inside():
            return np.asarray(array.get())

    def copy(self, source: Any, target: Any) -> None:
        """Copy elements from `source` to `target`, in the stream's order."""
        capture = place_of(self.stream).capture(self.stream) if self.xp is np else None
        if capture is not None:
            capture.copy(self.stream, source, target)
            return
        if self.xp is np:
            emulator().copy(self.stream, source, target)
            return
        with self.inside():
            if source.dtype == target.dtype and _both_contiguous(source, target):
                target.data.copy_from_device_async(source.data, source.nbytes)
            else:
                target[...] = source

    def copied(self, array: Any) -> Any:
        """Return a C-contiguous copy of a caller's array, ordered after work on it on other streams."""
        result = self.empty(array.shape, array.dtype)
        ordered = contextlib.nullcontext() if self.xp is np else order().around(self.stream, (array,), (result,))
        with ordered:
            self.copy(array, result)
        return result

    def contiguous(self, array: Any, dtype: Any = None) -> Any:
        """Return `array` itself if it is C-contiguous and of `dtype`, else a copy that is."""
        if array.flags.c_contiguous and (dtype is None or array.dtype == dtype):
            return array
        result = self.empty(array.shape, dtype or array.dtype)
        self.copy(array, result)
        return result

    def clear(self, array: Any) -> None:
        """Set a C-contiguous array to zero, in the stream's order."""
        if self.xp is np:
            self.copy(np.zeros((), array.dtype), array)
            return
        with self.inside():
            array.data.memset_async(0, array.nbytes)

    def workspace(self, size: int) -> Any:
        """Return `TICKETS` uint32 counters at zero, then `size` bytes, uint8, for the stream's next kernel.

        The stream holds the workspace, so that a kernel's arguments stay the same from call to call. Each kernel leaves
        the counters at zero. A graph has workspaces of its own, because it may run beside the stream that it was
        captured on.
        """
        if self.xp is np:
            return np.zeros(_TICKET_BYTES + size, np.uint8)
        return _workspaces.of(self, size)

    def status(self, size: int) -> Any:
        """Return `size` bytes, uint8, which start at zero and which the stream holds.

        Only <cudakit/lookback.cuh> writes them.
        """
        if self.xp is np:
            return np.zeros(size, np.uint8)
        return _statuses.of(self, size)

    def keep(self, array: Any) -> Any:
        """Return `array`, which the op holds from call to call. Replays of a recorded call use this same array."""
        return array

    def alignment(self, *arrays: Any) -> int:
        """Return the greatest power of two, at most 16, that divides the addresses of all arrays."""
        bits = 16
        for array in arrays:
            bits |= address_of(array)
        return bits & -bits

    def is_named(self, array: Any) -> bool:
        """Return whether a launch of the graph that is being captured may put another array in its place."""
        capture = place_of(self.stream).capture(self.stream)
        return capture is not None and capture.is_named(address_of(array))

    def tensor_map(self, array: Any, box: tuple[int, ...]) -> Any:
        """Return a tensor map with a swizzle of 128 bytes, which rounds float32 to TF32.

        Arrays for which `is_named` is true have none.

        It does not keep the array of a GPU alive. Pass the array to the same kernel, for the order between streams.
        """
        if self.xp is not np:
            return _mapped(array, box)(address_of(array))
        return tensor_map(array, box, swizzle="128B", precision=_precision(array.dtype))

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors of the device."""
        return multiprocessors_of(self.device)


class LoggedPlace(ArrayPlace):
    """An array place that records its operations in the thread's `Log`."""

    def launch(self, kernel: Any, config: Any, *arguments: Any, sources: tuple[Source, ...] = ()) -> None:
        logs[threading.get_ident()].steps.append(Launched(kernel, config, arguments, sources))
        super().launch(kernel, config, *arguments)

    def empty(self, shape: Any, dtype: Any) -> Any:
        array = super().empty(shape, dtype)
        logs[threading.get_ident()].new.append(array)
        return array

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        self._mark_incomplete()
        return super().inside()

    def upload(self, array: np.ndarray) -> Any:
        self._mark_incomplete()
        return super().upload(array)

    def download(self, array: Any) -> np.ndarray:
        self._mark_incomplete()
        return super().download(array)

    def copy(self, source: Any, target: Any) -> None:
        if source.dtype == target.dtype and _both_contiguous(source, target):
            logs[threading.get_ident()].steps.append(Copied(source, target))
        else:
            self._mark_incomplete()
        ArrayPlace(*self).copy(source, target)

    def copied(self, array: Any) -> Any:
        self._mark_incomplete()
        return ArrayPlace(*self).copied(array)

    def clear(self, array: Any) -> None:
        logs[threading.get_ident()].steps.append(Cleared(array))
        ArrayPlace(*self).clear(array)

    def workspace(self, size: int) -> Any:
        return self.keep(ArrayPlace(*self).workspace(size))

    def status(self, size: int) -> Any:
        return self.keep(ArrayPlace(*self).status(size))

    def keep(self, array: Any) -> Any:
        logs[threading.get_ident()].persistent.append(array)
        return array

    def alignment(self, *arrays: Any) -> int:
        greatest = super().alignment(*arrays)
        logs[threading.get_ident()].aligned.append((arrays, greatest))
        return greatest

    def tensor_map(self, array: Any, box: tuple[int, ...]) -> Any:
        result = super().tensor_map(array, box)
        logs[threading.get_ident()].maps.append(Mapped(result, array, _mapped(array, box)))
        return result

    def _mark_incomplete(self) -> None:
        """Mark the log as incomplete: the operation cannot be recorded."""
        logs[threading.get_ident()].is_whole = False


class DryPlace(ArrayPlace):
    """An array place that records launches in the thread's `Log`, and does no work."""

    def launch(self, kernel: Any, config: Any, *arguments: Any, sources: tuple[Source, ...] = ()) -> None:
        logs[threading.get_ident()].steps.append(Launched(kernel, config, arguments, sources))

    def upload(self, array: np.ndarray) -> Any:
        return self.empty(array.shape, array.dtype)

    def copy(self, source: Any, target: Any) -> None:
        """Copy nothing."""

    def clear(self, array: Any) -> None:
        """Clear nothing."""


def _array_place(xp: Any, stream: Any, current: bool, device: int | str) -> ArrayPlace:
    """Make an array place, which records its operations if this thread's call is being recorded.

    A GPU's stream that is not CuPy's current stream, or the emulator, cannot be recorded: the log is marked as
    incomplete.
    """
    log = current_log()
    if log is not None and log.is_dry:
        return DryPlace(xp, stream, current, device)
    if log is None or (xp is not np and current):
        return (ArrayPlace if log is None else LoggedPlace)(xp, stream, current, device)
    log.is_whole = False
    return ArrayPlace(xp, stream, current, device)


def _mapped(array: Any, box: tuple[int, ...]) -> Callable[[int], Any]:
    """Return the function that makes the tensor map of a GPU's array of this layout, at an address."""
    return functools.partial(_map_at, array.data.device_id, array.shape, array.strides, array.dtype, box)


@functools.lru_cache(4096)
def _map_at(
    device: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, box: tuple[int, ...], address: int
) -> Any:
    """Return the tensor map of an array that is at `address`. The array's owner keeps its memory."""
    import cupy

    memory = cupy.cuda.UnownedMemory(address, shape[0] * strides[0], None, device)
    array = cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)
    return tensor_map(array, box, swizzle="128B", l2_promotion="256B", precision=_precision(dtype))


def _precision(dtype: np.dtype) -> Literal["tf32"] | None:
    return "tf32" if dtype == np.float32 else None


def _both_contiguous(first: Any, second: Any) -> bool:
    return bool(first.flags.c_contiguous and second.flags.c_contiguous and first.shape == second.shape)


@functools.cache
def device_limits(device: int | str) -> Limits:
    """Return the launch limits of an `ArrayPlace`'s device."""
    return emulator().limits_of(device) if isinstance(device, str) else devices.limits(device)


#: Multiprocessors that work is spread over on the emulator, for every device. Blocks run in turn there, so that more of
#: them only have more to combine. A step with NumPy should have some thousands of threads.
_EMULATED = 16


def multiprocessors_of(device: int | str) -> int:
    """Return the number of multiprocessors to spread work over, on an `ArrayPlace`'s device."""
    return _EMULATED if isinstance(device, str) else device_limits(device).multiprocessors


def busy_blocks(device: int | str) -> int:
    """Return the number of blocks that keep a device busy: one for each multiprocessor, or one on the emulator.

    The emulator runs blocks in turn.
    """
    return 1 if isinstance(device, str) else multiprocessors_of(device)


class _Workspaces:
    """Workspaces of uint8: one for each stream, or each stream's capture. A workspace grows on demand.

    The first `cleared` bytes of a new workspace are zero; None: all bytes.
    """

    def __init__(self, cleared: int | None) -> None:
        self._cleared = cleared
        self._by_stream: dict[tuple[int, int], Any] = {}

    def of(self, place: ArrayPlace, size: int) -> Any:
        stream = device_stream(place.stream)
        key = stream.device_id, stream.handle
        capture = streams.current(stream.core)
        workspaces = self._by_stream if capture is None else capture.kept_by(self)
        workspace = workspaces.get(key)
        if workspace is None or workspace.size < _TICKET_BYTES + size:
            workspace = place.empty(max(_LEAST_WORKSPACE, 1 << (_TICKET_BYTES + size - 1).bit_length()), np.uint8)
            if capture is None:
                with cupy_stream(stream.core):
                    workspace[: self._cleared] = 0
            else:
                # Cleared once, and not at each launch: the workspace persists between calls and launches.
                capture.clear(workspace[: self._cleared])
            workspaces[key] = workspace
        return workspace


_workspaces = _Workspaces(_TICKET_BYTES)
_statuses = _Workspaces(None)


def array_place(op: str, stream: Any, *operands: tuple[str, Any]) -> tuple[ArrayPlace, list[Any]]:
    """Return the array place of an op, and the op's arrays as CuPy or NumPy arrays.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    stream : stream or None
        Stream of the call. None: CuPy's current stream for device memory, an emulator's stream for host memory.
    *operands : (str, array)
        Arrays with their names: of CuPy, of NumPy, or objects that export memory by DLPack or an array interface.

    Raises
    ------
    ArgumentError
        For something else than an array, and for arrays in different places or in another place than the stream.
    """
    module = sys.modules.get("cupy") if stream is None else None
    if module is not None:
        # The most frequent calls, as short as possible.
        array_class = module.ndarray
        if len(operands) == 1:
            value = operands[0][1]
            if type(value) is array_class:
                make = _array_place if logs else ArrayPlace
                return make(module, module.cuda.get_current_stream(), True, value.data.device_id), [value]
        values = [value for _, value in operands if type(value) is array_class]
        if len(values) == len(operands):
            make = _array_place if logs else ArrayPlace
            return make(module, module.cuda.get_current_stream(), True, values[0].data.device_id), values
    arrays: list[Any] = []
    first = None
    for name, value in operands:
        array, on_host = as_array(op, name, value)
        if first is None:
            first = (name, on_host)
        elif on_host != first[1]:
            where = ("host memory", "device memory")
            raise ArgumentError(
                f"{op}: {first[0]} is in {where[not first[1]]} and {name} in {where[not on_host]}; move one of them"
            )
        arrays.append(aligned(op, name, array) if on_host else array)
    assert first is not None
    if first[1]:
        if stream is None:
            stream = emulator().current()
        elif place_of(stream).unit != "steps":
            require_stream(stream)
            raise ArgumentError(
                f"{op}: {first[0]} is in host memory and the stream is a GPU's; move it first, with cupy.asarray(x)"
            )
        if stream.strict and not _is_within_an_op():
            emulator().check_operands(op, operands)
        return _array_place(np, stream, True, stream.arch), arrays
    import cupy

    if stream is not None and place_of(stream) is not DEVICES:
        raise ArgumentError(
            f"{op}: {first[0]} is in device memory and the stream is the emulator's; give a NumPy array, as x.get() is"
        )
    current = cupy.cuda.get_current_stream()
    if stream is None or stream is current:
        return _array_place(cupy, current, True, arrays[0].data.device_id), arrays
    target = device_stream(stream)
    return _array_place(cupy, stream, target.handle == (current.ptr or 1), target.device_id), arrays


def _is_within_an_op() -> bool:
    """Return whether another op makes this call of an op: its place is chosen already, and the arrays are its own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if any(isinstance(value, ArrayPlace) for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False


def as_array(op: str, name: str, value: Any) -> tuple[Any, bool]:
    """Return `value` as an array, and whether it is NumPy's (True) or CuPy's (False). Memory is shared, not copied.

    Raises
    ------
    ArgumentError
        For something else than an array.
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        return value, True
    cupy = sys.modules.get("cupy")
    if cupy is not None and (type(value) is cupy.ndarray or isinstance(value, cupy.ndarray)):
        return value, False
    host = as_numpy(value)
    if host is not None:
        return host, True
    if is_on_device(value) or hasattr(value, "__dlpack__"):
        return device_array_of(value), False
    raise ArgumentError(f"{op}: {name} is {type(value).__name__}, not an array; give a CuPy or a NumPy array")


def aligned(op: str, name: str, array: np.ndarray) -> np.ndarray:
    """Return a host array aligned to its element size, as device memory is: the array itself, or an aligned copy.

    An output that is not aligned is refused. Arrays from other processes may not be aligned.
    """
    if array.flags.aligned or any(step % array.itemsize for step in array.strides):
        return array  # the reader refuses strides that are no whole elements
    if name.startswith("out"):
        raise ArgumentError(f"{op}: {name} does not lie at a multiple of its elements' size; give an array that does")
    return array.copy(order="K")


def address_of(array: Any) -> int:
    """Return the address of an array's first element."""
    return pointer_of(array) if isinstance(array, np.ndarray) else int(array.data.ptr)
