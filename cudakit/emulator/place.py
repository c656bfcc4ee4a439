"""Emulator as an execution place; see `cudakit.places.Place`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np

from cudakit.emulator.launch import EmulatedCode, describe_host
from cudakit.emulator.ready import limits_of
from cudakit.emulator.resources.device_array import DeviceModule, as_device, refuse_host_operand
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedEvent, EmulatedStream, stream
from cudakit.streams.devices import Limits
from cudakit.types.arguments import Argument

#: Arch of streams where none is named.
ARCH = "sm_90"


@functools.cache
def _default_stream(strict: bool) -> EmulatedStream:
    """Return the stream of work that names none."""
    return stream(ARCH, strict=strict)


class _Strict:
    """Count of the `strict` blocks that are open; above 0, streams that no program asked for by name are strict."""

    blocks = 0


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Make streams that stand in for a GPU's strict inside the block: those of ``ck.stream()``, and the current stream.

    A strict stream tells host arrays and device arrays apart, as a GPU does. ``cudakit check`` and the pytest plugin
    run programs inside this block. Streams of ``ck.emulator.stream()`` are made strict by their parameter `strict`.

    Examples
    --------
    >>> with ck.emulator.strict():
    ...     stream = ck.stream()
    """
    _Strict.blocks += 1
    try:
        yield
    finally:
        _Strict.blocks -= 1


class _CurrentStreams(threading.local):
    """Streams of the open `using` blocks, for each thread."""

    def __init__(self) -> None:
        self.streams: list[EmulatedStream] = []


_current = _CurrentStreams()


class EmulatorPlace:
    """Execution place of the emulator: NumPy arrays, and streams whose work is done when the call returns."""

    unit: Literal["ms", "steps"] = "steps"

    @property
    def is_strict(self) -> bool:
        """Whether a `strict` block is open: the program is for a GPU, and was brought here."""
        return _Strict.blocks > 0

    @property
    def xp(self) -> ModuleType:
        """NumPy."""
        return np

    def module(self, stream: EmulatedStream) -> ModuleType:
        """Return NumPy, or for a strict stream NumPy with device arrays."""
        return DeviceModule("numpy", np) if stream.strict else np

    def check(self, stream: EmulatedStream) -> EmulatedStream:
        """Return the stream itself."""
        return stream

    def identity(self, stream: EmulatedStream) -> int:
        """Return a number for the stream that no stream of the driver has."""
        return -id(stream)

    def limits(self, stream: EmulatedStream | None = None) -> Limits:
        """Return the launch limits of the stream's arch, or of the default arch."""
        return self.limits_of(ARCH if stream is None else stream.arch)

    def limits_of(self, arch: str) -> Limits:
        """Return the launch limits of an arch."""
        return limits_of(arch)

    def code(self, stream: EmulatedStream) -> EmulatedCode:
        """Return the code place of the stream's arch."""
        return EmulatedCode(stream.arch, stream.strict)

    def default_code(self, arch: str | None) -> EmulatedCode:
        """Return the code place of an arch, or of the default arch."""
        return EmulatedCode(arch or ARCH)

    def describe(self, value: Any) -> Argument:
        """Describe a Python object as a kernel's argument; arrays must be in host memory."""
        return describe_host(value)

    def current(self) -> EmulatedStream:
        """Return the stream of the thread's innermost `using` block, or outside of all blocks the default stream."""
        return _current.streams[-1] if _current.streams else _default_stream(bool(_Strict.blocks))

    def stream(self, like: EmulatedStream | None = None) -> EmulatedStream:
        """Make a stream with the arch and options of `like`, or with the defaults."""
        return stream(ARCH, strict=bool(_Strict.blocks)) if like is None else like.alike()

    @contextlib.contextmanager
    def using(self, stream: EmulatedStream) -> Iterator[ModuleType]:
        """Make the stream the current one inside the block; the block's value is `module(stream)`."""
        _current.streams.append(stream)
        try:
            yield self.module(stream)
        finally:
            _current.streams.remove(stream)

    def check_operands(self, op: str, operands: Sequence[tuple[str, Any]]) -> None:
        """Refuse host arrays among an op's operands (name, value); for strict streams.

        Raises
        ------
        ArgumentError
        """
        for name, value in operands:
            refuse_host_operand(op, name, value)

    def upload(self, stream: EmulatedStream, array: np.ndarray) -> np.ndarray:
        """Return an op's own host array for a stream: as a `DeviceArray` if the stream is strict, else unchanged.

        Nothing is copied.
        """
        return as_device(array) if stream.strict else array

    def empty(self, stream: EmulatedStream, shape: Any, dtype: Any) -> np.ndarray:
        """Make an uninitialised array for an op."""
        array = np.ndarray(shape, dtype)
        return as_device(array) if stream.strict else array

    def copy(self, stream: EmulatedStream, source: np.ndarray, target: np.ndarray) -> None:
        """Copy the elements of `source` to `target`, as part of an op on the stream."""
        with order().shown(stream, "copy", (source,), (target,)):
            target[...] = source

    def order(self, stream: EmulatedStream, after: EmulatedStream, wait: bool) -> None:
        """Make `stream` wait for all work that the stream `after` has so far, if `wait` is true; else do nothing."""
        if wait:
            stream.wait(after)

    def mark(self, stream: EmulatedStream, spent: EmulatedEvent | None = None) -> EmulatedEvent:
        """Return an event for all work that the stream has so far: a new one, or `spent`, which is recorded again."""
        return stream.record(spent)

    def elapsed_ms(self, begun: EmulatedEvent, ended: EmulatedEvent) -> float:
        """Return the steps between two events in thousands: 1,000 steps count as a millisecond."""
        return (ended - begun) / 1000

    def capture(self, stream: EmulatedStream) -> Any | None:
        """Return the open capture of the stream, or None."""
        return None if stream.recorder is None else stream.recorder.capture

    def is_capturing(self, stream: EmulatedStream) -> bool:
        """Return whether launches on the stream are recorded instead of run."""
        return stream.recorder is not None
