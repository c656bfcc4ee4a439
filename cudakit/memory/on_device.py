"""Memory of GPUs: arrays of CuPy's pool, managed arrays, and copies through `cudakit.memory.staging`."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import cupy
import numpy as np
from cupy.cuda import runtime

from cudakit.errors import ArgumentError
from cudakit.memory import call_buffers, device_memory, staging
from cudakit.memory.checks import check_copy, check_fits, host_array, output, refuse_captured_copy
from cudakit.memory.device_memory import Box, SurfaceObject, box_of, boxes_of, copy_box, device_array
from cudakit.memory.host_arrays import Callee
from cudakit.memory.kinds import Kind
from cudakit.streams import devices, segments, streams
from cudakit.streams.order import order
from cudakit.streams.streams import Known, current_streams, known
from cudakit.streams.witnesses import doing, watched
from cudakit.types.arguments import describe, device_array_of, is_page_locked

#: The runtime's word for access that somebody has enabled already.
_ALREADY = 704


class OnDevice:
    """`cudakit.memory.backend.Backend` of GPUs."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, kind: Kind, stream: Any) -> Any:
        target = known(cupy.cuda.get_current_stream() if stream is None else stream)
        with devices.on_device(target.device_id):
            if kind == "device":
                return device_array(shape, dtype, target)
            return device_memory.managed_array(math.prod(shape) * dtype.itemsize, shape, dtype, target)

    def release(self, array: Any, stream: Any) -> None:
        given = stream if stream is not None else cupy.cuda.get_current_stream()
        with order().around(given, (), (array,)):
            pass
        with streams.cupy_stream(known(given).core):
            # The constructor once more, which appends to the shape that is there.
            array._init((0,), array.dtype)
        array.shape = (0,)
        # Launches that know the array by its identity would give kernels its former address.
        order().unsettle()

    def handed_out(self, array: np.ndarray, stream: Any) -> np.ndarray:
        return array

    def prefetch(self, array: Any, stream: Any, to: Literal["device", "host"]) -> None:
        device_memory.prefetch(array, known(stream), to)

    def to_device(self, host: np.ndarray, stream: Any, out: Any) -> Any:
        target = known(stream)
        with devices.on_device(target.device_id):
            if streams.is_captured(target.handle) and not staging.is_direct(host):
                refuse_captured_copy("to_device", stream)
            if out is None:
                out = found = device_array(host.shape, host.dtype, target)
            else:
                found = _output(out, host, target)
            made = found if found._c_contiguous else device_array(host.shape, host.dtype, target)
            written = tuple(segments.cupy_span(array) for array in ((made,) if made is found else (made, found)))
            use = order().before(target, (), written, _producers(target))
            with (
                doing("copy", "to_device", stream, (host,), (out,), host.nbytes)
                if watched()
                else contextlib.nullcontext()
            ):
                staging.upload(host, made.data.ptr, target)
                if made is not found:
                    _copy_here(found, made, target)
            order().after(use, (found,))
        return out

    def across(self, array: Any, stream: Any, out: Any) -> Any:
        target, source = known(stream), _as_device_array("to_device: array", array)
        if streams.is_captured(target.handle):
            refuse_captured_copy("to_device", stream)
        found = device_array(source.shape, source.dtype, target) if out is None else _output(out, source, target)
        made = found if out is None else out
        if source.device.id == target.device_id:
            with devices.on_device(target.device_id):
                self.transfer(found, source, stream)
            return made
        if not (source._c_contiguous and found._c_contiguous):
            raise ArgumentError(
                "to_device: between devices arrays are C-contiguous; make a copy on its own device before, x.copy()"
            )
        _let_reach(target.device_id, source.device.id)
        with devices.on_device(source.device.id):
            # What CuPy did to it is unseen, and on a stream of that device.
            unseen = cupy.cuda.get_current_stream().record()
        with devices.on_device(target.device_id):
            spans = (segments.cupy_span(source),), (segments.cupy_span(found),)
            use = order().before(target, *spans, _producers(target))
            runtime.streamWaitEvent(target.handle, unseen.ptr)
            given = found.data.ptr, target.device_id, source.data.ptr, source.device.id, source.nbytes, target.handle
            with doing("copy", "to_device", stream, (array,), (made,), source.nbytes):
                runtime.memcpyPeerAsync(*given)
            order().after(use, (source, found))
            order().hold(target.core, source)
        return made

    def to_host(self, array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
        target = known(stream)
        with devices.on_device(target.device_id):
            if streams.is_captured(target.handle) and (wait or out is None or not staging.is_direct(out)):
                refuse_captured_copy("to_host", stream)
            found = source = _as_device_array("to_host: array", array)
            made = output(out, found.shape, found.dtype)
            use = order().before(target, (segments.cupy_span(found),), (), _producers(target))
            if not found._c_contiguous:
                with streams.cupy_stream(target.core):
                    source = found.copy(order="C")
            with (
                doing("copy", "to_host", stream, (array,), (made,), found.nbytes)
                if watched()
                else contextlib.nullcontext()
            ):
                (staging.fetch if wait else staging.deliver)(source.data.ptr, made, target)
            order().after(use, (found,))
        if not wait:
            order().hold(target.core, source)
        return made

    def copy(self, name: str, source: Any, target: Any, stream: Any) -> None:
        to_host = isinstance(target, np.ndarray)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        given = _address(target), _address(source), source.nbytes, kind, known(stream).handle
        if not watched():
            runtime.memcpyAsync(*given)
            return
        with doing("copy", name, stream, (source,), (target,), source.nbytes):
            runtime.memcpyAsync(*given)

    def transfer(self, target: Any, source: Any, stream: Any) -> None:
        place = known(stream)
        sides = [_side(name, value) for name, value in (("target", target), ("source", source))]
        check_copy(*sides)
        written, given = sides
        on_device = [side for side in sides if not isinstance(side, np.ndarray)]
        if not on_device:
            raise ArgumentError("copy: source and target are NumPy arrays, and the stream is a GPU's; numpy.copyto")
        for side in on_device:
            device_id = side.device_id if isinstance(side, SurfaceObject) else side.device.id
            if device_id != place.device_id:
                raise ArgumentError(
                    f"copy: the stream is of device {place.device_id}, and an array of device {device_id}"
                )
        if not given.nbytes:
            return
        with devices.on_device(place.device_id):
            if isinstance(given, SurfaceObject) or isinstance(written, SurfaceObject):
                self._copy_surface(written, given, stream, place)
            elif len(on_device) == 2:
                with self._around(given, written, stream):
                    _copy_here(written, given, place)
            elif _is_pinned(written, given) and (pair := _boxes(written, given)) is not None:
                with self._around(given, written, stream):
                    copy_box(*pair, place.handle)
                order().hold(place.core, (written, given))
            elif isinstance(given, np.ndarray):
                self.to_device(given, stream, written)
            else:
                self.to_host(given, stream, written, False)

    @contextlib.contextmanager
    def _around(self, source: Any, target: Any, stream: Any) -> Iterator[None]:
        """Order what the block puts on the stream, and tell of it."""
        for side in (source, target):
            if isinstance(side, np.ndarray):
                staging.settle(side)
        with (
            order().around(stream, (source,), (target,)),
            doing("copy", "copy", stream, (source,), (target,), source.nbytes),
        ):
            yield

    def _copy_surface(self, target: Any, source: Any, stream: Any, place: Known) -> None:
        """Copies from and to surfaces: of contiguous device memory straight, of all else by way of such memory."""
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

    def call(self, kernel: Callee, stream: Any, config: Any, given: Sequence[Any]) -> None:
        streams.require_stream(stream)
        devices.require_gpu()
        call_buffers.call(kernel, stream, known(stream), config, given)

    def mark(self, stream: Any) -> Any | None:
        target = known(stream)
        with devices.on_device(target.device_id):
            return target.core.record()


@functools.cache
def _let_reach(device_id: int, other: int) -> None:
    """Let a device reach another's memory, where that can be: copies go straight then."""
    if not runtime.deviceCanAccessPeer(device_id, other):
        return
    with devices.on_device(device_id):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if error.status != _ALREADY:
                raise


def _producers(target: Known) -> tuple[int, ...]:
    """Streams on which CuPy may have used its arrays unseen; see `Order.before`."""
    return tuple(current_streams(("cupy",), target.device_id))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr)


def _as_device_array(what: str, value: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return value
    is_host = isinstance(value, np.ndarray)
    if hasattr(value, "__cuda_array_interface__") or (not is_host and hasattr(value, "__dlpack__")):
        return device_array_of(value)
    raise ArgumentError(f"{what} is {type(value).__name__}, and the stream is a GPU's: a CuPy array is wanted")


def _side(name: str, value: Any) -> Any:
    """What is copied from or to: a host array, a surface, or the CuPy array that it is."""
    if isinstance(value, np.ndarray):
        return host_array("copy", name, value)
    return value if isinstance(value, SurfaceObject) else _as_device_array(f"copy: {name}", value)


def _copy_here(target: Any, source: Any, place: Known) -> None:
    """Put a copy within a device on a stream, which alone orders it."""
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
    """Two arrays as boxes of memory; None where they are none."""
    found = boxes_of(target.shape, target.dtype.itemsize, target.strides, source.strides)
    if found is None:
        return None
    extents, pitches = found
    return box_of(target, extents, *pitches[0]), box_of(source, extents, *pitches[1])


def _output(out: Any, host: np.ndarray, target: Known) -> Any:
    """The CuPy array that a given output is."""
    found = _as_device_array("to_device: out", out)
    if found is not out and describe(out).evidence.readonly:
        raise ArgumentError("to_device: out is read-only; give another array")
    check_fits("to_device", found, host.shape, host.dtype)
    if found.device.id != target.device_id:
        raise ArgumentError(
            f"to_device: out is on device {found.device.id}, and the stream is of device {target.device_id}; give an "
            "array of the stream's device"
        )
    return found
