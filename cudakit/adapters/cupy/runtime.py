"""A stand-in for ``cupy.cuda.runtime``: the functions that programs call for memory, devices, streams and events."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cudakit.adapters import emulated_device
from cudakit.adapters.cupy import device, memory, streams
from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.cupy.device import CUDARuntimeError
from cudakit.adapters.cupy.memory import device_bytes
from cudakit.adapters.stand_ins import nothing
from cudakit.emulator.face import bytes_at, order, room

#: CUDA's version whose functions these are.
_VERSION = 13000
_TO_DEVICE, _TO_HOST, _ON_DEVICE, _DEFAULT = 1, 2, 3, 4
CONSTANTS = {
    "memcpyHostToHost": 0, "memcpyHostToDevice": _TO_DEVICE, "memcpyDeviceToHost": _TO_HOST,
    "memcpyDeviceToDevice": _ON_DEVICE, "memcpyDefault": _DEFAULT, "streamDefault": 0, "streamNonBlocking": 1,
    "streamLegacy": 1, "streamPerThread": 2, "eventDefault": 0, "eventBlockingSync": 1, "eventDisableTiming": 2,
    "eventInterprocess": 4, "hostAllocDefault": 0, "hostAllocPortable": 1, "hostAllocMapped": 2,
    "hostAllocWriteCombined": 4, "memoryTypeUnregistered": 0, "memoryTypeHost": 1, "memoryTypeDevice": 2,
    "memoryTypeManaged": 3, "cudaMemAttachGlobal": 1, "cudaMemAttachHost": 2, "cudaMemAttachSingle": 4,
    "streamCaptureModeGlobal": 0, "streamCaptureModeThreadLocal": 1, "streamCaptureModeRelaxed": 2,
    "streamCaptureStatusNone": 0, "streamCaptureStatusActive": 1, "cudaAddressModeWrap": 0,
    "cudaAddressModeClamp": 1, "cudaAddressModeMirror": 2, "cudaAddressModeBorder": 3, "cudaFilterModePoint": 0,
    "cudaFilterModeLinear": 1, "cudaReadModeElementType": 0, "cudaReadModeNormalizedFloat": 1,
    "cudaResourceTypeArray": 0, "cudaResourceTypeMipmappedArray": 1, "cudaResourceTypeLinear": 2,
    "cudaResourceTypePitch2D": 3, "cudaChannelFormatKindSigned": 0, "cudaChannelFormatKindUnsigned": 1,
    "cudaChannelFormatKindFloat": 2, "cudaChannelFormatKindNone": 3, "cudaArrayDefault": 0,
    "cudaArraySurfaceLoadStore": 2, "cudaCpuDeviceId": -1, "cudaInvalidDeviceId": -2,
    "cudaLimitStackSize": 0, "cudaLimitPrintfFifoSize": 1, "cudaLimitMallocHeapSize": 2,
}  # fmt: skip
_owned: dict[int, Any] = {}


def _as_bytes(address: int, size: int, is_device: bool | None) -> Any:
    """Return memory at an address; `is_device` None: device memory if any is there, else the host's."""
    if is_device is None:
        is_device = room().at(int(address)) is not None
    return device_bytes(address, size) if is_device else bytes_at(None, int(address), size)


def memcpy(dst: int, src: int, size: int, direction: int) -> None:
    """Copy bytes between addresses; `direction` is one of the constants ``memcpy…``."""
    sides = {0: (False, False), _TO_DEVICE: (True, False), _TO_HOST: (False, True), _ON_DEVICE: (True, True)}
    target, source = sides.get(int(direction), (None, None))
    _as_bytes(dst, size, target)[...] = _as_bytes(src, size, source).copy()


def memcpy2D(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, direction: int) -> None:
    """Copy rows of `width` bytes between addresses."""
    for row in range(height):
        memcpy(dst + row * dpitch, src + row * spitch, width, direction)


def memset(ptr: int, value: int, size: int) -> None:
    """Set bytes at an address."""
    device_bytes(ptr, size)[...] = value


def malloc(size: int) -> int:
    """Return the address of new device memory."""
    return _own(memory.Memory(size))


def mallocManaged(size: int, flags: int = 1) -> int:
    """Return the address of new memory that the host may use too."""
    return _own(memory.ManagedMemory(size))


def hostAlloc(size: int, flags: int = 0) -> int:
    """Return the address of new pinned memory."""
    return _own(memory.PinnedMemoryPointer(size))


def _own(owner: Any) -> int:
    _owned[owner.ptr] = owner
    return int(owner.ptr)


def free(ptr: int) -> None:
    """Free memory of `malloc`, `mallocManaged` or `hostAlloc`.

    Raises
    ------
    CUDARuntimeError
        For another address.
    """
    if ptr and _owned.pop(int(ptr), None) is None:
        raise CUDARuntimeError("cudaErrorInvalidValue", f"no memory was allocated at {int(ptr):#x}")


def memGetInfo() -> tuple[int, int]:
    """Return free and total memory, in bytes."""
    return device.Device().mem_info


#: Properties of a device, and the driver's names of these attributes.
_OTHER_NAMES = """
sharedMemPerBlock max_shared_memory_per_block, regsPerBlock max_registers_per_block
totalConstMem total_constant_memory, major compute_capability_major, minor compute_capability_minor
multiProcessorCount multiprocessor_count, kernelExecTimeoutEnabled kernel_exec_timeout, ECCEnabled ecc_enabled
pciBusID pci_bus_id, pciDeviceID pci_device_id, pciDomainID pci_domain_id, memoryBusWidth global_memory_bus_width
maxThreadsPerMultiProcessor max_threads_per_multiprocessor, isMultiGpuBoard multi_gpu_board, deviceOverlap gpu_overlap
sharedMemPerMultiprocessor max_shared_memory_per_multiprocessor
sharedMemPerBlockOptin max_shared_memory_per_block_optin, memPitch max_pitch
regsPerMultiprocessor max_registers_per_multiprocessor, maxBlocksPerMultiProcessor max_blocks_per_multiprocessor
"""
_SAME_NAMES = """
warpSize maxThreadsPerBlock clockRate textureAlignment texturePitchAlignment surfaceAlignment integrated
canMapHostMemory computeMode concurrentKernels tccDriver memoryClockRate l2CacheSize cooperativeLaunch managedMemory
unifiedAddressing asyncEngineCount concurrentManagedAccess pageableMemoryAccess globalL1CacheSupported
localL1CacheSupported streamPrioritiesSupported computePreemptionSupported singleToDoublePrecisionPerfRatio
hostNativeAtomicSupported
"""
_PROPERTIES = {
    **dict(map(str.split, _OTHER_NAMES.strip().replace("\n", ",").split(","))),
    **{name: re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower() for name in _SAME_NAMES.split()},
}


def getDeviceProperties(device_id: int = 0) -> dict[str, Any]:
    """Return the properties of the emulated device, with CUDA's names."""
    device.Device(device_id)
    facts = emulated_device.attributes()
    return {
        "name": emulated_device.NAME.encode(), "totalGlobalMem": emulated_device.TOTAL_BYTES,
        **{f"max{name}": tuple(facts[f"max_{noun}_dim_{axis}"] for axis in "xyz")
           for name, noun in (("ThreadsDim", "block"), ("GridSize", "grid"))},
        **{name: facts.get(attribute, 0) for name, attribute in _PROPERTIES.items()},
    }  # fmt: skip


def deviceGetAttribute(attrib: int, device_id: int = 0) -> int:
    """Return an attribute of the emulated device, by CUDA's number.

    Raises
    ------
    CUDARuntimeError
        For a number that the emulator has no attribute for.
    """
    name = next((name for name, number in device.attribute_numbers().items() if number == int(attrib)), None)
    if name is None:
        raise CUDARuntimeError("cudaErrorInvalidValue", f"the emulator has no device attribute {int(attrib)}")
    return device.Device(device_id).attributes[name]


class PointerAttributes:
    """Facts of an address: its device, its memory type, and its addresses on the device and the host."""

    type: int

    def __init__(self, ptr: int) -> None:
        owner = room().at(int(ptr))
        is_of_the_host = owner is not None and room().is_of_the_host(owner)
        self.type = CONSTANTS["memoryTypeUnregistered" if owner is None else "memoryTypeDevice"]
        self.device: int = 0
        self.devicePointer: int = int(ptr) if owner is not None else 0
        self.hostPointer: int = int(ptr) if owner is None or is_of_the_host else 0
        if is_of_the_host:
            is_managed = isinstance(_owned.get(int(ptr)), memory.ManagedMemory)
            self.type = CONSTANTS["memoryTypeManaged" if is_managed else "memoryTypeHost"]


def setDevice(device_id: int) -> None:
    """Make a device current; there is device 0 only."""
    device.Device(device_id)


def _new_stream(*arguments: Any) -> int:
    stream = streams.Stream()
    _owned[-stream.ptr] = stream
    return stream.ptr


def _new_event(flags: int = 0) -> int:
    event = streams.Event(disable_timing=bool(flags & CONSTANTS["eventDisableTiming"]))
    _owned[-event.ptr] = event
    return event.ptr


def eventElapsedTime(start: int, end: int) -> float:
    """Return NaN: the emulator's time is not a GPU's."""
    return streams.get_elapsed_time(_owned[-start], _owned[-end])


def eventRecord(event: int, stream: int = 0) -> None:
    """Mark a point of a stream."""
    _owned[-event].record()


def eventDestroy(event: int) -> None:
    """Forget an event."""
    _owned.pop(-event, None)


def finish(*arguments: Any) -> None:
    """Wait for all work."""
    CAPTURE.forbid("a wait")
    order().finish_all()


def _enqueued(function: Callable[..., None], count: int) -> Callable[..., None]:
    """Return the function that enqueues a function of `count` arguments on a stream, its last argument."""
    return lambda *arguments, **stream: CAPTURE.do(functools.partial(function, *arguments[:count]))


def memcpyPeer(dst: int, there: int, src: int, here: int, size: int) -> None:
    """Copy bytes between addresses of devices."""
    memcpy(dst, src, size, _ON_DEVICE)


_NAMED: tuple[Callable[..., Any], ...] = (
    memcpy, memcpy2D, memcpyPeer, memset, malloc, mallocManaged, hostAlloc, free, memGetInfo, getDeviceProperties,
    deviceGetAttribute, setDevice, eventElapsedTime, eventRecord, eventDestroy,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in _NAMED},
    "memcpyAsync": _enqueued(memcpy, 4), "memcpy2DAsync": _enqueued(memcpy2D, 7), "memsetAsync": _enqueued(memset, 3),
    "memcpyPeerAsync": _enqueued(memcpyPeer, 5), "mallocAsync": lambda size, stream=0: malloc(size),
    "freeAsync": lambda ptr, stream=0: free(ptr), "freeHost": free, "pointerGetAttributes": PointerAttributes,
    "getDevice": lambda: 0, "getDeviceCount": lambda: 1, "deviceCanAccessPeer": lambda here, there: 0,
    "deviceGetPCIBusId": lambda device_id: device.Device(device_id).pci_bus_id,
    "deviceGetByPCIBusId": lambda number: device.Device.from_pci_bus_id(number).id,
    **dict.fromkeys(("streamCreate", "streamCreateWithFlags", "streamCreateWithPriority"), _new_stream),
    **dict.fromkeys(("eventCreate", "eventCreateWithFlags"), _new_event),
    **dict.fromkeys(("deviceSynchronize", "streamSynchronize", "eventSynchronize"), finish),
    **dict.fromkeys(("streamQuery", "eventQuery"), lambda handle: True),
    **dict.fromkeys(("streamGetPriority", "streamGetFlags"), lambda stream: 0),
    **dict.fromkeys(("runtimeGetVersion", "driverGetVersion"), lambda: _VERSION),
    **dict.fromkeys(
        ("streamWaitEvent", "profilerStart", "profilerStop", "memPrefetchAsync", "memAdvise"), nothing
    ),
    "streamDestroy": lambda stream: _owned.pop(-stream, None) and None,
    "streamIsCapturing": lambda stream: CAPTURE.actions is not None,
    "launchHostFunc": lambda stream, callback, argument: CAPTURE.do(lambda: callback(argument)),
}  # fmt: skip


def module() -> ModuleType:
    """Return the module ``cupy.cuda.runtime``."""
    result = _Runtime("cupy.cuda.runtime")
    numbers = {f"cudaDevAttr{name}": number for name, number in device.attribute_numbers().items()}
    result.__dict__.update(CONSTANTS, **numbers, **FUNCTIONS)
    result.__dict__.update(CUDARuntimeError=CUDARuntimeError, PointerAttributes=PointerAttributes, is_hip=False)
    return result


class _Runtime(ModuleType):
    """The module, which names what it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"cupy.cuda.runtime.{name} is not in cudakit's stand-in for CuPy: run the program on a machine with a GPU",
            name=name,
            obj=self,
        )
