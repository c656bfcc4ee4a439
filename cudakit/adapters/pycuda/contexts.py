"""PyCUDA's devices and contexts, on the devices' primary contexts."""

from __future__ import annotations

from typing import Any

from cudakit.adapters.pycuda.errors import LogicError
from cudakit.adapters.pycuda.streams import default_stream, finish_all
from cudakit.places import device_limits
from cudakit.streams import devices


def init(flags: int = 0) -> None:
    """Do nothing: cudakit needs no call before the first."""


class Device:
    """A device by its number; on the emulator there is one."""

    def __init__(self, number: int) -> None:
        count = self.count()
        if not 0 <= int(number) < count:
            raise LogicError(f"cuDeviceGet failed: invalid device ordinal: {number} of {count} devices")
        self.number = int(number)

    @staticmethod
    def count() -> int:
        """Return the number of devices."""
        return devices.device_count() or 1

    def name(self) -> str:
        """Return the device's name."""
        return str(device_limits().name)

    def compute_capability(self) -> tuple[int, int]:
        """Return the compute capability, as (9, 0)."""
        return device_limits().compute_capability

    def make_context(self, flags: int = 0) -> Context:
        """Make a context of the device, and push it."""
        context = Context(self)
        context.push()
        return context

    def retain_primary_context(self) -> Context:
        """Return the device's primary context, which is not pushed."""
        return Context(self)


_stack: list[Context] = []


class Context:
    """A context: the primary context of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def push(self) -> None:
        """Make the context the current one."""
        _stack.append(self)
        default_stream()

    @staticmethod
    def pop() -> None:
        """Leave the current context."""
        if not _stack:
            raise LogicError("context::pop failed: invalid device context: no context is current")
        _stack.pop()

    def detach(self) -> None:
        """Leave the context for good."""
        if self in _stack:
            _stack.remove(self)

    @staticmethod
    def get_current() -> Context | None:
        """Return the current context, or None."""
        return _stack[-1] if _stack else None

    @staticmethod
    def get_device() -> Device:
        """Return the device of the current context."""
        if not _stack:
            raise LogicError("cuCtxGetDevice failed: invalid device context: import pycuda.autoinit first")
        return _stack[-1].device

    @staticmethod
    def synchronize() -> None:
        """Wait for all work on the device."""
        finish_all()


def make_default_context(make: Any = None) -> Context:
    """Return a context of the first device, pushed."""
    device = Device(0)
    return make(device) if make is not None else device.make_context()
