"""The execution place of a stream: a GPU, or the emulator.

`place_of` returns the `Place` of a stream. Code for both places calls the place's methods, and need not know which
place it is. Rooms with a module for each place (memory, graphs, pipelines, arrays) compare with `DEVICES` at their
entry.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cudakit.errors import EmulatorWarning, LaunchError
from cudakit.jit.launch.code_place import CodePlace, DeviceCode
from cudakit.streams import devices, streams, witnesses
from cudakit.streams.devices import Limits
from cudakit.streams.order import order
from cudakit.types.arguments import Argument, describe

if TYPE_CHECKING:
    from cuda.core import Event, Stream

    from cudakit.emulator.face import EmulatedStream, EmulatorPlace


class Place(Protocol):
    """An execution place: operations that a GPU and the emulator do in different ways.

    Attributes
    ----------
    unit : {"ms", "steps"}
        Unit of time: milliseconds on a GPU, steps on the emulator.
    """

    unit: Literal["ms", "steps"]

    @property
    def xp(self) -> ModuleType:
        """The array module of the place: CuPy or NumPy."""

    def module(self, stream: Any) -> ModuleType:
        """Return the module whose functions make arrays for a stream."""

    def check(self, stream: Any) -> Any:
        """Return the place's own stream object for `stream`: cuda.core's, or the emulator's.

        Raises
        ------
        ArgumentError
            If `stream` is no stream.
        LaunchError
            If there is no GPU.
        """

    def identity(self, stream: Any) -> int:
        """Return a number that all objects of one stream share, and no other stream has."""

    def limits(self, stream: Any = None) -> Limits:
        """Return the launch limits of the stream's device; without a stream, of the place's default device."""

    def default_code(self, arch: str | None) -> CodePlace:
        """Return the code place of kernels without a stream: the current device, or the emulator of an arch."""

    def code(self, stream: Any) -> CodePlace:
        """Return the code place that runs the kernels of a stream.

        Raises
        ------
        ArgumentError, LaunchError
            As `check` does.
        """

    def describe(self, value: Any) -> Argument:
        """Describe a Python object as a kernel's argument.

        Raises
        ------
        ArgumentError
            If no kernel at this place can take the object.
        """

    def current(self) -> Any:
        """Return the stream for work that names no stream."""

    def stream(self, like: Any = None) -> Any:
        """Make a stream, on the device of the stream `like` or on the default device."""

    def using(self, stream: Any) -> contextlib.AbstractContextManager[ModuleType]:
        """Return a context manager that yields `xp` and makes `stream` its current stream."""

    def order(self, stream: Any, after: Any, wait: bool) -> None:
        """Order `stream` after the work queued on `after` so far; without `wait`, only record that order."""

    def mark(self, stream: Any, spent: Any = None) -> Any:
        """Record an event with timing on the stream; `spent`, an earlier event, is reused."""

    def elapsed_ms(self, begun: Any, ended: Any) -> float:
        """Return the milliseconds between two finished marks; the emulator counts 0.001 for a step."""

    def capture(self, stream: Any) -> Any | None:
        """Return the capture that the stream is a part of, if cudakit began it; else None."""

    def is_capturing(self, stream: Any) -> bool:
        """Return whether the stream is being captured into a graph, by cudakit or another library."""


class DevicePlace:
    """The GPUs, with CuPy's arrays and the driver's streams."""

    unit: Literal["ms", "steps"] = "ms"

    @property
    def xp(self) -> ModuleType:
        """CuPy."""
        return streams.cupy_module()

    def module(self, stream: Any) -> ModuleType:
        """Return CuPy."""
        return self.xp

    def check(self, stream: Any) -> Stream:
        """Return the cuda.core stream of a cuda.core stream, or of an object with ``__cuda_stream__`` (CuPy, torch).

        Raises
        ------
        ArgumentError
            If `stream` is anything else, such as an int or None.
        """
        return streams.as_stream(stream)

    def identity(self, stream: Any) -> int:
        """Return the driver's handle of the stream."""
        return streams.handle_of(streams.as_stream(stream))

    def limits(self, stream: Any = None) -> Limits:
        """Return the launch limits of the stream's device, or of the current device."""
        return devices.limits(
            devices.current_device().device_id if stream is None else streams.device_stream(stream).device_id
        )

    def code(self, stream: Any) -> DeviceCode:
        """Return the code place of the stream's device."""
        streams.require_stream(stream)
        devices.require_gpu()
        ordered_stream = streams.device_stream(stream)
        devices.require_gpu()  # a forked child knows its parent's streams
        return DeviceCode(ordered_stream.device_id)

    def default_code(self, arch: str | None) -> DeviceCode:
        """Return the code place of the current device."""
        return DeviceCode(devices.current_device().device_id)

    def describe(self, value: Any) -> Argument:
        """Describe a Python object as a kernel's argument; arrays are in device memory."""
        return describe(value)

    def current(self) -> Any:
        """Return CuPy's current stream."""
        cupy = streams.cupy_module()
        devices.require_gpu()
        return cupy.cuda.get_current_stream()

    def stream(self, like: Any = None) -> Stream:
        """Make a stream on the device of the stream `like`; without it, on the current device."""
        if like is None:
            return streams.create(devices.current_device())
        device = streams.as_stream(like).device
        with devices.on_device(device.device_id):
            return streams.create(device)

    @contextlib.contextmanager
    def using(self, stream: Any) -> Iterator[ModuleType]:
        """Make the stream CuPy's current stream, ordered with CuPy's work before and after the block."""
        cupy = streams.cupy_module()
        core = streams.as_stream(stream)
        devices.make_current(core.device.device_id)
        outer = streams.of_handle(cupy.cuda.get_current_stream().ptr)
        inner = streams.cupy_stream(core)
        apart = streams.handle_of(outer) != streams.handle_of(core)
        if apart:
            order().join(core, outer)
        try:
            with inner:
                yield cupy
        finally:
            if apart:
                order().join(outer, core)

    def order(self, stream: Any, after: Any, wait: bool) -> None:
        """Order two streams by an event, unless the driver has that order already."""
        order().join(streams.as_stream(stream), streams.as_stream(after), wait)

    def mark(self, stream: Stream, spent: Event | None = None) -> Event:
        """Record an event of the driver with timing."""
        with devices.on_device(streams.device_stream(stream).device_id):
            return streams.timing_event(stream, spent)

    def elapsed_ms(self, begun: Event, ended: Event) -> float:
        """Return the milliseconds that the device measured."""
        return float(ended - begun)

    def capture(self, stream: Any) -> Any | None:
        """Ask the driver for the stream's capture, while any capture is open."""
        return streams.current(stream)

    def is_capturing(self, stream: Any) -> bool:
        """Ask the driver whether the stream is being captured."""
        return streams.is_capturing(stream)


DEVICES = DevicePlace()


@functools.cache
def emulator() -> EmulatorPlace:
    """Return the emulator's place; load the emulator at the first call."""
    from cudakit.emulator.face import EmulatorPlace  # heavy, and most programs never run on it

    return EmulatorPlace()


def place_of(stream: Any) -> Place:
    """Return the execution place of a stream. An object that is no stream is refused by the place's `check`."""
    loaded = sys.modules.get("cudakit.emulator.streams.stream")  # before it is loaded there are no such streams
    return emulator() if loaded is not None and isinstance(stream, loaded.EmulatedStream) else DEVICES


def default_place() -> Place:
    """Return the place for work without a stream: a GPU, or the emulator if there is no GPU."""
    return DEVICES if devices.has_gpu() or devices.is_forked() else emulator()


def stream() -> Stream | EmulatedStream:
    """Make a stream on the current device, or on the emulator, as `cudakit.start.stream` does."""
    place = default_place()
    if place.unit == "steps":
        say_emulated()
    new_stream: Stream | EmulatedStream = place.stream()
    return new_stream


@functools.cache
def say_emulated() -> None:
    """Warn, the first time, that kernels run on the emulator.

    A program for a GPU, in a ``strict`` block, goes on if it makes warnings errors. The warning is printed then.
    """
    arch = default_place().limits().arch
    message = (
        f"there is no CUDA driver or no GPU here: kernels run on the emulator, as {arch}, on NumPy arrays "
        "(ck.emulator.stream() asks for the emulator without this warning)"
    )
    try:
        witnesses.warn_at_call(message, EmulatorWarning)
    except EmulatorWarning:
        if not emulator().is_strict:
            raise
        print(f"{witnesses.call_site()}: EmulatorWarning: {message}", file=sys.stderr)


def using(given: Any) -> contextlib.AbstractContextManager[Any]:
    """Make a stream CuPy's current stream inside the block, ordered with CuPy's work before and after the block.

    Parameters
    ----------
    given : stream
        Stream of a GPU or of the emulator.

    Yields
    ------
    module
        ``cupy``, whose arrays and operations inside the block use the stream; ``numpy`` for a stream of the emulator.
        In both places, cudakit's own calls without a stream use this stream too.
    """
    return place_of(given).using(given)


def device_limits(stream: Any = None) -> Limits:
    """Return name, arch and launch limits of a stream's device.

    Parameters
    ----------
    stream : stream, optional
        Stream whose device is meant. Default: the current GPU, or the emulator if there is no GPU.

    Returns
    -------
    Limits
        ``name``, ``arch``, ``compute_capability``, ``multiprocessors``, and the maximum of one launch:
        ``threads_per_block``, ``block`` and ``grid`` by axis, ``shared_bytes`` a block.
    """
    place = default_place() if stream is None else place_of(stream)
    return place.limits(stream)


def is_capturing(stream: Any) -> bool:
    """Return whether `stream` is being captured into a graph, by cudakit or another library."""
    return place_of(stream).is_capturing(stream)


def refuse_capture(stream: Any, operation: str, why: str, instead: str) -> None:
    """Raise if `stream` is being captured into a graph. The other arguments are parts of the message.

    Raises
    ------
    LaunchError
        "`operation` cannot be captured: `why`; `instead`"
    """
    if is_capturing(stream):
        raise LaunchError(f"{operation} cannot be captured: {why}; {instead}")
