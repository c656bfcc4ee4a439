"""The emulator as a place where kernels run; see `cudakit.places.Place`."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal

import numpy as np

from cudakit.emulator.arguments import describe_host
from cudakit.emulator.launch import EmulatedCode
from cudakit.emulator.ready import limits_of
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedEvent, EmulatedStream, stream
from cudakit.streams.devices import Limits
from cudakit.types.arguments import Argument

#: Arch of streams where none is named.
ARCH = "sm_90"


@functools.cache
def _kept() -> EmulatedStream:
    return stream(ARCH)


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

    def check(self, given: EmulatedStream) -> EmulatedStream:
        """The stream itself."""
        return given

    def identity(self, given: EmulatedStream) -> int:
        """A number for each stream, none of which the driver gives."""
        return -id(given)

    def limits(self, given: EmulatedStream | None = None) -> Limits:
        """Limits of the arch that the stream emulates."""
        return self.limits_of(ARCH if given is None else given.arch)

    def limits_of(self, arch: str) -> Limits:
        """Limits of an arch."""
        return limits_of(arch)

    def code(self, given: EmulatedStream) -> EmulatedCode:
        """Of the stream's arch."""
        return EmulatedCode(given.arch)

    def default_code(self, arch: str | None) -> EmulatedCode:
        """Of that arch."""
        return EmulatedCode(arch or ARCH)

    def describe(self, value: Any) -> Argument:
        """What a Python object is as a kernel's argument: arrays are the host's."""
        return describe_host(value)

    def current(self) -> EmulatedStream:
        """That of the innermost `using` of the thread; outside of all, one that is kept for it."""
        return _used.streams[-1] if _used.streams else _kept()

    def stream(self, like: EmulatedStream | None = None) -> EmulatedStream:
        """A new stream, of the arch and with the limits of another."""
        return stream(ARCH) if like is None else like.alike()

    @contextlib.contextmanager
    def using(self, given: EmulatedStream) -> Iterator[ModuleType]:
        """NumPy's work is done at once, and needs no stream; what names none is put on this one."""
        _used.streams.append(given)
        try:
            yield np
        finally:
            _used.streams.remove(given)

    def copy(self, given: EmulatedStream, source: np.ndarray, target: np.ndarray) -> None:
        """Copy elements as part of an op on the stream."""
        with order().shown(given, (source,), (target,)):
            target[...] = source

    def order(self, given: EmulatedStream, after: EmulatedStream, wait: bool) -> None:
        """Let one stream come after another."""
        if wait:
            given.wait(after)

    def mark(self, given: EmulatedStream, spent: EmulatedEvent | None = None) -> EmulatedEvent:
        """An event that knows its step; `spent` once more, where there is one."""
        return given.record(spent)

    def elapsed_ms(self, begun: EmulatedEvent, ended: EmulatedEvent) -> float:
        """A thousand steps count as a millisecond."""
        return (ended - begun) / 1000

    def capture(self, given: EmulatedStream) -> Any | None:
        """The capture that is open on the stream."""
        return None if given.recorder is None else given.recorder.capture

    def is_capturing(self, given: EmulatedStream) -> bool:
        """Whether launches on the stream are recorded instead of run."""
        return given.recorder is not None
