"""Where a stream's work is done, a GPU or the emulator: decided here.

`place_of` gives the `Place` of a stream. Whoever takes streams of both kinds asks the place for what is done one way on
a GPU and another way on the emulator, and need not know which it is. What has a module for each place (memory, graphs,
pipelines, arrays) compares with `DEVICES` at its door.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cudakit.errors import EmulatorWarning, LaunchError
from cudakit.jit.launch.code_place import CodePlace, DeviceCode
from cudakit.streams import devices, streams
from cudakit.streams.devices import Limits
from cudakit.streams.order import order
from cudakit.types.arguments import Argument, describe

if TYPE_CHECKING:
    from cuda.core import Event, Stream

    from cudakit.emulator.face import EmulatedStream, EmulatorPlace


class Place(Protocol):
    """What is done one way on a GPU, and another way on the emulator.

    Attributes
    ----------
    unit : {"ms", "steps"}
        What time passes in.
    """

    unit: Literal["ms", "steps"]

    @property
    def xp(self) -> ModuleType:
        """The module of the place's arrays, CuPy or NumPy."""

    def module(self, given: Any) -> ModuleType:
        """The module whose functions make arrays for a stream."""

    def check(self, given: Any) -> Any:
        """The place's own stream for what was given as one: cuda.core's, or the emulator's.

        Raises
        ------
        ArgumentError
            For what is no stream.
        LaunchError
            Where there is no GPU.
        """

    def identity(self, given: Any) -> int:
        """A number that all objects of one stream have, and no other stream."""

    def limits(self, given: Any = None) -> Limits:
        """What the stream's device allows a launch; without a stream, the place's first choice."""

    def default_code(self, arch: str | None) -> CodePlace:
        """What runs the kernels of no stream: the current device, or the emulator as an arch."""

    def code(self, given: Any) -> CodePlace:
        """What runs the kernels of a stream.

        Raises
        ------
        ArgumentError, LaunchError
            As `check` does.
        """

    def describe(self, value: Any) -> Argument:
        """What a Python object is as a kernel's argument.

        Raises
        ------
        ArgumentError
            For what no kernel there can take.
        """

    def current(self) -> Any:
        """The stream of work that names none."""

    def stream(self, like: Any = None) -> Any:
        """A new stream: of the device of another, or of the place's first choice."""

    def using(self, given: Any) -> contextlib.AbstractContextManager[ModuleType]:
        """A block in which `xp`, which it gives, works on the stream."""

    def order(self, given: Any, after: Any, wait: bool) -> None:
        """Let `given` come after what `after` was given so far; without `wait`, only note that it does."""

    def mark(self, given: Any, spent: Any = None) -> Any:
        """An event on the stream that knows its time; `spent`, a former one, is used again."""

    def elapsed_ms(self, begun: Any, ended: Any) -> float:
        """Milliseconds between two marks, the later of which is done; a thousandth for each step."""

    def capture(self, given: Any) -> Any | None:
        """The capture that the stream is a part of now, if cudakit began it."""

    def is_capturing(self, given: Any) -> bool:
        """Whether what is put on the stream goes into a graph now, whoever began that, instead of running."""


class DevicePlace:
    """The GPUs: CuPy's arrays, and the driver's streams."""

    unit: Literal["ms", "steps"] = "ms"

    @property
    def xp(self) -> ModuleType:
        """CuPy."""
        import cupy

        return cupy  # type: ignore[no-any-return]

    def module(self, given: Any) -> ModuleType:
        """CuPy."""
        return self.xp

    def check(self, given: Any) -> Stream:
        """cuda.core's stream."""
        return streams.as_stream(given)

    def identity(self, given: Any) -> int:
        """The driver's number of the stream."""
        return streams.handle_of(streams.as_stream(given))

    def limits(self, given: Any = None) -> Limits:
        """Of the stream's device, or the current one."""
        return devices.limits(devices.current_device().device_id if given is None else streams.known(given).device_id)

    def code(self, given: Any) -> DeviceCode:
        """The stream's device."""
        streams.require_stream(given)
        devices.require_gpu()
        found = streams.known(given)
        devices.require_gpu()  # a forked child knows its parent's streams
        return DeviceCode(found.device_id)

    def default_code(self, arch: str | None) -> DeviceCode:
        """The current device."""
        return DeviceCode(devices.current_device().device_id)

    def describe(self, value: Any) -> Argument:
        """Arrays are in device memory."""
        return describe(value)

    def current(self) -> Any:
        """CuPy's."""
        import cupy

        devices.require_gpu()
        return cupy.cuda.get_current_stream()

    def stream(self, like: Any = None) -> Stream:
        """A stream of a device, which need not be the current one."""
        if like is None:
            return streams.create(devices.current_device())
        device = streams.as_stream(like).device
        with devices.on_device(device.device_id):
            return streams.create(device)

    @contextlib.contextmanager
    def using(self, given: Any) -> Iterator[ModuleType]:
        """CuPy's work goes to the stream, in order with what CuPy did before and does after."""
        import cupy

        core = streams.as_stream(given)
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

    def order(self, given: Any, after: Any, wait: bool) -> None:
        """By an event, where the driver does not know it already."""
        order().join(streams.as_stream(given), streams.as_stream(after), wait)

    def mark(self, given: Stream, spent: Event | None = None) -> Event:
        """An event of the driver's, with timing."""
        with devices.on_device(streams.known(given).device_id):
            return streams.timing_event(given, spent)

    def elapsed_ms(self, begun: Event, ended: Event) -> float:
        """As the device measured it."""
        return float(ended - begun)

    def capture(self, given: Any) -> Any | None:
        """Asked of the driver, while any capture is open."""
        return streams.current(given)

    def is_capturing(self, given: Any) -> bool:
        """Asked of the driver."""
        return streams.is_capturing(given)


DEVICES = DevicePlace()


@functools.cache
def emulator() -> EmulatorPlace:
    """The emulator, loaded where it was not."""
    from cudakit.emulator.face import EmulatorPlace  # heavy, and most programs never run on it

    return EmulatorPlace()


def place_of(stream: Any) -> Place:
    """Where a stream's work is done; what is no stream at all is refused by the place's own `check`."""
    loaded = sys.modules.get("cudakit.emulator.streams.stream")  # without it there is no such stream
    return emulator() if loaded is not None and isinstance(stream, loaded.EmulatedStream) else DEVICES


def default_place() -> Place:
    """Where work is done for which no stream is named: on a GPU, or on the emulator where there is none."""
    return DEVICES if devices.has_gpu() or devices.is_forked() else emulator()


def stream() -> Stream | EmulatedStream:
    """A new stream of the current device; the emulator's where there is no GPU, which is said once.

    Returns
    -------
    cuda.core.Stream or cudakit.emulator.EmulatedStream

    Warns
    -----
    EmulatorWarning
        The first time that there is no GPU and kernels will run on the emulator.

    Raises
    ------
    LaunchError
        In the forked child of a process that has used the GPU.
    """
    place = default_place()
    if place.unit == "steps":
        _say_emulated(place.limits().arch)
    made: Stream | EmulatedStream = place.stream()
    return made


@functools.cache
def _say_emulated(arch: str) -> None:
    warnings.warn(
        f"there is no CUDA driver or no GPU here: kernels run on the emulator, as {arch}, on NumPy arrays "
        "(ask for it with ck.emulator.stream() and nothing is said)",
        EmulatorWarning,
        stacklevel=3,
    )


def using(given: Any) -> contextlib.AbstractContextManager[Any]:
    """Make `given` CuPy's current stream inside the block, in order with CuPy's work before and after it.

    Parameters
    ----------
    given : stream

    Yields
    ------
    module
        ``cupy``, whose arrays and operations inside the block live on the stream; ``numpy`` for the emulator's. What of
        cudakit names no stream is put on it too, in either place.
    """
    return place_of(given).using(given)


def device_limits(stream: Any = None) -> Limits:
    """Name, arch and launch limits of a stream's device.

    Parameters
    ----------
    stream : stream, optional
        Default: the current GPU, or the emulator where there is none.

    Returns
    -------
    Limits
        ``name``, ``arch``, ``compute_capability``, ``multiprocessors``, and what one launch may have at most:
        ``threads_per_block``, ``block`` and ``grid`` by axis, ``shared_bytes`` a block.
    """
    place = default_place() if stream is None else place_of(stream)
    return place.limits(stream)


def is_capturing(stream: Any) -> bool:
    """Whether what is put on `stream` goes into a graph now, whoever began that, instead of running."""
    return place_of(stream).is_capturing(stream)


def refuse_capture(stream: Any, what: str, why: str, instead: str) -> None:
    """Raise where `stream` is being captured: `what` cannot be put into a graph.

    Raises
    ------
    LaunchError
        "`what` cannot be captured: `why`; `instead`"
    """
    if is_capturing(stream):
        raise LaunchError(f"{what} cannot be captured: {why}; {instead}")
