"""The emulator as a place where kernels run; see `cudakit.places.Place`."""

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
    return stream(ARCH, strict=strict)


class _Strict:
    """How many blocks there are in which streams that no program asked for by name are strict."""

    blocks = 0


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Let streams in the place of a GPU's be strict inside the block: those of ``ck.stream()``, and the current one.

    The emulator tells the host's arrays and the device's apart then, as a GPU does. ``cudakit check`` and the pytest
    plugin run programs so. Streams of ``ck.emulator.stream()`` have a parameter of that name.

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


class _Used(threading.local):
    """Of each thread: the streams of the `using` blocks that it is in."""

    def __init__(self) -> None:
        self.streams: list[EmulatedStream] = []


_used = _Used()


class EmulatorPlace:
    """NumPy arrays, and streams whose work is done when it is asked for."""

    unit: Literal["ms", "steps"] = "steps"

    @property
    def xp(self) -> ModuleType:
        """NumPy."""
        return np

    def module(self, stream: EmulatedStream) -> ModuleType:
        """NumPy; for a strict stream with arrays of the device."""
        return DeviceModule("numpy", np) if stream.strict else np

    def check(self, stream: EmulatedStream) -> EmulatedStream:
        """The stream itself."""
        return stream

    def identity(self, stream: EmulatedStream) -> int:
        """A number for each stream, none of which the driver gives."""
        return -id(stream)

    def limits(self, stream: EmulatedStream | None = None) -> Limits:
        """Limits of the arch that the stream emulates."""
        return self.limits_of(ARCH if stream is None else stream.arch)

    def limits_of(self, arch: str) -> Limits:
        """Limits of an arch."""
        return limits_of(arch)

    def code(self, stream: EmulatedStream) -> EmulatedCode:
        """Of the stream's arch."""
        return EmulatedCode(stream.arch, stream.strict)

    def default_code(self, arch: str | None) -> EmulatedCode:
        """Of that arch."""
        return EmulatedCode(arch or ARCH)

    def describe(self, value: Any) -> Argument:
        """What a Python object is as a kernel's argument: arrays are the host's."""
        return describe_host(value)

    def current(self) -> EmulatedStream:
        """That of the innermost `using` of the thread; outside of all, one that is kept for it."""
        return _used.streams[-1] if _used.streams else _default_stream(bool(_Strict.blocks))

    def stream(self, like: EmulatedStream | None = None) -> EmulatedStream:
        """A new stream, of the arch and with the limits of another."""
        return stream(ARCH, strict=bool(_Strict.blocks)) if like is None else like.alike()

    @contextlib.contextmanager
    def using(self, stream: EmulatedStream) -> Iterator[ModuleType]:
        """NumPy's work is done at once, and needs no stream; what names none is put on this one."""
        _used.streams.append(stream)
        try:
            yield self.module(stream)
        finally:
            _used.streams.remove(stream)

    def check_operands(self, op: str, operands: Sequence[tuple[str, Any]]) -> None:
        """Refuse arrays of the host, for a strict stream.

        Raises
        ------
        ArgumentError
        """
        for name, value in operands:
            refuse_host_operand(op, name, value)

    def upload(self, stream: EmulatedStream, array: np.ndarray) -> np.ndarray:
        """A host array of an op's own, as one of the device; it is not copied."""
        return as_device(array) if stream.strict else array

    def empty(self, stream: EmulatedStream, shape: Any, dtype: Any) -> np.ndarray:
        """A new array of an op, not initialised."""
        array = np.ndarray(shape, dtype)
        return as_device(array) if stream.strict else array

    def copy(self, stream: EmulatedStream, source: np.ndarray, target: np.ndarray) -> None:
        """Copy elements as part of an op on the stream."""
        with order().shown(stream, "copy", (source,), (target,)):
            target[...] = source

    def order(self, stream: EmulatedStream, after: EmulatedStream, wait: bool) -> None:
        """Let one stream come after another."""
        if wait:
            stream.wait(after)

    def mark(self, stream: EmulatedStream, spent: EmulatedEvent | None = None) -> EmulatedEvent:
        """An event that knows its step; `spent` once more, where there is one."""
        return stream.record(spent)

    def elapsed_ms(self, begun: EmulatedEvent, ended: EmulatedEvent) -> float:
        """A thousand steps count as a millisecond."""
        return (ended - begun) / 1000

    def capture(self, stream: EmulatedStream) -> Any | None:
        """The capture that is open on the stream."""
        return None if stream.recorder is None else stream.recorder.capture

    def is_capturing(self, stream: EmulatedStream) -> bool:
        """Whether launches on the stream are recorded instead of run."""
        return stream.recorder is not None
