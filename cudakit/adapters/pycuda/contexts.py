"""PyCUDA's devices and contexts, on the devices' primary contexts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from cudakit import system
from cudakit.adapters.pycuda.attributes import attribute_of
from cudakit.adapters.pycuda.enums import device_attribute, func_cache, limit, shared_config
from cudakit.adapters.pycuda.errors import LogicError, call, translated
from cudakit.jit.cache import settings
from cudakit.memory.accounting import set_kernel_limit
from cudakit.places import device_limits
from cudakit.streams import devices
from cudakit.streams.witnesses import warn_at_call

__all__ = [
    "Context", "Device", "get_driver_version", "get_version", "init", "mem_get_info", "start_profiler",
    "stop_profiler",
]  # fmt: skip


class _Stack(threading.local):
    """The contexts of a thread, the current one last."""

    def __init__(self) -> None:
        self.contexts: list[Context] = []


_stack = _Stack()


def require_context(name: str) -> None:
    """Raise if this thread has no current context; `name` is the call that needs one.

    A program that has made no context gets the default one, with a warning.

    Raises
    ------
    LogicError
        If the program has made a context, and none is current.
    """
    if _stack.contexts:
        return
    message = f"{name} failed: invalid device context: no context is current in this thread"
    if Context.count:
        raise LogicError(f"{message}; import pycuda.autoinit, or push one, drv.Device(0).make_context()")
    warn_at_call(
        f"PyCUDA would say here: {message}. The default context is made: import pycuda.autoinit does this", UserWarning
    )
    make_default_context()


def finish_all() -> None:
    """Wait for all work on the device, on all streams."""
    with translated():
        if devices.has_gpu():
            devices.current_device().sync()
        else:
            from cudakit.emulator.face import order

            order().finish_all()


#: Programs fill a device's memory, and the emulator's is the host's.
_MOST_MEMORY = 2 << 30


def init(flags: int = 0) -> None:
    """Do nothing: cudakit needs no call before the first."""


def get_version() -> tuple[int, int, int]:
    """Return the version of CUDA that compiles kernels, as (13, 0, 0)."""
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor), 0


def get_driver_version() -> int:
    """Return the driver's version as 1000 · major + 10 · minor; on the emulator that of the compiler."""
    if devices.has_gpu():
        return int(call("cuDriverGetVersion"))
    major, minor, _ = get_version()
    return 1000 * major + 10 * minor


def start_profiler() -> None:
    """Let a profiler record from here on; without a GPU do nothing."""
    if devices.has_gpu():
        call("cuProfilerStart")


def stop_profiler() -> None:
    """Let a profiler record no longer; without a GPU do nothing."""
    if devices.has_gpu():
        call("cuProfilerStop")


def emulated_memory() -> int:
    """Return the bytes of memory that the emulator says it has: a quarter of the host's, 2 GiB at most."""
    return min(system.memory_bytes() // 4 or _MOST_MEMORY, _MOST_MEMORY)


def mem_get_info() -> tuple[int, int]:
    """Return the free and the total bytes of the device's memory."""
    require_context("cuMemGetInfo")
    if devices.has_gpu():
        devices.current_device()
        free, total = call("cuMemGetInfo")
        return int(free), int(total)
    from cudakit.emulator.face import room

    total = emulated_memory()
    return max(total - room().usage("device").used - room().usage("managed").used, 0), total


class Device:
    """A device by its number or PCI address; the emulator is one device, of number 0."""

    def __init__(self, number: int | str) -> None:
        if isinstance(number, str):
            matches = [device for device in map(Device, range(self.count())) if device.pci_bus_id() == number]
            if not matches:
                raise LogicError(f"cuDeviceGetByPCIBusId failed: invalid device: no device has the address {number!r}")
            number = matches[0].number
        if not 0 <= int(number) < self.count():
            raise LogicError(f"cuDeviceGet failed: invalid device ordinal: {number} of {self.count()} devices")
        self.number: int = int(number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"<pycuda.driver.Device {self.number}: {self.name()}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(device_attribute, name.upper()):
            raise AttributeError(f"a pycuda.driver.Device has no {name!r}", name=name, obj=self)
        return self.get_attribute(getattr(device_attribute, name.upper()))

    @staticmethod
    def count() -> int:
        """Return the number of devices."""
        return devices.device_count() or 1

    def name(self) -> str:
        """Return the device's name."""
        return str(devices.limits(self.number).name if devices.has_gpu() else device_limits().name)

    def compute_capability(self) -> tuple[int, int]:
        """Return the compute capability, as (9, 0)."""
        return (devices.limits(self.number) if devices.has_gpu() else device_limits()).compute_capability

    def total_memory(self) -> int:
        """Return the bytes of the device's memory."""
        return int(call("cuDeviceTotalMem", self.number)) if devices.has_gpu() else emulated_memory()

    def pci_bus_id(self) -> str:
        """Return the PCI address, as ``0000:65:00.0``."""
        domain, bus, place = (
            self.get_attribute(getattr(device_attribute, f"PCI_{part}_ID")) for part in ("DOMAIN", "BUS", "DEVICE")
        )
        return f"{domain:04X}:{bus:02X}:{place:02X}.0"

    def get_attribute(self, attribute: Any) -> Any:
        """Return an attribute of `device_attribute`."""
        return attribute_of(self.number, attribute)

    def get_attributes(self) -> dict[Any, Any]:
        """Return all attributes that the device knows, by member of `device_attribute`."""
        result = {}
        for member in device_attribute:
            try:
                result[member] = self.get_attribute(member)
            except LogicError:
                continue
        return result

    def can_access_peer(self, peer: Device) -> bool:
        """Return whether the device reaches the memory of another one."""
        if self == peer or not devices.has_gpu():
            return False
        return bool(call("cuDeviceCanAccessPeer", self.number, peer.number))

    def make_context(self, flags: int = 0) -> Context:
        """Return a context of the device, pushed. All contexts of a device share its primary context."""
        context = Context(self)
        context.push()
        return context

    def retain_primary_context(self) -> Context:
        """Return the device's primary context, which is not pushed."""
        return Context(self)


class Context:
    """A context: the primary context of a device.

    Attributes
    ----------
    count : int
        Number of contexts that the process has made.
    """

    count: ClassVar[int] = 0
    _limits: ClassVar[dict[int, int]] = {int(limit.PRINTF_FIFO_SIZE): 8_388_608, int(limit.DEV_RUNTIME_SYNC_DEPTH): 2}
    _cache: ClassVar[Any] = func_cache.PREFER_NONE
    _shared: ClassVar[Any] = shared_config.DEFAULT_BANK_SIZE

    def __init__(self, device: Device) -> None:
        self._device = device
        self._valid = True
        Context.count += 1

    @property
    def handle(self) -> int:
        """The driver's number of the context; on the emulator the address of this object."""
        return int(call("cuDevicePrimaryCtxRetain", self._device.number)) if devices.has_gpu() else id(self)

    def push(self) -> None:
        """Make the context the current one of this thread."""
        if not self._valid:
            raise LogicError("context::push failed: invalid device context: it was detached")
        _stack.contexts.append(self)
        self._enter()

    def _enter(self) -> None:
        if devices.has_gpu():
            from cuda.core import Device as CoreDevice

            CoreDevice(self._device.number).set_current()

    @staticmethod
    def pop() -> None:
        """Leave the current context."""
        if not _stack.contexts:
            raise LogicError("context::pop failed: invalid device context: cannot pop a context where none is current")
        _stack.contexts.pop()
        if _stack.contexts:
            _stack.contexts[-1]._enter()

    def detach(self) -> None:
        """Leave the context for good."""
        if not self._valid:
            raise LogicError("context::detach failed: invalid device context: it was detached already")
        self._valid = False
        _stack.contexts[:] = [context for context in _stack.contexts if context is not self]
        if _stack.contexts:
            _stack.contexts[-1]._enter()

    @staticmethod
    def attach(flags: int = 0) -> Context:
        """Return the current context."""
        require_context("cuCtxAttach")
        return _stack.contexts[-1]

    @staticmethod
    def depth() -> int:
        """Return the number of contexts that this thread has pushed."""
        return len(_stack.contexts)

    @staticmethod
    def get_current() -> Context | None:
        """Return the current context of this thread, or None."""
        return _stack.contexts[-1] if _stack.contexts else None

    @staticmethod
    def get_device() -> Device:
        """Return the device of the current context."""
        require_context("cuCtxGetDevice")
        return _stack.contexts[-1]._device

    @staticmethod
    def synchronize() -> None:
        """Wait for all work on the device."""
        require_context("cuCtxSynchronize")
        finish_all()

    def get_api_version(self) -> int:
        """Return the version of the driver's interface."""
        return get_driver_version()

    @staticmethod
    def get_limit(name: Any) -> int:
        """Return a limit of `limit`, in bytes."""
        require_context("cuCtxGetLimit")
        if devices.has_gpu() and int(name) != limit.DEV_RUNTIME_SYNC_DEPTH:
            from cuda.bindings import driver

            return int(call("cuCtxGetLimit", driver.CUlimit(int(name))))
        if int(name) in (limit.STACK_SIZE, limit.MALLOC_HEAP_SIZE):
            from cudakit.emulator.face import device_limits as kernel_limits

            is_stack = int(name) == limit.STACK_SIZE
            return int(kernel_limits().stack_bytes if is_stack else kernel_limits().heap_bytes)
        if int(name) not in Context._limits:
            raise LogicError(f"cuCtxGetLimit failed: unsupported limit: the emulator has no {limit(int(name))}")
        return Context._limits[int(name)]

    @staticmethod
    def set_limit(name: Any, value: int) -> None:
        """Set a limit of `limit`, in bytes.

        DEV_RUNTIME_SYNC_DEPTH has no effect: kernels wait for no others since CUDA 12, and new devices lack the limit.
        """
        require_context("cuCtxSetLimit")
        resource = {int(limit.STACK_SIZE): "stack", int(limit.MALLOC_HEAP_SIZE): "heap"}.get(int(name))
        if resource is not None:
            with translated():
                set_kernel_limit(int(value), resource)
        elif devices.has_gpu() and int(name) != limit.DEV_RUNTIME_SYNC_DEPTH:
            from cuda.bindings import driver

            call("cuCtxSetLimit", driver.CUlimit(int(name)), int(value))
        else:
            Context._limits[int(name)] = int(value)

    @staticmethod
    def get_cache_config() -> Any:
        """Return the preference of `func_cache`, which a GPU with one memory for both ignores."""
        return Context._cache

    @staticmethod
    def set_cache_config(preference: Any) -> None:
        """Set the preference of `func_cache`: a hint, which changes no result."""
        Context._cache = func_cache(int(preference))

    @staticmethod
    def get_shared_config() -> Any:
        """Return the size of shared memory's banks."""
        return Context._shared

    @staticmethod
    def set_shared_config(config: Any) -> None:
        """Set the size of shared memory's banks: a hint, which GPUs of today ignore."""
        Context._shared = shared_config(int(config))

    @staticmethod
    def enable_peer_access(peer: Context, flags: int = 0) -> None:
        """Let kernels of the current device reach the memory of another device."""
        Context._peer("cuCtxEnablePeerAccess", peer, flags)

    @staticmethod
    def disable_peer_access(peer: Context) -> None:
        """Undo `enable_peer_access`."""
        Context._peer("cuCtxDisablePeerAccess", peer)

    @staticmethod
    def _peer(name: str, peer: Context, *flags: int) -> None:
        if not devices.has_gpu():
            raise LogicError(f"{name} failed: invalid device: the emulator is one device, which has no peer")
        from cuda.bindings import driver

        call(name, driver.CUcontext(peer.handle), *flags)


def make_default_context(make: Callable[[Device], Context] | None = None) -> Context:
    """Return a context, pushed, of the device that the environment's ``CUDA_DEVICE`` names, or of the first.

    `make` makes the context of a device; default: ``device.make_context()``.
    """
    device = Device(settings.cuda_device())
    return make(device) if make is not None else device.make_context()
