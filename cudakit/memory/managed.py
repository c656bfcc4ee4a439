"""Arrays in managed memory, which the driver moves between host and device as it is used."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, LaunchError
from cudakit.memory.accounting import free_on_device, ledger
from cudakit.streams.streams import Known


class _Managed:
    """A managed buffer, counted while it lives."""

    def __init__(self, buffer: Any, device_id: int) -> None:
        self.buffer, self.device_id, self.size = buffer, device_id, int(buffer.size)
        self._count = ledger.add_managed  # held: at the interpreter's end the module may be gone
        self._count(device_id, self.size)

    def __del__(self) -> None:
        self._count(self.device_id, -self.size)


@cache
def _managed_resource() -> Any:
    from cuda.core import ManagedMemoryResource, ManagedMemoryResourceOptions

    return ManagedMemoryResource(ManagedMemoryResourceOptions())


def managed_array(size: int, shape: tuple[int, ...], dtype: np.dtype, target: Known) -> Any:
    """A CuPy array in new managed memory.

    Raises
    ------
    LaunchError
        Beyond what the device has free, or beyond the limit.
    """
    import cupy

    with ledger.lock:
        device_id, held = target.device_id, ledger.managed.get(target.device_id, 0)
        most = ledger.limits["managed"]
        free, _ = free_on_device()
        # Pages that nobody has touched yet take none of what is free: all that was promised is taken off.
        if size > free - held:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for; device {device_id} has {free:,} free, of which "
                f"{held:,} are promised to managed arrays; let go of arrays, or work in chunks"
            )
        if most is not None and held + size > most:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for and {held:,} are held: ck.memory.limit allows "
                f"{most:,}"
            )
        buffer = _managed_resource().allocate(max(1, size), stream=target.core)
        owner = ledger.buffers[int(buffer.handle)] = _Managed(buffer, device_id)
    memory = cupy.cuda.UnownedMemory(int(buffer.handle), owner.size, owner, device_id)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def host_view(array: Any) -> np.ndarray:
    """The memory of a managed CuPy array as NumPy's."""
    from cuda.bindings import driver

    if not hasattr(array, "__cuda_array_interface__"):
        raise ArgumentError(f"host_view takes a managed array, got {type(array).__name__}")
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    interface = array.__cuda_array_interface__
    status, managed = driver.cuPointerGetAttribute(attribute, interface["data"][0])
    if int(status) != 0 or not managed:
        raise ArgumentError(
            'host_view: the array is not in managed memory; make it with ck.empty(shape, dtype, kind="managed"), or '
            "copy it with ck.to_host(x, stream)"
        )
    return np.asarray(_Viewed(array, interface)).view(array.dtype)


class _Viewed:
    """The memory of an array, which is kept."""

    def __init__(self, array: Any, interface: dict[str, Any]) -> None:
        self.array = array
        self.__array_interface__ = {**interface, "version": 3}


def prefetch(array: Any, target: Known, to: str) -> None:
    """Have a managed array moved, on a stream."""
    from cuda.core import Device, Host

    is_cupy = type(array).__module__.partition(".")[0] == "cupy"
    owner = ledger.buffers.get(array.data.mem.ptr) if is_cupy else None
    if owner is None:
        raise ArgumentError('prefetch takes an array of ck.empty(shape, dtype, kind="managed")')
    owner.buffer.prefetch(Device(target.device_id) if to == "device" else Host(), stream=target.core)
