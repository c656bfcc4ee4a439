"""Where an op runs: its inputs as arrays of one place, the stream, and the memory that it makes there."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.log import Cleared, Copied, Launched, Source, current_log, logs
from cudakit.errors import ArgumentError
from cudakit.places import DEVICES, emulator, place_of, refuse_capture
from cudakit.streams import devices, streams
from cudakit.streams.devices import Limits
from cudakit.streams.order import order
from cudakit.streams.streams import as_stream, cupy_stream, known, require_stream
from cudakit.types.arguments import as_numpy, device_array_of, pointer_of, refuse_masked

#: Counters at the start of a stream's workspace, which every kernel leaves at zero.
TICKETS = 1024
_TICKET_BYTES = 4 * TICKETS
_LEAST_WORKSPACE = 1 << 20


class ArrayPlace(NamedTuple):
    """A stream, the array module that goes with it (CuPy, or NumPy on the emulator), and the device.

    Attributes
    ----------
    xp : module
    stream : stream
        What kernels are given.
    current : bool
        Whether `stream` is CuPy's current one, so that CuPy allocates for it as it stands.
    device : int or str
        Names the device in caches: its ordinal, or the emulator's arch.
    """

    xp: Any
    stream: Any
    current: bool
    device: int | str

    def launch(self, kernel: Any, config: Any, *arguments: Any, sources: tuple[Source, ...] = ()) -> None:
        """Launch a kernel on the stream; `sources` are those of `Launched`."""
        kernel(self.stream, config, *arguments)

    def empty(self, shape: Any, dtype: Any) -> Any:
        """A new array, C-contiguous, not initialised, whose memory belongs to the stream."""
        # What xp.empty calls; half a microsecond less of Python.
        if self.xp is np:
            return emulator().empty(self.stream, shape, dtype)
        if self.current:
            return self.xp.ndarray(shape, dtype)
        with self.inside():
            return self.xp.ndarray(shape, dtype)

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which CuPy works on the stream."""
        if self.current:
            return contextlib.nullcontext()
        stream: contextlib.AbstractContextManager[Any] = cupy_stream(as_stream(self.stream))
        return stream

    def upload(self, array: np.ndarray) -> Any:
        """A small host array, in this place."""
        if self.xp is np:
            return emulator().upload(self.stream, array)
        capture = streams.current(self.stream)
        if capture is not None:
            return capture.upload(array)
        with self.inside():
            return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        """The elements of a small array in host memory, once the stream has come so far: waits for the device.

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
        """Copy elements, in the stream's order."""
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
        """A C-contiguous copy of one of the caller's arrays."""
        made = self.empty(array.shape, array.dtype)
        ordered = contextlib.nullcontext() if self.xp is np else order().around(self.stream, (array,), (made,))
        with ordered:
            self.copy(array, made)
        return made

    def contiguous(self, array: Any, dtype: Any = None) -> Any:
        """`array` itself where it is C-contiguous and of `dtype`, else a copy of it that is."""
        if array.flags.c_contiguous and (dtype is None or array.dtype == dtype):
            return array
        made = self.empty(array.shape, dtype or array.dtype)
        self.copy(array, made)
        return made

    def clear(self, array: Any) -> None:
        """Zero a C-contiguous array, in the stream's order."""
        if self.xp is np:
            self.copy(np.zeros((), array.dtype), array)
            return
        with self.inside():
            array.data.memset_async(0, array.nbytes)

    def workspace(self, size: int) -> Any:
        """`TICKETS` uint32 counters at zero, then `size` bytes, uint8, for the kernel that the stream gets next.

        The stream keeps it, so that a kernel's arguments stay the same from call to call; each kernel leaves the
        counters at zero. A graph has workspaces of its own, since it may run beside the stream that it was captured on.
        """
        if self.xp is np:
            return np.zeros(_TICKET_BYTES + size, np.uint8)
        return _workspaces.of(self, size)

    def status(self, size: int) -> Any:
        """`size` bytes, uint8, that start at zero and that only <cudakit/lookback.cuh> writes: kept by the stream."""
        if self.xp is np:
            return np.zeros(size, np.uint8)
        return _statuses.of(self, size)

    def kept(self, array: Any) -> Any:
        """An array of the op's own, which is the same at each call of a kind."""
        return array

    def alignment(self, *arrays: Any) -> int:
        """The greatest power of two, 16 at most, that divides the addresses of all arrays."""
        bits = 16
        for array in arrays:
            bits |= address_of(array)
        return bits & -bits

    @property
    def multiprocessors(self) -> int:
        """Multiprocessors of the device."""
        return multiprocessors_of(self.device)


class LoggedPlace(ArrayPlace):
    """A place that takes down in the thread's `Log` what is done in it."""

    def launch(self, kernel: Any, config: Any, *arguments: Any, sources: tuple[Source, ...] = ()) -> None:
        logs[threading.get_ident()].steps.append(Launched(kernel, config, arguments, sources))
        super().launch(kernel, config, *arguments)

    def empty(self, shape: Any, dtype: Any) -> Any:
        made = super().empty(shape, dtype)
        logs[threading.get_ident()].new.append(made)
        return made

    def inside(self) -> contextlib.AbstractContextManager[Any]:
        self._lose()
        return super().inside()

    def upload(self, array: np.ndarray) -> Any:
        self._lose()
        return super().upload(array)

    def download(self, array: Any) -> np.ndarray:
        self._lose()
        return super().download(array)

    def copy(self, source: Any, target: Any) -> None:
        if source.dtype == target.dtype and _both_contiguous(source, target):
            logs[threading.get_ident()].steps.append(Copied(source, target))
        else:
            self._lose()
        ArrayPlace(*self).copy(source, target)

    def copied(self, array: Any) -> Any:
        self._lose()
        return ArrayPlace(*self).copied(array)

    def clear(self, array: Any) -> None:
        logs[threading.get_ident()].steps.append(Cleared(array))
        ArrayPlace(*self).clear(array)

    def workspace(self, size: int) -> Any:
        return self.kept(ArrayPlace(*self).workspace(size))

    def status(self, size: int) -> Any:
        return self.kept(ArrayPlace(*self).status(size))

    def kept(self, array: Any) -> Any:
        logs[threading.get_ident()].kept.append(array)
        return array

    def alignment(self, *arrays: Any) -> int:
        found = super().alignment(*arrays)
        logs[threading.get_ident()].aligned.append((arrays, found))
        return found

    def _lose(self) -> None:
        """Something is done that no log can tell."""
        logs[threading.get_ident()].is_whole = False


def _made(xp: Any, stream: Any, current: bool, device: int | str) -> ArrayPlace:
    """A place; one that takes down what is done in it, where this thread's call is to be told."""
    log = current_log()
    if log is None or (xp is not np and current):
        return (ArrayPlace if log is None else LoggedPlace)(xp, stream, current, device)
    log.is_whole = False
    return ArrayPlace(xp, stream, current, device)


def _both_contiguous(first: Any, second: Any) -> bool:
    return bool(first.flags.c_contiguous and second.flags.c_contiguous and first.shape == second.shape)


@functools.cache
def device_limits(device: int | str) -> Limits:
    """What the device that a `ArrayPlace` names can do."""
    return emulator().limits_of(device) if isinstance(device, str) else devices.limits(device)


#: Multiprocessors that work is spread over on the emulator, whatever device it stands for: where blocks run in turn,
#: more of them have only more to combine; a step with NumPy wants some thousands of threads.
_EMULATED = 16


def multiprocessors_of(device: int | str) -> int:
    """Multiprocessors that work is spread over on the device that a `ArrayPlace` names."""
    return _EMULATED if isinstance(device, str) else device_limits(device).multiprocessors


def busy_blocks(device: int | str) -> int:
    """Blocks that keep a device busy: one for each multiprocessor; on the emulator one, for they run in turn."""
    return 1 if isinstance(device, str) else multiprocessors_of(device)


class _Workspaces:
    """Memory that each stream keeps, by device and the driver's number of the stream; `cleared` bytes begin at zero."""

    def __init__(self, cleared: int | None) -> None:
        self._cleared = cleared
        self._made: dict[tuple[int, int], Any] = {}

    def of(self, place: ArrayPlace, size: int) -> Any:
        stream = known(place.stream)
        key = stream.device_id, stream.handle
        capture = streams.current(stream.core)
        made = self._made if capture is None else capture.kept_by(self)
        found = made.get(key)
        if found is None or found.size < _TICKET_BYTES + size:
            found = place.empty(max(_LEAST_WORKSPACE, 1 << (_TICKET_BYTES + size - 1).bit_length()), np.uint8)
            if capture is None:
                with cupy_stream(stream.core):
                    found[: self._cleared] = 0
            else:
                # Once, and not at each launch: what is kept between calls is kept between launches.
                capture.clear(found[: self._cleared])
            made[key] = found
        return found


_workspaces = _Workspaces(_TICKET_BYTES)
_statuses = _Workspaces(None)


def array_place(op: str, stream: Any, *named: tuple[str, Any]) -> tuple[ArrayPlace, list[Any]]:
    """The place of an op's arrays, and the arrays as CuPy's or NumPy's.

    Parameters
    ----------
    op : str
        For messages.
    stream : stream or None
        None: CuPy's current stream for device memory, an emulator's stream for host memory.
    *named : (str, array)
        Arrays with their names: CuPy's, NumPy's, or of any object that exports memory by DLPack or an array interface.

    Raises
    ------
    ArgumentError
        For something that is no array, and for arrays that are not where the stream is, or not in one place.
    """
    module = sys.modules.get("cupy") if stream is None else None
    if module is not None:
        # The calls that most programs make, as short as they can be.
        kind = module.ndarray
        if len(named) == 1:
            value = named[0][1]
            if type(value) is kind:
                found = _made if logs else ArrayPlace
                return found(module, module.cuda.get_current_stream(), True, value.data.device_id), [value]
        given = [value for _, value in named if type(value) is kind]
        if len(given) == len(named):
            found = _made if logs else ArrayPlace
            return found(module, module.cuda.get_current_stream(), True, given[0].data.device_id), given
    arrays: list[Any] = []
    first = None
    for name, value in named:
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
            emulator().check_operands(op, named)
        return _made(np, stream, True, stream.arch), arrays
    import cupy

    if stream is not None and place_of(stream) is not DEVICES:
        raise ArgumentError(
            f"{op}: {first[0]} is in device memory and the stream is the emulator's; give a NumPy array, as x.get() is"
        )
    current = cupy.cuda.get_current_stream()
    if stream is None or stream is current:
        return _made(cupy, current, True, arrays[0].data.device_id), arrays
    target = known(stream)
    return _made(cupy, stream, target.handle == (current.ptr or 1), target.device_id), arrays


def _is_within_an_op() -> bool:
    """Whether a call of an op is another op's: it has its place already, and the arrays are its own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if any(isinstance(value, ArrayPlace) for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False


def as_array(op: str, name: str, value: Any) -> tuple[Any, bool]:
    """`value` as an array of CuPy (False) or NumPy (True)."""
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        return value, True
    cupy = sys.modules.get("cupy")
    if cupy is not None and (type(value) is cupy.ndarray or isinstance(value, cupy.ndarray)):
        return value, False
    host = as_numpy(value)
    if host is not None:
        return host, True
    if hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__"):
        return device_array_of(value), False
    raise ArgumentError(f"{op}: {name} is {type(value).__name__}, not an array; give a CuPy or a NumPy array")


def aligned(op: str, name: str, array: np.ndarray) -> np.ndarray:
    """A host array at multiples of its elements' size, as device memory is: what other processes send may not be."""
    if array.flags.aligned or any(step % array.itemsize for step in array.strides):
        return array  # strides that are no whole elements are refused by who reads them
    if name.startswith("out"):
        raise ArgumentError(f"{op}: {name} does not lie at a multiple of its elements' size; give an array that does")
    return array.copy(order="K")


def address_of(array: Any) -> int:
    """Where an array's first element lies."""
    return pointer_of(array) if isinstance(array, np.ndarray) else int(array.data.ptr)
