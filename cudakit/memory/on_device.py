"""Memory of GPUs: arrays, copies, and calls with host arrays.

Device memory for the host arrays of a call is kept for the next call with the same kernel and argument types on the
same stream. Both calls are ordered by the stream, so the memory is free for reuse once the call has returned. The
next call gives the kernel the same device arrays. Its launch then replays a launch that was checked and ordered before
(see `cudakit.jit.launch.dispatch`).

A call waits a moment for small results of pageable arrays: the stream is mostly done before another thread could be
notified. If it is not done, the courier copies the results.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, Any, Literal

import cupy
import numpy as np
from cupy.cuda import runtime

from cudakit.errors import ArgumentError, TemplateError, raise_launch_error
from cudakit.memory import device_memory, host_arrays, pinned, staging
from cudakit.memory.accounting import spares
from cudakit.memory.device_memory import Box, SurfaceObject, box_of, boxes_of, copy_box, device_array
from cudakit.memory.host_arrays import Callee, HostArray, Kind
from cudakit.memory.staging import bounds_of, courier, has_courier
from cudakit.streams import devices, segments, streams
from cudakit.streams.order import order
from cudakit.streams.streams import DeviceStream, device_stream
from cudakit.streams.witnesses import doing, watched
from cudakit.types.arguments import describe, device_array_of, is_on_device, is_page_locked

if TYPE_CHECKING:
    from cudakit.streams.segments import Range
    from cudakit.streams.streams import DeviceStream


#: Of each array's device memory, in bytes: as CuPy's pool rounds allocations, which aligns more than any kernel asks.
_ALIGNMENT = 512
#: Bytes of all of a call's arrays up to which its pageable ones go through one pinned block, and what it has on the
#: device is kept.
_SMALL = 2 << 20
#: Calls that wait for no small result after one that waited in vain.
_IMPATIENT = 8


def _nobody() -> None:
    """Return None. Stands in for a weak reference while there is no array."""


class _Temporary:
    """Device memory of one call. Its class is named after the argument's class, for errors."""

    def __init__(self, block: Any, pointer: int, host: np.ndarray, readonly: bool) -> None:
        self.block = block
        # A dtype stands for its own typestr, and unlike that can be any.
        data, shape, typestr = (pointer, readonly), host.shape, host.dtype
        self.__cuda_array_interface__ = {"data": data, "shape": shape, "typestr": typestr, "version": 3}


_SHOWN: dict[str, Any] = {name: type(name, (_Temporary,), {}) for name in ("In", "Out", "InOut")}


class Temporaries:
    """The device arrays of a call in one block: arrays copied in come first, arrays copied out last.

    Parameters
    ----------
    target : DeviceStream
        The stream.
    arguments : sequence
        The call's arguments.
    positions : sequence of (int, str, bool)
        Position of each host array, name of its parameter, and whether the parameter is a pointer.

    Attributes
    ----------
    size : int
        Bytes of the block.
    """

    size: int

    def __init__(
        self, target: DeviceStream, arguments: Sequence[Any], positions: Sequence[tuple[int, str, bool]]
    ) -> None:
        self.target = target
        positions = sorted(
            positions, key=lambda entry: (arguments[entry[0]].copied_out, not arguments[entry[0]].copied_in)
        )
        values = [arguments[position] for position, *_ in positions]
        sizes = [-(-value.array.nbytes // _ALIGNMENT) * _ALIGNMENT for value in values]
        *starts, self.size = accumulate(sizes, initial=0)
        # On the call's stream: who is given the memory when it is free again comes after what is done with it here.
        self.block: Any = device_array((self.size,), np.dtype("u1"), target)
        # Whoever had the memory before may have used it on another stream.
        span, producers = segments.cupy_span(self.block), streams.current_streams(("cupy",), target.device_id)
        order().after(order().before(target, (), (span,), producers), self.block)
        self._positions = [position for position, *_ in positions]
        self._offsets = starts
        #: Of the arrays in the block's order: those copied in come before one number, those copied out after another.
        self._in = range(sum(value.copied_in for value in values))
        self._out = range(sum(not value.copied_out for value in values), len(values))
        #: Where in the block what is copied in ends, and what is copied out begins; zeros are between.
        ends = [*starts, self.size]
        self._in_end, self._out_start = ends[self._in.stop], ends[self._out.start]
        #: Pairs of which one is written.
        self._pairs = [pair for pair in combinations(range(len(values)), 2) if pair[1] in self._out]
        self._arrays: list[Any] = []
        self._arguments: list[Any] = []
        self._shown: list[Any] = []
        for value, start, (*_, is_pointer) in zip(values, starts, positions, strict=True):
            host, pointer = value.array, self.block.data.ptr + start
            array = cupy.ndarray(host.shape, host.dtype, memptr=self.block.data + start)
            is_written = value.copied_out or value.const  # as far as the parameter goes
            shown = _SHOWN[type(value).__name__](self.block, pointer, host, not is_written)
            self._arrays.append(array)
            self._shown.append(shown)
            # What is read only decides a type, such as strided<const T, 2>, except where that says it already.
            self._arguments.append(array if is_written or is_pointer else shown)
        self._cupy_stream = streams.cupy_stream(target.core)
        #: CuPy's current stream has nothing to do with these arrays, and is not waited for on their account.
        self._apart = not any(isinstance(argument, cupy.ndarray) for argument in arguments)
        self._impatient = 0
        #: After what the stream was given by the last call; and pinned arrays of that, kept until then.
        self._event: Any = None
        self._pinned_arrays: Sequence[np.ndarray] = ()
        self._spans: list[tuple[Callable[[], np.ndarray | None], Range | None]] = [(_nobody, None)] * len(values)

    def launch(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        """Copy the inputs in, launch the kernel, and copy the outputs out.

        Raises
        ------
        ArgumentError
            The arguments do not fit, or a written array overlaps another array.
        LaunchError
            Earlier results were lost.
        """
        self.let_go()
        hosts = [arguments[position].array for position in self._positions]
        for first, other in self._pairs:
            if np.may_share_memory(hosts[first], hosts[other]):
                host_arrays.check(kernel, arguments)
        if has_courier():
            courier().raise_failure()
        direct = self._direct(hosts)
        if watched() or (self.size > _SMALL and None in direct):
            self._launch_apart(kernel, stream, config, arguments)
        else:
            self._launch_together(kernel, stream, config, arguments, hosts, direct)

    def _direct(self, hosts: Sequence[np.ndarray]) -> list[Range | None]:
        """Return for each host array the addresses of its memory, (first, end), if the device copies it directly.

        None stands for an array that is not pinned and C-contiguous.
        """
        result: list[Range | None] = []
        for index, host in enumerate(hosts):
            same, span = self._spans[index]
            if same() is not host:
                # Pinned memory is known by asking for it, and an array that is the same has the same.
                span = bounds_of(host) if staging.is_direct(host) else None
                self._spans[index] = weakref.ref(host), span
            result.append(span if span is not None and host.flags.c_contiguous else None)
        return result

    def _call(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        values = list(arguments)
        for position, argument in zip(self._positions, self._arguments, strict=True):
            values[position] = argument
        try:
            if self._apart and cupy.cuda.get_current_stream(self.target.device_id) is not self._cupy_stream:
                with self._cupy_stream:
                    kernel(stream, config, *values)
            else:
                kernel(stream, config, *values)
        except (ArgumentError, TemplateError):
            for position, argument in zip(self._positions, self._shown, strict=True):
                values[position] = argument
            kernel(stream, config, *values)  # raises the same, and names what was given
            raise

    def _launch_apart(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        """Launch the kernel. Each host array has its own copy or fill before the kernel, and its own copy after it."""
        target, start = self.target, self.block.data.ptr
        places = sorted(zip(self._positions, self._offsets, self._arrays, strict=True))
        parts: list[tuple[HostArray, int, Any]] = [
            (arguments[at], start + offset, array) for at, offset, array in places
        ]
        for value, pointer, array in parts:
            name, host = type(value).__name__, value.array
            if value.copied_in:
                with doing("copy", name, stream, (host,), (array,), host.nbytes):
                    staging.upload(host, pointer, target)
            elif host.nbytes:
                with doing("fill", name, stream, (), (array,), host.nbytes):
                    staging.cupy_runtime().memsetAsync(pointer, 0, host.nbytes, target.handle)
        self._call(kernel, stream, config, arguments)
        for value, pointer, array in parts:
            if value.copied_out:
                name, host = type(value).__name__, value.array
                with doing("copy", name, stream, (array,), (host,), host.nbytes):
                    staging.deliver(pointer, host, target)

    def _launch_together(
        self,
        kernel: Callee,
        stream: Any,
        config: Any,
        arguments: Sequence[Any],
        hosts: Sequence[np.ndarray],
        direct: Sequence[Range | None],
    ) -> None:
        """Launch with all arrays at once: pinned arrays copied directly, the others through one pinned block."""
        target, start, offsets, runtime = self.target, self.block.data.ptr, self._offsets, staging.cupy_runtime()
        copy, handle = runtime.memcpyAsync, target.handle
        for index, host in enumerate(hosts):
            staging.settle(host, None if index in self._in else handle)
        staged_in, staged_out = [i for i in self._in if direct[i] is None], [i for i in self._out if direct[i] is None]
        reads = [(i, span) for i in self._in if (span := direct[i]) is not None and hosts[i].nbytes]
        writes = [(i, span) for i in self._out if (span := direct[i]) is not None and hosts[i].nbytes]
        use = None
        if reads or writes:
            use = order().before(target, tuple(span for _, span in reads), tuple(span for _, span in writes))
        block = pinned.pool().take(self.size, patient=True) if staged_in or staged_out else None
        try:
            if block is not None and staged_in:
                for i in staged_in:
                    block.view(hosts[i].shape, hosts[i].dtype, offsets[i])[...] = hosts[i]
                copy(start, block.address, self._in_end, runtime.memcpyHostToDevice, handle)
            for i, span in reads:
                copy(start + offsets[i], span[0], hosts[i].nbytes, runtime.memcpyHostToDevice, handle)
            if self._in_end < self.size:
                runtime.memsetAsync(start + self._in_end, 0, self.size - self._in_end, handle)
            self._call(kernel, stream, config, arguments)
            for i, span in writes:
                copy(span[0], start + offsets[i], hosts[i].nbytes, runtime.memcpyDeviceToHost, handle)
            if block is not None and staged_out:
                first, size = self._out_start, self.size - self._out_start
                copy(block.address + first, start + first, size, runtime.memcpyDeviceToHost, handle)
            order().after(use, None)
            self._event = target.core.record(self._event)
            self._pinned_arrays = hosts if reads or writes else ()
        except BaseException:
            with contextlib.suppress(Exception):  # where the device is lost, which is told already
                order().hold(target.core, (hosts, block))
            raise
        if block is not None and staged_out:
            views = [(hosts[i], block.view(hosts[i].shape, hosts[i].dtype, offsets[i])) for i in staged_out]
            self._bring(views, block)
        elif block is not None:
            block.give_back(block.mark(target))

    def release(self) -> None:
        """Release the last call's pinned arrays, if the call is done."""
        if self._pinned_arrays and self._event.is_done:
            self._pinned_arrays = ()

    def let_go(self) -> None:
        """Hand the last call's pinned arrays to the order of streams, which keeps them until the call is done."""
        self.release()
        if self._pinned_arrays and self.target.core.is_closed:
            self._event.sync()
        elif self._pinned_arrays:
            order().hold(self.target.core, self._pinned_arrays)
        self._pinned_arrays = ()

    def _bring(self, parts: list[tuple[np.ndarray, np.ndarray]], block: pinned.Block) -> None:
        """Copy results from a pinned block to host arrays: now if they arrive soon, else by the `Courier` thread.

        `parts` has each host array, with the part of the block that holds its result. The block returns to its pool.
        """
        if self._impatient:
            self._impatient -= 1
        else:
            try:
                is_there = staging.comes_soon(self._event, self.size)
            except Exception as error:
                raise_launch_error(error)
                raise
            if is_there:
                for host, staged in parts:
                    host[...] = staged
                block.give_back()
                self._pinned_arrays = ()
                return
            self._impatient = _IMPATIENT
        staging.ship(parts, block, self.target)


def call(kernel: Callee, stream: Any, target: DeviceStream, config: Any, arguments: Sequence[Any]) -> None:
    """Call a kernel on a GPU with host arrays among its arguments, as `Backend.call`."""
    key_parts = [
        (type(value), value.array.shape, value.array.dtype) if isinstance(value, HostArray) else type(value)
        for value in arguments
    ]
    key = (kernel, target.handle, *key_parts)
    with devices.on_device(target.device_id):
        if streams.is_captured(target.handle):
            host_arrays.check(kernel, arguments)
            host_arrays.refuse_captured_call(kernel, stream, arguments)
        temporaries: Temporaries | None = spares().take(key)
        if temporaries is not None and temporaries.target.core is not target.core:
            temporaries.let_go()  # of a stream that is gone, which had the same number
            temporaries = None
        if temporaries is None:
            spares().drop_closed()
            temporaries = Temporaries(target, arguments, host_arrays.check(kernel, arguments))
        temporaries.launch(kernel, stream, config, arguments)
        if temporaries.size <= _SMALL:
            spares().give_back(key, temporaries)
        else:
            temporaries.let_go()


#: The driver's number of the legacy default stream, for which CuPy writes 0.
_LEGACY = 1
#: The runtime's word for access that somebody has enabled already.
_ALREADY = 704


class OnDevice:
    """`cudakit.memory.backend.Backend` of GPUs."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, memory_kind: Kind, stream: Any) -> Any:
        target = device_stream(cupy.cuda.get_current_stream() if stream is None else stream)
        with devices.on_device(target.device_id):
            if memory_kind == "device":
                return device_array(shape, dtype, target)
            return device_memory.managed_array(math.prod(shape) * dtype.itemsize, shape, dtype, target)

    def release(self, array: Any, stream: Any) -> None:
        target = stream if stream is not None else cupy.cuda.get_current_stream()
        with order().around(target, (), (array,)):
            pass
        with streams.cupy_stream(device_stream(target).core):
            # The constructor once more, which appends to the shape that is there.
            array._init((0,), array.dtype)
        array.shape = (0,)
        # Launches that know the array by its identity would give kernels its former address.
        order().unsettle()

    def handed_out(self, array: np.ndarray, stream: Any) -> np.ndarray:
        return array

    def prefetch(self, array: Any, stream: Any, to: Literal["device", "host"]) -> None:
        device_memory.prefetch(array, device_stream(stream), to)

    def to_device(self, host: np.ndarray, stream: Any, out: Any) -> Any:
        target = device_stream(stream)
        with devices.on_device(target.device_id):
            if streams.is_captured(target.handle) and not staging.is_direct(host):
                host_arrays.refuse_captured_copy("to_device", stream)
            if out is None:
                out = buffer = device_array(host.shape, host.dtype, target)
            else:
                buffer = _output(out, host, target)
            contiguous = buffer if buffer._c_contiguous else device_array(host.shape, host.dtype, target)
            targets = (contiguous,) if contiguous is buffer else (contiguous, buffer)
            written = tuple(segments.cupy_span(array) for array in targets)
            use = order().before(target, (), written, _producers(target))
            with doing("copy", "to_device", stream, (host,), (out,), host.nbytes):
                staging.upload(host, contiguous.data.ptr, target)
                if contiguous is not buffer:
                    _copy_here(buffer, contiguous, target)
            order().after(use, (buffer,))
        return out

    def across(self, array: Any, stream: Any, out: Any) -> Any:
        target, source = device_stream(stream), _as_device_array("to_device: array", array)
        if streams.is_captured(target.handle):
            host_arrays.refuse_captured_copy("to_device", stream)
        target_array = device_array(source.shape, source.dtype, target) if out is None else _output(out, source, target)
        result = target_array if out is None else out
        if source.device.id == target.device_id:
            with devices.on_device(target.device_id):
                self.transfer(target_array, source, stream)
            return result
        if not (source._c_contiguous and target_array._c_contiguous):
            raise ArgumentError(
                "to_device: between devices arrays are C-contiguous; make a copy on its own device before, x.copy()"
            )
        _let_reach(target.device_id, source.device.id)
        with devices.on_device(source.device.id):
            # What CuPy did to it is unseen, and on a stream of that device.
            unseen = cupy.cuda.get_current_stream().record()
        with devices.on_device(target.device_id):
            spans = (segments.cupy_span(source),), (segments.cupy_span(target_array),)
            use = order().before(target, *spans, _producers(target))
            runtime.streamWaitEvent(target.handle, unseen.ptr)
            copy_arguments = (
                target_array.data.ptr,
                target.device_id,
                source.data.ptr,
                source.device.id,
                source.nbytes,
                target.handle,
            )
            with doing("copy", "to_device", stream, (array,), (result,), source.nbytes):
                runtime.memcpyPeerAsync(*copy_arguments)
            order().after(use, (source, target_array))
            order().hold(target.core, source)
        return result

    def to_host(self, array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
        target = device_stream(stream)
        if devices.device_count() > 1:
            with devices.on_device(target.device_id):
                return self._to_host(array, stream, target, out, wait)
        devices.make_current(target.device_id)
        return self._to_host(array, stream, target, out, wait)

    def _to_host(self, array: Any, stream: Any, target: DeviceStream, out: np.ndarray | None, wait: bool) -> np.ndarray:
        if streams.is_captured(target.handle) and (wait or out is None or not staging.is_direct(out)):
            host_arrays.refuse_captured_copy("to_host", stream)
        device_source = source = _as_device_array("to_host: array", array)
        size, is_watched = source.nbytes, watched()
        is_small = out is None and wait and not is_watched and 0 < size <= staging.PIECE
        result: Any = None if is_small else host_arrays.output(out, source.shape, source.dtype)
        use = order().before(target, (segments.cupy_span(source),), (), _producers(target))
        if not source._c_contiguous:
            with streams.cupy_stream(target.core):
                if source.dtype.isbuiltin != 1 and source.dtype.names is None:
                    source = source.view(f"u{source.itemsize}")  # CuPy copies no elements of fp8
                source = source.copy(order="C")
        move = staging.fetch if wait else staging.deliver
        if is_small:
            result = staging.fetched(source.data.ptr, source.shape, device_source.dtype, size, target)
        elif is_watched:
            with doing("copy", "to_host", stream, (array,), (result,), size):
                move(source.data.ptr, result, target)
        else:
            move(source.data.ptr, result, target)
        if use is not None:
            order().after(use, (device_source,))
        if not wait:
            order().hold(target.core, source)
        return result  # type: ignore[no-any-return]

    def copy(self, name: str, source: Any, target: Any, stream: Any) -> None:
        to_host = isinstance(target, np.ndarray)
        direction = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        copy_arguments = _address(target), _address(source), source.nbytes, direction, device_stream(stream).handle
        if not watched():
            runtime.memcpyAsync(*copy_arguments)
            return
        with doing("copy", name, stream, (source,), (target,), source.nbytes):
            runtime.memcpyAsync(*copy_arguments)

    def transfer(self, target: Any, source: Any, stream: Any) -> None:
        place = device_stream(stream)
        sides = [_side(name, value) for name, value in (("target", target), ("source", source))]
        host_arrays.check_copy(*sides)
        written, source_array = sides
        on_device = [side for side in sides if not isinstance(side, np.ndarray)]
        if not on_device:
            raise ArgumentError("copy: source and target are NumPy arrays, and the stream is a GPU's; numpy.copyto")
        for side in on_device:
            device_id = side.device_id if isinstance(side, SurfaceObject) else side.device.id
            if device_id != place.device_id:
                raise ArgumentError(
                    f"copy: the stream is of device {place.device_id}, and an array of device {device_id}"
                )
        if not source_array.nbytes:
            return
        with devices.on_device(place.device_id):
            if isinstance(source_array, SurfaceObject) or isinstance(written, SurfaceObject):
                self._copy_surface(written, source_array, stream, place)
            elif len(on_device) == 2:
                with self._around(source_array, written, stream):
                    _copy_here(written, source_array, place)
            elif _is_pinned(written, source_array) and (pair := _boxes(written, source_array)) is not None:
                with self._around(source_array, written, stream):
                    copy_box(*pair, place.handle)
                order().hold(place.core, (written, source_array))
            elif isinstance(source_array, np.ndarray):
                self.to_device(source_array, stream, written)
            else:
                self.to_host(source_array, stream, written, False)

    @contextlib.contextmanager
    def _around(self, source: Any, target: Any, stream: Any) -> Iterator[None]:
        """Order the copy from `source` to `target` that the ``with`` block enqueues between streams, and report it.

        First wait for results that are still on their way to a host array of the two.
        """
        for side in (source, target):
            if isinstance(side, np.ndarray):
                staging.settle(side)
        with (
            order().around(stream, (source,), (target,)),
            doing("copy", "copy", stream, (source,), (target,), source.nbytes),
        ):
            yield

    def _copy_surface(self, target: Any, source: Any, stream: Any, place: DeviceStream) -> None:
        """Copy from or to a surface: directly for contiguous device memory, else by way of new contiguous device
        memory.
        """
        if isinstance(target, SurfaceObject) and isinstance(source, SurfaceObject):
            with self._around(source, target, stream):
                copy_box(target.box, source.box, place.handle)
            return
        surface, array = (target, source) if isinstance(target, SurfaceObject) else (source, target)
        is_plain = not isinstance(array, np.ndarray) and array.flags.c_contiguous
        plain = array if is_plain else device_array(array.shape, array.dtype, place)
        whole = surface.box
        box = box_of(plain, whole[2:5], whole.width, whole.width * whole.height)
        if surface is target:
            if plain is not array:
                self.transfer(plain, array, stream)
            with self._around(plain, target, stream):
                copy_box(whole, box, place.handle)
        else:
            with self._around(source, plain, stream):
                copy_box(box, whole, place.handle)
            if plain is not array:
                self.transfer(array, plain, stream)

    def call(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        streams.require_stream(stream)
        devices.require_gpu()
        call(kernel, stream, device_stream(stream), config, arguments)

    def mark(self, stream: Any) -> Any | None:
        target = device_stream(stream)
        with devices.on_device(target.device_id):
            return target.core.record()


@functools.cache
def _let_reach(device_id: int, other: int) -> None:
    """Allow a device to access another device's memory, if possible. Copies are then direct."""
    if not runtime.deviceCanAccessPeer(device_id, other):
        return
    with devices.on_device(device_id):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if error.status != _ALREADY:
                raise


def _producers(target: DeviceStream) -> tuple[int, ...]:
    """Return the handles of CuPy's current streams on the device, on which CuPy may have used its arrays unseen.

    See `Order.before`.
    """
    return (cupy.cuda.get_current_stream(target.device_id).ptr or _LEGACY,)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr)


def _as_device_array(name: str, value: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return value
    is_host = isinstance(value, np.ndarray)
    if is_on_device(value) or (not is_host and hasattr(value, "__dlpack__")):
        return device_array_of(value)
    raise ArgumentError(f"{name} must be a CuPy array on a GPU's stream, got {type(value).__name__}")


def _side(name: str, value: Any) -> Any:
    """Check the source or target of a copy. Return it as a NumPy array, a surface, or a CuPy array.

    `name` is the argument's name, for errors.
    """
    if isinstance(value, np.ndarray):
        return host_arrays.host_array("copy", name, value)
    return value if isinstance(value, SurfaceObject) else _as_device_array(f"copy: {name}", value)


def _copy_here(target: Any, source: Any, place: DeviceStream) -> None:
    """Enqueue ``target[...] = source`` within a device, ordered by the stream `place` alone. The two may overlap."""
    (low, high), (start, stop) = segments.cupy_span(target), segments.cupy_span(source)
    apart = high <= start or stop <= low
    # Of records CuPy copies nothing but whole arrays.
    pair = _boxes(target, source) if apart and target.dtype.kind == "V" else None
    if pair is not None:
        copy_box(*pair, place.handle)
        return
    with streams.cupy_stream(place.core):
        target[...] = source if apart else source.copy()


def _is_pinned(target: Any, source: Any) -> bool:
    return is_page_locked(target if isinstance(target, np.ndarray) else source)


def _boxes(target: Any, source: Any) -> tuple[Box, Box] | None:
    """Return target and source as boxes of memory, or None if their strides do not form boxes (see `boxes_of`)."""
    boxes = boxes_of(target.shape, target.dtype.itemsize, target.strides, source.strides)
    if boxes is None:
        return None
    extents, pitches = boxes
    return box_of(target, extents, *pitches[0]), box_of(source, extents, *pitches[1])


def _output(out: Any, host: np.ndarray, target: DeviceStream) -> Any:
    """Check the caller's output for a copy of `host` to the stream's device. Return it as a CuPy array.

    Raises
    ------
    ArgumentError
        The output is read-only, on another device, or of another shape or dtype.
    """
    result = _as_device_array("to_device: out", out)
    if result is not out and describe(out).evidence.readonly:
        raise ArgumentError("to_device: out is read-only; give another array")
    host_arrays.check_fits("to_device", result, host.shape, host.dtype)
    if result.device.id != target.device_id:
        raise ArgumentError(
            f"to_device: out is on device {result.device.id}, and the stream is of device {target.device_id}; give an "
            "array of the stream's device"
        )
    return result
