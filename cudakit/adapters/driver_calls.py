"""Functions of the CUDA driver on the emulator: what libraries and programs call beneath Numba and beside cuda.core.

`Driver` has functions with the driver's names. They take the arguments of ``cuda.bindings``, and return bare results.
What they refuse raises an error with the driver's code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from cudakit.adapters.emulated_device import TOTAL_BYTES, attributes
from cudakit.adapters.pycuda.allocations import DeviceAllocation, memory
from cudakit.adapters.stand_ins import nothing
from cudakit.emulator.face import EmulatorPlace, bytes_at, order, room
from cudakit.memory.memory import empty

INVALID_VALUE, NOT_SUPPORTED = 1, 801
#: Functions that do nothing, as all work is done, or as there is one device with one context.
_NOTHING = (
    "cuInit", "cuCtxEnablePeerAccess", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxSetFlags", "cuEventDestroy", "cuEventQuery", "cuEventSynchronize", "cuProfilerStart",
    "cuProfilerStop", "cuStreamDestroy", "cuStreamQuery", "cuStreamWaitEvent", "cuLibraryUnload", "cuModuleUnload",
    "cuFuncSetAttribute", "cuFuncSetCacheConfig", "cuKernelSetAttribute", "cuKernelSetCacheConfig",
)  # fmt: skip


def binding() -> Any:
    """Return the real ``cuda.bindings.driver``, whose types and enums need no driver."""
    from cuda.bindings import driver

    return driver


def context(handle: int) -> Any:
    """Return a handle as the driver's type of contexts."""
    return binding().CUcontext(handle)


class Driver:
    """Functions of the CUDA driver with the arguments and results of ``cuda.bindings``, on the emulator's memory.

    Parameters
    ----------
    error : callable
        Function that makes an error of a message and the driver's code.
    caller : str
        Name of the library that calls the driver, for messages.
    """

    #: Memory by address, of all drivers: an array of Numba's may outlive the driver that made it.
    _alive: ClassVar[dict[int, DeviceAllocation]] = {}

    def __init__(self, error: Callable[[str, int], Exception], caller: str) -> None:
        self.error: Callable[[str, int], Exception] = error
        self._caller = caller
        self._contexts: list[int] = []

    def function(self, name: str) -> Callable[..., Any]:
        """Return the driver's function with a name.

        Raises
        ------
        Exception
            The driver's error, for a function that the emulator lacks.
        """
        function = getattr(self, name, None)
        if function is None and name in _NOTHING:
            return nothing
        for prefix, method in (("cuMemcpy", self._copy), ("cuMemsetD8", self._set)):
            if function is None and name.startswith(prefix):
                return method
        if function is None:
            raise self.error(
                f"{self._caller} calls {name} of the CUDA driver, which the emulator lacks: use a GPU for it",
                NOT_SUPPORTED,
            )
        return function  # type: ignore[no-any-return]

    # ── device and context ──

    def cuDriverGetVersion(self) -> int:
        return 13_000

    def cuDeviceGetCount(self) -> int:
        return 1

    def cuDeviceGet(self, number: int) -> int:
        return number

    def cuDeviceGetAttribute(self, code: Any, device: Any) -> int:
        return attributes().get(getattr(code, "name", str(code)).removeprefix("CU_DEVICE_ATTRIBUTE_").lower(), 0)

    def cuDeviceCanAccessPeer(self, device: Any, other: Any) -> int:
        return 0

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        return context(1)

    def cuCtxGetCurrent(self) -> Any:
        return context(self._contexts[-1] if self._contexts else 0)

    def cuCtxGetDevice(self) -> int:
        return 0

    def cuCtxPushCurrent(self, context: Any) -> None:
        self._contexts.append(int(context))

    def cuCtxPopCurrent(self) -> Any:
        return context(self._contexts.pop())

    def cuCtxSynchronize(self) -> None:
        order().finish_all()

    # ── memory ──

    def cuMemAlloc(self, size: int) -> Any:
        return self._allocated(size, "device")

    def cuMemAllocManaged(self, size: int, flags: Any) -> Any:
        return self._allocated(size, "managed")

    def cuMemHostAlloc(self, size: int, flags: Any) -> int:
        return int(self._allocated(size, "pinned"))

    def _allocated(self, size: int, memory_type: Any) -> Any:
        allocation = DeviceAllocation(empty(int(size), np.uint8, kind=memory_type, stream=EmulatorPlace().current()))
        self._alive[allocation.address] = allocation
        return binding().CUdeviceptr(allocation.address)

    def cuMemFree(self, pointer: Any) -> None:
        allocation = self._alive.pop(int(pointer), None)
        if allocation is None:
            raise self.error(f"no memory that was allocated begins at {int(pointer):#x}: free it once", INVALID_VALUE)
        allocation.free()

    cuMemFreeHost = cuMemFree
    cuMemHostUnregister = cuMemFree

    def cuMemHostRegister(self, pointer: Any, size: int, flags: Any) -> None:
        array = bytes_at(None, int(pointer), size)
        room().register(array)
        self._alive[int(pointer)] = DeviceAllocation(array)

    def cuMemHostGetDevicePointer(self, pointer: int, flags: Any) -> int:
        return int(pointer)

    def cuMemGetInfo(self) -> tuple[int, int]:
        return TOTAL_BYTES - room().usage("device").used - room().usage("managed").used, TOTAL_BYTES

    def cuMemGetAddressRange(self, pointer: Any) -> tuple[int, int]:
        allocation = memory.at(int(pointer))
        if allocation is None:
            raise self.error(
                f"no device memory is at {int(pointer):#x}: it was freed, or is memory of the host", INVALID_VALUE
            )
        return allocation.address, allocation.size

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> Any:
        return pointer

    def cuIpcGetMemHandle(self, pointer: Any) -> Any:
        raise self.error(
            "the emulator's memory belongs to this process; only a GPU shares it by IPC handles", NOT_SUPPORTED
        )

    def _copy(self, target: Any, source: Any, size: int, *stream: Any) -> None:
        ctypes.memmove(int(target), int(source), int(size))

    def _set(self, target: Any, value: int, size: int, *stream: Any) -> None:
        ctypes.memset(int(target), value, int(size))
