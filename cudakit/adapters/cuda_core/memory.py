"""Stand-ins for cuda.core's Buffer and memory resources: memory of the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.core import DeviceMemoryResourceOptions, ManagedMemoryResourceOptions, PinnedMemoryResourceOptions

from cudakit.adapters.cuda_core.faults import Closeable, CoreError, of_options, raising
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.streams import stream_of
from cudakit.emulator.face import as_device, bytes_at, room
from cudakit.errors import shortened
from cudakit.memory import memory

_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13
_FILL_SIZES = (1, 2, 4)
_OTHER_PROCESS = "shares memory between processes: that needs a GPU's driver"


def array_at(address: int) -> Any:
    """Return the bytes from an address to the end of its allocation; None for an address in no live memory."""
    owner = room().at(address)
    if owner is None:
        return None
    _, end = np.lib.array_utils.byte_bounds(owner)
    return as_device(bytes_at(owner, address, end - address))


class Buffer:
    """A stand-in for ``cuda.core.Buffer``."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise RuntimeError("Buffer has no constructor: a memory resource's allocate, or Buffer.from_handle, makes one")

    @classmethod
    def _of(cls, array: Any, resource: Any, owner: Any = None) -> Buffer:
        buffer = super().__new__(cls)
        buffer._array, buffer._resource, buffer._owner = array, resource, owner
        buffer._size, buffer.is_closed = array.size, False
        return buffer

    _array: Any
    _resource: Any
    _owner: Any
    _size: int
    is_closed: bool
    is_mapped = False

    @staticmethod
    def from_handle(ptr: Any, size: int, mr: Any = None, owner: Any = None, *, stream: Any = None) -> Buffer:
        """Return a buffer of memory at an address: the device's, or the host's that `owner` or `mr` keeps alive.

        Raises
        ------
        ValueError
            For a resource and an owner at once.
        CoreError
            If the device has not `size` bytes there.
        """
        if mr is not None and owner is not None:
            raise ValueError("owner and memory resource cannot be both specified together")
        if not size:
            return Buffer._of(np.empty(0, np.uint8), mr, owner)
        array = array_at(int(ptr))
        if array is not None and array.size >= size:
            return Buffer._of(array[:size], mr, owner)
        if mr is None and owner is None:
            raise CoreError(
                f"Buffer.from_handle: the device has no {size} bytes of memory at {int(ptr):#x}; for memory of "
                "the host give owner=, the object that keeps it alive"
            )
        host = bytes_at(owner if mr is None else mr, int(ptr), size)
        if mr is not None and mr.is_device_accessible:
            room().register(host)
        return Buffer._of(host, mr, owner)

    from_ipc_descriptor: Any = staticmethod(raising(f"Buffer.from_ipc_descriptor {_OTHER_PROCESS}"))
    ipc_descriptor: Any = property(raising(f"Buffer.ipc_descriptor {_OTHER_PROCESS}"))

    def live_bytes(self) -> Any:
        """Return the memory as an array of bytes.

        Raises
        ------
        RuntimeError
            If the buffer is closed.
        """
        if self.is_closed:
            raise RuntimeError("the buffer is closed")
        return self._array

    @property
    def handle(self) -> int:
        """Address of the memory; 0 once the buffer is closed, and for a buffer of no bytes."""
        return 0 if self.is_closed or not self._size else int(self._array.__array_interface__["data"][0])

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return int(self._size)

    @property
    def memory_resource(self) -> Any:
        """Resource that allocated the memory."""
        return self._resource

    @property
    def owner(self) -> Any:
        """Object that owns the memory, for `from_handle`."""
        return self._owner

    @property
    def device_id(self) -> int:
        """Device of the memory; -1 for pinned memory of the host."""
        if self._resource is None:
            return 0 if self.is_device_accessible else -1
        return int(self._resource.device_id)

    @property
    def is_device_accessible(self) -> bool:
        """Whether kernels reach the memory."""
        if self._resource is None:
            return not self._size or room().at(self.handle) is not None
        return bool(self._resource.is_device_accessible)

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host reaches the memory."""
        if self._resource is None:
            return room().is_of_the_host(self._array) or not self.is_device_accessible
        return bool(self._resource.is_host_accessible)

    @property
    def is_managed(self) -> bool:
        """Whether the memory is managed."""
        return self._resource is not None and bool(self._resource.is_managed)

    def close(self, stream: Any = None) -> None:
        """Free the memory, once arrays that share it are gone."""
        if stream is not None:
            stream_of(stream, "close")
        if not self.is_closed:
            array, resource, handle = self._array, self._resource, self.handle
            self.is_closed, self._array, self._owner, self._resource = True, None, None, None
            if resource is not None and not isinstance(resource, _Resource) and array.size:
                resource.deallocate(handle, int(array.size), stream=stream)

    def set_deallocation_stream(self, stream: Any) -> None:
        """Accept the stream of a later `close`. The emulator frees memory at once."""
        stream_of(stream, "set_deallocation_stream")

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def copy_to(self, dst: Buffer | None = None, *, stream: Any, options: Any = None) -> Buffer:
        """Copy to another buffer of the same size, or to a new one, and return it."""
        target_stream = stream_of(stream, "copy_to")
        if dst is None:
            if self._resource is None:
                raise ValueError("a buffer without a memory resource needs dst: it cannot allocate another")
            dst = self._resource.allocate(self.size, stream=stream)
        if dst.size != self.size:
            raise ValueError(f"buffer sizes mismatch between src and dst (sizes are: src={self.size}, dst={dst.size})")
        memory.copy(dst.live_bytes(), self.live_bytes(), target_stream)
        return dst

    def copy_from(self, src: Buffer, *, stream: Any, options: Any = None) -> None:
        """Copy from another buffer of the same size."""
        if src.size != self.size:
            raise ValueError(f"buffer sizes mismatch between src and dst (sizes are: src={src.size}, dst={self.size})")
        memory.copy(self.live_bytes(), src.live_bytes(), stream_of(stream, "copy_from"))

    def fill(self, value: Any, *, stream: Any) -> None:
        """Fill with an int of one byte, or with the bytes of an object of 1, 2 or 4 bytes."""
        if isinstance(value, int):
            if not 0 <= value < 256:
                raise OverflowError(f"value must be in range [0, 256), got {value}")
            pattern = bytes([value])
        else:
            try:
                pattern = bytes(memoryview(value).cast("B")) if not isinstance(value, np.generic) else value.tobytes()
            except TypeError as error:
                raise TypeError(f"fill takes an int or bytes, got {shortened(value)}") from error
        if len(pattern) not in _FILL_SIZES:
            raise ValueError(f"value must be 1, 2, or 4 bytes, got {len(pattern)}")
        if self.size % len(pattern):
            raise ValueError(f"buffer size ({self.size}) must be divisible by {len(pattern)}")
        values = np.frombuffer(pattern * (self.size // len(pattern)), np.uint8)
        pinned = memory.empty(max(1, self.size), np.uint8, "pinned")[: self.size]
        pinned[:] = values
        memory.copy(self.live_bytes(), as_device(pinned), stream_of(stream, "fill"))

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.is_managed:
            return _MANAGED, 0
        if not (self.is_host_accessible or self.is_device_accessible):
            raise BufferError("the buffer is reached neither by the device nor by the host")
        if self.is_host_accessible:
            return (_PINNED, 0) if self.is_device_accessible else (_CPU, 0)
        return _CUDA, 0

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if self.__dlpack_device__()[0] == _CUDA:
            raise BufferError(
                "the buffer is in device memory, which a library of the host cannot read; copy it to pinned memory, or "
                "take cupy.from_dlpack"
            )
        keywords = {} if max_version is None else {"max_version": max_version}
        return np.asarray(self.live_bytes().view(np.ndarray)).__dlpack__(**keywords)

    def device_array(self) -> Any:
        """Return the memory as an array of bytes, for the stand-in of CuPy."""
        return as_device(self.live_bytes())

    def __hash__(self) -> int:
        return hash((Buffer, id(self) if self.is_closed else self.handle, self.size))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return self is other or (self.handle, self.size) == (other.handle, other.size) != (0, 0)

    def __repr__(self) -> str:
        return f"<Buffer ptr={self.handle:#x} size={self.size} on the emulator>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise CoreError("a Buffer cannot be pickled: memory of the emulator stays in its process")


class MemoryResource:
    """A stand-in for ``cuda.core.MemoryResource``, the base of resources."""

    is_managed = False

    def allocate(self, size: int, *, stream: Any) -> Buffer:
        """Allocate a buffer: derived classes do."""
        raise TypeError("MemoryResource.allocate is for derived classes")

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Free a buffer: derived classes do."""
        raise TypeError("MemoryResource.deallocate is for derived classes")

    is_device_accessible: Any = property(
        raising("MemoryResource.is_device_accessible is for derived classes", TypeError)
    )
    is_host_accessible: Any = property(raising("MemoryResource.is_host_accessible is for derived classes", TypeError))
    device_id: Any = property(raising("MemoryResource.device_id is for derived classes", TypeError))


class _Resource(MemoryResource, Closeable):
    """A memory resource of the emulator, of one type of memory."""

    _memory_type: Any = "device"
    _needs_stream = True
    is_ipc_enabled = is_mapped = is_handle_owned = False
    is_device_accessible = True
    numa_id = -1
    uuid = None

    def allocate(self, size: int, *, stream: Any = None) -> Buffer:
        """Allocate `size` bytes."""
        if stream is None and self._needs_stream:
            raise TypeError("allocate needs stream=, as in allocate(size, stream=stream)")
        if size < 0:
            raise ValueError(f"size must be >= 0, got {size}")
        if stream is not None:
            self._check_capture(stream_of(stream, "allocate").recorder is not None)
        array = memory.empty(int(size), np.uint8, self._memory_type)
        if self._memory_type == "pinned":
            room().register(array)
        return Buffer._of(as_device(array), self)

    def _check_capture(self, is_capturing: bool) -> None:
        """Raise for a stream of a graph that is being built, whose memory comes from a GraphMemoryResource."""
        if is_capturing and self._needs_stream:
            raise RuntimeError(
                f"{type(self).__name__} cannot perform memory operations on a capturing stream (consider using "
                "GraphMemoryResource)."
            )

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        """Do nothing: a buffer's memory is freed with its arrays."""

    def close(self) -> None:
        """Do nothing: the memory is the emulator's."""

    allocation_handle: Any = property(raising(f"allocation_handle {_OTHER_PROCESS}"))
    from_allocation_handle: Any = staticmethod(raising(f"from_allocation_handle {_OTHER_PROCESS}"))
    from_registry: Any = staticmethod(raising(f"from_registry {_OTHER_PROCESS}"))
    register: Any = staticmethod(raising(f"register {_OTHER_PROCESS}"))

    @property
    def attributes(self) -> Any:
        """Bytes in use."""
        return PoolAttributes(self._memory_type)

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host reaches the memory."""
        return str(self._memory_type) != "device"

    @property
    def is_managed(self) -> bool:  # type: ignore[override]  # a constant of the base
        """Whether the memory is managed."""
        is_managed: bool = self._memory_type == "managed"
        return is_managed

    @property
    def device_id(self) -> int:
        """Device of the memory; -1 for memory of the host."""
        return 0 if self._memory_type == "device" else -1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on the emulator>"


class PoolAttributes:
    """A stand-in for a memory pool's attributes: bytes in use, as the emulator counts them. No memory is kept free."""

    reuse_follow_event_dependencies = reuse_allow_opportunistic = reuse_allow_internal_dependencies = True
    release_threshold = 0

    def __init__(self, memory_type: str) -> None:
        self._memory_type = memory_type

    @property
    def used_mem_current(self) -> int:
        """Bytes in use."""
        return room().usage(self._memory_type).used

    @property
    def used_mem_high(self) -> int:
        """Most bytes that were in use at once."""
        return room().usage(self._memory_type).peak

    reserved_mem_current = used_mem_current
    reserved_mem_high = used_mem_high


class GraphMemoryResourceAttributes(PoolAttributes):
    """A stand-in for the attributes of a `GraphMemoryResource`, whose peaks are counted from 0 again at will."""

    @property
    def used_mem_high(self) -> int:
        """Bytes in use: the emulator counts no peak of a graph's memory."""
        return self.used_mem_current

    @used_mem_high.setter
    def used_mem_high(self, value: int) -> None:
        if value != 0:
            raise AttributeError(f"Attributes of peaks may only be set to zero (got {value}).")

    reserved_mem_high = used_mem_high


class DeviceMemoryResource(_Resource):
    """A stand-in for ``cuda.core.DeviceMemoryResource``."""

    def __init__(self, device_id: Any, options: Any = None) -> None:
        parts.Device(device_id)
        _no_ipc(of_options(DeviceMemoryResourceOptions, options, "DeviceMemoryResource options"))
        self.peer_accessible_by: Any = ()


class PinnedMemoryResource(_Resource):
    """A stand-in for ``cuda.core.PinnedMemoryResource``."""

    _memory_type = "pinned"

    def __init__(self, options: Any = None) -> None:
        _no_ipc(of_options(PinnedMemoryResourceOptions, options, "PinnedMemoryResource options"))


class ManagedMemoryResource(_Resource):
    """A stand-in for ``cuda.core.ManagedMemoryResource``."""

    _memory_type = "managed"
    preferred_location = None

    def __init__(self, options: Any = None) -> None:
        of_options(ManagedMemoryResourceOptions, options, "ManagedMemoryResource options")


class LegacyPinnedMemoryResource(_Resource):
    """A stand-in for ``cuda.core.LegacyPinnedMemoryResource``."""

    _memory_type, _needs_stream = "pinned", False


class GraphMemoryResource(_Resource):
    """A stand-in for ``cuda.core.GraphMemoryResource``: memory for launches of a graph. The device has one."""

    _only: GraphMemoryResource | None = None

    def __new__(cls, device_id: Any = 0) -> GraphMemoryResource:
        parts.Device(device_id)
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    @property
    def attributes(self) -> GraphMemoryResourceAttributes:
        """Bytes in use."""
        return _GRAPH_ATTRIBUTES

    def __init__(self, device_id: Any = 0) -> None:
        super().__init__()

    def _check_capture(self, is_capturing: bool) -> None:
        if not is_capturing:
            raise RuntimeError("GraphMemoryResource cannot perform memory operations on a non-capturing stream.")

    def trim(self) -> None:
        """Do nothing: the emulator keeps no free memory."""


_GRAPH_ATTRIBUTES = GraphMemoryResourceAttributes("device")


def _no_ipc(options: Any) -> None:
    if getattr(options, "ipc_enabled", False):
        raise CoreError(f"ipc_enabled {_OTHER_PROCESS}")
