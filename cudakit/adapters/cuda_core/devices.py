"""Stand-ins for cuda.core's device, its context and its attributes: those of an H100, on the emulator."""

from __future__ import annotations

import os
import threading
import uuid as uuids
from typing import Any

from cuda.core import EventOptions, StreamOptions
from cuda.core._utils.cuda_utils import ComputeCapability

from cudakit.adapters import emulated_device
from cudakit.adapters.cuda_core.faults import Closeable, CoreError, MadeByOthers, raising
from cudakit.adapters.cuda_core.graphs import GraphBuilder
from cudakit.adapters.cuda_core.memory import DeviceMemoryResource, MemoryResource
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.resources import DeviceResources
from cudakit.adapters.cuda_core.streams import (
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Event,
    Stream,
    stream_of,
)
from cudakit.adapters.cuda_core.textures import OpaqueArray, SurfaceObject, TextureObject
from cudakit.emulator.face import EmulatorPlace, order
from cudakit.errors import shortened
from cudakit.places import say_emulated


class DeviceProperties(MadeByOthers):
    """A stand-in for ``Device.properties``. What an H100 has and the emulator has not is False or 0."""

    def __getattr__(self, name: str) -> Any:
        from cuda.core._device import DeviceProperties as Real

        if name.startswith("_") or not hasattr(Real, name):
            raise AttributeError(f"DeviceProperties has no attribute {name}", name=name, obj=self)
        return emulated_device.numbers().get(name, name in emulated_device.FLAGS)

    def __dir__(self) -> list[str]:
        from cuda.core._device import DeviceProperties as Real

        return [name for name in dir(Real) if not name.startswith("_")]


class Context(MadeByOthers, Closeable):
    """A stand-in for ``cuda.core.Context``: the one device has one."""

    is_green = False

    @property
    def device(self) -> Device:
        """The one device."""
        return Device(0)

    @property
    def resources(self) -> Any:
        """Resources of the one device."""
        return Device(0).resources

    def create_stream(self, options: StreamOptions | None = None) -> Stream:
        """Return a new stream."""
        return Stream(options, self)

    def close(self) -> None:
        """Raise: the device's own context stays open."""
        raise RuntimeError("the device's primary context cannot be closed")

    def __repr__(self) -> str:
        return f"<Context handle={self.handle:#x} on the emulator>"


CONTEXT: Context = Context()
_PROPERTIES: DeviceProperties = DeviceProperties()
_UUID = uuids.uuid5(uuids.NAMESPACE_URL, "cudakit:emulator")


class _Devices(threading.local):
    """The device of each thread, and the handles of its contexts, of which the last is current."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self.contexts: list[int] = []


_devices = _Devices()


def contexts() -> list[int]:
    """Return the handles of this thread's contexts. The last one is current."""
    return _devices.contexts


_memory_resources: dict[int, Any] = {}


class Device:
    """A stand-in for ``cuda.core.Device``: one device, which is the emulator."""

    __slots__ = ("__weakref__",)

    def __new__(cls, device_id: Device | int | None = None) -> Device:
        number = int(device_id) if isinstance(device_id, Device) else 0 if device_id is None else device_id
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"device_id is a Device or an int, got {shortened(device_id)}")
        if number < 0:
            raise ValueError(f"device_id must be >= 0, got {number}")
        if number > 0:
            raise ValueError(f"device_id must be within [0, 1), got {number}: the emulator is one device")
        if _devices.device is None:
            say_emulated()
            _devices.device = super().__new__(cls)
        return _devices.device

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        """Return the one device in a tuple."""
        return (cls(0),)

    def _check_context_initialized(self) -> None:
        if not _devices.contexts:
            raise CoreError("Device 0 is not yet initialized in this thread: call device.set_current() first")

    device_id = 0
    pci_bus_id = "0000:01:00.0"

    def can_access_peer(self, peer: Device | int) -> bool:
        """Return False: a device is no peer of its own."""
        Device(peer)
        return False

    def to_system_device(self) -> Any:
        """Return the device of ``cuda.core.system``."""
        return parts.SystemDevice(index=0)

    @property
    def uuid(self) -> str:
        """Always the same number."""
        return str(_UUID)

    @property
    def name(self) -> str:
        """Name of the emulated device."""
        return EmulatorPlace().limits().name

    @property
    def properties(self) -> DeviceProperties:
        """Attributes of the emulated device."""
        return _PROPERTIES

    @property
    def resources(self) -> Any:
        """Multiprocessors and work queues of the emulated device."""
        return DeviceResources()

    @property
    def compute_capability(self) -> ComputeCapability:
        """Compute capability of the emulated device."""
        return ComputeCapability(*EmulatorPlace().limits().compute_capability)

    @property
    def arch(self) -> str:
        """Compute capability as text, ``90``."""
        return "".join(map(str, self.compute_capability))

    @property
    def context(self) -> Context:
        """The one context."""
        self._check_context_initialized()
        return CONTEXT

    @property
    def memory_resource(self) -> Any:
        """Memory resource of `allocate`."""
        return _memory_resources.setdefault(0, DeviceMemoryResource(0))

    @memory_resource.setter
    def memory_resource(self, resource: Any) -> None:
        if not isinstance(resource, MemoryResource):
            raise TypeError(f"memory_resource is a MemoryResource, got {shortened(resource)}")
        _memory_resources[0] = resource

    @property
    def default_stream(self) -> Stream:
        """The default stream."""
        per_thread = os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0")
        return PER_THREAD_DEFAULT_STREAM if per_thread not in ("", "0") else LEGACY_DEFAULT_STREAM

    def __int__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<Device 0 ({self.name})>"

    def __hash__(self) -> int:
        return hash((Device, 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (0,)

    def set_current(self, ctx: Any = None) -> Context | None:
        """Make the device current in this thread. With `ctx`, return the context that was current."""
        if ctx is not None and not isinstance(ctx, Context):
            raise TypeError(f"set_current takes a Context, got {shortened(ctx)}")
        had = bool(contexts())
        contexts()[-1:] = [CONTEXT.handle]
        return CONTEXT if ctx is not None and had else None

    create_context: Any = raising(
        "Device.create_context divides a GPU's multiprocessors by a green context: needs a GPU"
    )

    def create_stream(self, obj: Any = None, options: StreamOptions | None = None) -> Stream:
        """Return a new stream, or the stream that an object with ``__cuda_stream__`` names."""
        self._check_context_initialized()
        if obj is not None and options is not None:
            raise ValueError("create_stream takes obj or options, not both")
        stream: Stream = Stream(options) if obj is None else stream_of(obj, "create_stream")
        return stream

    def create_event(self, options: EventOptions | None = None) -> Event:
        """Return an event that is not recorded yet."""
        self._check_context_initialized()
        return Event(LEGACY_DEFAULT_STREAM, options, False)

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Allocate `size` bytes by the device's memory resource."""
        self._check_context_initialized()
        return self.memory_resource.allocate(size, stream=stream)

    def sync(self) -> None:
        """Wait for all streams."""
        self._check_context_initialized()
        order().finish_all()

    def create_graph_builder(self) -> Any:
        """Return a builder of graphs."""
        self._check_context_initialized()
        return GraphBuilder()

    def create_opaque_array(self, options: Any) -> Any:
        """Return an array for textures and surfaces."""
        return OpaqueArray(options)

    create_mipmapped_array: Any = raising(
        "Device.create_mipmapped_array: the emulator has no mipmaps; use create_opaque_array"
    )

    def create_texture_object(self, *, resource: Any, options: Any = None) -> Any:
        """Return a texture, for a kernel's parameter ``cudaTextureObject_t``."""
        return TextureObject(resource, options)

    def create_surface_object(self, *, resource: Any) -> Any:
        """Return a surface, for a kernel's parameter ``cudaSurfaceObject_t``."""
        return SurfaceObject(resource)
